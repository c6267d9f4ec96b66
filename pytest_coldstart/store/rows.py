"""Rows: what the tables hold of a run and its verdicts, by column name. Those of boots: :mod:`.lines`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pytest_coldstart.store import memory
from pytest_coldstart.store.runfile import RunData

Row = dict[str, Any]

#: Keys of a run file's first line that have a column of their own.
HEADER = (
    *("run_id", "hostname", "cpu", "cores", "memory_bytes", "kernel", "gpu", "driver", "hardware_class"),
    *("git_commit", "git_dirty", "git_branch", "ci", "versions", "command"),
)

#: Tables whose rows belong to a boot.
TABLES = ("instant", "phase", "metric", "request", "cache", *memory.TABLES)


def series(cell_digest: str, hardware_class: str | None) -> str:
    """The identity over time: one cell on one hardware class."""
    return f"{cell_digest}-{hardware_digest(hardware_class)}"


def hardware_digest(hardware_class: str | None) -> str:
    return hashlib.sha256((hardware_class or "").encode()).hexdigest()[:8]


def utc(text: str | None) -> str | None:
    """An ISO 8601 time as UTC without a zone; a time without a zone is taken to be UTC.

    :raises ValueError: *text* is no time.
    """
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(sep=" ")


def run_row(header: Mapping[str, Any], source_file: str) -> Row:
    known = {*HEADER, "version", "started_at"}
    return {
        **{name: header.get(name) for name in HEADER},
        "started_at": utc(header.get("started_at")),
        "extra": {name: value for name, value in header.items() if name not in known},
        "record_version": header.get("version"),
        "exit_status": None,
        "source_file": source_file,
    }


def verdict_rows(data: RunData) -> dict[tuple[object, ...], Row]:
    """One row a key of the table; of a test that was run again in the run, the last verdict holds."""
    rows: dict[tuple[object, ...], Row] = {}
    run_id = data.header["run_id"]
    for item in data.verdicts:
        verdict = item.verdict
        key = (run_id, item.nodeid, item.cell_digest, verdict.metric, verdict.stat, verdict.op, verdict.bound)
        owner = {"cell_digest": item.cell_digest, "cell_id": item.cell_id, "tier": item.tier, "nodeid": item.nodeid}
        rows[key] = {"run_id": run_id, **owner, **vars(verdict)}
    return rows
