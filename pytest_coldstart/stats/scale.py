"""Values of a metric on a scale on which a change is a shift: smaller is better, a failed boot is the worst."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_coldstart.stats.decision import Block

#: Base's and head's costs of one block.
Costs = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Scaled:
    """``blocks``: costs, of which the larger one is the worse; +infinity for a failed boot.

    ``ratio``: costs are natural logarithms, so a shift is a ratio; else they are fractions of the base's median.
    ``higher``: a larger value of the metric was better, so that a cost is minus the value.
    """

    blocks: tuple[Costs, ...]
    ratio: bool
    higher: bool

    def shift(self, change: float) -> float:
        """How far a worsening by *change* (0.1 is 10 %) moves a cost. The mirror image is exactly its negative."""
        return math.log1p(change) if self.ratio else change

    def change(self, shift: float | None) -> float | None:
        """A shift of the cost as a change of the value: head over base less one; infinite where most of a side failed."""
        if shift is None:
            return None
        value = -shift if self.higher else shift
        if not self.ratio or math.isinf(value):
            return value  # a side that failed as a whole is no -100 %
        return math.expm1(value) if value < 700 else math.inf


def scaled(blocks: Sequence[Block], better: str) -> Scaled:
    """Logarithms where every finite value is above 0; else differences over the base's median.

    :raises ValueError: a value is NaN, or *better* is neither lower nor higher.
    """
    if better not in ("lower", "higher"):
        raise ValueError(f"better is {better!r}; it is lower or higher")
    for number, block in enumerate(blocks):
        for side, values in (("base", block.base), ("head", block.head)):
            if any(math.isnan(value) for value in values):
                raise ValueError(f"NaN among the values of {side} in block {number}")
    finite = [value for block in blocks for value in (*block.base, *block.head) if math.isfinite(value)]
    ratio = all(value > 0 for value in finite)
    unit = 1.0 if ratio else _unit([v for block in blocks for v in block.base if math.isfinite(v)], finite)
    sign = -1.0 if better == "higher" else 1.0

    def cost(value: float) -> float:
        if math.isinf(value):
            return math.inf
        # Rounded, so that ties of the values stay ties whatever their unit is.
        return round(sign * (math.log(value) if ratio else value / unit), 12)

    made = tuple((tuple(map(cost, block.base)), tuple(map(cost, block.head))) for block in blocks)
    return Scaled(made, ratio, better == "higher")


def _unit(base: list[float], finite: list[float]) -> float:
    median = abs(statistics.median(base)) if base else 0.0
    return median or max(map(abs, finite)) or 1.0
