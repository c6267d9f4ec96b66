"""Exact tests by re-randomisation: what the draw of the order could have made of the same values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pytest_coldstart.stats.ranks import Ints, aligned_ranks, doubled_ranks
from pytest_coldstart.stats.scale import Costs

#: So many paths are enumerated (12 boots a side have 17,920); of more, so many are drawn (seeded), the one that
#: happened among them.
LIMIT = 1 << 15
#: So many assignments of one block are drawn where it has more than ``LIMIT``.
DRAWN_ASSIGNMENTS = 1 << 14
#: From so many boots on, the two-sample test takes the normal approximation: exact ones would take seconds.
LARGE = 100

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Step:
    """How each path goes on by one block.

    ``table``: rows of assignments, 1 where a boot is the head's; the last row is what happened. ``picks``: the rows
    that the paths take, None where each path is continued by every row. ``fan``: continuations of each path.
    """

    table: Ints
    picks: Ints | None
    fan: int


@dataclass(frozen=True)
class Look:
    """The statistic (twice the sum of the head's ranks) of every path; ``happened``: the index of the real one."""

    sums: Ints
    happened: int
    fan: int


@lru_cache(maxsize=64)
def assignments(base: int, head: int, seed: int = 0) -> Ints:
    """All choices of *head* boots among base + head, shape (choices, boots); drawn where there are too many.

    The boots are listed base first, so the last row is the assignment that happened.
    """
    boots = base + head
    if math.comb(boots, head) <= LIMIT:
        chosen = np.array(list(itertools.combinations(range(boots), head)), dtype=np.int64).reshape(-1, head)
        table = np.zeros((len(chosen), boots), dtype=np.int64)
        np.put_along_axis(table, chosen, 1, axis=1)
        return table
    happened = np.repeat([0, 1], [base, head])
    rows = np.tile(happened, (DRAWN_ASSIGNMENTS, 1))
    rows[:-1] = np.random.default_rng([seed, base, head]).permuted(rows[:-1], axis=1)
    return rows


@lru_cache(maxsize=64)
def steps(sizes: tuple[tuple[int, int], ...]) -> tuple[Step, ...]:
    """The paths through blocks of these (base, head) *sizes*.

    Beyond ``LIMIT`` each path is continued by a few drawn rows instead of all. The path that happened keeps its own
    row, and under the null hypothesis it is any of the paths alike: the p-value is (1 + b) / (1 + B).
    """
    found: list[Step] = []
    paths, happened = 1, 0
    for number, (base, head) in enumerate(sizes):
        table = assignments(base, head, number)
        rows = len(table)
        if paths * rows <= LIMIT:
            fan, picks = rows, None
            happened = happened * fan + rows - 1
        else:
            fan = max(1, LIMIT // paths)
            picks = np.random.default_rng([7, number, base, head]).integers(rows, size=paths * fan)
            happened = happened * fan
            picks[happened] = rows - 1
        paths *= fan
        found.append(Step(table, picks, fan))
    return tuple(found)


@lru_cache(maxsize=64)
def look(blocks: tuple[Costs, ...], shift: float = 0.0) -> Look:
    """The joint re-randomisation distribution after all of *blocks*, the head moved down by *shift*."""
    walk = steps(tuple((len(base), len(head)) for base, head in blocks))
    sums = np.zeros(1, dtype=np.int64)
    happened = 0
    for step, ranks in zip(walk, aligned_ranks(blocks, shift), strict=True):
        block = step.table @ ranks
        if step.picks is None:
            sums = (sums[:, None] + block[None, :]).ravel()
            happened = happened * step.fan + step.fan - 1
        else:
            sums = np.repeat(sums, step.fan) + block[step.picks]
            happened = happened * step.fan
    return Look(sums, happened, walk[-1].fan)


def looks(blocks: Sequence[Costs], shift: float = 0.0) -> list[Look]:
    """One look after each block. Blocks without both sides say nothing and are left out."""
    both = tuple(block for block in blocks if block[0] and block[1])
    return [look(both[: number + 1], shift) for number in range(len(both))]


def two_sample_p(base: Sequence[float], head: Sequence[float], large: int = LARGE) -> float:
    """One-sided p that head is larger than base: the exact distribution of the rank sum, ties and all.

    F. Wilcoxon, Individual comparisons by ranking methods, Biometrics Bulletin 1 (1945); H. B. Mann and D. R. Whitney,
    On a test of whether one of two random variables is stochastically larger than the other, Annals of Mathematical
    Statistics 18 (1947). From *large* boots on: the normal approximation with midranks.
    """
    ranks = doubled_ranks(np.round(np.array([*base, *head], dtype=float), 10))
    happened = int(ranks[len(base) :].sum())
    if len(ranks) >= large:
        boots, heads = len(ranks), len(head)
        spread = math.sqrt(len(base) * heads / (boots - 1) * float(ranks.var()))
        if spread == 0:
            return 1.0
        return 0.5 * math.erfc((happened - 1 - heads * float(ranks.mean())) / spread / math.sqrt(2))
    unit = int(np.gcd.reduce(ranks)) or 1  # 2 without ties: half as many sums
    ranks, happened = ranks // unit, happened // unit
    ways = np.zeros((len(head) + 1, int(ranks.sum()) + 1))
    ways[0, 0] = 1
    for rank in ranks.tolist():
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    return float(ways[-1, happened:].sum() / math.comb(len(ranks), len(head)))
