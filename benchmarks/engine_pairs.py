"""What this tool costs a boot of any engine: harness time beside the engine's own, and watched against less watched boots.

`--compare probe` (the default): the probe full against off, all else alike; and the CPU that its sampler took in each process. `--compare
observer`: with probe and /proc against without both. Unobserved boots still have their readiness polled and their hang watched, with one sample of /proc a second; observed ones take ten,
and five after 30 s, or fewer where they would cost more than 1 % of a core.

Pairs of boots at tier restart, in random order within a pair, after boots that fill the caches. The bound of the ratio is one-sided
and rests on order statistics alone. Each boot's line is printed as it ends, so that a run that is cut short is not lost.

Goals: harness time at most 1 % of the boot; the upper 95 % bound of the ratio at most 1.06 over 12 pairs; the sampler at most 1 %
of one core in each process.

    engine_pairs.py --engine vllm --python ENV/bin/python --option enforce_eager=true -n 12
"""

from __future__ import annotations

import json
import math
import random
import tempfile
from pathlib import Path
from typing import Any

from _common import Summary, arguments, cold_start, finish, table

from pytest_coldstart.boot import Boot
from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import EngineRegistry
from pytest_coldstart.locks import HostLock
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord
from pytest_coldstart.warmup import create


def upper_bound(values: list[float], level: float = 0.95) -> float:
    """One-sided upper bound of the median: the smallest order statistic that at least *level* is sure of; inf if too few."""
    ordered, n = sorted(values), len(values)
    tail = 1.0
    for place in range(n):  # P(median > ordered[place]) = P(at most `place` of n below it)
        tail -= math.comb(n, place) / 2**n
        if tail <= 1 - level:
            return ordered[place]
    return math.inf


def option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("-n", type=int, default=12, help="pairs (default: 12)")
    parser.add_argument("--compare", choices=("probe", "observer"), default="probe")
    parser.add_argument("--engine", default="llamacpp")
    parser.add_argument("--python", default=None, help="interpreter of the engine's environment")
    parser.add_argument("--model", default=None)
    parser.add_argument("--option", type=option, action="append", default=[], metavar="NAME=JSON")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--caches", type=Path, default=None, help="keep caches here, so that a later run needs no filling"
    )
    given = parser.parse_args()
    engine = EngineRegistry().get(given.engine)
    env = dict(text.split("=", 1) for text in given.env)
    cell = Cell(given.engine, given.model, "restart", options=dict(given.option), env=env, python=given.python)
    engine.check(cell)
    model = engine.model(cell).made()
    order = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="coldstart-bench-") as folder, HostLock("measured-boot"):
        caches = given.caches or Path(folder) / "caches"

        def boot(watched: bool) -> BootRecord:
            plan = Plan(
                cell, "pairs", "benchmark", engine, model, create("none"), requests=1, caches=caches, logs=Path(folder) / "logs",
                observe=watched or given.compare == "probe", probe="full" if watched else "off",
            )  # fmt: skip
            made = Boot(plan)
            made.run()
            record = made.stop()
            harness = record.harness_time or math.nan
            share = harness / record.instants["stopped"]
            print(
                f"{given.compare}={watched}  cold_start={cold_start(record):.3f} s  harness={harness:.3f} s  {share:.2%}",
                flush=True,
            )
            return record

        if given.caches is None or not any(caches.glob("*/bytecode/*")):
            boot(True)
        boot(True)
        seconds: dict[bool, list[float]] = {True: [], False: []}
        shares: list[float] = []
        samplers: list[tuple[float, str]] = []
        for _ in range(given.n):
            for watched in order.sample([True, False], 2):
                record = boot(watched)
                seconds[watched].append(cold_start(record))
                if watched:
                    shares.append((record.harness_time or math.nan) / record.instants["stopped"])
                    samplers += sampler_shares(record)
    report(seconds, shares, samplers, given)


def sampler_shares(record: BootRecord) -> list[tuple[float, str]]:
    """The sampler's CPU over the life of each process that lived for 2 s or more, up to first_done."""
    end = record.instants["first_done"]
    return [
        (item.probe_cpu / (min(item.end or end, end) - item.start), item.name)
        for item in record.attribution.processes
        if item.probe_cpu is not None and min(item.end or end, end) - item.start >= 2
    ]


def report(
    seconds: dict[bool, list[float]], shares: list[float], samplers: list[tuple[float, str]], given: Any
) -> None:
    ratios = [a / b for a, b in zip(seconds[True], seconds[False], strict=True)]
    bound = upper_bound(ratios)
    rows = [
        ("", "median [quartiles], extremes"),
        ("cold_start watched, s", Summary.of(seconds[True]).show(digits=3)),
        ("cold_start without, s", Summary.of(seconds[False]).show(digits=3)),
        ("watched / without", Summary.of(ratios).show(digits=4)),
        ("  upper 95 % bound of the median", f"{bound:.4f} (goal 1.06: {'met' if bound <= 1.06 else 'not met'})"),
        ("harness time / boot", Summary.of(shares).show(scale=100, unit=" %")),
    ]
    if samplers:
        most, name = max(samplers)
        met = "met" if most <= 0.01 else "not met"
        rows.append(
            ("sampler's CPU in one process", Summary.of([share for share, _ in samplers]).show(scale=100, unit=" %"))
        )
        rows.append(("  the most, goal 1 %", f"{most:.2%} ({name}): {met}"))
    table(rows)
    finish(given, {"ratios": ratios, "bound": bound, "shares": shares, "samplers": samplers})


if __name__ == "__main__":
    main()
