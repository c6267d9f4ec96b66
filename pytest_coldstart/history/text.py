"""A history as lines of text: a trend of its runs, what changed, and who acknowledged it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from pytest_coldstart.gate.comparison import Difference
from pytest_coldstart.history.acknowledge import Acknowledgement
from pytest_coldstart.history.points import History, Point, day, median, short
from pytest_coldstart.history.read import RunPoint, Series
from pytest_coldstart.report.columns import one_line, table
from pytest_coldstart.units import show

#: Levels from the lowest to the highest median, then a run with a failed boot and one without a value.
BLOCKS, DIGITS = ("▁▂▃▄▅▆▇█", "x", "·"), ("12345678", "x", ".")

#: How many of the newest runs are listed.
_LISTED = 40

#: Columns below which runs are listed without their ids.
_ROOM_FOR_IDS = 90


def lines(history: History, width: int = 100, marks: tuple[str, str, str] = BLOCKS) -> list[str]:
    """One history whole: its trend, its newest runs and its change points."""
    one = history.series
    failed = sum(value == math.inf for run in history.runs for value in run.values)
    boots = sum(len(run.values) + run.unmeasured for run in history.runs)
    found = [
        f"{one.name} ({one.series})",
        one.nodeid,
        f"{history.metric}, {history.better} is better: {len(history.runs)} runs, {boots} boots, {failed} failed",
        "",
        *_trend(history, width, marks),
        "",
        *_runs(history, width),
        "",
        *_points(history, width),
    ]
    return [line.rstrip() for line in found]


def overview(histories: Sequence[History], width: int = 100) -> list[str]:
    """All histories of one metric as one table."""
    rows = []
    for history in histories:
        new = len(history.new)
        words = f"{len(history.points)} ({new} new)" if new else str(len(history.points) or "-")
        values = [history.series.series, show(history.last, history.unit), str(history.series.boots)]
        rows.append([*values, str(history.series.failed), words, history.series.engine, history.series.test])
    return table(
        ["series", "last", "boots", "failed", "change points", "engine", "test"], rows, width, numbers=(1, 2, 3)
    )


def listed(series: Sequence[Series], width: int = 100) -> list[str]:
    """Series that a word could mean."""
    rows = [[one.series, one.engine, one.tier, str(one.boots), one.test] for one in series]
    return table(["series", "engine", "tier", "boots", "test"], rows, width, numbers=(3,))


def _trend(history: History, width: int, marks: tuple[str, str, str]) -> list[str]:
    """A character a run; a caret under the first run after each change point."""
    levels, broken, none = marks
    runs = history.runs[-(width - 24) :]
    first = len(history.runs) - len(runs)
    medians = [median(run) for run in runs]
    finite = [value for value in medians if value is not None and math.isfinite(value)]
    if not finite:
        return ["no run has a value"]
    low, high = min(finite), max(finite)

    def mark(value: float | None) -> str:
        if value is None:
            return none
        if math.isinf(value):
            return broken
        return levels[min(7, int(8 * (value - low) / (high - low)))] if high > low else levels[0]

    left, right = show(low, history.unit), show(high, history.unit)
    carets = {point.index - first for point in history.points}
    under = "".join("^" if n in carets else " " for n in range(len(runs)))
    lines = [f"  {left} {''.join(map(mark, medians))} {right}", f"  {' ' * len(left)} {under}"]
    if first:
        lines.append(f"  the newest {len(runs)} of {len(history.runs)} runs")
    return [line for line in lines if line.strip()]


def _runs(history: History, width: int) -> list[str]:
    runs = history.runs[-_LISTED:]
    first = len(history.runs) - len(runs)
    notes = {point.index: [f"<- {point.size:+.1%}{_state(point)}"] for point in history.points}
    for moved in history.moved:
        notes.setdefault(moved.index, []).append(_words(moved.differences))
    rows = []
    for n, run in enumerate(runs, first):
        said = [*_boots(run), *notes.get(n, [])]
        commit = short(run.commit) + ("+" if run.dirty else "")
        rows.append([day(run.started_at), run.run_id, commit, show(median(run), history.unit), "; ".join(said)])
    head = [f"({first} earlier runs)"] if first else []
    titles = ["started (UTC)", "run", "commit", "median", "boots and what changed"]
    if width < _ROOM_FOR_IDS:
        titles, rows = titles[:1] + titles[2:], [row[:1] + row[2:] for row in rows]
    return [*head, *table(titles, rows, width, numbers=(len(titles) - 2,))]


def _boots(run: RunPoint) -> list[str]:
    failed = sum(value == math.inf for value in run.values)
    said = [str(len(run.values) + run.unmeasured)]
    said += [f"{failed} failed"] if failed else []
    return [*said, *([f"{run.unmeasured} unmeasured"] if run.unmeasured else [])]


def _state(point: Point) -> str:
    if point.acknowledged:
        return " acknowledged"
    return " new regression" if point.regression else " better"


def _points(history: History, width: int) -> list[str]:
    count = len(history.points)
    found = [f"{count} change point{'' if count == 1 else 's'}" if count else "no change point"]
    if history.reason:
        found[0] += f": {history.reason}"
    for point in history.points:
        found += _point(history, point)
    for one in history.stray:
        found.append(f"acknowledgement {one.id} ({one_line(one.reason)}) of run {one.run} matches no change point")
    return [part for line in found for part in _wrapped(line, width)]


def _point(history: History, point: Point) -> list[str]:
    level = f"{show(point.before, history.unit)} -> {show(point.after, history.unit)}"
    place = point.place
    found = [
        f"  {day(point.at)}  {point.size:+.1%}  {level}  confidence {point.confidence:.1%}"
        + ("  a slow drift, not one step" if point.kind == "drift" else ""),
        f"    commits {short(point.commits[0])} .. {short(point.commits[1])}"
        + ("; a checkout was not clean" if point.dirty else ""),
    ]
    if point.low != point.high:
        outer = f" (commits {short(place.commits[0])} .. {short(place.commits[1])})"
        found.append(f"    somewhere after run {place.runs[0]} and up to run {place.runs[1]}{outer}")
    if point.environment:
        found.append(f"    changed with it: {_words(point.environment)}")
    if point.acknowledged:
        found.append(f"    {acknowledged(point.acknowledged)}")
    elif point.regression:
        run = history.runs[point.index].run_id
        found.append(f"    new: coldstart ack {history.series.series} --at {run} --reason TEXT")
    return found


def acknowledged(one: Acknowledgement) -> str:
    """Who, when and why."""
    return f"acknowledged by {one_line(one.author)} on {one.made_at[:10]}: {one_line(one.reason)} [{one.id}]"


def _words(differences: Sequence[Difference]) -> str:
    return ", ".join(f"{one.what.removeprefix('versions.')} {one.base} -> {one.head}" for one in differences)


def _wrapped(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True) or [""]
