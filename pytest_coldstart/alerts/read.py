"""What the store says to rules: its series, their newest runs, and of these the values and verdicts that are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb

from pytest_coldstart.environment import hardware_name
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import Value
from pytest_coldstart.slo import Verdict

NOT_DERIVED = "the version that made this boot had no such metric"


@dataclass(frozen=True)
class Series:
    """All boots of one cell on one hardware class, a gate's left out. ``hardware``: the class in words, ``hardware_id``: its digest."""

    id: str
    engine: str
    cell_id: str
    nodeid: str
    model: str
    tier: str
    hardware: str = ""
    hardware_id: str = ""
    gpu: str = ""

    @property
    def name(self) -> str:
        return " | ".join(word for word in (self.engine, self.cell_id, self.model, self.hardware) if word)

    @property
    def test(self) -> str:
        """The test without its folders."""
        file, colons, rest = self.nodeid.partition("::")
        return file.rpartition("/")[2] + colons + rest


@dataclass(frozen=True)
class Boot:
    """One boot that counts. ``failure``: why it failed, None where it did not."""

    id: str
    round: int
    failure: str | None = None


@dataclass(frozen=True)
class Run:
    """The boots that count of one series in one run. ``first``, ``last``: when they started, UTC."""

    run_id: str
    series: str
    cell_digest: str
    first: datetime | None
    last: datetime | None
    commit: str | None
    boots: tuple[Boot, ...]

    @property
    def failures(self) -> list[str]:
        return [boot.failure for boot in self.boots if boot.failure is not None]


#: By series, its newest runs, the newest first.
Runs = Mapping[str, tuple[Run, ...]]
#: By boot and metric.
Values = Mapping[tuple[str, str], Value]
#: By run and cell.
Verdicts = Mapping[tuple[str, str], tuple[Verdict, ...]]

# As everywhere: a gate's runs are of any two commits, in random order; and boots count that were measured and say something.
_GATES = "SELECT run_id FROM run WHERE coalesce(json_type(extra, '$.gate'), 'NULL') <> 'NULL'"
_COUNTED = "b.role = 'measured' AND b.outcome <> 'error'"

# What is the same for all boots of a series comes from its newest one. Places in the table are found faster than ids.
_SERIES = f"""
WITH grouped AS (
    SELECT series, arg_max(rowid, coalesce(started_at, TIMESTAMP '0001-01-01')) AS place
    FROM boot b ANTI JOIN ({_GATES}) g ON g.run_id = b.run_id GROUP BY series
)
SELECT g.series, b.engine, b.cell_id, b.nodeid, b.model_name, b.tier, r.cpu, r.cores, r.memory_bytes, r.gpu, r.hardware_class
FROM grouped g JOIN boot b ON b.rowid = g.place LEFT JOIN run r ON r.run_id = b.run_id
ORDER BY b.started_at DESC NULLS LAST, g.series
"""

_RUNS = f"""
WITH counted AS (
    SELECT b.rowid AS place, b.series, b.run_id, b.started_at FROM boot b ANTI JOIN ({_GATES}) g ON g.run_id = b.run_id
    WHERE {_COUNTED} AND b.series IN (SELECT unnest($series::VARCHAR[]))
      AND ($branches::VARCHAR[] IS NULL OR b.run_id IN (SELECT run_id FROM run WHERE list_contains($branches, git_branch)))
), newest AS (
    SELECT series, run_id, min(started_at) AS began FROM counted GROUP BY series, run_id
    QUALIFY row_number() OVER (PARTITION BY series ORDER BY began DESC NULLS LAST, run_id DESC) <= $newest
), picked AS (SELECT c.place FROM counted c SEMI JOIN newest n ON n.series = c.series AND n.run_id = c.run_id)
SELECT b.run_id, b.series, any_value(b.cell_digest), min(b.started_at) AS began, max(b.started_at), any_value(r.git_commit),
       list((b.boot_id, b.round, CASE WHEN b.outcome = 'failed' THEN coalesce(b.failure_message, 'the boot failed') END)
            ORDER BY b.started_at, b.boot_id)
FROM picked p JOIN boot b ON b.rowid = p.place LEFT JOIN run r ON r.run_id = b.run_id
GROUP BY b.run_id, b.series ORDER BY began DESC NULLS LAST, b.run_id DESC
"""

