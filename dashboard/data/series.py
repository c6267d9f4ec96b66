"""The series of a store, and what is known of one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb

from dashboard.data.query import rows
from pytest_coldstart.environment import hardware_name

NOT_DERIVED = "the version that made this boot had no such metric"
NEVER_COUNTED = "no boot that counts is in this series"


@dataclass(frozen=True)
class Reading:
    """One metric of one boot, in the metric's unit. ``value`` is None where the boot failed or nothing was measured."""

    value: float | None
    reason: str | None = None
    failed: bool = False

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Reading:
        """From the columns outcome, failure_message, known (there is a row of the metric), value and reason."""
        if row["outcome"] == "failed":
            return cls(None, row["failure_message"] or "the boot failed", failed=True)
        return cls(row["value"], row["reason"]) if row["known"] else cls(None, NOT_DERIVED)


@dataclass(frozen=True)
class Series:
    """All boots of one cell on one hardware class. ``first``, ``last``: starts of its boots, UTC; ``run_id``: of the newest."""

    id: str
    engine: str
    cell_id: str
    cell_digest: str
    model: str
    tier: str
    nodeid: str
    hardware: str
    gpu: str
    branch: str
    boots: int
    failed: int
    errors: int
    first: datetime | None
    last: datetime | None
    run_id: str

    @property
    def test(self) -> str:
        """The test without its folders."""
        file, colons, rest = self.nodeid.partition("::")
        return file.rpartition("/")[2] + colons + rest


# What is the same for all boots of a series comes from its newest one; runs are joined afterwards, to one boot a series.
# The newest is remembered by its place in the table, which takes a third of the time that ids take.
_SERIES = """
WITH grouped AS (
    SELECT series, arg_max(rowid, coalesce(started_at, TIMESTAMP '0001-01-01')) AS place, count(*) AS boots,
           count(*) FILTER (outcome = 'failed') AS failed, count(*) FILTER (outcome = 'error') AS errors,
           min(started_at) AS first, max(started_at) AS last
    FROM boot GROUP BY series
)
SELECT g.series AS id, b.engine, b.cell_id, b.cell_digest, b.model_name AS model, b.tier, b.nodeid, b.run_id, g.boots, g.failed,
       g.errors, g.first, g.last, r.cpu, r.cores, r.memory_bytes, r.gpu, r.git_branch AS branch
FROM grouped g JOIN boot b ON b.rowid = g.place LEFT JOIN run r ON r.run_id = b.run_id
ORDER BY g.last DESC NULLS LAST, g.series
"""


def all_series(con: duckdb.DuckDBPyConnection) -> tuple[Series, ...]:
    """Every series, the last seen first; none where the store holds no boots."""
    return tuple(_series(row) for row in rows(con, _SERIES))


def _series(row: dict[str, Any]) -> Series:
    words = ("engine", "cell_id", "cell_digest", "model", "tier", "nodeid", "gpu", "branch")
    same = ("id", "boots", "failed", "errors", "first", "last", "run_id")
    values: dict[str, Any] = {name: str(row[name] or "") for name in words} | {name: row[name] for name in same}
    return Series(hardware=hardware(row), **values)


def hardware(row: Mapping[str, Any]) -> str:
    """What tells one hardware class from another, in words."""
    return hardware_name(row["cpu"], row["cores"], row["memory_bytes"], row["gpu"])


def is_demo(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether any run of the store is made up by the demo's generator."""
    return bool(rows(con, "SELECT 1 AS found FROM run WHERE json_extract_string(extra, '$.demo') = 'true' LIMIT 1"))
