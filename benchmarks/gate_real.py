"""The gate on real boots of llama.cpp: false alarms of a base against itself, and a head with an honest slowdown.

    python benchmarks/gate_real.py                       # 40 and 20 repeats
    python benchmarks/gate_real.py --null 2 --slow 2

Goal: ``regressed`` in at most 5 of 40 repeats of the base against itself at alpha 0.05, and in at least 19 of 20 of the
slower head, each with the right phase named.

Both sides are the interpreter of this environment behind a shell script. The head's script reads the weights whole, as often as
makes about ``--share`` of a boot, before it becomes the interpreter: real work, all of it in the phase spawn.
"""

from __future__ import annotations

import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _common import arguments, finish, table

from pytest_coldstart.engines.llamacpp import embedded_model
from pytest_coldstart.gate.comparison import IGNORE, GateReport, Side
from pytest_coldstart.gate.judge import compare
from pytest_coldstart.gate.live import live_side, run_live, undecided
from pytest_coldstart.gate.policy import Policy
from pytest_coldstart.stats.decision import OUTCOMES, REGRESSED
from pytest_coldstart.store.home import Home

SUITE = """
import pytest

@pytest.mark.coldstart(engine="llamacpp", tier="restart", requests=1, prompt_words=[8],
                       options={"n_ctx": 512, "n_parallel": 1, "n_threads": 1, "fit": False})
@pytest.mark.slo("cold_start<=10min", "warm_first_token<=10min")
def test_boot(cold_boot): ...
"""
METRIC, PHASE = "cold_start", "spawn"


@dataclass(frozen=True)
class Repeat:
    """One gate: the outcome of cold_start, its change, the phase that is blamed, boots a side, seconds; the counters that moved."""

    outcome: str
    change: float | None
    phase: str | None
    boots: int
    seconds: float
    counters: tuple[str, ...] = ()

    @property
    def alarm(self) -> bool:
        """Whether anything is said to have regressed, by time or by a counter that the policy does not pass."""
        return self.outcome == REGRESSED or bool(self.counters)


def wrapper(file: Path, reads: int, model: Path) -> Path:
    """A script that is the interpreter; for the engine it first reads *model* whole, *reads* times."""
    files = " ".join([shlex.quote(str(model))] * reads)
    work = f'case "$1" in *xllamacpp_server.py) cat {files} > /dev/null ;; esac\n' if reads else ""
    file.write_text(f'#!/bin/sh\n{work}exec {shlex.quote(sys.executable)} "$@"\n')
    file.chmod(0o755)
    return file


def reading(model: Path) -> float:
    """Median seconds of one whole read, as the script does it."""
    taken = []
    for _ in range(7):
        begin = time.perf_counter()
        subprocess.run(["sh", "-c", f"cat {shlex.quote(str(model))} > /dev/null"], check=True)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def gate(folder: Path, head: Path, seed: int, policy: Policy) -> tuple[Repeat, Side]:
    """One gate of the plain interpreter against *head*, with a store of its own."""
    base = live_side(f"python:llamacpp={folder / 'plain'}", folder)
    last: list[GateReport] = []

    def look(base: Side, head: Side, final: bool) -> set[tuple[str, str]]:
        last[:] = [compare(base, head, policy, final=final)]
        return undecided(last[0])

    with tempfile.TemporaryDirectory(dir=folder) as store:
        made = run_live(
            base,
            live_side(f"python:llamacpp={head}", folder),
            ["test_boot.py"],
            look,
            Home.at(Path(store)),
            most_boots=policy.most_boots,
            seed=seed,
            here=folder,
            extra=["-p", "coldstart", "--coldstart-cpu"],
        )
    if not last[0].cells:
        sys.exit(f"nothing was compared: {', '.join(item.reason for item in last[0].refused)}")
    cell = last[0].cells[0]
    change = next(change for change in cell.changes if change.metric == METRIC)
    boots = sum(boot.record.counted for boot in made.base.boots)
    phase = cell.blamed.phase if cell.blamed else None
    moved = tuple(
        item.metric
        for item in cell.changes
        if item.kind == "counter" and item.outcome == REGRESSED and item.policy != IGNORE
    )
    return Repeat(change.outcome, change.change, phase, boots, made.seconds, moved), made.base


def repeats(name: str, count: int, one: Callable[[int], Repeat]) -> list[Repeat]:
    found = []
    for number in range(count):
        found.append(one(number))
        print(f"{name} {number + 1} of {count}: {found[-1]}", file=sys.stderr, flush=True)
    return found


def row(name: str, found: list[Repeat]) -> tuple[str, ...]:
    outcomes = Counter(item.outcome for item in found)
    phases = Counter(item.phase or "none" for item in found if item.outcome == REGRESSED)
    changes = [item.change for item in found if item.change is not None]
    return (
        name,
        f"{outcomes[REGRESSED]} of {len(found)}",
        f"{sum(item.alarm for item in found)} of {len(found)}",
        ", ".join(f"{outcome} {outcomes[outcome]}" for outcome in OUTCOMES if outcomes[outcome]),
        ", ".join(f"{phase} {times}" for phase, times in phases.most_common()) or "-",
        f"{statistics.median(changes):+.1%}" if changes else "-",
        f"{statistics.median(item.boots for item in found):g}",
        f"{statistics.median(item.seconds for item in found):.0f} s",
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--null", type=int, default=40, metavar="N", help="repeats of the base against itself")
    parser.add_argument("--slow", type=int, default=20, metavar="N", help="repeats of the slower head")
    parser.add_argument("--share", type=float, default=0.2, help="of a boot, that the head's reads take")
    parser.add_argument("--boots", type=int, default=20, metavar="N", help="boots a side at most")
    options = parser.parse_args()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a child is to start quickly
    seed = int(time.time()) if options.seed is None else options.seed
    policy = Policy(metrics={METRIC: "fail"}, most_boots=options.boots)
    model = embedded_model()
    with tempfile.TemporaryDirectory(prefix="coldstart-gate-real-") as name:
        folder = Path(name)
        (folder / "test_boot.py").write_text(SUITE)
        plain = wrapper(folder / "plain", 0, model)
        _, side = gate(folder, plain, seed, Policy(metrics={METRIC: "fail"}, most_boots=2))
        boot = statistics.median(
            value for item in side.boots if (value := item.record.metrics[METRIC].value) is not None
        )
        once = reading(model)
        reads = max(1, math.ceil(options.share * boot / once))
        slow = wrapper(folder / "slow", reads, model)
        print(f"seed {seed}; a boot takes {boot:.2f} s, one read of {model.name} {once * 1000:.0f} ms: {reads} reads")
        null = repeats("base against itself", options.null, lambda i: gate(folder, plain, seed + i, policy)[0])
        slower = repeats("slower head", options.slow, lambda i: gate(folder, slow, seed + 1000 + i, policy)[0])
    head = ("head", "regressed", "or a counter", "outcomes", "phase blamed", "change", "boots a side", "a repeat")
    table([head, *(row(name, found) for name, found in (("itself", null), (f"{reads} reads", slower)) if found)])
    right = sum(item.outcome == REGRESSED and item.phase == PHASE for item in slower)
    print(f"regressed with the phase {PHASE}: {right} of {len(slower)}")
    finish(options, {"seed": seed, "reads": reads, "boot": boot, "null": null, "slow": slower, "right": right})


if __name__ == "__main__":
    main()
