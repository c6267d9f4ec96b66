"""About how many boots a side would decide a comparison that is not decided."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from pytest_coldstart.stats.series import Series
from pytest_coldstart.stats.spending import share

#: The chance with which the stated number of boots decides, if the estimate is right.
POWER = 0.8
#: Nobody boots so often for one comparison.
HOPELESS = 200
#: The efficiency of ranks against means where the noise is normal (Hodges and Lehmann 1956).
EFFICIENCY = 3 / math.pi


def least_boots(series: Series, level: float) -> int:
    """The fewest boots a side at which complete separation reaches the one-sided *level*."""
    if not series.drawn or not series.both:
        boots = 1
        while math.comb(2 * boots, boots) * level < 1 - 1e-9:
            boots += 1
        return boots
    paths = math.prod(math.comb(len(base) + len(head), len(head)) for base, head in series.both)
    boots = min(series.boots)
    while paths * level * share(boots, series.rules.most_boots) < 1 - 1e-9:
        paths *= 2
        boots += 1
    return boots


def needs(series: Series, level: float) -> tuple[int | None, str]:
    """Boots a side, or None and why no number would do. *level*: of the one-sided tests.

    From the estimate and the spread so far, as in the usual formula for two normal samples; rough by nature.
    """
    if any(series.failed):
        return None, "boots failed: more boots do not make a failed one good"
    if not all(series.boots):
        return None, "one side has no value"
    least = least_boots(series, level)
    if min(series.boots) < least:
        return least, f"{least} boots a side are the fewest that can show anything"
    wanted = [_boots(series, gap, tested) for gap, tested in _gaps(series, level)]
    found = min((boots for boots in wanted if boots is not None), default=None)
    if found is None:
        return None, f"more than {HOPELESS} boots a side: the change is too near to the floor or to the margin"
    return max(found, least, max(series.boots) + 1), ""


def _gaps(series: Series, level: float) -> list[tuple[float, float]]:
    """What is to be told from zero, as a shift, and at which level: the change itself, its distance to the margin."""
    size = abs(series.estimate or 0.0)
    floor, margin = series.scale.shift(series.rules.floor), series.scale.shift(series.rules.margin)
    gaps = [(margin - size, series.rules.alpha)]
    return [(size, level), *gaps] if size > floor else gaps


def _boots(series: Series, gap: float, level: float) -> int | None:
    if gap <= 0:
        return None
    normal = NormalDist()
    z = normal.inv_cdf(1 - level) + normal.inv_cdf(POWER)
    boots = math.ceil(2 * (z * _spread(series) / gap) ** 2 / EFFICIENCY)
    return boots if boots <= HOPELESS else None


def _spread(series: Series) -> float:
    """Standard deviation within a side: that of the differences of both sides, over the root of two."""
    return float(np.std(series.differences, ddof=1)) / math.sqrt(2) if series.differences.size > 1 else 0.0
