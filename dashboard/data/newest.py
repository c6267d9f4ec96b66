"""The newest runs of each series, with the boots that count in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import duckdb

from dashboard.data.query import COUNTED, loaded, rows


@dataclass(frozen=True)
class Boot:
    """One boot that counts. ``failure``: why it failed, None where it did not."""

    id: str
    series: str
    run_id: str
    cell_digest: str
    started_at: datetime | None
    failure: str | None = None


@dataclass(frozen=True)
class Config:
    """What a series boots, beside engine, model and tier: from its newest boot. Nobody may change its dicts."""

    options: dict[str, object]
    warmup: dict[str, object]
    versions: dict[str, object]


# A gate's runs are left out, as in the history: their boots are of any two commits, in random order.
_COUNTED = f"""
{COUNTED} AND b.run_id NOT IN (SELECT run_id FROM run WHERE coalesce(json_type(extra, '$.gate'), 'NULL') <> 'NULL')
AND ($series::VARCHAR[] IS NULL OR list_contains($series, b.series))
"""

# One run alone is found by its boot's place in the table, a third of what it takes to order all runs.
_ONE = f"""
WITH last AS (
    SELECT arg_max(b.rowid, coalesce(b.started_at, TIMESTAMP '0001-01-01')) AS place FROM boot b WHERE {_COUNTED}
    GROUP BY b.series
), newest AS (SELECT b.series, b.run_id FROM last JOIN boot b ON b.rowid = last.place)
"""
_SEVERAL = f"""
WITH grouped AS (
    SELECT b.series, b.run_id, max(b.started_at) AS last FROM boot b WHERE {_COUNTED} GROUP BY b.series, b.run_id
), newest AS (
    SELECT series, run_id FROM grouped
    QUALIFY row_number() OVER (PARTITION BY series ORDER BY last DESC NULLS LAST, run_id DESC) <= $runs
)
"""
_BOOTS = f"""
SELECT b.boot_id AS id, b.series, b.run_id, b.cell_digest, b.started_at, b.outcome, b.failure_message
FROM boot b SEMI JOIN newest n ON n.series = b.series AND n.run_id = b.run_id
WHERE {COUNTED} ORDER BY b.series, b.started_at NULLS FIRST, b.boot_id
"""

_CONFIGS = """
WITH grouped AS (SELECT arg_max(rowid, coalesce(started_at, TIMESTAMP '0001-01-01')) AS place FROM boot GROUP BY series)
SELECT b.series, b.cell, b.versions FROM grouped g JOIN boot b ON b.rowid = g.place
"""


def newest(con: duckdb.DuckDBPyConnection, series: Sequence[str] | None = None, runs: int = 1) -> tuple[Boot, ...]:
    """The boots that count of the newest *runs* of each of *series*, or of all; a gate's runs are none."""
    given: dict[str, object] = {"series": None if series is None else list(series)}
    sql = _ONE + _BOOTS
    if runs != 1:
        sql, given["runs"] = _SEVERAL + _BOOTS, runs
    return tuple(
        Boot(
            **{name: row[name] for name in ("id", "series", "run_id", "cell_digest", "started_at")},
            failure=(row["failure_message"] or "the boot failed") if row["outcome"] == "failed" else None,
        )
        for row in rows(con, sql, given)
    )


def configs(con: duckdb.DuckDBPyConnection) -> dict[str, Config]:
    """Each series' options, warm-up strategy and versions, by its id."""
    found = {}
    for row in rows(con, _CONFIGS):
        cell = loaded(row["cell"])
        options, warmup = (cell.get(name) for name in ("options", "warmup"))
        found[row["series"]] = Config(
            options if isinstance(options, dict) else {},
            warmup if isinstance(warmup, dict) else {},
            loaded(row["versions"]),
        )
    return found
