"""Plain data -> the rows of the trend's tables, and the command that acknowledges a change point."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from urllib.parse import quote_plus

from dashboard import place, text
from dashboard.charts.trend_axis import Times
from dashboard.charts.trend_line import levels
from dashboard.charts.trend_rules import change_words
from dashboard.data.changes import Changes
from dashboard.data.series import Series
from dashboard.data.trend import Point
from pytest_coldstart import units
from pytest_coldstart.history.points import Point as ChangePoint
from pytest_coldstart.history.read import RunPoint
from pytest_coldstart.metrics import Metric
from pytest_coldstart.store.home import Home

Row = dict[str, str]


def boots(points: Sequence[Point], metric: Metric) -> list[Row]:
    """A row a boot, the last one first."""
    link = place.boot("")  # once: to look at the address for each of thousands takes long
    return [
        {
            "open": f"{link}{quote_plus(item.boot_id)}",
            "started": text.moment(item.started_at),
            metric.name: text.reading(item.reading, metric),
            "outcome": item.outcome if item.failure is None else f"{item.outcome} ({item.failure})",
            "role": item.role,
            "round": str(item.round),
            "source": item.source or "",
            "boot": item.boot_id,
            "run": item.run_id,
            "commit": text.commit(item.commit, item.branch, item.dirty),
            "gate": item.gate,
            "test": item.nodeid,
        }
        for item in reversed(points)
    ]


def change_points(found: Changes, unit: str) -> list[Row]:
    """A row a change point, the last one first."""
    return [change_words(point, unit) for point in reversed(found.history.points)]


def panels(series: Sequence[Series], runs: Mapping[str, Sequence[RunPoint]], metric: Metric) -> list[Row]:
    """A row a series of the small multiples."""
    rows = []
    for item in series:
        found = levels(runs.get(item.id, ()), Times(), join=False)
        newest = found[-1].median if found else None
        rows.append(
            {
                "trend": place.trend(item.id, metric.name),
                "engine": item.engine,
                "cell": item.cell_id,
                "tier": item.tier,
                "model": item.model,
                "newest median": units.show(newest, metric.unit) if newest is not None else "none",
                "runs": str(len(found)),
                "hardware class": item.hardware,
            }
        )
    return rows


def command(home: Home, series: str, metric: str, run: str, branch: str | None) -> str:
    """The ``coldstart ack`` that says why the change at *run* may stay."""
    store = home.root if home == Home.at(home.root) else home.database
    words = ["coldstart", "ack", series, "--metric", metric, "--at", run]
    words += ["--branch", branch] if branch is not None else []
    return shlex.join([*words, "--store", str(store), "--reason", "WHY IT MAY STAY"])


def run_of(found: Changes, point: ChangePoint) -> str:
    """The first run after a change point."""
    return found.history.runs[point.index].run_id
