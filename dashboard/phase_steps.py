"""From the base's start to the head's, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_coldstart.attribution import PHASES
from pytest_coldstart.metrics import median
from pytest_coldstart.record import BootRecord

TOTAL, PHASE, REST = "total", "phase", "rest"
#: What is left where each phase's median is taken for itself, and where a phase is unmeasured.
NOT_ADDING, NO_PHASE = "medians do not add up", "in no measured phase"
#: Less than this is no step, seconds.
_NOTHING = 1e-6


@dataclass(frozen=True)
class Step:
    """A bar from ``begin`` to ``end``, seconds. ``kind``: :data:`TOTAL`, :data:`PHASE` or :data:`REST`; of a phase, ``base`` and ``head`` are its medians."""

    name: str
    kind: str
    begin: float
    end: float
    base: float | None = None
    head: float | None = None

    @property
    def change(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Steps:
    """``steps``: the base's total, each phase that changed, what is left, and the head's total; empty where there is a ``problem``.

    ``unmeasured``: phases without a value on a side, and why; ``exact``: one boot a side, so that the phases add up. ``failed``: boots that are left out.
    """

    steps: tuple[Step, ...] = ()
    unmeasured: tuple[tuple[str, str], ...] = ()
    exact: bool = False
    failed: int = 0
    problem: str = ""


def steps(base: Sequence[BootRecord], head: Sequence[BootRecord]) -> Steps:
    """Medians of cold_start and of each ``phase.`` metric over the boots that did not fail."""
    sides = [[record for record in side if not record.failed] for side in (base, head)]
    failed = len(base) + len(head) - sum(map(len, sides))
    for name, side in zip(("base", "head"), sides, strict=True):
        if not side:
            return Steps(failed=failed, problem=f"every boot of the {name} failed: it has no phases to compare")
    totals = [_median(side, "cold_start") for side in sides]
    for name, (total, why) in zip(("base", "head"), totals, strict=True):
        if total is None:
            return Steps(failed=failed, problem=f"cold_start is unmeasured in the {name}: {why}")
    exact = all(len(side) == 1 for side in sides)
    found, unmeasured = _phases(*sides)
    if len(unmeasured) == len(PHASES):
        return Steps((), tuple(unmeasured), exact, failed, f"no phase is measured: {unmeasured[0][1]}")
    first, last = totals[0][0] or 0.0, totals[1][0] or 0.0
    made = [Step("base", TOTAL, 0.0, first)]
    at = first
    for name, before, after in found:
        if abs(after - before) >= _NOTHING:
            made.append(Step(name, PHASE, at, at + after - before, before, after))
            at += after - before
    if abs(last - at) >= _NOTHING:
        made.append(Step(NO_PHASE if exact or unmeasured else NOT_ADDING, REST, at, last))
    return Steps((*made, Step("head", TOTAL, 0.0, last)), tuple(unmeasured), exact, failed)


def _phases(
    base: Sequence[BootRecord], head: Sequence[BootRecord]
) -> tuple[list[tuple[str, float, float]], list[tuple[str, str]]]:
    found, unmeasured = [], []
    for name in PHASES:
        (before, why), (after, reason) = (_median(side, f"phase.{name}") for side in (base, head))
        if before is None or after is None:
            unmeasured.append((name, why or reason))
        else:
            found.append((name, before, after))
    return found, unmeasured


def _median(records: Sequence[BootRecord], metric: str) -> tuple[float | None, str]:
    """None, and why, where a boot has none."""
    values = []
    for record in records:
        value = record.metrics.get(metric)
        if value is None or value.value is None:
            return None, (value.reason if value else "") or "the version that made the boot had no such metric"
        values.append(value.value)
    return median(values), ""
