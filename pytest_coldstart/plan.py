"""A plan: everything that decides how the boots of one cell are made."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_coldstart.attribution import PROBE_MODES
from pytest_coldstart.burst import BurstSpec
from pytest_coldstart.cell import Cell
from pytest_coldstart.engines.base import Engine, Model
from pytest_coldstart.warmup import Warmup

#: Instants that can have a deadline.
DEADLINES = ("listen", "ready", "first_token", "first_done", "warmed")


@dataclass(frozen=True)
class Plan:
    """Durations in seconds. ``requests`` is how many warm requests are timed: the judged first
    one and the distribution after it; ``prompt_words`` their lengths, taken in turn."""

    cell: Cell
    cell_id: str
    nodeid: str
    engine: Engine
    model: Model
    warmup: Warmup
    rounds: int = 3
    requests: int = 11
    prompt_words: tuple[int, ...] = (32,)
    request_tokens: int = 4
    boot_timeout: float = 600.0
    deadlines: Mapping[str, float] = field(default_factory=dict)
    hang_timeout: float = 120.0
    port: int | None = None
    parallel: bool = False
    observe: bool = True
    #: What runs inside the engine's Python processes: off, marks or full.
    probe: str = "full"
    #: The requests that are held at once to measure memory, if any.
    burst: BurstSpec | None = None
    #: How many GPUs a boot takes; None: as many as its adapter says.
    gpu_count: int | None = None
    #: Seconds that a boot waits for its GPUs to be idle, and whether others may hold memory of them.
    gpu_wait: float = 60.0
    foreign_gpus: bool = False
    #: Of one boot's lease: the devices that are watched, by UUID, and the variables that make the engine see them alone.
    gpus: tuple[str, ...] = ()
    #: Why they cannot be read, where the host has some.
    gpu_missing: str = ""
    #: Why the GPUs that the suite asks for could not be leased, where the host has none that is known of.
    gpu_unleased: str = ""
    gpu_idle: Mapping[str, int] = field(default_factory=dict)
    gpu_environ: Mapping[str, str] = field(default_factory=dict)
    #: Whether the spans of an engine that emits OpenTelemetry traces are received.
    spans: bool = False
    cwd: Path = field(default_factory=Path.cwd)
    caches: Path = Path("caches")
    logs: Path = Path("logs")
    run_id: str = ""
    keep_logs: str = "failed"
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def __post_init__(self) -> None:
        """Check what a suite may override.

        :raises ValueError: a field that no boot can use.
        """
        for name, least in (("rounds", 1), ("requests", 0), ("request_tokens", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"plan.{name}={value!r} is not a whole number from {least}")
        for name in ("boot_timeout", "hang_timeout", "gpu_wait"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not value > 0:
                raise ValueError(f"plan.{name}={value!r} is not a number of seconds above 0")
        unknown = sorted(set(self.deadlines) - set(DEADLINES))
        if unknown:
            raise ValueError(f"plan.deadlines has no instant {unknown[0]!r}; valid instants: {', '.join(DEADLINES)}")
        if self.probe not in PROBE_MODES:
            raise ValueError(f"plan.probe={self.probe!r} is not one of {', '.join(PROBE_MODES)}")
        if not self.prompt_words:
            raise ValueError("plan.prompt_words is empty")

    @property
    def python(self) -> str:
        return self.cell.python or sys.executable

    @property
    def cache_home(self) -> Path:
        """The folder of the cell's cache roots, shared by all its tiers."""
        return self.caches / self.cell.base_digest
