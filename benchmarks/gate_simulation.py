"""How often the gate is wrong, how often it finds a slowdown, and how many boots that takes.

    python benchmarks/gate_simulation.py            # all tables, about ten minutes on two cores
    python benchmarks/gate_simulation.py --quick    # the same with few repetitions

The noise is that of real boots (``data/gate_noise.json``: log residuals from their series' median), resampled in
two ways: *iid* takes each boot by itself, *blocks* takes runs of 8 consecutive boots and so keeps their
autocorrelation. A slowdown of s multiplies every boot of the head by 1 + s. *scaled* noise has the shape of the real one
and a smaller spread, as on a quieter machine.

Compared: the gate as it is (first 4 boots a side, then one a side, each block in random order, up to a budget);
the Mann-Whitney test with a fixed number of boots (two-sided 0.05), that number chosen so that its power is the gate's;
asv's rule likewise (Mann-Whitney p < 0.002). Both rivals get boots in random order too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta, rankdata

from pytest_coldstart.stats.decision import IMPROVED, INCONCLUSIVE, REGRESSED, SAME, Block, Rules
from pytest_coldstart.stats.series import Series

NOISE = Path(__file__).with_name("data") / "gate_noise.json"
#: Consecutive boots that are resampled together.
RUN = 8
#: Boots a side in the gate's first block.
FIRST = 4
SLOWDOWNS = (0.05, 0.10, 0.20)
#: The most boots a side that a rival is tried with.
MOST_FIXED = 80
#: Two-sided level, and whether p must be below it: the usual test, and asv's.
RIVALS = ((0.05, False), (0.002, True))


@dataclass(frozen=True)
class Noise:
    """``residuals``: logs less their median, in the order of the boots. ``way``: iid or blocks."""

    name: str
    residuals: tuple[float, ...]
    way: str

    def draw(self, rng: np.random.Generator, rows: int, boots: int) -> np.ndarray:
        """Residuals of *boots* consecutive boots, *rows* times; shape (rows, boots)."""
        values = np.array(self.residuals)
        if self.way == "iid":
            return rng.choice(values, size=(rows, boots))
        starts = rng.integers(len(values), size=(rows, math.ceil(boots / RUN), 1))
        return values[(starts + np.arange(RUN)) % len(values)].reshape(rows, -1)[:, :boots]


def noises(scales: Iterable[float] = ()) -> list[Noise]:
    """The stored series, resampled both ways; then the first one scaled to these standard deviations."""
    found = [
        Noise(item["name"], tuple(item["residuals"]), way)
        for item in json.loads(NOISE.read_text())["series"]
        for way in ("iid", "blocks")
    ]
    spread = statistics.stdev(found[0].residuals)
    scaled = [
        Noise(f"scaled to {scale:.0%}", tuple(value * scale / spread for value in found[0].residuals), "iid")
        for scale in scales
    ]
    return found + scaled


def blocks(residuals: np.ndarray, slowdown: float, rng: np.random.Generator) -> list[Block]:
    """The gate's blocks of boots in the order of *residuals*: which of a block are the head's is drawn."""
    values = np.exp(residuals)
    made: list[Block] = []
    begin = 0
    while begin < len(values):
        size = 2 * FIRST if not begin else 2
        order = rng.permutation(size)
        part = values[begin : begin + size][order]
        head = part[size // 2 :] * (1 + slowdown)
        made.append(Block(tuple(part[: size // 2].tolist()), tuple(head.tolist())))
        begin += size
    return made


def gate(made: Sequence[Block], rules: Rules) -> tuple[str, int]:
    """The outcome and the boots a side of one comparison: what `decide` says after each block until it is final."""
    stop, begin = 4, 0
    while True:
        known = made[:stop]
        whole = Series.of(known, rules)
        margin, never = whole.scale.shift(rules.margin), len(known)
        worse = whole.first_look(True, rules.alpha / 2, never=never)
        better = whole.first_look(False, rules.alpha / 2, never=never)
        within: int | None = None
        floor = whole.scale.shift(rules.floor)
        for number in range(begin, len(known)):
            shift = Series.of(known[: number + 1], rules).estimate or 0.0
            boots = FIRST + number
            end = boots >= rules.most_boots
            if worse <= number and shift > floor:
                return REGRESSED, boots
            if better <= number and shift < -floor:
                return IMPROVED, boots
            if abs(shift) <= floor or end:
                if within is None:  # Worked out where it is asked only: seldom where a change is large.
                    above = whole.first_look(False, rules.alpha, margin, never)
                    within = max(above, whole.first_look(True, rules.alpha, -margin, never))
                if within <= number:
                    return SAME, boots
            if end:
                return INCONCLUSIVE, boots
        stop, begin = 2 * stop, len(known)


def gates(seed: int, count: int, noise: Noise, slowdown: float, rules: Rules) -> list[tuple[str, int]]:
    rng = np.random.default_rng(seed)
    rows = noise.draw(rng, count, 2 * rules.most_boots)
    return [gate(blocks(row, slowdown, rng), rules) for row in rows]


def false_tests(seed: int, count: int, noise: Noise, family: int, rules: Rules) -> int:
    """Of *count* families of equal sides, in how many any test rejects at any look: no floor, no early stop.

    Of a family of equal sides, Holm rejects at least one exactly where one is rejected at alpha over the family's size.
    """
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(count):
        rows = noise.draw(rng, family, 2 * rules.most_boots)
        level = rules.alpha / 2 / family
        wrong += any(
            whole.first_look(worse, level, never=99) < 99
            for whole in (Series.of(blocks(row, 0.0, rng), rules) for row in rows)
            for worse in (True, False)
        )
    return wrong


@lru_cache(maxsize=256)
def critical(boots: int, level: float, strict: bool) -> float:
    """The smallest U (heads above bases) whose two-sided exact p is at most (strict: below) *level*; infinity for none."""
    ways = np.zeros(boots * boots + 1)
    ways[0] = 1
    for number in range(1, boots + 1):
        # Times (1 - q^(boots + number)), over (1 - q^number): Mann and Whitney's counts.
        ways[boots + number :] -= ways[: -(boots + number)].copy() if boots + number < len(ways) else 0
        for start in range(number):
            ways[start::number] = np.cumsum(ways[start::number])
    tail = 2 * np.cumsum(ways[::-1])[::-1] / ways.sum()
    reached = np.flatnonzero(tail < level * (1 - 1e-12) if strict else tail <= level * (1 + 1e-12))
    return float(reached[0]) if reached.size else math.inf


@dataclass(frozen=True)
class Fixed:
    """A Mann-Whitney test with a fixed number of boots, two-sided. ``strict``: p must be below the level, as asv asks."""

    noise: Noise
    level: float
    strict: bool
    rows: int
    seed: int
    shuffled: bool = True

    def power(self, boots: int, slowdown: float) -> tuple[float, float]:
        """How often *boots* a side call the head slower, and how often faster."""
        rng = np.random.default_rng([self.seed, boots])
        values = self.noise.draw(rng, self.rows, 2 * boots)
        if self.shuffled:
            values = rng.permuted(values, axis=1)
        values[:, boots:] += math.log1p(slowdown)
        above = rankdata(values, axis=1)[:, boots:].sum(axis=1) - boots * (boots + 1) / 2
        edge = critical(boots, self.level, self.strict)
        return float((above >= edge).mean()), float((boots * boots - above >= edge).mean())

    def boots(self, power: float, slowdown: float) -> float | None:
        """How many boots a side have this *power*, between whole numbers by a straight line; None above the most."""
        low, high = 2, MOST_FIXED
        below, reached = 0.0, self.power(high, slowdown)[0]
        if reached < power:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            found = self.power(middle, slowdown)[0]
            if found >= power:
                high, reached = middle, found
            else:
                low, below = middle, found
        return low + (power - below) / (reached - below)


def interval(hits: int, count: int) -> tuple[float, float]:
    """95 %, exact: C. J. Clopper and E. S. Pearson, The use of confidence or fiducial limits (1934)."""
    low = float(beta.ppf(0.025, hits, count - hits + 1)) if hits else 0.0
    return low, float(beta.ppf(0.975, hits + 1, count - hits)) if hits < count else 1.0


def spread_out(pool: ProcessPoolExecutor, work: Callable[[int, int], Any], count: int, seed: int) -> list[Any]:
    """*work*(seed, part) over parts of *count*, in all processes."""
    parts = 8
    sizes = [count // parts + (number < count % parts) for number in range(parts)]
    return list(pool.map(work, [seed * 1000 + number for number in range(parts)], sizes))


def null_table(pool: ProcessPoolExecutor, count: int, rules: Rules, seed: int) -> None:
    """False alarms of the test itself: no floor holds them back, and nothing stops the boots early."""
    print("| noise | resampled | family | families | comparisons | false alarms, any look | 95 % interval |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    found = noises()
    for family in (1, 4):
        families = math.ceil(count / family / len(found))
        total = 0
        for number, noise in enumerate(found):
            work = partial(_false_tests, noise=noise, family=family, rules=rules)
            wrong = sum(spread_out(pool, work, families, _own(seed, family, number)))
            total += wrong
            print(_alarms(noise.name, noise.way, family, families, wrong), flush=True)
        print(_alarms("all", "", family, families * len(found), total), flush=True)
    print()


def _own(seed: int, *places: int) -> int:
    """A seed of a row's own: rows that shared their random numbers could not be added up."""
    for place in places:
        seed = 100 * seed + place
    return seed


