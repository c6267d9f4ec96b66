"""What the benchmarks share: boots of llama.cpp with the embedded model, medians, output.

Every figure here is a ratio or a paired difference within one run. Absolute times of two
machines, or of one machine on two days, are not compared.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_coldstart.boot import Boot
from pytest_coldstart.cell import Cell
from pytest_coldstart.coldness import TierContradicted, TierRefused
from pytest_coldstart.engines import EngineError, EngineRegistry
from pytest_coldstart.locks import HostLock
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord
from pytest_coldstart.warmup import create

#: One thread, a short context, no probing of memory: the same small boot everywhere.
OPTIONS: dict[str, Any] = {"n_ctx": 512, "n_threads": 1, "n_parallel": 1, "fit": False}


@dataclass
class Bench:
    """Boots of one cell of llama.cpp that share cache roots, below a folder of their own."""

    home: Path
    patience: float = 120.0
    #: Boots made again since another process mapped or evicted the weights meanwhile; each is printed.
    disturbed: list[str] = field(default_factory=list)

    def plan(self, tier: str, observe: bool = True, requests: int = 1) -> Plan:
        engine = EngineRegistry().get("llamacpp")
        cell = Cell("llamacpp", None, tier, options=OPTIONS)
        engine.check(cell)
        found = engine.availability(cell)
        if not found.ok:
            sys.exit(f"llama.cpp cannot be booted here: {found.reason}; {found.enable}")
        try:
            model = engine.model(cell)
        except EngineError as error:
            sys.exit(f"llama.cpp cannot be booted here: {error}")
        return Plan(
            cell,
            cell_id=f"llamacpp-{tier}",
            nodeid="benchmark",
            engine=engine,
            model=model,
            warmup=create("none"),
            caches=self.home / "caches",
            logs=self.home / "logs",
            requests=requests,
            observe=observe,
        )

    def boot(self, tier: str, observe: bool = True, requests: int = 1) -> BootRecord:
        """One whole boot. A failed one is returned; one that a neighbour disturbed is made again."""
        begin = time.monotonic()
        while True:
            boot = Boot(self.plan(tier, observe, requests))
            try:
                boot.run()
                return boot.stop()
            except (TierRefused, TierContradicted) as error:
                if time.monotonic() - begin > self.patience:
                    raise
                self.disturbed.append(f"{tier}: {error}")
                print(f"made again, disturbed: {tier}: {error}", file=sys.stderr)
                time.sleep(1)


@contextmanager
def bench() -> Iterator[Bench]:
    """A bench under the lock that measured boots of this host take in turn."""
    with tempfile.TemporaryDirectory(prefix="coldstart-bench-") as folder:
        home = Path(folder)
        (home / "logs").mkdir()
        with HostLock("measured-boot"):
            yield Bench(home)


def cold_start(record: BootRecord) -> float:
    """Seconds until the first request was answered whole; a failed boot is +infinity."""
    value = record.metrics["cold_start"].value if record.outcome == "ok" else None
    return math.inf if value is None else value


@dataclass(frozen=True)
class Summary:
    """n values: median, quartiles and extremes."""

    n: int
    median: float
    low: float
    high: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
        return cls(len(values), statistics.median(values), low, high, min(values), max(values))

    def show(self, scale: float = 1.0, digits: int = 2, unit: str = "") -> str:
        """``median [quartile..quartile], least..most, n=``"""

        def text(value: float) -> str:
            return f"{value * scale:.{digits}f}"

        return (
            f"{text(self.median)}{unit} [{text(self.low)}..{text(self.high)}], "
            f"{text(self.least)}..{text(self.most)}, n={self.n}"
        )


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Bounds of the median by order statistics alone, at least *level* sure."""
    ordered, n = sorted(values), len(values)
    cut, tail = 0, 0.0
    while cut < (n - 1) // 2 and tail + math.comb(n, cut) / 2**n <= (1 - level) / 2:
        tail += math.comb(n, cut) / 2**n
        cut += 1
    cut = max(cut - 1, 0)
    return ordered[cut], ordered[n - 1 - cut]


def sign_test(wins: int, n: int) -> tuple[float, float]:
    """Exact p of *wins* or more among *n* fair coins: one-sided, two-sided."""
    one = sum(math.comb(n, k) for k in range(wins, n + 1)) / 2**n
    other = sum(math.comb(n, k) for k in range(wins + 1)) / 2**n
    return one, min(1.0, 2 * min(one, other))


def arguments(text: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of JSON after the table")
    parser.add_argument("--seed", type=int, default=None, help="of the random order; default: another one each run")
    return parser


def table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def finish(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """The load of the host at the end, and the JSON line where it was asked for."""
    load = os.getloadavg()[0]
    print(f"load average at the end {load:.2f} on {os.cpu_count()} CPUs")
    if options.json:
        content = {**result, "load_average": load, "cpus": os.cpu_count()}
        print(json.dumps(content, default=lambda value: vars(value)))
