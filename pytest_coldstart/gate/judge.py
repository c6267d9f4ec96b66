"""The comparison itself: the boots of a base and of a head in, a report out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pytest_coldstart.gate.comparison import (
    FAIL,
    IGNORE,
    WARN,
    CellComparison,
    GateReport,
    MetricChange,
    Side,
    SideBoot,
    SideSummary,
    Summary,
)
from pytest_coldstart.gate.match import Pair, match
from pytest_coldstart.gate.policy import Policies, Policy
from pytest_coldstart.gate.slos import broken
from pytest_coldstart.metrics import METRICS, median
from pytest_coldstart.record import BootRecord
from pytest_coldstart.stats.decision import INCONCLUSIVE, OUTCOMES, REGRESSED, Block, Decision, Rules
from pytest_coldstart.store.home import Home

if TYPE_CHECKING:
    import duckdb

    from pytest_coldstart.gate.stability import Stability

#: The boots of both sides that were drawn together.
Blocks = Sequence[tuple[Sequence[SideBoot], Sequence[SideBoot]]]
#: A comparison among all: the pair's index and the metric.
Key = tuple[int, str]


@dataclass(frozen=True)
class Task:
    """A pair of cells with what its comparison needs. ``drawn``: whether somebody drew the order of its boots."""

    pair: Pair
    policy: Policy
    blocks: Blocks
    drawn: bool
    notes: tuple[str, ...] = ()
    stability: Mapping[str, Stability] = field(default_factory=dict)

    @property
    def record(self) -> BootRecord:
        return self.pair.head[-1].record

    def floor(self, metric: str) -> float:
        mad = self.stability[metric].mad if metric in self.stability else None
        return max(self.policy.floor, self.policy.mads * (mad or 0.0))

    def unstable(self, metric: str) -> bool:
        return metric in self.stability and self.stability[metric].unstable


def compare(
    base: Side,
    head: Side,
    policy: Policies | Policy,
    *,
    final: bool = True,
    history: Home | duckdb.DuckDBPyConnection | None = None,
    allow: Sequence[str] = (),
    base_cell: str = "",
    head_cell: str = "",
    seconds: float = 0.0,
) -> GateReport:
    """Compare *head* with *base*, cell by cell; all that fails a build is one family of tests, all that warns another.

    *final*: no more boots will come; else what is undecided says whether more would help. *history*: the store that tells
    how stable a cell has been, or a connection to it. *allow*, *base_cell*, *head_cell*: as :func:`pytest_coldstart.gate.match.match` takes them. *seconds*:
    how long was booted for it.

    :raises GateError: *base_cell* or *head_cell* fits no cell.
    """
    policies = Policies(policy) if isinstance(policy, Policy) else policy
    matched = match(base, head, allow, base_cell, head_cell)
    tasks, notes = _tasks(matched.pairs, policies, history)
    decisions = _decisions(tasks, policies.default, final)
    cells = tuple(_cell(index, task, decisions) for index, task in enumerate(tasks))
    compared = [boot for pair in matched.pairs for boot in pair.head]
    return GateReport(
        base=_summary(base),
        head=_summary(head),
        cells=cells,
        refused=matched.refused,
        broken=broken(head.verdicts, compared),
        notes=(*matched.notes, *notes),
        alpha=policies.default.alpha,
        policy=policies.default.name,
        on_inconclusive=policies.default.inconclusive,
        seconds=seconds,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


# -- what is compared


def _tasks(
    pairs: Sequence[Pair], policies: Policies, history: Home | duckdb.DuckDBPyConnection | None
) -> tuple[list[Task], list[str]]:
    known, notes = _stabilities(pairs, policies, history)
    tasks = []
    for pair, stability in zip(pairs, known, strict=True):
        record = pair.head[-1].record
        blocks, drawn, said = blocks_of(pair.base, pair.head)
        tasks.append(Task(pair, policies.of(record.engine, record.cell_id), blocks, drawn, said, stability))
    return tasks, notes


def _stabilities(
    pairs: Sequence[Pair], policies: Policies, history: Home | duckdb.DuckDBPyConnection | None
) -> tuple[Sequence[Mapping[str, Stability]], list[str]]:
    """What the store tells of each cell's own past, by metric; nothing where there is no store or another process holds it."""
    if history is None or (isinstance(history, Home) and not history.database.exists()) or not pairs:
        return [{}] * len(pairs), []
    from pytest_coldstart.gate.stability import stabilities
    from pytest_coldstart.store.database import reader
    from pytest_coldstart.store.errors import StoreError
    from pytest_coldstart.store.rows import series

    judged = {boot.record.run_id for pair in pairs for boot in pair.head}
    boots = [pair.base[-1] for pair in pairs]
    names = [series(boot.record.cell_digest, boot.header.get("hardware_class")) for boot in boots]
    metrics = {metric for boot in boots for metric in policies.of(boot.record.engine, boot.record.cell_id).metrics}
    try:
        with reader(history.database, wait=0.0) if isinstance(history, Home) else nullcontext(history) as con:
            found = stabilities(con, names, sorted(metrics), judged)
    except StoreError as error:
        return [{}] * len(pairs), [f"how stable the cells have been is unknown: {error}"]
    return [{metric: found[metric][name] for metric in metrics} for name in names], []