# The bounds let DuckDB skip all other times: ids begin with the boot's time.
_VALUES = """
SELECT boot_id, name, value, source, reason FROM metric
WHERE boot_id BETWEEN $first AND $last AND list_contains($names, name) AND boot_id IN (SELECT unnest($boots::VARCHAR[]))
"""

_VERDICTS = """
SELECT run_id, cell_digest, metric, stat, op, bound, unit, value, rounds, verdict, bound_source, value_source, reason
FROM verdict v JOIN (SELECT unnest($runs::VARCHAR[]) AS run_id, unnest($cells::VARCHAR[]) AS cell_digest)
USING (run_id, cell_digest) WHERE v.run_id BETWEEN $first AND $last ORDER BY metric, stat, op, bound, nodeid
"""


def all_series(con: duckdb.DuckDBPyConnection) -> list[Series]:
    """Every series that was booted outside of gates, the one with the newest boot first."""
    return [_series(*row) for row in con.execute(_SERIES).fetchall()]


def _series(id: str, *row: Any) -> Series:
    *words, cpu, cores, memory, gpu, hardware = row
    engine, cell_id, nodeid, model, tier = (str(word or "") for word in words)
    name = hardware_name(cpu, cores, memory, gpu)
    return Series(id, engine, cell_id, nodeid, model, tier, name, hardware or "", gpu or "")


def branches(con: duckdb.DuckDBPyConnection) -> list[str]:
    """The branches of all runs."""
    sql = "SELECT DISTINCT git_branch FROM run WHERE git_branch IS NOT NULL ORDER BY 1"
    return [row[0] for row in con.execute(sql).fetchall()]


def newest(
    con: duckdb.DuckDBPyConnection, series: Collection[str], count: int, branches: Collection[str] | None = None
) -> Runs:
    """The newest *count* runs of each of *series*, those of *branches* alone where it is given. Series without one are left out."""
    if not series:
        return {}
    given = None if branches is None else list(branches)
    found: dict[str, list[Run]] = {}
    for row in con.execute(_RUNS, {"series": list(series), "branches": given, "newest": count}).fetchall():
        run_id, id, cell, first, last, commit, boots = row
        run = Run(
            run_id, id, cell, first, last, commit, tuple(Boot(one, n or 0, why) for one, n, why in map(_fields, boots))
        )
        found.setdefault(run.series, []).append(run)
    return {id: tuple(runs) for id, runs in found.items()}


def _fields(item: Any) -> tuple[Any, ...]:
    """A row in a row: a tuple, or of later versions of DuckDB a dict."""
    return tuple(item.values()) if isinstance(item, dict) else tuple(item)


def values(con: duckdb.DuckDBPyConnection, runs: Iterable[Run], names: Collection[str]) -> Values:
    """The metrics *names* of all boots of *runs* that did not fail."""
    ids = [boot.id for run in runs for boot in run.boots if boot.failure is None]
    if not ids or not names:
        return {}
    given = {"first": min(ids), "last": max(ids), "names": list(names), "boots": ids}
    return {(boot, name): Value(*rest) for boot, name, *rest in con.execute(_VALUES, given).fetchall()}


def verdicts(con: duckdb.DuckDBPyConnection, runs: Iterable[Run]) -> Verdicts:
    """The stored verdicts of *runs*."""
    keys = sorted({(run.run_id, run.cell_digest) for run in runs})
    if not keys:
        return {}
    span = {"first": keys[0][0], "last": keys[-1][0]}
    given = {"runs": [run for run, _ in keys], "cells": [cell for _, cell in keys], **span}
    found: dict[tuple[str, str], list[Verdict]] = {}
    for run, cell, metric, *rest in con.execute(_VERDICTS, given).fetchall():
        stat, op, bound, unit, value, rounds, word, *sources = rest
        unit = unit or (METRICS[metric].unit if metric in METRICS else "count")
        one = Verdict(metric, stat, op, bound, unit, value, rounds or 0, word or "", *sources)
        found.setdefault((run, cell), []).append(one)
    return {key: tuple(group) for key, group in found.items()}
