"""Stability of a series: how much its boots scatter when nothing changed, from its own history."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_coldstart.stats.changes import change_points

if TYPE_CHECKING:
    import duckdb

    from pytest_coldstart.history.read import RunPoint
    from pytest_coldstart.store.home import Home

#: Fewer boots than this since the last change say nothing about a series.
LEAST_BOOTS = 8

#: A series is unstable where its scatter is more than this (1.4826 median absolute deviations, a fraction of its
#: median: the standard deviation of noise without outliers), or where more than this share of its boots failed.
SCATTER, FAILED = 0.10, 0.10

#: Of the median absolute deviation of normal noise to its standard deviation.
_NORMAL = 1.4826

#: How many of the newest runs are looked at.
_RECENT = 200


@dataclass(frozen=True)
class Stability:
    """``mad``: the median absolute deviation of the boots since the last change point, a fraction of their median; None where
    there are too few. ``boots``: how many these are, failed ones included. ``reason``: of either, in words."""

    unstable: bool
    mad: float | None
    boots: int
    reason: str = ""


UNKNOWN = Stability(False, None, 0, "no boots of this series are stored")


def stability(con_or_home: duckdb.DuckDBPyConnection | Home, series: str, metric: str) -> Stability:
    """As :func:`stabilities` of one series."""
    return stabilities(con_or_home, [series], [metric])[metric][series]


def stabilities(
    con_or_home: duckdb.DuckDBPyConnection | Home,
    series: Sequence[str],
    metrics: Sequence[str],
    without: Collection[str] = (),
) -> dict[str, dict[str, Stability]]:
    """The stability of each of *series* in each of *metrics*, by one query. A home without a database has no history. Needs the extra ``gate``.

    *without*: ids of runs that are no part of the history, as those that are being judged: their change is not its noise.

    :raises StoreError: the store cannot be read, or another process holds it.
    :raises ImportError: numpy or ruptures is missing.
    """
    from pytest_coldstart.history.read import runs_of_each
    from pytest_coldstart.store.database import reader
    from pytest_coldstart.store.home import Home

    opened: AbstractContextManager[duckdb.DuckDBPyConnection]
    if isinstance(con_or_home, Home):
        if not con_or_home.database.exists():
            return {metric: dict.fromkeys(series, UNKNOWN) for metric in metrics}
        opened = reader(con_or_home.database)
    else:
        opened = nullcontext(con_or_home)
    with opened as con:
        found = runs_of_each(con, series, metrics, newest=_RECENT)
    return {
        metric: {name: of_runs([run for run in runs[name] if run.run_id not in without]) for name in series}
        for metric, runs in found.items()
    }


def of_runs(runs: Sequence[RunPoint]) -> Stability:
    """The stability of a series whose runs, in the order of time, are *runs*."""
    recent = list(runs)[-_RECENT:]
    changes = change_points([run.values for run in recent]).points
    since = recent[changes[-1].high if changes[-1].kind == "drift" else changes[-1].index :] if changes else recent
    values = [value for run in since for value in run.values]
    boots = len(values)
    if boots < LEAST_BOOTS:
        where = "since the last change point" if changes else "stored"
        return Stability(False, None, boots, f"{boots} boots with a value {where}; {LEAST_BOOTS} are needed")
    finite = [value for value in values if math.isfinite(value)]
    failed = boots - len(finite)
    mad = _mad(finite) if len(finite) >= LEAST_BOOTS else None
    reasons = []
    if failed > FAILED * boots:
        reasons.append(f"{failed} of {boots} boots failed")
    if mad is not None and _NORMAL * mad > SCATTER:
        reasons.append(f"its boots scatter by {_NORMAL * mad:.0%}, more than {SCATTER:.0%}")
    return Stability(bool(reasons), mad, boots, "; ".join(reasons))


def _mad(values: Sequence[float]) -> float | None:
    """The median absolute deviation as a fraction: of logs, where all are above zero, else over the median."""
    middle = statistics.median(values)
    if min(values) > 0:
        return math.expm1(statistics.median(abs(math.log(value / middle)) for value in values))
    spread = statistics.median(abs(value - middle) for value in values)
    if spread == 0:
        return 0.0
    return spread / abs(middle) if middle else None
