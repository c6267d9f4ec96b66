"""The history of one series and metric: its runs, what changed in their environment, and where the level changed."""

from __future__ import annotations

import dataclasses
import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import duckdb

from pytest_coldstart.gate.comparison import Difference
from pytest_coldstart.history.acknowledge import Acknowledgement, Place, matched
from pytest_coldstart.history.read import HistoryError, RunPoint, Series, runs_of
from pytest_coldstart.stats.changes import ALPHA, SIZE, ChangePoint, change_points

#: How many of a series' newest runs are looked at: the search takes seconds beyond.
RECENT = 1000


@dataclass(frozen=True)
class Moved:
    """What differs from the run before. ``index``: of the run that is the first with it."""

    index: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Point:
    """A change point. ``index``, ``low``, ``high``: of runs of the history: the first after it, and all that may be that one.

    ``at``: when that run started. ``commits``: of the last run before and the first one after; ``place``: the same for all runs that may be
    these. ``regression``: whether it went the worse way. ``size``: a fraction. ``before``, ``after``: medians in the metric's unit.
    ``kind``: step, or drift where there is no one place. ``environment``: what changed together with it.
    """

    index: int
    low: int
    high: int
    at: datetime | None
    size: float
    confidence: float
    before: float
    after: float
    kind: str
    regression: bool
    commits: tuple[str | None, str | None]
    place: Place
    dirty: bool = False
    environment: tuple[Difference, ...] = ()
    acknowledged: Acknowledgement | None = None


@dataclass(frozen=True)
class History:
    """``reason``: why there are no change points, or may be none yet. ``stray``: acknowledgements that match none."""

    series: Series
    metric: str
    unit: str
    better: str
    runs: tuple[RunPoint, ...] = ()
    points: tuple[Point, ...] = ()
    moved: tuple[Moved, ...] = ()
    stray: tuple[Acknowledgement, ...] = ()
    reason: str = ""

    @property
    def last(self) -> float | None:
        """The newest run's median; +infinity where a boot of it failed, None where none was measured."""
        return median(self.runs[-1]) if self.runs else None

    @property
    def new(self) -> tuple[Point, ...]:
        """Regressions that nobody has acknowledged."""
        return tuple(point for point in self.points if point.regression and point.acknowledged is None)


def median(run: RunPoint) -> float | None:
    """The median of a run's values; +infinity where a boot failed, None without a value."""
    if not run.values:
        return None
    return math.inf if math.inf in run.values else statistics.median(run.values)


def histories(
    con: duckdb.DuckDBPyConnection,
    series: Sequence[Series],
    metric: str,
    acknowledgements: Iterable[Acknowledgement] = (),
    branch: str | None = None,
    size: float = SIZE,
    alpha: float = ALPHA,
) -> list[History]:
    """The history of each of *series*, in their order. Needs the extra ``gate``.

    :raises ImportError: numpy or ruptures is missing.
    """
    found = runs_of(con, [one.series for one in series], metric, branch)
    given = [one for one in acknowledgements if one.metric == metric]
    return [history(one, metric, found[one.series], given, size, alpha) for one in series]


def history(
    series: Series,
    metric: str,
    runs: Sequence[RunPoint],
    acknowledgements: Iterable[Acknowledgement] = (),
    size: float = SIZE,
    alpha: float = ALPHA,
) -> History:
    """The history of *runs*, which are in the order of time; no store is read.

    :raises ImportError: numpy or ruptures is missing.
    """
    from pytest_coldstart.metrics import METRICS

    declared = METRICS.get(metric)
    better = declared.better if declared else "lower"
    skipped = max(0, len(runs) - RECENT)
    changes = change_points([run.values for run in runs[skipped:]], size, alpha)
    marked = {skipped + n for n in (*changes.failed, *changes.empty)}
    kept = [n for n in range(skipped, len(runs)) if n not in marked]
    points = [_located(change, skipped, kept, runs, better) for change in changes.points]
    mine = [one for one in acknowledgements if one.series == series.series and one.metric == metric]
    given, stray = matched(mine, points, runs)
    reason = changes.reason
    if skipped:
        reason = "; ".join(filter(None, [reason, f"only the newest {RECENT} of {len(runs)} runs were searched"]))
    return History(
        series,
        metric,
        declared.unit if declared else "count",
        better,
        tuple(runs),
        tuple(_with(point, given.get(n)) for n, point in enumerate(points)),
        moved(runs),
        stray,
        reason,
    )


def _located(change: ChangePoint, skipped: int, kept: Sequence[int], runs: Sequence[RunPoint], better: str) -> Point:
    """*change*, whose indices count from run *skipped*; *kept* are the runs that gave a value."""
    index, low, high = (skipped + n for n in (change.index, change.low, change.high))
    before, after = runs[kept[bisect_left(kept, index) - 1]], runs[index]
    return Point(
        index=index,
        low=low,
        high=high,
        at=after.started_at,
        size=change.size,
        confidence=change.confidence,
        before=change.before,
        after=change.after,
        kind=change.kind,
        regression=(change.size > 0) == (better == "lower"),
        commits=(before.commit, after.commit),
        place=Place.of(runs[kept[bisect_left(kept, low) - 1]], runs[high]),
        dirty=bool(before.dirty or after.dirty),
        environment=differences(before, after),
    )


