"""Plain data -> chart. No page and no SQL in here, so that charts are tested without either; one chart a file."""

from dashboard.charts import theme

theme.enable()