def blocks_of(base: Sequence[SideBoot], head: Sequence[SideBoot]) -> tuple[Blocks, bool, tuple[str, ...]]:
    """The boots in blocks, whether their order was drawn, and what there is to say about it.

    Boots of one gate are in the blocks in which they were made. All others are one block: between them the machine may have
    changed, and no test can tell that from a change of the engine.
    """
    if not all(boot.gate is not None and boot.block is not None for boot in (*base, *head)):
        return [(base, head)], False, ()
    found: dict[tuple[str, int], tuple[list[SideBoot], list[SideBoot]]] = {}
    for side, boots in enumerate((base, head)):
        for boot in boots:
            found.setdefault((boot.gate or "", boot.block or 0), ([], []))[side].append(boot)
    whole = {key: block for key, block in found.items() if block[0] and block[1]}
    if not whole:
        return [(base, head)], False, ()
    notes = []
    lost = sum(len(block[0]) + len(block[1]) for key, block in found.items() if key not in whole)
    if lost:
        notes.append(f"{lost} boot{'s' if lost > 1 else ''} left out: the block has no boot of the other side")
    begun: dict[str, str] = {}
    for (gate, _), block in whole.items():
        first = min(boot.record.started_at for boot in (*block[0], *block[1]))
        begun[gate] = min(first, begun.get(gate, first))
    order = sorted(whole, key=lambda key: (begun[key[0]], key))
    return [whole[key] for key in order], True, tuple(notes)


# -- the tests


def _decisions(tasks: Sequence[Task], default: Policy, final: bool) -> Mapping[Key, Decision]:
    """The decision of each metric that every boot has measured. What fails a build is one family of tests, what warns another:
    a warning takes nothing of the level of a failure. What the policy passes anyway is judged alone."""
    from pytest_coldstart.stats.decide import decide

    series: dict[Key, Sequence[Block]] = {}
    rules: dict[Key, Rules] = {}
    families: dict[object, list[Key]] = {}
    for index, task in enumerate(tasks):
        for metric, action in task.policy.metrics.items():
            if _unmeasured(task, metric):
                continue
            key = (index, metric)
            series[key] = [_block(task, metric, *block) for block in task.blocks]
            rules[key] = _rules(task, metric, default)
            families.setdefault(key if action == IGNORE else action, []).append(key)
    decisions: dict[Key, Decision] = {}
    for keys in families.values():
        # Nobody reads the intervals of a look before the last one.
        decisions |= decide({key: series[key] for key in keys}, {key: rules[key] for key in keys}, final, detail=final)
    return decisions


def _rules(task: Task, metric: str, default: Policy) -> Rules:
    return Rules(
        alpha=default.alpha,
        floor=task.floor(metric),
        margin=task.policy.margin,
        better=METRICS[metric].better,
        most_boots=default.most_boots,
    )


def _block(task: Task, metric: str, base: Sequence[SideBoot], head: Sequence[SideBoot]) -> Block:
    values = [tuple(_value(boot.record, metric) for boot in boots) for boots in (base, head)]
    return Block(values[0], values[1], drawn=task.drawn)


def _value(record: BootRecord, metric: str) -> float:
    """+infinity for a failed boot, the worst of all values; NaN where the metric is not measured."""
    if record.failed:
        return math.inf
    found = record.metrics.get(metric)
    return math.nan if found is None or found.value is None else found.value


def _unmeasured(task: Task, metric: str) -> str:
    """Why the metric cannot be compared; empty where it can."""
    if metric not in METRICS:
        return "no such metric is registered here; it may be one of another plugin"
    for side, boots in (("base", task.pair.base), ("head", task.pair.head)):
        for boot in boots:
            if why := _missing(boot.record, metric):
                return f"{side}: boot {boot.record.boot_id}: {why}"
    return ""


def _missing(record: BootRecord, metric: str) -> str:
    if record.failed:
        return ""
    found = record.metrics.get(metric)
    if found is None or found.value is None:
        return f"{metric} is unmeasured: {(found.reason if found else '') or 'the boot does not have it'}"
    return "" if math.isfinite(found.value) else f"{metric} is {found.value}, which is no measurement"


# -- what came out


