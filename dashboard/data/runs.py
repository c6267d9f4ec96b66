"""Runs: what was run where, from which commit, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import duckdb

from dashboard import ci
from dashboard.data.query import items, loaded, rows
from dashboard.data.series import hardware
from dashboard.data.verdicts import RunVerdict, of_run
from pytest_coldstart.counter_metrics import REFERENCE_METRICS


@dataclass(frozen=True)
class Run:
    """One run. ``exit_status`` is None where no end of it was read; ``gate``: its side where it is of a gate, else empty.

    ``verdicts``: how many there are of each word. ``ci_url``: an http(s) address or None. Nobody may change its dicts.
    """

    id: str
    started_at: datetime | None
    exit_status: int | None
    boots: int
    failed: int
    errors: int
    verdicts: Mapping[str, int]
    commit: str | None
    branch: str | None
    dirty: bool | None
    hostname: str
    hardware: str
    hardware_class: str
    kernel: str
    driver: str
    versions: Mapping[str, str]
    ci_system: str
    ci_url: str | None
    gate: str = ""


@dataclass(frozen=True)
class RunBoot:
    """One boot of a run. ``cold_start`` is None where it failed or is unmeasured, ``reason`` says why."""

    id: str
    started_at: datetime | None
    engine: str
    cell_id: str
    tier: str
    role: str
    round: int
    outcome: str
    nodeid: str
    failure: str | None
    cold_start: float | None
    reason: str | None


@dataclass(frozen=True)
class Reference:
    """One reference workload over the boots of a run, in its metric's unit. ``reason``: why it is unmeasured in some."""

    metric: str
    measured: int
    boots: int
    least: float | None
    median: float | None
    most: float | None
    reason: str | None


@dataclass(frozen=True)
class Detail:
    """Everything of one run. ``boots``: the newest of ``run.boots``; ``environment``: name -> value; ``command``: words."""

    run: Run
    boots: tuple[RunBoot, ...]
    verdicts: tuple[RunVerdict, ...]
    environment: Mapping[str, str]
    ci: Mapping[str, str]
    command: tuple[str, ...]
    references: tuple[Reference, ...] = field(default=())


_RUNS = """
WITH booted AS (
    SELECT run_id, count(*) AS boots, count(*) FILTER (outcome = 'failed') AS failed,
           count(*) FILTER (outcome = 'error') AS errors, min(started_at) AS first
    FROM boot WHERE $run::VARCHAR IS NULL OR run_id = $run GROUP BY run_id
), newest AS (
    SELECT coalesce(r.run_id, b.run_id) AS id, coalesce(r.started_at, b.first) AS started_at, r.exit_status,
           coalesce(b.boots, 0) AS boots, coalesce(b.failed, 0) AS failed, coalesce(b.errors, 0) AS errors,
           r.git_commit AS commit, r.git_branch AS branch, r.git_dirty AS dirty, r.hostname, r.cpu, r.cores, r.memory_bytes,
           r.gpu, r.hardware_class, r.kernel, r.driver, r.versions, r.ci,
           CASE WHEN coalesce(json_type(r.extra, '$.gate'), 'NULL') = 'NULL' THEN ''
                ELSE coalesce(json_extract_string(r.extra, '$.gate.side'), 'gate') END AS gate
    FROM (SELECT * FROM run WHERE $run::VARCHAR IS NULL OR run_id = $run) r FULL JOIN booted b ON b.run_id = r.run_id
    ORDER BY coalesce(r.started_at, b.first) DESC NULLS LAST, 1 DESC LIMIT $newest
), judged AS (
    SELECT run_id, map_from_entries(list((verdict, number))) AS verdicts
    FROM (SELECT run_id, verdict, count(*) AS number FROM verdict
          WHERE verdict IS NOT NULL AND run_id IN (SELECT id FROM newest) GROUP BY ALL)
    GROUP BY run_id
)
SELECT n.*, j.verdicts FROM newest n LEFT JOIN judged j ON j.run_id = n.id
ORDER BY n.started_at DESC NULLS LAST, n.id DESC
"""

_COUNT = "SELECT count(*) AS runs FROM (SELECT run_id FROM run UNION SELECT run_id FROM boot)"

_BOOTS = """
SELECT boot_id AS id, started_at, engine, cell_id, tier, role, round, outcome, nodeid, failure_kind, failure_message
FROM boot WHERE run_id = $run ORDER BY started_at DESC NULLS LAST, boot_id DESC LIMIT $newest
"""

_VALUES = """
SELECT boot_id, name, value, reason FROM metric
WHERE boot_id BETWEEN $first AND $last AND list_contains($names, name) AND boot_id IN (SELECT unnest($boots::VARCHAR[]))
"""

