"""What happened in the time of the demo: runs, and events that changed something from a day on."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pytest_coldstart import __version__
from pytest_coldstart.demo.cells import CELLS, DemoCell, Step
from pytest_coldstart.environment import hardware_class

#: Days that are shown, and the runs in them.
DAYS, RUNS = 90, 60

#: The day of each event.
LOADER, UPGRADE, STALE, REGRESSION, NO_BLOCKS, DRIVER, BAD_NIGHT = 30, 45, 55, 62, 70, 76, 83
#: The machine was away from the first of these days to the second.
AWAY = (20, 24)

#: Package -> (from which day, its version).
VERSIONS: Mapping[str, tuple[tuple[int, str], ...]] = {
    "vllm": ((0, "0.25.1"),),
    "sglang": ((0, "0.5.9"), (UPGRADE, "0.6.0")),
    "lmdeploy": ((0, "0.14.0"), (NO_BLOCKS, "0.15.0")),
    "tensorrt-llm": ((0, "1.2.0"),),
    "xllamacpp": ((0, "2026.8.9001"),),
    "transformers": ((0, "5.1.0"),),
    "torch": ((0, "2.10.0"), (UPGRADE, "2.11.0")),
}
_DRIVERS = ((0, "570.133.20"), (DRIVER, "580.95.05"))


@dataclass(frozen=True)
class Host:
    """A machine, and which cells it boots."""

    name: str
    gpu: str
    total: int

    @property
    def cells(self) -> tuple[DemoCell, ...]:
        if self is H200:
            return CELLS
        default = {"block_size": 16, "gpu_memory_utilization": 0.9}
        return tuple(item for item in CELLS if item.tier == "restart" and default.items() <= item.options.items())


H200 = Host("demo-h200", "NVIDIA H200", 150_754_820_096)
H100 = Host("demo-h100", "NVIDIA H100 80GB HBM3", 85_520_809_984)


@dataclass(frozen=True)
class DemoRun:
    """One run. ``day``: days since the first one; ``commit``: which of the commits it tests."""

    number: int
    day: float
    at: datetime
    host: Host
    commit: int

    @property
    def id(self) -> str:
        return f"{self.at:%Y%m%dT%H%M%S}-{4100 + self.number}"

    def header(self) -> dict[str, Any]:
        cpu, cores, memory = "AMD EPYC 9654 (demo)", 48, 540_000_000_000
        pull = self.number % 7 == 2
        return {
            "started_at": self.at.isoformat(timespec="milliseconds"),
            "hostname": self.host.name,
            "cpu": cpu,
            "cores": cores,
            "memory_bytes": memory,
            "kernel": "6.8.0-demo",
            "os": "Linux",
            "load_average": 1.25,
            "steal_fraction": 0.0,
            "gpu": self.host.gpu,
            "driver": since(_DRIVERS, self.day),
            "hardware_class": hardware_class(cpu, cores, memory, [self.host.gpu]),
            "git_commit": hashlib.sha1(f"demo {self.commit}".encode()).hexdigest(),
            "git_branch": "faster-loader" if pull else "main",
            "git_dirty": False,
            "ci": {
                "GITHUB_REPOSITORY": "demo/demo",
                "GITHUB_RUN_ID": str(9_000_000_000 + self.number),
                "GITHUB_RUN_ATTEMPT": "1",
                "GITHUB_REF": f"refs/pull/{self.number}/merge" if pull else "refs/heads/main",
            },
            "gate": None,
            "versions": {"python": "3.12.11", "pytest": "9.2.0", "pytest-coldstart": __version__},
            "command": ["pytest", "--coldstart", "suites"],
            "demo": True,
        }


def runs(now: datetime, order: random.Random) -> Iterator[DemoRun]:
    """The runs, the oldest first; the newest began some hours before *now*. Each fifth one is of the other host."""
    first = (now - timedelta(days=DAYS)).replace(hour=2, minute=10, second=0, microsecond=0)
    for number in range(RUNS):
        day = DAYS * number / RUNS
        if AWAY[0] <= day <= AWAY[1]:
            continue
        at = first + timedelta(days=int(day), seconds=order.randint(0, 1800), hours=10 * (day % 1 >= 0.5))
        yield DemoRun(number, day, at, H100 if number % 5 == 2 else H200, number - (number % 4 == 3))


def since(values: tuple[tuple[int, str], ...], day: float) -> str:
    """What holds on *day* of values that hold from a day on."""
    return next(value for begin, value in reversed(values) if begin <= day)


def versions(item: DemoCell, day: float) -> dict[str, str]:
    own = item.engine.package
    torch = {} if own == "xllamacpp" else {"torch": since(VERSIONS["torch"], day)}
    return {"python": "3.12.11", own: since(VERSIONS[own], day), **torch}


def recompiles(item: DemoCell, day: float) -> bool:
    """Whether the regression hits: from a commit on, compiled models that were kept are not found again."""
    kept = item.tier in ("redeploy", "restart")
    return day >= REGRESSION and kept and item.engine.name == "vllm" and not item.eager


def changed(item: DemoCell, step: Step, day: float) -> float:
    """How much longer a step takes on *day* than it did at the beginning."""
    engine, factor = item.engine.name, 1.0
    if engine == "turbomind" and step.phase == "load_weights" and day >= LOADER:
        factor *= 0.5
    if engine == "sglang" and day >= UPGRADE:
        factor *= {"imports": 1.22, "graph_capture": 0.85}.get(step.phase, 1.0)
    if step.phase == "compile" and recompiles(item, day):
        factor *= 8.0
    if step.phase == "device_init" and day >= DRIVER:
        factor *= 0.55
    return factor


def is_made(item: DemoCell, run: DemoRun) -> bool:
    """Whether a run boots a cell: one was given up, and boots that evict are made every second time."""
    if item.engine.name == "transformers" and run.day >= STALE:
        return False
    return item.tier in ("restart", "wake") or run.number % 2 == 1
