"""A series over time: its boots with one metric, its runs, and the bounds that were judged last."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb

from dashboard.data.query import rows
from dashboard.data.series import Reading
from pytest_coldstart.history.read import RunPoint, runs_of


@dataclass(frozen=True)
class Asked:
    """What is to be shown. ``branch``: None for all; ``newest``: how many boots at most; ``gates``: those of gates as well."""

    series: str
    cell_digest: str
    metric: str
    branch: str | None = None
    newest: int = 2000
    gates: bool = False


@dataclass(frozen=True)
class Point:
    """One boot of a series with one of its metrics. ``gate``: its side where it belongs to a gate, else empty."""

    boot_id: str
    run_id: str
    nodeid: str
    role: str
    round: int
    outcome: str
    started_at: datetime | None
    failure: str | None
    commit: str | None
    dirty: bool | None
    branch: str | None
    gate: str
    reading: Reading
    source: str | None = None

    @property
    def state(self) -> str:
        """What kind of point it is. Only ok, failed and unmeasured boots count."""
        if self.outcome != "ok":
            return self.outcome
        if self.role == "prime":
            return "prime"
        return "ok" if self.reading.value is not None else "unmeasured"

    @property
    def counted(self) -> bool:
        """Whether the history takes it: as :attr:`pytest_coldstart.record.BootRecord.counted`, and in no gate."""
        return self.role == "measured" and self.outcome != "error" and not self.gate


@dataclass(frozen=True)
class RunBound:
    """One SLO on the metric, judged in the newest run. ``value`` is None where it is infinite or unmeasured."""

    metric: str
    stat: str
    op: str
    bound: float
    unit: str
    value: float | None
    verdict: str
    bound_source: str


@dataclass(frozen=True, eq=False)  # equal to itself alone, so that what was found in it can be remembered by it
class Trend:
    """``points``: in the order of their starts; ``total``: how many boots there are of what was asked for; ``left_out``: boots
    of gates that are not among them. ``runs``: of these boots, as the history has them; ``bounds``: of the newest of them."""

    points: tuple[Point, ...]
    total: int
    left_out: int
    runs: tuple[RunPoint, ...] = ()
    bounds: tuple[RunBound, ...] = ()


_GATE = "coalesce(json_type(r.extra, '$.gate'), 'NULL') <> 'NULL'"

_WANTED = """
FROM boot b LEFT JOIN run r ON r.run_id = b.run_id
WHERE b.series = $series AND ($branch::VARCHAR IS NULL OR r.git_branch = $branch)
"""

_COUNT = f"SELECT count(*) AS boots, count(*) FILTER ({_GATE}) AS gates {_WANTED}"

_BOOTS = f"""
SELECT b.boot_id, b.run_id, b.nodeid, b.role, b.round, b.outcome, b.started_at, b.failure_kind, b.failure_message,
       r.git_commit, r.git_dirty, r.git_branch,
       CASE WHEN {_GATE} THEN coalesce(json_extract_string(r.extra, '$.gate.side'), 'gate') ELSE '' END AS gate
{_WANTED} AND ($gates OR NOT {_GATE})
ORDER BY b.started_at DESC NULLS LAST, b.boot_id DESC LIMIT $newest
"""

# The bounds let DuckDB skip all other times; the join alone would read the whole column.
_VALUES = """
SELECT m.boot_id, m.value, m.reason, m.source FROM boot b JOIN metric m ON m.boot_id = b.boot_id
WHERE b.series = $series AND m.name = $metric AND m.boot_id BETWEEN $first AND $last
"""

_BOUNDS = """
SELECT DISTINCT metric, stat, op, bound, unit, value, verdict, bound_source FROM verdict
WHERE run_id = $run AND cell_digest = $cell AND metric = $metric ORDER BY stat, op, bound, verdict
"""


def trend(con: duckdb.DuckDBPyConnection, asked: Asked) -> Trend:
    """The newest boots of a series, their runs and the bounds of the newest run."""
    where = {"series": asked.series, "branch": asked.branch}
    (count,) = rows(con, _COUNT, where)
    points = tuple(reversed(_points(con, asked)))
    left_out = 0 if asked.gates else count["gates"]
    runs = _runs(con, asked, points)
    return Trend(points, count["boots"] - left_out, left_out, runs, _bounds(con, asked, points))


def branches(con: duckdb.DuckDBPyConnection, series: str) -> tuple[str, ...]:
    """The branches on which a series was booted."""
    sql = f"SELECT DISTINCT r.git_branch AS branch {_WANTED} AND r.git_branch IS NOT NULL ORDER BY 1"
    return tuple(row["branch"] for row in rows(con, sql, {"series": series, "branch": None}))


def all_branches(con: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """The branches of all runs."""
    found = rows(con, "SELECT DISTINCT git_branch AS branch FROM run WHERE git_branch IS NOT NULL ORDER BY 1")
    return tuple(row["branch"] for row in found)


def measured(con: duckdb.DuckDBPyConnection, newest: int) -> frozenset[str]:
    """The metrics of which some boot has a value, among the *newest* boots of the store: to ask all of many takes too long."""
    first = rows(con, "SELECT boot_id FROM boot ORDER BY boot_id DESC LIMIT 1 OFFSET $newest", {"newest": newest})
    sql = "SELECT DISTINCT name FROM metric WHERE boot_id > $first AND value IS NOT NULL"
    return frozenset(row["name"] for row in rows(con, sql, {"first": first[0]["boot_id"] if first else ""}))


def panels(
    con: duckdb.DuckDBPyConnection, series: tuple[str, ...], metric: str, branch: str | None, newest: int
) -> dict[str, tuple[RunPoint, ...]]:
    """The *newest* runs of each of *series*, in the order of time."""
    return {id: tuple(runs) for id, runs in runs_of(con, series, metric, branch, newest).items()}


def _points(con: duckdb.DuckDBPyConnection, asked: Asked) -> list[Point]:
    where = {"series": asked.series, "branch": asked.branch, "gates": asked.gates, "newest": asked.newest}
    boots = rows(con, _BOOTS, where)
    if not boots:
        return []
    ids = [row["boot_id"] for row in boots]
    span = {"series": asked.series, "metric": asked.metric, "first": min(ids), "last": max(ids)}
    values = {row["boot_id"]: row for row in rows(con, _VALUES, span)}
    return [_point(row, values.get(row["boot_id"])) for row in boots]


def _point(row: dict[str, Any], value: dict[str, Any] | None) -> Point:
    failure = f"{row['failure_kind']}: {row['failure_message']}" if row["failure_kind"] else None
    found = value or {"value": None, "reason": None, "source": None}
    return Point(
        failure=failure,
        commit=row["git_commit"],
        dirty=row["git_dirty"],
        branch=row["git_branch"],
        reading=Reading.of({**row, **found, "known": value is not None}),
        source=found["source"],
        round=row["round"] or 0,
        started_at=row["started_at"],
        **{name: row[name] or "" for name in ("boot_id", "run_id", "nodeid", "role", "outcome", "gate")},
    )


def _runs(con: duckdb.DuckDBPyConnection, asked: Asked, points: Sequence[Point]) -> tuple[RunPoint, ...]:
    """The runs of *points* that are whole: one that the cap has cut in two has no median here."""
    mine: dict[str, list[Point]] = {}
    for point in points:
        if point.counted:
            mine.setdefault(point.run_id, []).append(point)
    # Without a metric: the values are known, and to read them again would take as long as all the rest.
    found = runs_of(con, [asked.series], "", asked.branch, len(mine))[asked.series]
    return tuple(
        _filled(run, mine[run.run_id])
        for run in found
        if len(mine.get(run.run_id, ())) == len(run.values) + run.unmeasured
    )


def _filled(run: RunPoint, points: Sequence[Point]) -> RunPoint:
    """*run* with the values of its boots, as the history has them."""
    values = [math.inf if point.reading.failed else point.reading.value for point in points]
    known = tuple(sorted(value for value in values if value is not None))
    return dataclasses.replace(run, values=known, unmeasured=len(values) - len(known))


def _bounds(con: duckdb.DuckDBPyConnection, asked: Asked, points: Sequence[Point]) -> tuple[RunBound, ...]:
    newest = next((point.run_id for point in reversed(points) if not point.gate), None)
    where = {"run": newest, "cell": asked.cell_digest, "metric": asked.metric}
    return tuple(RunBound(**row) for row in rows(con, _BOUNDS, where))
