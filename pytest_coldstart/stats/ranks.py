"""Aligned ranks: what is left of each value when its block's centre is taken away, ranked over all blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_coldstart.stats.scale import Costs

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[Any]


def doubled_ranks(values: Floats) -> Ints:
    """Twice the ranks, 1 for the smallest, ties at the middle of their places: whole numbers, so that sums are exact."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    doubled: Ints = (2 * np.cumsum(counts) - counts + 1)[place]
    return doubled


@lru_cache(maxsize=1024)
def aligned(block: Costs, shift: float = 0.0) -> tuple[float, ...]:
    """Costs of a block, base first, the head moved down by *shift*, less the mean of the finite ones.

    The mean does not ask which side a value is of: a re-drawn order would have left the same values.
    """
    values = (*block[0], *(value - shift for value in block[1]))
    finite = [value for value in values if math.isfinite(value)]
    centre = math.fsum(finite) / len(finite) if finite else 0.0
    # A difference of rounded costs is exact to about 1e-15: what is closer than 1e-10 was a tie.
    return tuple(round(value - centre, 10) for value in values)


def aligned_ranks(blocks: Sequence[Costs], shift: float = 0.0) -> list[Ints]:
    """Doubled ranks of each block's values, base first, of all blocks together, the head moved down by *shift*.

    J. L. Hodges and E. L. Lehmann, Rank methods for combination of independent experiments in analysis of
    variance, Annals of Mathematical Statistics 33 (1962).
    """
    parts = [aligned(block, shift) for block in blocks]
    ranks = doubled_ranks(np.array([value for part in parts for value in part]))
    ends = list(accumulate(len(part) for part in parts))
    return [ranks[end - len(part) : end] for end, part in zip(ends, parts, strict=True)]
