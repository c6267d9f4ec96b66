"""Plain data -> the rows of a page's tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dashboard import place, text
from dashboard.data import NEVER_COUNTED, Point, Reading, Series
from pytest_coldstart.metrics import METRICS, Metric

#: The metrics whose last value stands in the overview.
LAST = ("cold_start", "warm_first_token")

#: The worst first.
_ORDER = ("fail", "unmeasured", "not judged", "pass", "n/a")

Row = dict[str, str]


def summary(series: Sequence[Series]) -> str:
    """``3 series: 1 fail, 2 pass``."""
    counts = Counter(item.verdict for item in series)
    return f"{len(series)} series: {', '.join(f'{counts[word]} {word}' for word in _ORDER if counts[word])}"


def overview(series: Sequence[Series], newest: Mapping[tuple[str, str], Reading]) -> list[Row]:
    """A row a series."""
    return [
        {
            "verdict": item.verdict,
            "engine": item.engine,
            "cell": item.cell_id,
            "tier": item.tier,
            **{name: _last(item, newest, METRICS[name]) for name in LAST},
            "boots": text.boots(item),
            "last seen": text.moment(item.last_seen),
            "trend": place.trend(item.id, _broken(item)),
            "model": item.model,
            "hardware class": item.hardware,
        }
        for item in _worst_first(series)
    ]


def verdicts(series: Sequence[Series]) -> list[Row]:
    """A row an SLO, with the reason where it is unmeasured or n/a."""
    return [
        {
            "verdict": verdict.verdict,
            "SLO": text.bound(verdict),
            "value": text.judged(verdict),
            "rounds": str(verdict.rounds),
            "bound from": verdict.bound_source,
            "cell": item.cell_id,
            "test": verdict.nodeid,
            "run": item.run_id,
        }
        for item in _worst_first(series)
        for verdict in sorted(item.verdicts, key=lambda one: _ORDER.index(one.verdict))
    ]


def boots(points: Sequence[Point], metric: Metric) -> list[Row]:
    """A row a boot, the last one first."""
    return [
        {
            "started": text.moment(item.started_at),
            metric.name: text.reading(item.reading, metric),
            "outcome": item.outcome if item.failure is None else f"{item.outcome} ({item.failure})",
            "role": item.role,
            "round": str(item.round),
            "source": item.source or "",
            "boot": item.boot_id,
            "run": item.run_id,
            "commit": text.commit(item),
            "versions": text.versions(item.versions),
            "test": item.nodeid,
        }
        for item in reversed(points)
    ]


def _worst_first(series: Sequence[Series]) -> list[Series]:
    return sorted(series, key=lambda item: _ORDER.index(item.verdict))


def _last(item: Series, newest: Mapping[tuple[str, str], Reading], metric: Metric) -> str:
    return text.reading(newest.get((item.id, metric.name), Reading(None, NEVER_COUNTED)), metric)


def _broken(item: Series) -> str:
    """The metric to look at first: one whose bound is broken, else the cold start."""
    return next((one.metric for one in item.verdicts if one.verdict in ("fail", "unmeasured")), LAST[0])