def _cell(index: int, task: Task, decisions: Mapping[Key, Decision]) -> CellComparison:
    from pytest_coldstart.gate.blame import blame
    from pytest_coldstart.gate.counters import counters
    from pytest_coldstart.gate.noise import strays

    pair, record = task.pair, task.record
    changes = tuple(
        _change(task, metric, action, decisions.get((index, metric)))
        for metric, action in task.policy.metrics.items()
        if metric not in record.memory.impossible
    )
    changes += counters(pair.base, pair.head, task.policy)
    blamed = blame(pair.base, pair.head)
    outcome, verdict = verdict_of(changes, task.policy)
    unstable = [
        f"{metric} is unstable: {task.stability[metric].reason}"
        for metric in task.policy.metrics
        if task.unstable(metric)
    ]
    return CellComparison(
        cell_id=record.cell_id,
        cell_digest=record.cell_digest,
        engine=record.engine,
        tier=record.tier,
        nodeid=record.nodeid,
        outcome=outcome,
        verdict=verdict,
        changes=changes,
        phases=blamed.phases,
        caches=blamed.caches,
        differences=blamed.differences,
        notes=(*task.notes, *unstable, *_failures(pair), *strays((*pair.base, *pair.head))),
        reproduce=blamed.reproduce,
        interleaved=task.drawn,
        unstable=bool(unstable),
        base_boots=tuple(boot.record.boot_id for boot in pair.base),
        head_boots=tuple(boot.record.boot_id for boot in pair.head),
    )


def _change(task: Task, metric: str, action: str, decision: Decision | None) -> MetricChange:
    from pytest_coldstart.gate.noise import normalised

    pair, declared = task.pair, METRICS.get(metric)
    change = MetricChange(
        metric=metric,
        unit=declared.unit if declared else "",
        kind="time",
        outcome=INCONCLUSIVE,
        base=summary_of(pair.base, metric),
        head=summary_of(pair.head, metric),
        better=declared.better if declared else "lower",
        floor=task.floor(metric),
        margin=task.policy.margin,
        policy=_milder(action, task.policy.unstable) if task.unstable(metric) else action,
    )
    if decision is None:
        return replace(change, reason=_unmeasured(task, metric))
    return replace(
        change,
        outcome=decision.outcome,
        change=decision.change,
        low=decision.low,
        high=decision.high,
        p=_least(decision.p_worse, decision.p_better),
        normalised=normalised(pair.base, pair.head, metric),
        reason=decision.reason,
        needs=decision.needs,
        method=decision.method,
        final=decision.final or action == IGNORE,  # nothing is booted for what the policy passes anyway
    )


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def summary_of(boots: Sequence[SideBoot], metric: str) -> Summary:
    """The values of one side; the median takes a failed boot as infinitely slow."""
    every = [_value(boot.record, metric) for boot in boots]
    missing = [why for boot in boots if (why := _missing(boot.record, metric))]
    measured = [value for value in every if not math.isnan(value)]
    return Summary(
        values=tuple(value for value in every if math.isfinite(value)),
        failed=sum(boot.record.failed for boot in boots),
        unmeasured=len(missing),
        reason=missing[0] if missing else "",
        median=median(measured) if measured else None,
    )


def verdict_of(changes: Sequence[MetricChange], policy: Policy) -> tuple[str, str]:
    """The worst outcome of what the policy gates, and what the policy makes of it: fail, warn or pass.

    The times that are gated most strictly come first: they are decided, or the cell is not, since counters that did not
    move show no sameness. Of the rest a regression counts, and that something is not known does not. What the policy
    passes anyway counts only where it gates nothing at all.
    """
    times = [change for change in changes if change.kind == "time"]
    gated = [change for change in changes if change.policy != IGNORE] or times
    if not gated:
        return INCONCLUSIVE, policy.inconclusive
    strictest = max(_severity(change) for change in [one for one in gated if one.kind == "time"] or gated)
    first = [change for change in gated if _severity(change) >= strictest]
    found = {change.outcome for change in first}
    if INCONCLUSIVE in found and REGRESSED not in found:
        return INCONCLUSIVE, policy.inconclusive
    regressed = [change for change in gated if change.outcome == REGRESSED]
    if regressed:
        return REGRESSED, max(regressed, key=_severity).policy
    return next(word for word in OUTCOMES if word in found), IGNORE


def _severity(change: MetricChange) -> int:
    return _SEVERITY.index(change.policy)


def _milder(one: str, other: str) -> str:
    return min(one, other, key=_SEVERITY.index)


_SEVERITY = (IGNORE, WARN, FAIL)


def _failures(pair: Pair) -> list[str]:
    notes = []
    for side, boots in (("base", pair.base), ("head", pair.head)):
        failed = [boot.record for boot in boots if boot.record.failed]
        if failed:
            kinds = ", ".join(sorted({record.failure.kind for record in failed if record.failure})) or "unknown"
            notes.append(f"the {side} failed in {len(failed)} of {len(boots)} boots: {kinds}")
    return notes


def _summary(side: Side) -> SideSummary:
    boots = [boot for boot in side.boots if boot.record.counted]
    headers = [boot.header for boot in boots]
    commits = sorted({str(header["git_commit"]) for header in headers if header.get("git_commit")})
    places = sorted({", ".join(filter(None, (header.get("gpu"), header.get("cpu")))) for header in headers} - {""})
    return SideSummary(
        text=side.text,
        commit=commits[0] if len(commits) == 1 else None,
        runs=tuple(dict.fromkeys(boot.record.run_id for boot in boots)),
        boots=len(boots),
        failed=sum(boot.record.failed for boot in boots),
        started_at=min((boot.record.started_at for boot in boots), default=None),
        hardware="; ".join(places),
    )
