"""What pages show, as plain rows. All SQL of the dashboard is here; every question opens the store and closes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb

from dashboard.source import empty, opened
from pytest_coldstart.store.home import Home

NOT_DERIVED = "the version that made this boot had no such metric"
NEVER_COUNTED = "no boot that counts is in this series"


@dataclass(frozen=True)
class Reading:
    """One metric of one boot. ``value`` is None where the boot failed or nothing was measured."""

    value: float | None
    reason: str | None
    failed: bool = False


@dataclass(frozen=True)
class RunVerdict:
    """One SLO judged in one run. ``value`` is None where it is infinite or unmeasured."""

    nodeid: str
    metric: str
    stat: str
    op: str
    bound: float
    unit: str
    value: float | None
    rounds: int
    verdict: str
    bound_source: str
    reason: str | None


@dataclass(frozen=True)
class Series:
    """All boots of one cell on one hardware class; ``verdicts`` are those of its newest run."""

    id: str
    engine: str
    cell_id: str
    model: str
    tier: str
    hardware: str
    boots: int
    failed: int
    errors: int
    last_seen: datetime
    run_id: str
    verdicts: tuple[RunVerdict, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst verdict of the newest run; ``not judged`` where it ended before it judged."""
        found = {item.verdict for item in self.verdicts}
        return next((word for word in ("fail", "unmeasured", "pass", "n/a") if word in found), "not judged")


@dataclass(frozen=True)
class Point:
    """One boot of a series with one of its metrics."""

    boot_id: str
    run_id: str
    nodeid: str
    role: str
    round: int
    outcome: str
    started_at: datetime
    failure: str | None
    commit: str | None
    dirty: bool | None
    branch: str | None
    versions: Mapping[str, str]
    reading: Reading
    source: str | None

    @property
    def state(self) -> str:
        """What kind of point it is. Only ok and failed boots count in a statistic."""
        if self.outcome != "ok":
            return self.outcome
        if self.role == "prime":
            return "prime"
        return "ok" if self.reading.value is not None else "unmeasured"

    @property
    def counted(self) -> bool:
        """As :attr:`pytest_coldstart.record.BootRecord.counted`."""
        return self.role == "measured" and self.outcome != "error"


_SERIES = """
SELECT
    b.series,
    arg_max(b.engine, b.started_at) AS engine,
    arg_max(b.cell_id, b.started_at) AS cell_id,
    arg_max(b.model_name, b.started_at) AS model,
    arg_max(b.tier, b.started_at) AS tier,
    arg_max(r.cpu, b.started_at) AS cpu,
    arg_max(r.cores, b.started_at) AS cores,
    arg_max(r.memory_bytes, b.started_at) AS memory_bytes,
    arg_max(r.gpu, b.started_at) AS gpu,
    count(*) AS boots,
    count(*) FILTER (b.outcome = 'failed') AS failed,
    count(*) FILTER (b.outcome = 'error') AS errors,
    max(b.started_at) AS last_seen,
    arg_max(b.run_id, b.started_at) AS run_id
FROM boot b LEFT JOIN run r USING (run_id)
GROUP BY b.series
ORDER BY last_seen DESC, b.series
"""

_VERDICTS = """
WITH newest AS (
    SELECT series, arg_max(run_id, started_at) AS run_id, arg_max(cell_digest, started_at) AS cell_digest
    FROM boot GROUP BY series
)
SELECT n.series, v.nodeid, v.metric, v.stat, v.op, v.bound, v.unit, v.value, v.rounds, v.verdict, v.bound_source, v.reason
FROM newest n JOIN verdict v USING (run_id, cell_digest)
ORDER BY n.series, v.nodeid, v.metric, v.stat, v.op, v.bound
"""

