"""Counters of two sides: nearly the same in equal boots, so that one boot a side decides."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from pytest_coldstart import units
from pytest_coldstart.derive import median
from pytest_coldstart.gate.comparison import IGNORE, WARN, MetricChange, SideBoot, Summary
from pytest_coldstart.gate.policy import COUNTERS, Policy
from pytest_coldstart.metric import Metric
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import BootRecord, Value
from pytest_coldstart.stats.decision import IMPROVED, INCONCLUSIVE, REGRESSED, SAME

KIND, METHOD = "counter", "ranges"

#: What is no change however large its share is, in the counter's unit: one file more than none is 100 % more.
SMALL = {"kernels_compiled": 1.0, "processes_started": 1.0, "caches_missed": 0.0}
SMALL_BY_UNIT = {"count": 2.0, "B": float(64 << 20)}


def counters(base: Sequence[SideBoot], head: Sequence[SideBoot], policy: Policy) -> tuple[MetricChange, ...]:
    """Each counter that a side has, base against head, in the order of the policy's defaults.

    The sides' ranges are compared: where they do not overlap and lie further apart than the policy's tolerance, the
    counter has regressed or improved. One that varies within a side by more than the tolerance is no counter there. What is
    undecided has its reason and the policy ``pass``: the times decide, and more boots would not make it a counter.
    Boots that failed have none; priming boots and those in error are left out.

    :raises ValueError: the boots are of several tiers.
    """
    sides = [[item.record for item in boots if item.record.counted] for boots in (base, head)]
    tiers = sorted({record.tier for records in sides for record in records})
    if len(tiers) > 1:
        raise ValueError(f"counters of several tiers are not comparable: {', '.join(tiers)}")
    found = [_counter(METRICS[name], sides, policy) for name in _names()]
    return tuple(change for change in found if change.base.values or change.head.values)


def _names() -> list[str]:
    of_others = [metric.name for metric in METRICS.values() if metric.counter and metric.name not in COUNTERS]
    return [*COUNTERS, *of_others]


def _counter(metric: Metric, sides: Sequence[Sequence[BootRecord]], policy: Policy) -> MetricChange:
    base, head = (_summary(metric, records) for records in sides)
    action = policy.counters.get(metric.name, COUNTERS.get(metric.name, WARN))
    small = SMALL.get(metric.name, SMALL_BY_UNIT.get(metric.unit, 0.0))
    change = MetricChange(
        metric=metric.name,
        unit=metric.unit,
        kind=KIND,
        outcome=INCONCLUSIVE,
        base=base,
        head=head,
        better=metric.better,
        floor=policy.tolerance,
        margin=policy.tolerance,
        policy=action,
        method=METHOD,
    )
    if not base.values or not head.values:
        name, side = ("base", base) if not base.values else ("head", head)
        return _undecided(change, f"{name}: {side.reason or 'it has no boot'}")
    return _decided(change, policy.tolerance, small)


def _summary(metric: Metric, records: Sequence[BootRecord]) -> Summary:
    found = [_value(metric, record) for record in records if not record.failed]
    values = tuple(value.value for value in found if value.value is not None)
    reasons = [value.reason or "" for value in found if value.value is None]
    failed = sum(record.failed for record in records)
    if not values and not reasons and failed:
        reasons.append("every boot failed")
    return Summary(
        values=values,
        failed=failed,
        unmeasured=len(found) - len(values),
        reason=reasons[0] if reasons else "",
        median=median(values) if values else None,
    )


def _value(metric: Metric, record: BootRecord) -> Value:
    """As it was stored; counted anew from a record that is older than the counter."""
    return record.metrics.get(metric.name) or metric.derive(record)


def _decided(change: MetricChange, tolerance: float, small: float) -> MetricChange:
    base, head = change.base, change.head
    middles = (base.median or 0.0, head.median or 0.0)
    share = (middles[1] - middles[0]) / middles[0] if middles[0] else (0.0 if not middles[1] else None)
    change = dataclasses.replace(change, change=share)
    for name, side in (("base", base), ("head", head)):
        low, high = min(side.values), max(side.values)
        if high - low > max(tolerance * (side.median or 0.0), small):
            seen = f"{units.show(low, change.unit)} to {units.show(high, change.unit)}"
            return _undecided(change, f"it varies within the {name}, {seen}: it is no counter here")
    allowed = max(tolerance * middles[0], small)
    above, below = min(head.values) - max(base.values), min(base.values) - max(head.values)
    if max(above, below) > allowed:
        return _moved(change, worse=(above > 0) == (change.better == "lower"))
    if abs(middles[1] - middles[0]) <= allowed:
        return dataclasses.replace(change, outcome=SAME)
    return _undecided(change, "the medians differ by more than the tolerance, and the ranges by less")


def _undecided(change: MetricChange, reason: str) -> MetricChange:
    return dataclasses.replace(change, outcome=INCONCLUSIVE, policy=IGNORE, reason=reason)


def _moved(change: MetricChange, worse: bool) -> MetricChange:
    if worse:
        return dataclasses.replace(change, outcome=REGRESSED)
    if change.head.failed:
        return _undecided(change, "it is better, and a boot of the head failed")
    return dataclasses.replace(change, outcome=IMPROVED)