def _alarms(name: str, way: str, family: int, families: int, wrong: int) -> str:
    low, high = interval(wrong, families)
    return (
        f"| {name} | {way} | {family} | {families:,} | {families * family:,} | {wrong / families:.2%} "
        f"| {low:.2%} to {high:.2%} |"
    )


def _false_tests(seed: int, count: int, noise: Noise, family: int, rules: Rules) -> int:
    return false_tests(seed, count, noise, family, rules)


def _gates(seed: int, count: int, noise: Noise, slowdown: float, rules: Rules) -> list[tuple[str, int]]:
    return gates(seed, count, noise, slowdown, rules)


def run_gates(
    pool: ProcessPoolExecutor, count: int, noise: Noise, slowdown: float, rules: Rules, seed: int
) -> tuple[Counter[str], list[int]]:
    """How often each outcome came, and the boots a side of each comparison."""
    work = partial(_gates, noise=noise, slowdown=slowdown, rules=rules)
    ran = [one for part in spread_out(pool, work, count, seed) for one in part]
    return Counter(outcome for outcome, _ in ran), [boots for _, boots in ran]


def power_table(
    pool: ProcessPoolExecutor,
    count: int,
    rows: int,
    rules: Rules,
    seed: int,
    found: Sequence[Noise],
    slowdowns: Sequence[float],
) -> None:
    """Outcomes and boots a side for each noise and slowdown, and what the rivals need for the same power.

    "n once" is the rival's n for the smallest slowdown in the table whose power is at least one half: what it takes
    where nobody knows beforehand how large the slowdown is.
    """
    print(
        "| noise | resampled | slowdown | regressed | improved | same | inconclusive | mean boots | median "
        "| Mann-Whitney n | ratio | n once | ratio | asv n | ratio |"
    )
    print("|" + " --- |" * 15)
    for number, noise in enumerate(found):
        once: float | None = None
        for place, slowdown in enumerate(slowdowns):
            own = _own(seed, place, number)
            outcomes, boots = run_gates(pool, count, noise, slowdown, rules, own)
            power, mean = outcomes[REGRESSED] / count, statistics.fmean(boots)
            rivals: list[float | None] = [None] * 3
            if slowdown:
                rank, asv = (Fixed(noise, *rule, rows, seed).boots(power, slowdown) for rule in RIVALS)
                once = once or (rank if power >= 0.5 else None)
                rivals = [rank, once, asv]
            shares = (outcomes[outcome] / count for outcome in (REGRESSED, IMPROVED, SAME, INCONCLUSIVE))
            print(
                f"| {noise.name} | {noise.way} | {slowdown:.0%} | "
                + " | ".join(f"{share:.1%}" for share in shares)
                + f" | {mean:.1f} | {statistics.median(boots):g} | "
                + " | ".join(cell for number in rivals for cell in _against(mean, number))
                + " |",
                flush=True,
            )
    print()