_NEWEST = """
WITH newest AS (
    SELECT series, boot_id, outcome, failure_message FROM boot
    WHERE role = 'measured' AND outcome <> 'error'
    QUALIFY row_number() OVER (PARTITION BY series ORDER BY started_at DESC, round DESC, boot_id) = 1
)
SELECT n.series, asked.name, m.name IS NOT NULL AS known, m.value, m.reason, n.outcome, n.failure_message
FROM newest n CROSS JOIN (SELECT unnest(?::VARCHAR[]) AS name) asked
LEFT JOIN metric m ON m.boot_id = n.boot_id AND m.name = asked.name
"""

_POINTS = """
SELECT
    b.boot_id, b.run_id, b.nodeid, b.role, b.round, b.outcome, b.started_at, b.failure_kind, b.failure_message,
    b.versions, r.git_commit, r.git_dirty, r.git_branch, m.name IS NOT NULL AS known, m.value, m.reason, m.source
FROM boot b LEFT JOIN run r USING (run_id) LEFT JOIN metric m ON m.boot_id = b.boot_id AND m.name = ?
WHERE b.series = ?
ORDER BY b.started_at, b.round, b.boot_id
"""


def series(home: Home) -> list[Series]:
    """Every series, the last seen first.

    :raises Unusable: the store cannot be read or holds no boots.
    """
    with opened(home) as con:
        found = _rows(con, _SERIES)
        judged = _rows(con, _VERDICTS)
    if not found:
        raise empty(home)
    return [_series(row, [item for item in judged if item["series"] == row["series"]]) for row in found]


def newest(home: Home, metrics: tuple[str, ...]) -> dict[tuple[str, str], Reading]:
    """For each series and each of *metrics*, the newest boot that counts.

    :raises Unusable: the store cannot be read.
    """
    with opened(home) as con:
        rows = _rows(con, _NEWEST, list(metrics))
    return {(row["series"], row["name"]): _reading(row) for row in rows}


def points(home: Home, series: str, metric: str) -> list[Point]:
    """Every boot of *series*, in the order of their starts, with *metric*.

    :raises Unusable: the store cannot be read.
    """
    with opened(home) as con:
        rows = _rows(con, _POINTS, metric, series)
    return [_point(row) for row in rows]


def _rows(con: duckdb.DuckDBPyConnection, sql: str, *values: object) -> list[dict[str, Any]]:
    result = con.execute(sql, list(values))
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _series(row: Mapping[str, Any], judged: Sequence[Mapping[str, Any]]) -> Series:
    same = {name: row[name] for name in ("boots", "failed", "errors", "last_seen", "run_id")}
    words = {name: row[name] or "" for name in ("engine", "cell_id", "model", "tier")}
    values: dict[str, Any] = {**same, **words, "hardware": _hardware(row)}
    return Series(id=row["series"], verdicts=tuple(_verdict(item) for item in judged), **values)


def _verdict(row: Mapping[str, Any]) -> RunVerdict:
    return RunVerdict(**{name: row[name] for name in RunVerdict.__dataclass_fields__})


def _point(row: Mapping[str, Any]) -> Point:
    failure = f"{row['failure_kind']}: {row['failure_message']}" if row["failure_kind"] else None
    return Point(
        failure=failure,
        commit=row["git_commit"],
        dirty=row["git_dirty"],
        branch=row["git_branch"],
        versions=json.loads(row["versions"] or "{}"),
        reading=_reading(row),
        **{
            name: row[name]
            for name in ("boot_id", "run_id", "nodeid", "role", "round", "outcome", "started_at", "source")
        },
    )


def _reading(row: Mapping[str, Any]) -> Reading:
    if row["outcome"] == "failed":
        return Reading(None, row["failure_message"] or "the boot failed", failed=True)
    return Reading(row["value"], row["reason"]) if row["known"] else Reading(None, NOT_DERIVED)


def _hardware(row: Mapping[str, Any]) -> str:
    """What tells one hardware class from another, in words."""
    memory = f"{round(row['memory_bytes'] / 2**30)} GiB" if row["memory_bytes"] else "memory unknown"
    return f"{row['cpu'] or 'CPU unknown'}, {row['cores'] or '?'} cores, {memory}, {row['gpu'] or 'no GPU'}"
