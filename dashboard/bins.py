"""Bins that several histograms share, and what is said of each."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_coldstart.derive import P99_NEEDS, jitter
from pytest_coldstart.metrics import median, percentile, skewness

#: Bins of one axis.
NUMBER = 40
#: Values that differ by more than this stand on a logarithmic axis.
WIDE = 10.0


@dataclass(frozen=True)
class Summary:
    """What is said of one distribution. ``high``: the 99th percentile where ``is_p99``, with fewer values the maximum."""

    number: int
    p50: float
    high: float
    is_p99: bool
    jitter: float | None
    skew: float | None

    @property
    def high_name(self) -> str:
        return "p99" if self.is_p99 else "max"


def summary(values: Sequence[float]) -> Summary | None:
    """As the metrics ttft_jitter and ttft_skew are defined; None without values."""
    if not values:
        return None
    enough = len(values) >= P99_NEEDS
    high = percentile(values, 0.99) if enough else max(values)
    spread = jitter(list(values)) if len(values) > 1 else None
    return Summary(len(values), median(values), high, enough, spread, skewness(values))


def logarithmic(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) > WIDE * min(values)


def edges(values: Sequence[float], number: int = NUMBER) -> list[float]:
    """The limits of *number* bins over *values*, as wide as each other on their axis; none without values."""
    if not values:
        return []
    least, most = min(values), max(values)
    if least == most:  # a width that can be seen
        least, most = least * 0.95, most * 1.05 or 1.0
    if logarithmic(values):
        step = math.log(most / least) / number
        return [least * math.exp(step * index) for index in range(number)] + [most]
    return [least + (most - least) * index / number for index in range(number)] + [most]


def counts(values: Sequence[float], limits: Sequence[float]) -> list[int]:
    """How many *values* are in each bin: from its lower limit to below its upper one, that of the last bin included."""
    found = [0] * (len(limits) - 1)
    for value in values:
        found[min(max(bisect.bisect_right(limits, value) - 1, 0), len(found) - 1)] += 1
    return found
