"""Evaluating rules: looking at the store once for all of them, then judging what was seen.

Looking needs the store and nothing else, so that a page can remember it as long as the store stays the same. Judging needs the
time and the acknowledgements, and no store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import duckdb

from pytest_coldstart.alerts import read
from pytest_coldstart.alerts.change import NEEDS, changed, searchable, window
from pytest_coldstart.alerts.finding import FIRES, NOT_JUDGED, OK, UNMEASURED, Evaluated, Finding
from pytest_coldstart.alerts.judge import Facts, judged, names
from pytest_coldstart.alerts.read import Run, Series
from pytest_coldstart.alerts.rules import Changed, Judged, Rule, Stale, matches, show_days
from pytest_coldstart.history.acknowledge import Acknowledgement
from pytest_coldstart.history.read import ALL, RunPoint, runs_of
from pytest_coldstart.slo import Bound

#: How many of the newest runs are searched for the one since which a rule fires, and of how many series.
LOOKED_BACK, SERIES_LOOKED_BACK = 10, 30

NO_BOOT = "no boot of this series counts"


@dataclass(frozen=True, eq=False)
class Looked:
    """What the store says to one rule. ``findings``: of conditions that need no more; ``newest``: by series, its newest run;
    ``points``: by series, its newest runs with the metric, where a change is looked for."""

    rule: Rule
    series: tuple[Series, ...]
    findings: tuple[Finding, ...] = ()
    newest: Mapping[str, Run] = field(default_factory=dict)
    points: Mapping[str, tuple[RunPoint, ...]] = field(default_factory=dict)


def look(con: duckdb.DuckDBPyConnection, rules: Sequence[Rule]) -> tuple[Looked, ...]:
    """What the store says to *rules*, in their order."""
    series = read.all_series(con)
    known = read.branches(con) if any(rule.branches for rule in rules) else []
    found: dict[str, Looked] = {}
    for patterns in dict.fromkeys(rule.branches for rule in rules):
        branches = [name for name in known if matches(name, patterns)] if patterns else None
        watched = [(rule, _matched(rule, series)) for rule in rules if rule.branches == patterns]
        for looked in (*_by_runs(con, watched, branches), *_by_points(con, watched, branches)):
            found[looked.rule.name] = looked
    return tuple(found[rule.name] for rule in rules)


def results(looked: Iterable[Looked], given: Iterable[Acknowledgement], now: datetime) -> tuple[Evaluated, ...]:
    """What each rule says, in their order. *now* is UTC without a zone, as the store's times are."""
    acknowledged = tuple(given)
    return tuple(_result(one, acknowledged, now) for one in looked)


def _result(looked: Looked, given: tuple[Acknowledgement, ...], now: datetime) -> Evaluated:
    rule = looked.rule
    if isinstance(rule.condition, Stale):
        return Evaluated(
            rule, tuple(_stale(rule.condition, one, looked.newest.get(one.id), now) for one in looked.series)
        )
    if isinstance(rule.condition, Changed):
        if not searchable():
            return Evaluated(rule, reason=NEEDS)
        return Evaluated(rule, tuple(changed(rule, one, looked.points[one.id], given, now) for one in looked.series))
    return Evaluated(rule, looked.findings)


def _matched(rule: Rule, series: Iterable[Series]) -> tuple[Series, ...]:
    filters = [(name, patterns) for name, patterns in rule.filters if name != "branch"]
    return tuple(one for one in series if all(_fits(one, name, patterns) for name, patterns in filters))


def _fits(series: Series, name: str, patterns: Sequence[str]) -> bool:
    words = {
        "engine": (series.engine,),
        "model": (series.model,),
        "tier": (series.tier,),
        "cell": (series.cell_id, series.id),
        "test": (series.nodeid, series.test),
        "hardware": (series.hardware, series.hardware_id),
        "gpu": (series.gpu,),
    }
    return any(matches(word, patterns) for word in words[name])


Watched = Sequence[tuple[Rule, tuple[Series, ...]]]


def _by_runs(con: duckdb.DuckDBPyConnection, watched: Watched, branches: Collection[str] | None) -> list[Looked]:
    """What the newest runs say: one query for the runs, one for their values, one for their verdicts. And the same once more of some
    that fire, to tell since when."""
    mine = [(rule, series) for rule, series in watched if not isinstance(rule.condition, Changed)]
    if not mine:
        return []
    count = max(rule.runs for rule, _ in mine)
    runs = read.newest(con, {one.id for _, series in mine for one in series}, count, branches)
    facts = _facts(con, [rule for rule, _ in mine], runs)
    whole = {id for id, group in runs.items() if len(group) < count}
    found = [_looked(rule, series, runs, facts, whole, branches is not None) for rule, series in mine]
    firing = {looked.rule: [one.series.id for one in looked.findings if one.fires] for looked in found}
    back = list(dict.fromkeys(id for ids in firing.values() for id in ids if id in runs))[:SERIES_LOOKED_BACK]
    if not back:
        return found
    count = max(count, LOOKED_BACK)
    more = read.newest(con, back, count, branches)
    facts = facts.with_(_facts(con, [rule for rule, ids in firing.items() if ids], more))
    whole |= {id for id, group in more.items() if len(group) < count}
    return [_again(looked, more, facts, whole) for looked in found]


