"""How a level is spent over the looks, and p-values that hold at any of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_coldstart.stats.randomisation import Bools, Look
from pytest_coldstart.stats.ranks import Ints

#: For reading, p-values are given as the smallest of these levels (and of the levels that decide) that reject.
LEVELS = (
    *(1.0, 0.7, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.025, 0.02, 0.015, 0.0125),
    *(0.01, 0.008, 0.006, 0.005, 0.004, 0.003, 0.002, 0.0015, 0.001, 5e-4, 2e-4, 1e-4),
)


#: Boots a side at the first look, and the share of a one-sided 0.025 that one of their 70 orders takes.
FIRST, FIRST_SHARE = 4, 1 / 70 / 0.025


def share(boots: float, most: int) -> float:
    """The share of a level that may be spent by *boots* a side of *most*: a power of the information fraction.

    K. K. G. Lan and D. L. DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70 (1983): any
    increasing function from 0 to 1 keeps the level. The power is one half, or less where that leaves the first look too little:
    at 0.025 one-sided, complete separation of 4 and 4 (1 of 70 orders) decides at any *most*.
    """
    power = min(0.5, math.log(FIRST_SHARE) / math.log(FIRST / most)) if most > FIRST else 0.5
    return min(1.0, float((boots / most) ** power) + 1e-12)


def sequential_p(found: Sequence[Look], shares: Sequence[float], levels: Sequence[float], worse: bool = True) -> float:
    """The smallest of *levels* (falling) at which the head was found worse (or better) by now; 1 where at none."""
    rejected = first_rejections(found, shares, levels, worse)
    return levels[len(rejected) - 1] if rejected else 1.0


def first_rejections(
    found: Sequence[Look], shares: Sequence[float], levels: Sequence[float], worse: bool = True
) -> list[int]:
    """The number of the first look that rejects at each of *levels* (falling), up to the first level that none rejects at.

    At each level, each look rejects the paths with the largest statistic among those not rejected before, as many as
    the spending allows: what a look could not spend for want of paths is left to the next. V. Plamadeala and
    W. F. Rosenberger, Sequential monitoring with conditional randomization tests, Annals of Statistics 40 (2012).
    A look never rejects at a smaller level what it does not reject at a larger one of *levels*, so the chance that
    the smallest one is at most a level, at any look, is at most that level.
    """
    least: list[float] = [-math.inf] * len(found)
    signed = [one.sums if worse else -one.sums for one in found]
    first: list[int] = []
    for level in levels:
        alive: Bools = np.ones(1, dtype=bool)
        rejected: int | None = None
        for number, (one, sums) in enumerate(zip(found, signed, strict=True)):
            alive = np.repeat(alive, one.fan)
            inside = sums[alive]
            room = level * shares[number] * len(alive) + 1e-9 - (len(alive) - len(inside))
            least[number] = max(least[number], _threshold(inside, room))
            alive &= sums < least[number]
            if rejected is None and not alive[one.happened]:
                rejected = number
        if rejected is None:
            break
        first.append(rejected)
    return first


def _threshold(sums: Ints, room: float) -> float:
    """The smallest value that at most *room* of *sums* reach; infinity where even the largest has too many."""
    if room < 1 or not sums.size:
        return math.inf
    low = int(sums.min())
    reached = np.cumsum(np.bincount(sums - low)[::-1])
    values = int(np.searchsorted(reached, room, side="right"))
    if values == 0:
        return math.inf
    return float(low + len(reached) - values)
