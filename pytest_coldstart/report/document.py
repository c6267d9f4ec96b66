"""One boot whole, as one JSON object."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pytest_coldstart import reuse
from pytest_coldstart.attribution import UNATTRIBUTED
from pytest_coldstart.derive import path_seconds, phase_seconds
from pytest_coldstart.record import BootRecord


def document(record: BootRecord, host: Mapping[str, Any]) -> dict[str, Any]:
    """What ``coldstart show --json`` prints: seconds from the start, bytes, and None for what was not measured.

    ``critical_path`` is a partition of start to ``total``; ``phases`` sums it. *host* as in
    :func:`pytest_coldstart.report.show.lines`.
    """
    found = record.attribution
    sums = phase_seconds(record.phases)
    plain = (
        *("boot_id", "run_id", "nodeid", "cell_id", "cell", "engine", "versions", "model", "tier", "role", "round"),
        *("outcome", "started_at", "instants", "endpoints"),
    )
    data = {name: getattr(record, name) for name in plain} | {
        "host": dict(host),
        "probe": found.probe,
        "critical_path": [
            {
                "phase": item.name,
                "detail": item.detail,
                "start": item.begin,
                "end": item.end,
                "process": item.process,
                "source": item.source,
            }
            for item in record.phases
        ],
        "total": path_seconds(record) if record.phases else None,
        "unattributed": sums.get(UNATTRIBUTED, 0.0) if record.phases else None,
        "phases": sums,
        "processes": [asdict(item) for item in found.processes],
        "readings": [asdict(item) for item in found.readings],
        "disagreements": [asdict(item) for item in found.disagreements],
        "unmatched": [asdict(item) for item in found.unmatched],
        "spreads": [asdict(item) for item in found.spreads],
        "hottest": [asdict(item) for item in found.hottest],
        "missing": list(found.missing),
        "caches": [
            asdict(cache) | {"statement": statement.text, "verdict": statement.verdict}
            for cache, statement in zip(record.caches, reuse.statements(record), strict=True)
        ],
        "evidence": asdict(record.evidence),
        "memory": asdict(record.memory),
        "hints": [asdict(item) for item in record.hints],
        "metrics": {name: asdict(value) for name, value in record.metrics.items()},
        "failure": asdict(record.failure) if record.failure else None,
        "command": list(record.command),
        "log_path": record.log_path,
        "samples_path": found.samples_path,
    }
    return {name: finite(value) for name, value in data.items()}


def finite(value: Any) -> Any:
    """*value* with None for the numbers that JSON has not."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
