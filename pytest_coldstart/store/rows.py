"""Rows: what the tables hold of a run, its boots and its verdicts, by column name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import BootRecord, Cache
from pytest_coldstart.store.runfile import CellVerdict

Row = dict[str, Any]

#: Keys of a run file's first line that have a column of their own.
HEADER = (
    *("run_id", "hostname", "cpu", "cores", "memory_bytes", "kernel", "gpu", "driver", "hardware_class"),
    *("git_commit", "git_dirty", "git_branch", "ci", "versions", "command"),
)
_PLAIN = (
    *("boot_id", "run_id", "cell_digest", "base_digest", "cell_id", "nodeid", "engine", "tier", "role", "round"),
    *("outcome", "cell", "versions", "command", "environment", "model", "log_path", "log_bytes", "load_average"),
    *("poll_delay", "harness_time"),
)


def series(cell_digest: str, hardware_class: str | None) -> str:
    """The identity over time: one cell on one hardware class."""
    return f"{cell_digest}-{hashlib.sha256((hardware_class or '').encode()).hexdigest()[:8]}"


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


def boot_rows(records: Iterable[BootRecord], hardware_class: str | None) -> dict[str, list[Row]]:
    """The rows of each table that holds boots."""
    rows: dict[str, list[Row]] = {name: [] for name in ("boot", "instant", "phase", "metric", "request", "cache")}
    for record in records:
        owner = {"boot_id": record.boot_id}
        rows["boot"].append(_boot(record, hardware_class))
        for table, found in _parts(record).items():
            rows[table] += [owner | row for row in found]
    return rows


def _boot(record: BootRecord, hardware_class: str | None) -> Row:
    failure = record.failure
    return {
        **{name: getattr(record, name) for name in _PLAIN},
        "series": series(record.cell_digest, hardware_class),
        "model_name": record.model.get("name") or record.cell.get("model"),
        "started_at": utc(record.started_at),
        "evidence": asdict(record.evidence),
        "usage": asdict(record.usage),
        "stop": asdict(record.stop),
        "attribution": asdict(record.attribution),
        "hints": [asdict(hint) for hint in record.hints],
        "failure_kind": failure.kind if failure else None,
        "failure_message": failure.message if failure else None,
        "failure_instant": failure.instant if failure else None,
        "failure_diagnosis": failure.diagnosis if failure else None,
        "log_tail": failure.log_tail if failure else None,
    }


def _parts(record: BootRecord) -> dict[str, list[Row]]:
    instants = {**record.instants, **{f"endpoint:{name}": value for name, value in record.endpoints.items()}}
    phases = [
        {"position": n, "begin_s": item.begin, "end_s": item.end, **asdict(item)}
        for n, item in enumerate(record.phases)
    ]
    requests = [{"position": n, "ttft": item.ttft, **asdict(item)} for n, item in enumerate(record.requests)]
    return {
        "instant": [{"name": name, "seconds": value} for name, value in instants.items()],
        "phase": phases,
        "metric": [
            {"name": name, "unit": METRICS[name].unit if name in METRICS else None, **asdict(value)}
            for name, value in record.metrics.items()
        ],
        "request": requests,
        "cache": [_cache(item) for item in record.caches],
    }


def _cache(item: Cache) -> Row:
    plain = ("name", "path", "new_files", "new_names", "new_kinds", "new_bytes")
    row: Row = {name: getattr(item, name) for name in plain}
    for when, state in (("before", item.before), ("after", item.after)):
        row[f"files_{when}"] = state.files if state else None
        row[f"bytes_{when}"] = state.bytes if state else None
        row[f"digest_{when}"] = state.digest if state else None
    return row


def verdict_rows(run_id: str, verdicts: Iterable[CellVerdict]) -> list[Row]:
    """One row a key; of a test that was run again in the run, the last verdict holds."""
    rows: dict[tuple[object, ...], Row] = {}
    for item in verdicts:
        verdict = item.verdict
        key = (item.nodeid, item.cell_digest, verdict.metric, verdict.stat, verdict.op, verdict.bound)
        owner = {"cell_digest": item.cell_digest, "cell_id": item.cell_id, "tier": item.tier, "nodeid": item.nodeid}
        rows[key] = {"run_id": run_id, **owner, **verdict.to_dict()}
    return list(rows.values())