_REFERENCES = """
SELECT name AS metric, count(value) AS measured, count(*) AS boots, min(value) AS least, median(value) AS median,
       max(value) AS most, any_value(reason) AS reason
FROM metric
WHERE boot_id BETWEEN (SELECT min(boot_id) FROM boot WHERE run_id = $run) AND (SELECT max(boot_id) FROM boot WHERE run_id = $run)
      AND list_contains($names, name) AND boot_id IN (SELECT boot_id FROM boot WHERE run_id = $run)
GROUP BY name
"""

_ENVIRONMENT = (
    "SELECT versions, command, ci, extra, cpu, cores, gpu, record_version, source_file FROM run WHERE run_id = $run"
)


def runs(con: duckdb.DuckDBPyConnection, newest: int = 500) -> tuple[Run, ...]:
    """The *newest* runs, the last one first."""
    return tuple(_run(row) for row in rows(con, _RUNS, {"run": None, "newest": newest}))


def count(con: duckdb.DuckDBPyConnection) -> int:
    """How many runs the store has."""
    (row,) = rows(con, _COUNT)
    return int(row["runs"])


def run(con: duckdb.DuckDBPyConnection, run_id: str) -> Run | None:
    """One run; None where the store has none of this id."""
    return next((_run(row) for row in rows(con, _RUNS, {"run": run_id, "newest": 1})), None)


def detail(con: duckdb.DuckDBPyConnection, run_id: str, newest: int = 500) -> Detail | None:
    """One run with its *newest* boots; None where the store has none of this id."""
    found = run(con, run_id)
    if found is None:
        return None
    row: dict[str, Any] = next(iter(rows(con, _ENVIRONMENT, {"run": run_id})), {})
    return Detail(
        found,
        _boots(con, run_id, newest),
        of_run(con, run_id),
        _environment(found, row),
        _words(loaded(row.get("ci"))),
        tuple(str(word) for word in items(row.get("command"))),
        _references(con, run_id),
    )


def _run(row: Mapping[str, Any]) -> Run:
    same = ("id", "started_at", "exit_status", "boots", "failed", "errors", "commit", "branch", "dirty", "gate")
    found = loaded(row["ci"])
    return Run(
        **{name: row[name] for name in same},
        hostname=row["hostname"] or "",
        hardware_class=row["hardware_class"] or "",
        kernel=row["kernel"] or "",
        driver=row["driver"] or "",
        verdicts=row["verdicts"] or {},
        hardware=hardware(row),
        versions=_words(loaded(row["versions"])),
        ci_system=ci.system(found),
        ci_url=ci.url(found),
    )


def _boots(con: duckdb.DuckDBPyConnection, run_id: str, newest: int) -> tuple[RunBoot, ...]:
    found = rows(con, _BOOTS, {"run": run_id, "newest": newest})
    if not found:
        return ()
    ids = [row["id"] for row in found]
    given = {"first": min(ids), "last": max(ids), "names": ["cold_start"], "boots": ids}
    values = {row["boot_id"]: row for row in rows(con, _VALUES, given)}
    return tuple(_boot(row, values.get(row["id"])) for row in found)


def _boot(row: Mapping[str, Any], value: Mapping[str, Any] | None) -> RunBoot:
    words = ("engine", "cell_id", "tier", "role", "outcome", "nodeid")
    failure = ": ".join(word for word in (row["failure_kind"], row["failure_message"]) if word) or None
    failed = row["outcome"] == "failed"
    return RunBoot(
        row["id"],
        row["started_at"],
        **{name: row[name] or "" for name in words},
        round=row["round"] or 0,
        failure=failure,
        cold_start=value["value"] if value and not failed else None,
        reason=value["reason"] if value else None,
    )


def _environment(found: Run, row: Mapping[str, Any]) -> dict[str, str]:
    """What is known of the host and the software of a run, in words."""
    known = {
        "host": found.hostname,
        "hardware": found.hardware,
        "hardware class": found.hardware_class,
        "driver": found.driver,
        "kernel": found.kernel,
        **{f"version of {name}": version for name, version in sorted(found.versions.items())},
        **{name: word for name, word in sorted(_words(loaded(row.get("extra"))).items()) if name != "gate"},
        "record version": str(row.get("record_version") or ""),
        "run file": row.get("source_file") or "",
    }
    return {name: value for name, value in known.items() if value}


def _references(con: duckdb.DuckDBPyConnection, run_id: str) -> tuple[Reference, ...]:
    names = [metric.name for metric in REFERENCE_METRICS]
    found = {row["metric"]: Reference(**row) for row in rows(con, _REFERENCES, {"run": run_id, "names": names})}
    return tuple(found[name] for name in names if name in found)


def _words(found: Mapping[str, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in found.items() if value is not None}


def within(found: Sequence[Run], boots: int) -> tuple[Run, ...]:
    """The newest of *found*, the last one first, that have no more than *boots* boots together."""
    taken, total = [], 0
    for item in found:
        total += item.boots
        if total > boots:
            break
        taken.append(item)
    return tuple(taken)