def _again(looked: Looked, runs: read.Runs, facts: Facts, whole: Collection[str]) -> Looked:
    """*looked*, with what fires judged by more *runs*."""
    rule, findings = looked.rule, looked.findings
    now = (
        judged(rule, one.series, runs[one.series.id], facts, one.series.id in whole)
        if one.fires and one.series.id in runs
        else one
        for one in findings
    )
    return replace(looked, findings=tuple(now))


def _facts(con: duckdb.DuckDBPyConnection, rules: Sequence[Rule], runs: read.Runs) -> Facts:
    every = [run for group in runs.values() for run in group]
    wanted = {name for rule in rules if isinstance(rule.condition, Bound) for name in names(rule.condition)}
    is_judged = any(isinstance(rule.condition, Judged) for rule in rules)
    return Facts(read.values(con, every, wanted), read.verdicts(con, every) if is_judged else {})


def _looked(
    rule: Rule, series: tuple[Series, ...], runs: read.Runs, facts: Facts, whole: Collection[str], narrowed: bool
) -> Looked:
    if narrowed:  # a series that was never booted on these branches is none of the rule's
        series = tuple(one for one in series if one.id in runs)
    newest = {one.id: runs[one.id][0] for one in series if one.id in runs}
    if isinstance(rule.condition, Stale):
        return Looked(rule, series, newest=newest)
    return Looked(
        rule, series, tuple(_finding(rule, one, runs.get(one.id, ()), facts, one.id in whole) for one in series), newest
    )


def _finding(rule: Rule, series: Series, runs: Sequence[Run], facts: Facts, whole: bool) -> Finding:
    if not runs:
        state = UNMEASURED if isinstance(rule.condition, Bound) else NOT_JUDGED
        return Finding(series, state, state, reason=NO_BOOT, metric=rule.metric)
    return judged(rule, series, runs, facts, whole)


def _by_points(con: duckdb.DuckDBPyConnection, watched: Watched, branches: Collection[str] | None) -> list[Looked]:
    """The newest runs of what is searched for changes: one query a metric."""
    found = []
    mine = [(rule, series) for rule, series in watched if isinstance(rule.condition, Changed)]
    for metric in dict.fromkeys(rule.metric for rule, _ in mine):
        group = [(rule, series) for rule, series in mine if rule.metric == metric]
        ids = list(dict.fromkeys(one.id for _, series in group for one in series))
        points = _points(con, ids, metric, branches, max(window(rule) for rule, _ in group))
        for rule, series in group:
            there = tuple(one for one in series if branches is None or points[one.id])
            found.append(Looked(rule, there, points={one.id: points[one.id][-window(rule) :] for one in there}))
    return found


def _points(
    con: duckdb.DuckDBPyConnection, ids: Sequence[str], metric: str, branches: Collection[str] | None, count: int
) -> dict[str, tuple[RunPoint, ...]]:
    if not ids or not searchable():
        return dict.fromkeys(ids, ())
    if branches is None or len(branches) == 1:
        found = runs_of(con, ids, metric, next(iter(branches)) if branches else None, count)
    else:
        found = runs_of(con, ids, metric, newest=ALL)
        found = {id: [run for run in runs if run.branch in branches] for id, runs in found.items()}
    return {id: tuple(runs[-count:]) for id, runs in found.items()}


def _stale(condition: Stale, series: Series, run: Run | None, now: datetime) -> Finding:
    bound = f"<= {show_days(condition.seconds)}"
    if run is None or run.last is None:
        word = NO_BOOT if run is None else "the newest run has no time"
        return Finding(series, FIRES, "no run", bound, word, run_id=run.run_id if run else None)
    age = (now - run.last).total_seconds()
    return Finding(
        series,
        FIRES if age > condition.seconds else OK,
        show_days(max(age, 0.0)),
        bound,
        number=age,
        run_id=run.run_id,
        at=run.first,
        since=run.run_id if age > condition.seconds else None,
        since_at=run.last if age > condition.seconds else None,
    )