def _against(mean: float, boots: float | None) -> tuple[str, str]:
    return ("-", "-") if boots is None else (f"{boots:.1f}", f"{mean / boots:.2f}")


def rivals_table(rows: int, seed: int) -> None:
    """How often the rivals raise a false alarm, in random order and with all bases before all heads."""
    print("| noise | resampled | order of the boots | Mann-Whitney 0.05 at 12 | asv's rule at 12 |")
    print("| --- | --- | --- | --- | --- |")
    for noise in noises():
        for shuffled in (True, False):
            rates = [sum(Fixed(noise, level, strict, rows, seed, shuffled).power(12, 0.0)) for level, strict in RIVALS]
            order = "random" if shuffled else "all of the base first"
            print(f"| {noise.name} | {noise.way} | {order} | {rates[0]:.2%} | {rates[1]:.2%} |")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repetitions: whether it runs, not what comes out")
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument(
        "--null",
        type=int,
        default=10_000,
        help="null comparisons (default: 10000) for families of one, and as many for families of four",
    )
    parser.add_argument("--power", type=int, default=400, help="comparisons for each slowdown (default: 400)")
    parser.add_argument("--only", choices=["null", "rivals", "power"], help="one of the tables")
    parser.add_argument("--budgets", type=int, nargs="+", default=[20], help="boots a side at most (default: 20)")
    parser.add_argument("--noise", default="", help="only the noises whose name begins so")
    parser.add_argument("--slowdowns", type=float, nargs="+", default=[0.0, *SLOWDOWNS], help="of the head")
    options = parser.parse_args()
    null, power, rows = (16, 16, 200) if options.quick else (options.null, options.power, 4000)
    found = [noise for noise in noises((0.02, 0.05)) if noise.name.startswith(options.noise)]
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        if options.only in (None, "null"):
            print("### False alarms of the gate\n")
            null_table(pool, null, Rules(), options.seed)
        if options.only in (None, "rivals"):
            print("### False alarms of the rivals\n")
            rivals_table(null, options.seed)
        for budget in options.budgets if options.only in (None, "power") else ():
            print(f"### Power and boots, at most {budget} boots a side\n")
            rules = replace(Rules(), most_boots=budget)
            power_table(pool, power, rows, rules, options.seed, found, options.slowdowns)


if __name__ == "__main__":
    main()
