"""Several comparisons at once: which of them still hold."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def holm(p: Mapping[K, float], levels: Mapping[K, float]) -> dict[K, float]:
    """The level that each key was tested at, for the keys that are rejected; the others are not in it.

    The smallest p (over its own level) is tested at its level over the number of keys, the next at its level over
    one less, until one is not rejected. S. Holm, A simple sequentially rejective multiple test procedure,
    Scandinavian Journal of Statistics 6 (1979); with p-values that hold at any look, each key at its own: Y. Ye,
    A. Li, L. Liu and B. Yap, A group sequential Holm procedure with multiple primary endpoints, Statistics in
    Medicine 32 (2013).
    """
    rejected: dict[K, float] = {}
    order = sorted(p, key=lambda key: p[key] / levels[key])
    for left, key in zip(range(len(order), 0, -1), order, strict=True):
        level = levels[key] / left
        if p[key] > level * (1 + 1e-9):
            break
        rejected[key] = level
    return rejected


def holm_levels(level: float, comparisons: int) -> list[float]:
    """The levels that a comparison can be tested at, falling."""
    return [level / left for left in range(1, comparisons + 1)]
