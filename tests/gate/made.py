"""Run files with known numbers: cells, machines and times as a test needs them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_coldstart.gate.comparison import Side, SideBoot
from pytest_coldstart.record import BootRecord, Failure, Phase, Value
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.runfile import RunFile

HEADER: dict[str, Any] = {
    "started_at": "2026-11-02T09:00:00.000+00:00",
    "hostname": "node7",
    "cpu": "AMD EPYC 9654",
    "cores": 96,
    "memory_bytes": 768 * 2**30,
    "kernel": "6.8.0",
    "gpu": "NVIDIA H200",
    "driver": "570.86.15",
    "hardware_class": "0123456789ab",
    "git_commit": "a" * 40,
    "git_dirty": False,
    "git_branch": "main",
    "versions": {"pytest": "9.2.0"},
    "command": ["pytest", "--coldstart"],
}

CELL: dict[str, Any] = {
    "engine": "llamacpp",
    "model": "tiny",
    "tier": "restart",
    "options": {"ctx": 512},
    "env": {},
    "python": None,
    "command": [],
    "warmup": {"strategy": "none"},
    "requests": {"first": "x/16", "count": 11},
}


def boot(number: int, seconds: float | None = 2.0, cell_id: str = "tiny-restart", **changes: Any) -> BootRecord:
    """A boot whose cold_start is *seconds*, failed where that is None; warm_first_token is a hundredth of it.

    Changes named ``options``, ``engine``, ``tier``, ``model``, ``warmup`` make another cell of it, others another record.
    """
    cell = {**CELL, **{name: changes.pop(name) for name in list(changes) if name in CELL and name != "command"}}
    digest = hashlib.sha256(json.dumps(cell, sort_keys=True).encode()).hexdigest()[:12]
    failed = seconds is None
    took = 1.0 if seconds is None else seconds
    metrics = (
        {name: Value(None, None, "the boot failed") for name in ("cold_start", "warm_first_token")}
        if failed
        else {"cold_start": Value(took, "client"), "warm_first_token": Value(took / 100, "client")}
    )
    record = BootRecord(
        boot_id=f"20261102T09{number // 60:02d}{number % 60:02d}-{number:08x}",
        run_id="",
        nodeid=f"test_{cell['engine']}.py::test_cold_start[{cell_id}]",
        cell_id=cell_id,
        cell=cell,
        cell_digest=digest,
        base_digest=digest,
        engine=cell["engine"],
        tier=cell["tier"],
        role="measured",
        round=number,
        outcome="failed" if failed else "ok",
        started_at=f"2026-11-02T09:{number // 60:02d}:{number % 60:02d}.000+00:00",
        instants={"start": 0.0, "first_done": took},
        phases=(Phase("load_weights", 0.0, took / 2, "probe"), Phase("first_request", took / 2, took, "client")),
        metrics=metrics,
        failure=Failure("exit", "exited with 1", "start") if failed else None,
        versions={"xllamacpp": "2026.10"},
    )
    return dataclasses.replace(record, **changes)


def run(home: Home, run_id: str, boots: Sequence[BootRecord], verdicts: Sequence[Verdict] = (), **header: Any) -> Path:
    """A closed run file; *header* overrides keys of the run's first line."""
    file = RunFile(home, run_id, "main", {**HEADER, **header})
    for record in boots:
        file.boot(dataclasses.replace(record, run_id=run_id))
    for verdict in verdicts:
        owner = boots[-1]
        file.verdict(owner.cell_digest, owner.cell_id, owner.tier, owner.nodeid, verdict)
    file.close(0)
    return file.path


def side(name: str, boots: Sequence[BootRecord], **header: Any) -> Side:
    """A side of boots that were made one after the other in a run of their own."""
    full = {**HEADER, **header}
    return Side(name, f"run:{name}", tuple(SideBoot(dataclasses.replace(item, run_id=name), full) for item in boots))


def interleaved(values: Mapping[str, Sequence[float | None]], first: int = 4, **changes: Any) -> tuple[Side, Side]:
    """Base and head of one gate: the first *first* boots a side are its first block, then each block has one a side."""
    sides = []
    for offset, name in enumerate(("base", "head")):
        boots = []
        for index, seconds in enumerate(values[name]):
            number = 2 * index + offset
            record = dataclasses.replace(boot(number, seconds, **changes), run_id=f"{name}-{index}")
            block = 0 if index < first else index - first + 1
            boots.append(SideBoot(record, HEADER, "gate-1", block, number))
        sides.append(Side(name, f"git:{name}", tuple(boots)))
    return sides[0], sides[1]
