"""Judging a rule that watches for changes: the history's own search on the newest runs of a series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from importlib.util import find_spec

from pytest_coldstart import units
from pytest_coldstart.alerts.finding import FIRES, NOT_JUDGED, OK, Finding
from pytest_coldstart.alerts.read import Series
from pytest_coldstart.alerts.rules import ANY, MOST_NEW_RUNS, WORSE, Changed, Rule
from pytest_coldstart.history import points, read
from pytest_coldstart.history.acknowledge import Acknowledgement
from pytest_coldstart.history.points import History, Point
from pytest_coldstart.history.read import RunPoint
from pytest_coldstart.report.columns import one_line

#: Runs before the newest ones that a change is told from. ``coldstart history`` searches many more, which takes seconds for many series.
BEFORE = 30

NEEDS = "changes need the extra gate: pip install 'pytest-coldstart[gate]'"


def searchable() -> bool:
    """Whether the extra ``gate`` is installed."""
    return find_spec("ruptures") is not None and find_spec("numpy") is not None


def window(rule: Rule) -> int:
    """How many of the newest runs are searched for *rule*."""
    condition = rule.condition
    return BEFORE + ((condition.runs if isinstance(condition, Changed) else None) or MOST_NEW_RUNS)


def changed(
    rule: Rule, series: Series, runs: tuple[RunPoint, ...], given: tuple[Acknowledgement, ...], now: datetime
) -> Finding:
    """What *rule* says of *series*, whose newest *runs* are in the order of time. Needs the extra ``gate``."""
    condition = rule.condition
    assert isinstance(condition, Changed)
    mine = tuple(one for one in given if one.series == series.id and one.metric == rule.metric)
    history = _searched(_Searched(series, rule.metric, runs, mine))
    bound = f"< {condition.size * 100:.3g} % {condition.way if condition.way != ANY else 'either way'}"
    empty = Finding(series, OK, "no such change", bound, metric=rule.metric)
    if runs:
        empty = replace(empty, run_id=runs[-1].run_id, at=runs[-1].started_at)
    new = [point for point in history.points if _is_new(condition, point, len(runs), now)]
    wanted = [point for point in new if _is_wanted(condition, point)]
    open_ = [point for point in wanted if point.acknowledged is None]
    if open_:
        point = open_[-1]
        return replace(
            empty,
            state=FIRES,
            value=_shown(point, history.unit),
            reason=_place(point),
            number=point.size,
            since=runs[point.index].run_id,
            since_at=point.at,
        )
    if not history.points and history.reason:
        return replace(empty, state=NOT_JUDGED, value=NOT_JUDGED, reason=history.reason)
    if not wanted:
        return empty
    by = wanted[-1].acknowledged
    reason = f"acknowledged by {one_line(by.author)}: {one_line(by.reason)}" if by else ""
    return replace(empty, value=_shown(wanted[-1], history.unit), reason=reason)


def _is_new(condition: Changed, point: Point, runs: int, now: datetime) -> bool:
    if condition.runs is not None:
        return point.index >= runs - condition.runs
    return point.at is None or (now - point.at).total_seconds() <= (condition.seconds or 0.0)


def _is_wanted(condition: Changed, point: Point) -> bool:
    way = condition.way == ANY or point.regression == (condition.way == WORSE)
    return way and abs(point.size) >= condition.size


def _shown(point: Point, unit: str) -> str:
    return f"{point.size:+.1%}: {units.show(point.before, unit)} -> {units.show(point.after, unit)}"


def _place(point: Point) -> str:
    first, last = (points.short(commit) for commit in point.commits)
    return f"commits {first} .. {last}"


@dataclass(frozen=True, eq=False)
class _Searched:
    """What one search depends on: equal to another one with the same runs, values and acknowledgements."""

    series: Series
    metric: str
    runs: tuple[RunPoint, ...]
    given: tuple[Acknowledgement, ...]

    @property
    def key(self) -> Sequence[object]:
        return self.series.id, self.metric, self.given, tuple((run.run_id, run.values) for run in self.runs)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Searched) and self.key == other.key


@lru_cache(maxsize=2048)
def _searched(asked: _Searched) -> History:
    """A run more in one series is no reason to search all others again."""
    one = asked.series
    named = read.Series(one.id, one.cell_id, one.nodeid, one.engine, one.model, one.tier, 0, 0)
    return points.history(named, asked.metric, asked.runs, asked.given)
