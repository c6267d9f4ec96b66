"""A boot record in which every field has a value of its own, and helpers to write run files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from pytest_coldstart.attribution import (
    Attribution,
    Disagreement,
    Hint,
    HotFrame,
    Process,
    Reading,
    Spread,
    Unmatched,
)
from pytest_coldstart.memory import Series
from pytest_coldstart.record import (
    BootRecord,
    Cache,
    Evidence,
    Failure,
    FileResidency,
    Inventory,
    Phase,
    Request,
    Stop,
    Usage,
    Value,
)
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.runfile import RunFile
from tests.store.memory_sample import MEMORY

HEADER: dict[str, Any] = {
    "started_at": "2026-11-02T09:00:00+01:00",
    "hostname": "node7",
    "cpu": "AMD EPYC 9654",
    "cores": 96,
    "memory_bytes": 811_748_818_944,
    "kernel": "6.8.0",
    "gpu": "NVIDIA H200",
    "driver": "570.86.15",
    "hardware_class": "h200x1-epyc9654",
    "git_commit": "0123abc",
    "git_dirty": True,
    "git_branch": "main",
    "ci": {"provider": "github", "run": 17},
    "versions": {"pytest": "9.2.0"},
    "command": ["pytest", "-q"],
    "locale": "C.UTF-8",
}

FULL = BootRecord(
    boot_id="b-1",
    run_id="r-1",
    nodeid="test_a.py::test_boot[x]",
    cell_id="llamacpp-tiny-restart",
    cell={"engine": "llamacpp", "model": "tiny", "options": {"ctx": 512}},
    cell_digest="c0ffee000001",
    base_digest="ba5e00000001",
    engine="llamacpp",
    tier="restart",
    role="measured",
    round=2,
    outcome="ok",
    started_at="2026-11-02T08:00:01.250+00:00",
    instants={"start": 0.0, "listen": 0.5, "ready": 1.25, "first_token": 1.5, "first_done": 2.0, "stopped": 7.5},
    endpoints={"/health": 1.25, "/v1/models": 0.75},
    poll_delay=0.02,
    phases=(
        Phase("imports", 0.0, 0.25, "probe", "server", "torch"),
        Phase("load_weights", 0.25, 1.0, "log"),
    ),
    attribution=Attribution(
        probe="full",
        end=1.0,
        processes=(
            Process(
                *(7, 1, "server", 0.0, 7.5, -15, "server --ctx 512", "full", "", {"python": 0.0625, "torch": 0.125}),
                *({"torch": 0.25}, 900, 20, 0.01, 0.125, {"TRITON_CACHE_DIR": "/c/triton"}),
            ),
            Process(8, 7, "ninja", 0.5, missing="no Python process"),
        ),
        readings=(Reading(("load_weights",), 0.75, "log", "loaded in", "server", 0.25, 1.0),),
        disagreements=(Disagreement(("imports",), "probe", 0.25, "log", 0.75, "imports took"),),
        unmatched=(Unmatched("llamacpp", "1.2", "weights"),),
        spreads=(Spread(0.25, 1.0, {"rank 0": 0.5, "rank 1": 1.0}),),
        hottest=(HotFrame("server", "ggml:alloc", 0.125),),
        missing=("ninja is no Python process",),
        samples_path="/h/probe/b-1",
    ),
    memory=MEMORY,
    hints=(Hint("imports", "imports take 0.25 s", 0.25),),
    requests=(
        Request("first", 0, 1.3, 1.5, 1.6, 2.0, "d1", 9, 16, 17, "length", 2, None, 0.125),
        Request("warm", 0, 3.0, error="reset by peer"),
    ),
    caches=(
        Cache("xdg", "/c/xdg", Inventory(1, 10, "aa"), Inventory(3, 30, "bb"), 2, ("x", "y z"), {"kernels": 2}, 20),
        Cache("triton", "/c/triton", Inventory(0, 0, "ee")),
    ),
    evidence=Evidence(
        weights=(FileResidency("/m/w.gguf", 100, 100, "ext4", "proved"),),
        libraries=(FileResidency("/l/lib.so", 50, None, "nfs", "cannot_tell", "remote"),),
        state={"weights": "resident"},
        tree_read_bytes=4096,
        device_read_bytes=8192,
        unprovable=("driver state",),
        contradictions=("none really",),
    ),
    usage=Usage(
        1_000_000, 11, 2, 0.75, 4096, 30, Series((0.5, 1.5), {"rss": (500_000, 1_000_000), "cpu_time": (0.25, None)})
    ),
    stop=Stop(0.4, True, -15, ("123 python",), ("/dev/shm/x",), 64, True),
    failure=Failure(
        "exit", "exited with 1", "listen", "last\nlines \u2713", ("imports of server since 0.0 s", "poll()")
    ),
    references={
        "reference_import": Value(0.0625, "python 3.11.7"),
        "reference_copy": Value(None, None, "no GPU of this boot is known"),
    },
    metrics={
        "cold_start": Value(2.0, "client"),
        "peak_rss": Value(1_000_000.0, "proc"),
        "harness_time": Value(0.5, "client"),
        "fragmentation": Value(None, None, "no source"),
        "of_my_own": Value(3.0, "log"),
    },
    versions={"xllamacpp": "2026.10"},
    model={"name": "tiny", "bytes": 100},
    command=("server", "--ctx", "512"),
    environment={"HF_HOME": "/c/hf"},
    log_path="/h/logs/b-1.log",
    log_bytes=512,
    load_average=1.5,
    harness_time=0.5,
)

PASS = Verdict("cold_start", "max", "<=", 10.0, "s", 2.0, 3, "pass", "default", "client")


def record(boot_id: str, **changes: Any) -> BootRecord:
    return dataclasses.replace(FULL, boot_id=boot_id, **{"failure": None, **changes})


def write(home: Home, worker: str, *records: BootRecord, run_id: str = "r-1", close: int | None = 0) -> Path:
    """A run file with *records*; *close* is its exit status, None leaves it open."""
    file = RunFile(home, run_id, worker, HEADER)
    for item in records:
        file.boot(dataclasses.replace(item, run_id=run_id))
    if close is not None:
        file.close(close)
    return file.path
