"""Values, bounds, boots and times as a page says them. Numbers with units are made by pytest_coldstart.units."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dashboard.data import Point, Reading, RunVerdict, Series
from pytest_coldstart import units
from pytest_coldstart.metrics import Metric


def reading(item: Reading, metric: Metric) -> str:
    """``2.31 s``, ``failed: <why>`` or ``unmeasured: <why>``; never a zero that nobody measured."""
    if item.failed:
        return f"failed: {item.reason}"
    if item.value is None:
        return f"unmeasured: {item.reason or 'no reason is stored'}"
    return units.show(item.value, metric.unit)


def bound(item: RunVerdict) -> str:
    """``cold_start.max <= 10.00 s``."""
    return f"{item.metric}.{item.stat} {item.op} {units.show(item.bound, item.unit)}"


def judged(item: RunVerdict) -> str:
    """The value that a bound was held against, or why there is none."""
    if item.value is not None:
        return units.show(item.value, item.unit)
    return item.reason or ("a boot failed" if item.verdict == "fail" else "no reason is stored")


def name(item: Series) -> str:
    return " | ".join(word for word in (item.engine, item.cell_id, item.model, item.hardware) if word)


def boots(item: Series) -> str:
    """``6``, or ``6 (1 failed)``: boots that went wrong are never left out."""
    wrong = [f"{count} {word}" for count, word in ((item.failed, "failed"), (item.errors, "error")) if count]
    return f"{item.boots} ({', '.join(wrong)})" if wrong else str(item.boots)


def moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def commit(item: Point) -> str:
    """``1234567890 (main, dirty)``."""
    if not item.commit:
        return "unknown"
    notes = ", ".join(word for word in (item.branch, "dirty" if item.dirty else None) if word)
    return f"{item.commit[:10]} ({notes})" if notes else item.commit[:10]


def versions(found: Mapping[str, str]) -> str:
    return ", ".join(f"{package} {version}" for package, version in sorted(found.items())) or "unknown"
