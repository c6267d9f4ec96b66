"""Judging a rule on the newest runs of one series, in the words and by the logic of SLOs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pytest_coldstart import slo, units
from pytest_coldstart.alerts.finding import FIRES, NOT_JUDGED, OK, PENDING, UNMEASURED, Finding
from pytest_coldstart.alerts.read import NOT_DERIVED, Boot, Run, Series, Values, Verdicts
from pytest_coldstart.alerts.rules import Failed, Judged, Rule
from pytest_coldstart.attribution import UNATTRIBUTED, Attribution
from pytest_coldstart.fragmentation import PARTS
from pytest_coldstart.memory import Memory
from pytest_coldstart.record import BootRecord, Phase, Value
from pytest_coldstart.slo import Bound, Verdict

_UNATTRIBUTED = f"phase.{UNATTRIBUTED}"

#: Made once: a page judges thousands of boots.
_NONE, _NO_MEMORY = Attribution(), Memory()


@dataclass(frozen=True)
class Facts:
    """What runs are judged by."""

    values: Values = field(default_factory=dict)
    verdicts: Verdicts = field(default_factory=dict)

    def with_(self, other: Facts) -> Facts:
        return Facts({**self.values, **other.values}, {**self.verdicts, **other.verdicts})


def names(bound: Bound) -> tuple[str, ...]:
    """The metrics that decide *bound*: its own, and those that an SLO looks at beside it."""
    if bound.metric == "fragmentation":
        return (bound.metric, *PARTS)
    return (bound.metric, _UNATTRIBUTED) if bound.metric.startswith("phase.") else (bound.metric,)


def judged(rule: Rule, series: Series, runs: Sequence[Run], facts: Facts, whole: bool) -> Finding:
    """What *rule* says of *series*, whose *runs* are the newest ones, the newest first; at least one. *whole*: they are all."""
    newest = _one(rule, series, runs[0], facts)
    row = 1 if newest.fires else 0
    while row and row < len(runs) and _one(rule, series, runs[row], facts).fires:
        row += 1
    if not row:
        return newest
    if row < rule.runs:
        said = f"{newest.state} in {row} of {rule.runs} runs in a row"
        return replace(newest, state=PENDING, reason=f"{said}: {newest.reason}" if newest.reason else said)
    first = runs[row - 1]
    return replace(newest, since=first.run_id, since_at=first.first, earlier=row == len(runs) and not whole)


def _one(rule: Rule, series: Series, run: Run, facts: Facts) -> Finding:
    empty = Finding(series, OK, metric=rule.metric, run_id=run.run_id, at=run.first)
    match rule.condition:
        case Bound() as bound:
            return _bound(bound, empty, run, facts.values)
        case Judged(words):
            return _verdict(words, rule.metric, empty, facts.verdicts.get((run.run_id, run.cell_digest), ()))
        case Failed(boots):
            return _failed(boots, empty, run)
    raise TypeError(rule.condition)


def _bound(bound: Bound, empty: Finding, run: Run, values: Values) -> Finding:
    (verdict,) = slo.judge([bound], [_record(bound, run, boot, values) for boot in run.boots], {})
    state = {"pass": OK, "fail": FIRES}.get(verdict.verdict, UNMEASURED)
    return replace(
        empty,
        state=state,
        value=_shown(verdict),
        bound=bound.limit,
        reason=verdict.reason or (run.failures[0] if run.failures else ""),
        number=_finite(verdict.value),
    )


def _record(bound: Bound, run: Run, boot: Boot, values: Values) -> BootRecord:
    """As much of a boot as an SLO looks at."""
    metrics = {name: values.get((boot.id, name), Value(None, None, NOT_DERIVED)) for name in names(bound)}
    unexplained = metrics[_UNATTRIBUTED].value if _UNATTRIBUTED in metrics else None
    return BootRecord(
        *(boot.id, run.run_id, "", "", {}, run.cell_digest, "", "", "", "measured", boot.round),
        outcome="ok" if boot.failure is None else "failed",
        started_at="",
        phases=(Phase(UNATTRIBUTED, 0.0, unexplained, ""),) if unexplained else (),
        metrics=metrics,
        attribution=_NONE,
        memory=_NO_MEMORY,
    )


def _verdict(words: Sequence[str], metric: str, empty: Finding, found: Sequence[Verdict]) -> Finding:
    mine = [one for one in found if not metric or one.metric == metric]
    if not mine:
        return replace(empty, state=NOT_JUDGED, value=NOT_JUDGED, reason="the newest run has no such verdict")
    hits = sorted((one for one in mine if one.verdict in words), key=lambda one: one.verdict != "fail")
    if not hits:
        others = [f"{_named(one)} unmeasured" for one in mine if one.verdict == "unmeasured"]
        return replace(
            empty,
            value=", ".join(
                f"{len([one for one in mine if one.verdict == word])} {word}"
                for word in dict.fromkeys(one.verdict for one in mine)
            ),
            reason=", ".join(others),
        )
    worst = hits[0]
    more = [f"{_named(one)} {one.verdict}" for one in hits[1:]]
    return replace(
        empty,
        state=FIRES if worst.verdict == "fail" else UNMEASURED,
        metric=worst.metric,
        value=f"{_named(worst)} {_shown(worst)}",
        bound=f"{worst.op} {units.show(worst.bound, worst.unit)}",
        reason="; ".join(filter(None, [worst.reason, f"also {', '.join(more)}" if more else ""])),
        number=_finite(worst.value),
    )


def _named(verdict: Verdict) -> str:
    return f"{verdict.metric}.{verdict.stat}"


def _failed(boots: int, empty: Finding, run: Run) -> Finding:
    failures = run.failures
    return replace(
        empty,
        state=FIRES if len(failures) >= boots else OK,
        value=f"{len(failures)} of {len(run.boots)} failed",
        bound=f"< {boots}",
        reason=failures[0] if failures else "",
        number=float(len(failures)),
    )


def _shown(verdict: Verdict) -> str:
    if verdict.verdict == "unmeasured":
        return "unmeasured"
    # A failed boot is infinitely bad, which the store keeps as no value.
    return units.show(math.inf if verdict.value is None else verdict.value, verdict.unit)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
