"""What the reference workloads say of a comparison: boots that ran at odd moments, and the change with the machine taken out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from pytest_coldstart import units, workload
from pytest_coldstart.derive import median
from pytest_coldstart.gate.comparison import SideBoot
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import BootRecord, Value

#: A reference strays when it is further from the median of its group than this many median absolute deviations and
#: than this share of the median. Of fewer boots than :data:`GROUP` none is called odd.
STRAY_MADS, STRAY_SHARE, GROUP = 3.0, 0.15, 4

_WATCHED = (workload.IMPORT, workload.READ, workload.COPY)


def normalised(base: Sequence[SideBoot], head: Sequence[SideBoot], metric: str) -> float | None:
    """Head over base less one, by medians, after each boot's value was divided by how slow its machine was just after it.

    How slow: its ``reference_import`` over the median of all boots' of both sides. Failed boots are infinitely slow. None where a
    boot lacks the metric or its reference, where the references are of several versions of Python, where a median is
    infinite or zero, and where the sides scatter more with it than without: then the reference is the noisier one.
    """
    sides = [[item.record for item in boots if item.record.counted] for boots in (base, head)]
    whole = [record for records in sides for record in records if not record.failed]
    references = [workload.of(record.references, workload.IMPORT) for record in whole]
    speeds = [value.value for value in references if value.value]
    if not whole or len(speeds) < len(whole) or len({value.source for value in references}) > 1:
        return None
    middle = median(speeds)
    plain: list[list[float]] = []
    scaled: list[list[float]] = []
    for records in sides:
        values = [_value(record, metric) for record in records]
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        plain.append(known)
        scaled.append([value / _slowness(record, middle) for value, record in zip(known, records, strict=True)])
    before, after = map(median, scaled)
    if not math.isfinite(before) or not math.isfinite(after) or not before:
        return None
    return None if _scatter(scaled) > _scatter(plain) * (1 + 1e-9) else after / before - 1


def _slowness(record: BootRecord, middle: float) -> float:
    return (workload.of(record.references, workload.IMPORT).value or middle) / middle


def _value(record: BootRecord, metric: str) -> float | None:
    return math.inf if record.failed else record.metrics.get(metric, Value(None)).value


def _scatter(sides: Sequence[Sequence[float]]) -> float:
    """The median absolute deviations within the sides over their medians, summed; failed boots left out."""
    total = 0.0
    for side in sides:
        values = [value for value in side if math.isfinite(value)]
        middle = median(values) if values else 0.0
        total += median([abs(value - middle) for value in values]) / middle if middle else 0.0
    return total


def strays(boots: Sequence[SideBoot]) -> tuple[str, ...]:
    """One sentence for each boot whose reference is far from those of the others on the same hardware, with the numbers.

    Such boots are named, and stay in the comparison: leaving out what looks odd would choose the result.
    """
    groups: defaultdict[tuple[str, ...], list[tuple[BootRecord, float]]] = defaultdict(list)
    for item in boots:
        for name in _WATCHED:
            value = workload.of(item.record.references, name)
            if value.value is not None:
                groups[_group(item, name, value)].append((item.record, value.value))
    return tuple(text for (name, *_), members in groups.items() for text in _odd(name, members))


def _group(item: SideBoot, name: str, value: Value) -> tuple[str, ...]:
    """What must be the same for two references to be of the same work."""
    model = str(item.record.cell.get("model")) if name == workload.READ else ""
    return name, str(item.header.get("hostname")), str(item.header.get("hardware_class")), value.source or "", model


def _odd(name: str, members: Sequence[tuple[BootRecord, float]]) -> list[str]:
    if len(members) < GROUP:
        return []
    middle = median([value for _, value in members])
    spread = median([abs(value - middle) for _, value in members])
    limit = max(STRAY_MADS * spread, STRAY_SHARE * middle)
    unit = METRICS[name].unit
    return [
        f"boot {record.boot_id}: its {name} strays: {units.show(value, unit)}, {value / middle - 1:+.0%} from the median "
        f"{units.show(middle, unit)} of {len(members)} boots"
        for record, value in members
        if abs(value - middle) > limit
    ]