def _with(point: Point, one: Acknowledgement | None) -> Point:
    return point if one is None else dataclasses.replace(point, acknowledged=one)


def differences(before: RunPoint, after: RunPoint) -> tuple[Difference, ...]:
    """What of the environment differs between two runs."""
    first, second = before.environment, after.environment
    names = sorted({*first, *second}, key=lambda name: ("." in name, name))
    return tuple(
        Difference(name, first.get(name, "none"), second.get(name, "none"))
        for name in names
        if first.get(name) != second.get(name)
    )


def moved(runs: Sequence[RunPoint]) -> tuple[Moved, ...]:
    """Where the environment changed from one run to the next."""
    pairs = enumerate(pairwise(runs), 1)
    return tuple(Moved(n, found) for n, (before, after) in pairs if (found := differences(before, after)))


@dataclass(frozen=True)
class Meant:
    """What ``--at`` names: the place to acknowledge, and its change point; None where there is none (yet)."""

    place: Place
    point: Point | None


def meant(found: History, at: str) -> Meant:
    """The change point at the run, commit or day *at*: an id, the beginning of one, or an ISO 8601 date or time (UTC).

    A run or commit without a change point is taken as well: its change may become one with more runs.

    :raises HistoryError: it names no run of this history, several change points, or a time at which nothing changed.
    """
    runs, day = _named(found.runs, at), False
    if not runs:
        runs, day = _dated(found.runs, at), True
    points = [point for point in found.points if any(point.low <= n <= point.high for n in runs)]
    exact = [point for point in points if point.index in runs]
    points = exact if len(exact) == 1 else points
    if len(points) == 1:
        return Meant(points[0].place, points[0])
    name = f"{found.series.name} ({found.series.series}), {found.metric}"
    if not points and not day and runs and runs[0] == 0:
        raise HistoryError(f"{at!r} is the first run of {name}: nothing changed before it{_listed(found.points)}")
    if points or not runs or day:
        what = f"{len(points)} change points" if points else "no run and no change point"
        raise HistoryError(f"{at!r} names {what} of {name}{_listed(found.points)}")
    return Meant(Place.of(found.runs[runs[0] - 1], found.runs[runs[0]]), None)


def _named(runs: Sequence[RunPoint], at: str) -> list[int]:
    """Runs by their id or commit, or by the beginning of one (of a commit: four characters at least)."""
    whole = [n for n, run in enumerate(runs) if at in (run.run_id, run.commit)]
    if whole or len(at) < 4:
        return whole
    begun = [n for n, run in enumerate(runs) if run.run_id.startswith(at) or (run.commit or "").startswith(at.lower())]
    names = {
        name for n in begun for name in (runs[n].run_id, runs[n].commit) if name and name.startswith((at, at.lower()))
    }
    return begun if len(names) <= 1 else []


def _dated(runs: Sequence[RunPoint], at: str) -> list[int]:
    """Runs of a day, or the first one since a time."""
    try:
        time = datetime.fromisoformat(at)
    except ValueError:
        return []
    time = time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    times = [(n, run.started_at) for n, run in enumerate(runs) if run.started_at]
    if len(at) <= len("2026-11-30"):
        return [n for n, started in times if started.date() == time.date()]
    return [n for n, started in times if started >= time][:1]


def _listed(points: Sequence[Point]) -> str:
    if not points:
        return "; it has no change points"
    lines = [
        f"  {point.place.runs[1]}  {short(point.commits[1])}  {day(point.at)}  {point.size:+.1%}" for point in points
    ]
    return "\n".join(["; its change points:", *lines])


def short(commit: str | None) -> str:
    """A commit as it is shown."""
    return commit[:10] if commit else "no commit"


def day(at: datetime | None) -> str:
    """A start as it is shown, UTC."""
    return f"{at:%Y-%m-%d %H:%M}" if at else "no start"


def to_dict(found: History) -> dict[str, Any]:
    """Plain data that JSON can hold: failed boots are counted in ``failed`` and have no value; times are ISO 8601, UTC."""
    series = dataclasses.asdict(found.series)
    return {
        **{name: series[name] for name in ("series", "cell_id", "nodeid", "engine", "model", "tier", "boots")},
        **{name: getattr(found, name) for name in ("metric", "unit", "better", "reason")},
        "runs": [_run(run) for run in found.runs],
        "points": [_point(point) for point in found.points],
        "moved": [dataclasses.asdict(one) for one in found.moved],
        "stray": [dataclasses.asdict(one) for one in found.stray],
    }


def _run(run: RunPoint) -> dict[str, Any]:
    values = [value for value in run.values if math.isfinite(value)]
    middle = median(run)
    return {
        **dataclasses.asdict(run),
        "started_at": _iso(run.started_at),
        "values": values,
        "failed": len(run.values) - len(values),
        "median": middle if middle is not None and math.isfinite(middle) else None,
    }


def _point(point: Point) -> dict[str, Any]:
    return {**dataclasses.asdict(point), "at": _iso(point.at)}


def _iso(at: datetime | None) -> str | None:
    return at.replace(tzinfo=UTC).isoformat(timespec="milliseconds") if at else None
