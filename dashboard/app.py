"""The dashboard's entry: ``coldstart dashboard``, or ``streamlit run dashboard/app.py [-- --store DIR]``."""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

# Streamlit puts this folder on the path, not the one it lies in. In a checkout and in an installed wheel
# alike this folder is the package `dashboard`.
_PARENT = str(Path(__file__).resolve().parent.parent)
if _PARENT not in sys.path:
    sys.path.insert(0, _PARENT)

from dashboard import place, problem  # noqa: E402
from dashboard.source import Unusable  # noqa: E402

st.set_page_config(page_title="cold start", layout="wide")
page = st.navigation(
    [
        st.Page("app_pages/overview.py", title="Overview", default=True),
        st.Page("app_pages/trend.py", title="Trend", url_path=place.TREND),
    ],
    position="top",
)
try:
    page.run()
except Unusable as error:
    problem.show(error)
