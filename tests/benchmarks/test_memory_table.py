"""The tables of benchmarks/gpu/memory_table.py from a store and readings made by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from pytest_coldstart.memory import GPU, Allocator, Burst, KVCache, Load, Memory
from pytest_coldstart.record import Failure, Phase, Stop, Value
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from tests.store.samples import FULL, record, write

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
BEGAN = datetime.fromisoformat(FULL.started_at).timestamp()

READY = Allocator("ready", 71, 0, "EngineCore", reserved=1000 * MIB, active=900 * MIB, allocated=880 * MIB)
AFTER = Allocator(
    "after", 71, 0, "EngineCore", reserved=1000 * MIB, active=900 * MIB, active_peak=960 * MIB, reserved_peak=1000 * MIB
)
MEMORY = Memory(
    gpus=(
        GPU(
            0,
            "GPU-a",
            "H200",
            before_bytes=0,
            ready_bytes=1500 * MIB,
            peak_bytes=1600 * MIB,
            after_bytes=0,
            process_bytes={"71": 1550 * MIB},
        ),
    ),
    allocators=(READY, AFTER),
    kv=(KVCache("held", 5.0, 16, 1000, 50, 16000, 776, "metrics", 4, 0),),
    burst=Burst("d", 4, 8, 0, (1,), 4.0, 5.0, 6.0, True),
    load=Load(15 * 10**9, 9.375, 1.5e9, 52e9, 63e9, "disk"),
    sizes={"weights": 300 * MIB, "kv_pool": 500 * MIB},
)


@pytest.fixture
def readings(tmp_path: Path) -> Path:
    """What a second reader and nvidia-smi said, with lines that must not count: torn, of another boot, not available."""
    folder = tmp_path / "readings"
    folder.mkdir()
    lines = [
        {"time": BEGAN - 50, "pid": 71, "device": 0, "reserved": 7 * MIB},
        {
            "time": BEGAN + 3.9,
            "pid": 71,
            "device": 0,
            "reserved": 1000 * MIB,
            "active": 898 * MIB,
            "allocated": 880 * MIB,
        },
        {
            "time": BEGAN + 6.3,
            "pid": 71,
            "device": 0,
            "reserved": 1000 * MIB,
            "active": 900 * MIB,
            "active_peak": 950 * MIB,
            "reserved_peak": 1000 * MIB,
        },
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "check-71-1.jsonl").write_text(text + '{"time": 1')
    gpus = [(0.5, 0), (1.2, 1490), (5.0, 1610), (8.0, 3), (60.0, 9999)]
    (folder / "smi-gpus.csv").write_text("".join(f"{BEGAN + at}, GPU-a, {size}\n" for at, size in gpus))
    processes = [(2.0, "1550"), (3.0, "[N/A]"), (4.0, "1500")]
    (folder / "smi-processes.csv").write_text("".join(f"{BEGAN + at}, GPU-a, 71, {size}\n" for at, size in processes))
    return folder


def test_each_value_stands_beside_its_independent_reading(tmp_path: Path, readings: Path) -> None:
    home = Home.at(tmp_path / "home")
    home.prepare()
    killed = record(
        "b-2",
        outcome="failed",
        memory=Memory(gpus=(GPU(0, "GPU-a", "H200", before_bytes=0, after_bytes=0),)),
        failure=Failure("exit", "gone", "start"),
        phases=(Phase("load_weights", 0.0, 2.0, "probe"), Phase("unattributed", 2.0, 3.0, "probe")),
        stop=Stop(leaked_processes=("vllm",)),
    )
    metrics = {**FULL.metrics, "cold_start": Value(2.0, "client"), "fragmentation": Value(None, None, "no burst")}
    write(home, "main", record("b-1", memory=MEMORY, metrics=metrics), killed)
    assert ingest(home).problems == []
    words = [sys.executable, ROOT / "benchmarks/gpu/memory_table.py", home.database.parent, readings]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stderr == ""
    rows = {line.replace(" | ", "|").strip("| ") for line in done.stdout.splitlines()}
    name = "boot restart"
    assert {
        # 4 % of the peak; idle 100 of 1000, and of the 200 that are neither weights nor KV pool.
        f"{name}|after|EngineCore:0|1000.0|900.0|-|-|4.00%|10.00%|50.00%|-|None|None",
        f"{name}|held|16|50 / 1000|16000|776|metrics|4|3.00%",  # 50 blocks of 16 are room for 800 tokens
        f"{name}|ready|-0.10|active|900.0|898.0|+2.0",
        f"{name}|after|+0.30|active_peak|960.0|950.0|+10.0",
        f"{name}|71|-|5.00%",
        f"{name}|0|ready|1500.0|1490.0|+10.0",
        f"{name}|0|peak|1600.0|1610.0|-10.0",
        f"{name}|0|after|0.0|3.0|-3.0",
        f"{name}|0|most of pid 71|1550.0|1550.0|+0.0",
        f"{name}|b-2|exit|0.0|1|load_weights",
    } <= rows
    (slo,) = (row for row in rows if row.startswith(f"{name}|ok|"))
    assert slo.startswith(f"{name}|ok|2.00 s|")
    assert "unmeasured: no burst" in slo
    assert slo.endswith(
        "|0.0|weights came at 1.6 GB/s; a plain read gives 1.5 GB/s, a pinned copy 52 GB/s, the link 63 GB/s: the disk is the limit"
    )
