"""How far the head is from the base: the estimate of Hodges and Lehmann and its exact interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pytest_coldstart.stats.ranks import Floats
from pytest_coldstart.stats.scale import Costs


def differences(blocks: Sequence[Costs]) -> Floats:
    """Every head less every base, each less its block's centre, sorted; shape (heads x bases,).

    The centre is the middle between the means of both sides, so that a shift of the head moves all differences alike.
    """
    bases, heads = [], []
    for base, head in blocks:
        if base and head:
            centre = (_mean(base, head) + _mean(head, base)) / 2
            bases.append(np.array(base) - centre)
            heads.append(np.array(head) - centre)
    if not bases:
        return np.array([])
    one, other = np.concatenate(heads), np.concatenate(bases)
    with np.errstate(invalid="ignore"):
        both = one[:, None] - other[None, :]
    # Two failed boots do not differ.
    both[np.isnan(both)] = 0.0
    return np.sort(both, axis=None)


def _mean(values: Sequence[float], others: Sequence[float]) -> float:
    finite = [value for value in values if np.isfinite(value)] or [value for value in others if np.isfinite(value)]
    return float(np.mean(finite)) if finite else 0.0


def hodges_lehmann(found: Floats) -> float | None:
    """The median of the :func:`differences`; None where there are none, or it lies between minus and plus infinity.

    J. L. Hodges and E. L. Lehmann, Estimates of location based on rank tests, Annals of Mathematical Statistics 34
    (1963): the shift at which the rank test sees no difference.
    """
    if not found.size:
        return None
    low, high = found[(found.size - 1) // 2], found[found.size // 2]
    value = low if low == high else (low + high) / 2
    return None if np.isnan(value) else float(value)


def interval(
    found: Floats, worse: Callable[[float], bool], better: Callable[[float], bool]
) -> tuple[float | None, float | None]:
    """The shifts that the tests do not reject; None for an end that so few boots cannot bound.

    ``worse(d)``: whether the head, moved down by d, is still found worse; ``better(d)`` its mirror image. The tests change
    only where d passes one of the differences *found*, so each end is one of them. D. F. Bauer, Constructing
    confidence sets using rank statistics, Journal of the American Statistical Association 67 (1972).
    """
    edges = np.unique(np.round(found[np.isfinite(found)], 12))
    if not edges.size:
        return None, None
    gaps = [edges[0] - 1.0, *((edges[1:] + edges[:-1]) / 2), edges[-1] + 1.0]
    first = _first(len(gaps), lambda place: not worse(gaps[place]))
    last = _first(len(gaps), lambda place: not better(gaps[-1 - place]))
    low = float(edges[first - 1]) if first else None
    high = float(edges[len(edges) - last]) if last else None
    return low, high


def _first(count: int, holds: Callable[[int], bool]) -> int:
    """The first place below *count* from which on *holds*, by bisection; count - 1 where none does."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
