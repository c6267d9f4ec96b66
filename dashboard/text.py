"""Values, bounds, boots and times as a page says them. Numbers with units are made by pytest_coldstart.units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from dashboard.data.series import Reading, Series
from pytest_coldstart import units
from pytest_coldstart.metrics import Metric

#: What Markdown, and Streamlit's colours and formulas, begin with; and what is in the names of its icons, which it looks for
#: without heed of what stands before them.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~:$&/])")


def reading(item: Reading, metric: Metric) -> str:
    """``2.31 s``, ``failed: <why>`` or ``unmeasured: <why>``; never a zero that nobody measured."""
    if item.failed:
        return f"failed: {item.reason}"
    if item.value is None:
        return f"unmeasured: {item.reason or 'no reason is stored'}"
    return units.show(item.value, metric.unit)


def name(item: Series) -> str:
    return " | ".join(word for word in (item.engine, item.cell_id, item.model, item.hardware) if word)


def boots(item: Series) -> str:
    """``6``, or ``6 (1 failed)``: boots that went wrong are never left out."""
    wrong = [f"{count} {word}" for count, word in ((item.failed, "failed"), (item.errors, "error")) if count]
    return f"{item.boots} ({', '.join(wrong)})" if wrong else str(item.boots)


def moment(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else "time unknown"


def age(at: datetime | None, now: datetime) -> str:
    """``3 h ago``. Both are UTC without a zone."""
    if at is None:
        return "time unknown"
    seconds = (now - at).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 60 else "just now"


def span(seconds: float) -> str:
    """``3 h``: whole days, hours or minutes, for times that nobody wants to know closely."""
    worths = (("d", 86400), ("h", 3600), ("min", 60))
    return next((f"{seconds // worth:.0f} {unit}" for unit, worth in worths if seconds >= worth), "under 1 min")


def plain(words: str) -> str:
    """*words* for a place where Streamlit reads Markdown (labels, captions, titles): shown as they are, on one line."""
    # Any white space: a carriage return ends a line as well, and four spaces at its beginning would make code of it.
    return _MARKDOWN.sub(r"\\\1", " ".join(words.split()))


def commit(sha: str | None, branch: str | None = None, dirty: bool | None = None) -> str:
    """``1234567890 (main, dirty)``."""
    if not sha:
        return "unknown"
    notes = ", ".join(word for word in (branch, "dirty" if dirty else None) if word)
    return f"{sha[:10]} ({notes})" if notes else sha[:10]


def versions(found: Mapping[str, str]) -> str:
    return ", ".join(f"{package} {version}" for package, version in sorted(found.items())) or "unknown"
