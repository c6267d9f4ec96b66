"""The medians of runs, as the history has them, as a line that breaks where a boot failed or nothing was measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import altair as alt

from dashboard import text
from dashboard.charts.axes import many, tooltip
from dashboard.charts.palette import MEDIAN
from dashboard.charts.trend_axis import Axis
from pytest_coldstart import units
from pytest_coldstart.history.points import median
from pytest_coldstart.history.read import RunPoint


@dataclass(frozen=True)
class Level:
    """The median at one place of the axis, in the metric's unit: of one run, or of all boots of one commit.

    None where a boot failed (``failed``: how many) or no boot was measured.
    """

    place: float
    median: float | None
    runs: tuple[RunPoint, ...]
    boots: int
    failed: int
    unmeasured: int


def levels(runs: Iterable[RunPoint], axis: Axis, join: bool) -> list[Level]:
    """A level a run; with *join* one for all runs at one place."""
    groups: dict[object, list[RunPoint]] = {}
    for number, run in enumerate(runs):
        place = axis.place(run)
        if place is not None:
            groups.setdefault(place if join else number, []).append(run)
    found = [_level(axis.place(group[0]) or 0.0, group) for group in groups.values()]
    return sorted(found, key=lambda level: level.place)


def _level(place: float, group: Sequence[RunPoint]) -> Level:
    values = tuple(value for run in group for value in run.values)
    middle = median(dataclasses.replace(group[0], values=values))
    failed = sum(math.isinf(value) for value in values)
    unmeasured = sum(run.unmeasured for run in group)
    known = middle is not None and math.isfinite(middle)
    return Level(place, middle if known else None, tuple(group), len(values) + unmeasured, failed, unmeasured)


def row(level: Level, unit: str, worth: float) -> dict[str, object]:
    """What a chart draws of a level, and what it says when it is pointed at."""
    run = level.runs[-1]
    notes = [f"{count} {word}" for count, word in ((level.failed, "failed"), (level.unmeasured, "unmeasured")) if count]
    return {
        "at": level.place,
        "y": None if level.median is None else level.median / worth,
        "median": units.show(level.median, unit) if level.median is not None else "none",
        "boots": f"{level.boots} ({', '.join(notes)})" if notes else str(level.boots),
        "run": run.run_id if len(level.runs) == 1 else f"{len(level.runs)} runs, the last {run.run_id}",
        "commit": text.commit(run.commit, run.branch, run.dirty),
    }


#: What a median says when it is pointed at: keys of its row.
HOVER = ("median", "boots", "run", "commit")


def line(levels: Iterable[Level], unit: str, worth: float, x: alt.X, y: alt.Y) -> alt.Chart:
    rows = [row(level, unit, worth) for level in levels]
    # Points as well: a median between two breaks has no line.
    few = len(rows) <= 100
    overlay = alt.OverlayMarkDef(shape="stroke" if few else "circle", size=200 if few else 12, color=MEDIAN)
    mark = many(rows).mark_line(color=MEDIAN, strokeWidth=2, point=overlay)
    found: alt.Chart = mark.encode(x=x, y=y, tooltip=tooltip(*HOVER))
    return found
