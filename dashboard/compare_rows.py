"""A comparison as the page Compare shows it. Outcomes are the gate's own; beside them is what it does not judge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import duckdb

from dashboard.phase_steps import Steps, steps
from pytest_coldstart.gate.blame import blame
from pytest_coldstart.gate.comparison import Difference, GateReport, MetricChange, Side, SideBoot, Summary
from pytest_coldstart.gate.errors import GateError, require_extra
from pytest_coldstart.gate.judge import blocks_of, compare, summary_of
from pytest_coldstart.gate.match import Pair, match
from pytest_coldstart.gate.policy import Policies
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.report.gate_words import TIME
from pytest_coldstart.stats.decision import IMPROVED, INCONCLUSIVE, REGRESSED, Block, Rules

#: Which way a ratio points, in words. Not an outcome: that is the gate's.
WORSE, BETTER, UNCLEAR = "worse", "better", "not clear"
#: Said in place of an outcome where the gate has none.
NOT_JUDGED = "not judged"
#: From so many boots together on, intervals of what the gate does not judge are by the normal approximation: a hundred of them
#: are shown at once.
_LARGE = 40


@dataclass(frozen=True)
class Cell:
    """One cell on both sides. ``outcome``: the gate's, or :data:`NOT_JUDGED` and ``why``. ``interleaved``: somebody drew the order
    of the boots. ``summaries``: metric, base, head. ``base``, ``head``: ids of boots, ``failed``: how many of each failed."""

    key: str
    name: str
    tier: str
    nodeid: str
    cells: tuple[str, str]
    outcome: str
    why: str = ""
    changes: tuple[MetricChange, ...] = ()
    summaries: tuple[tuple[str, Summary, Summary], ...] = ()
    steps: Steps = field(default_factory=Steps)
    caches: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    reproduce: str = ""
    interleaved: bool = False
    base: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    failed: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Comparison:
    """``report``: the gate's; None where its extra is missing, and ``missing`` says so. ``refused``: cells that are not compared,
    and why; ``notes``: cells of one side alone."""

    cells: tuple[Cell, ...] = ()
    report: GateReport | None = None
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class Row:
    """One metric of a cell. ``ratio``, ``low``, ``high``: head over base, 1 is no change; None where it cannot be told.

    ``outcome``: the gate's or :data:`NOT_JUDGED`; ``points``: :data:`WORSE`, :data:`BETTER` or :data:`UNCLEAR`. ``why``: of what is
    missing, or of the outcome.
    """

    metric: str
    base: Summary
    head: Summary
    outcome: str
    points: str = UNCLEAR
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


def compared(
    base: Side, head: Side, policies: Policies, history: duckdb.DuckDBPyConnection, allow: Sequence[str] = ()
) -> Comparison:
    """What ``coldstart gate`` finds on these boots, with every metric beside it."""
    matched = match(base, head, allow)
    refused = tuple(f"{item.cell_id} ({item.tier}): {item.reason}" for item in matched.refused)
    try:
        require_extra("an outcome")
    except GateError as error:
        cells = [_cell(pair, number) for number, pair in enumerate(matched.pairs)]
        return Comparison(_keyed(cells), None, refused, matched.notes, str(error))
    report = _report(base, head, matched.pairs, policies, history, allow)
    cells = [
        replace(
            _cell(pair, number),
            outcome=found.outcome,
            changes=found.changes,
            notes=found.notes,
            interleaved=found.interleaved,
        )
        for number, (pair, found) in enumerate(zip(matched.pairs, report.cells, strict=True))
    ]
    return Comparison(_keyed(cells), report, refused, report.notes)


def _report(
    base: Side,
    head: Side,
    pairs: Sequence[Pair],
    policies: Policies,
    history: duckdb.DuckDBPyConnection,
    allow: Sequence[str],
) -> GateReport:
    """As ``coldstart gate`` makes it. How stable a cell has been asks more of a change and lets one do less: where no time is
    decided and no counter regressed nothing can come of it, and a large store is not asked."""
    orders = max((math.comb(len(pair.base) + len(pair.head), len(pair.base)) for pair in pairs), default=1)
    if orders * policies.default.alpha / 2 < 1:  # so few boots decide no time
        report = compare(base, head, policies, allow=allow)
        if not any(_decided(change) for cell in report.cells for change in cell.changes):
            return report
    return compare(base, head, policies, history=history, allow=allow)


def _decided(change: MetricChange) -> bool:
    return change.outcome != INCONCLUSIVE if change.kind == TIME else change.outcome == REGRESSED


def uncompared(base: Side, head: Side, found: Comparison) -> Comparison:
    """Two cells that somebody chose and that no gate compares, beside each other without an outcome."""
    why = "; ".join(found.refused) or "; ".join(found.notes)
    return replace(found, cells=(replace(_cell(Pair(base.boots, head.boots), 0), why=why),))


def _keyed(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Cells with a key each of their own: one digest may be there with two drivers."""
    seen: dict[str, int] = {}
    keyed = []
    for cell in cells:
        seen[cell.key] = seen.get(cell.key, 0) + 1
        keyed.append(cell if seen[cell.key] == 1 else replace(cell, key=f"{cell.key}-{seen[cell.key]}"))
    return tuple(keyed)


def _cell(pair: Pair, number: int) -> Cell:
    record = pair.head[-1].record
    found = blame(pair.base, pair.head)
    names = [name for name in METRICS if name not in record.memory.impossible]
    return Cell(
        key=record.cell_digest,
        name=f"{record.engine} {record.cell_id}",
        tier=record.tier,
        nodeid=record.nodeid,
        cells=(pair.base[-1].record.cell_id, record.cell_id),
        outcome=NOT_JUDGED,
        summaries=tuple((name, summary_of(pair.base, name), summary_of(pair.head, name)) for name in names),
        steps=steps([boot.record for boot in pair.base], [boot.record for boot in pair.head]),
        caches=found.caches,
        differences=found.differences,
        reproduce=found.reproduce,
        interleaved=blocks_of(pair.base, pair.head)[1],
        base=tuple(boot.record.boot_id for boot in pair.base),
        head=tuple(boot.record.boot_id for boot in pair.head),
        failed=(_failed(pair.base), _failed(pair.head)),
    )


def _failed(boots: Sequence[SideBoot]) -> int:
    return sum(boot.record.failed for boot in boots)


# -- one cell's metrics


@lru_cache(maxsize=64)
def rows(cell: Cell) -> tuple[Row, ...]:
    """Every metric that a boot of the cell has, those that moved most first; of the others the first ones are those that the
    gate judges. What no boot has measured is left out."""
    judged = {change.metric: change for change in cell.changes}
    found = [
        _row(name, base, head, judged.get(name))
        for name, base, head in cell.summaries
        if name in judged or base.values or head.values
    ]
    return tuple(sorted(found, key=lambda row: (-moved(row), row.outcome == NOT_JUDGED)))


def moved(row: Row) -> float:
    """How far a metric moved either way; -1 where that cannot be told."""
    if row.ratio is None:
        return -1.0
    return abs(math.log(row.ratio)) if 0 < row.ratio < math.inf else math.inf


def _row(name: str, base: Summary, head: Summary, judged: MetricChange | None) -> Row:
    row = Row(name, base, head, judged.outcome if judged else NOT_JUDGED, why=judged.reason if judged else "")
    missing = [
        f"unmeasured in {side.unmeasured} of {side.unmeasured + measured(side)} boots of the {word}: {side.reason}"
        for word, side in (("base", base), ("head", head))
        if side.unmeasured
    ]
    if missing or not measured(base) or not measured(head):
        return replace(row, why=row.why or "; ".join(missing))
    row = _shifted(row, METRICS[name].better)
    if judged and judged.low is not None and judged.high is not None and row.ratio is not None:
        # By the gate's own test, which knows the order in which the boots were drawn.
        row = replace(row, ratio=1 + (judged.change or 0.0), low=1 + judged.low, high=1 + judged.high)
    return replace(row, points=_points(row, METRICS[name].better))


def _points(row: Row, better: str) -> str:
    if row.outcome in (REGRESSED, IMPROVED):
        return WORSE if row.outcome == REGRESSED else BETTER
    if row.outcome != NOT_JUDGED or row.low is None or row.high is None or row.low <= 1 <= row.high:
        return UNCLEAR
    return WORSE if (row.low > 1) == (better == "lower") else BETTER


def _shifted(row: Row, better: str) -> Row:
    """With the ratio by Hodges and Lehmann and its interval; without the extra gate, the ratio of the medians alone."""
    try:
        require_extra("an interval")
    except GateError:
        before, after = row.base.median, row.head.median
        plain = before is not None and after is not None and 0 < before < math.inf and 0 < after < math.inf
        return replace(row, ratio=(after or 0.0) / (before or 1.0)) if plain else row
    from pytest_coldstart.stats.scale import scaled

    sides = [(*side.values, *[math.inf] * side.failed) for side in (row.base, row.head)]
    scale = scaled([Block(sides[0], sides[1], drawn=False)], better)
    if not scale.ratio:
        return replace(row, why=row.why or "values of zero have no ratio")
    found = [scale.change(edge) for edge in _shift(scale.blocks[0], Rules().alpha / 2)]
    edges = [None if change is None or not math.isfinite(change) else 1 + change for change in found]
    low, high = (edges[2], edges[1]) if scale.higher else (edges[1], edges[2])
    why = row.why or ("" if edges[0] is not None else "failed boots: there is no finite ratio")
    return replace(row, ratio=edges[0], low=low, high=high, why=why)


def _shift(costs: tuple[tuple[float, ...], tuple[float, ...]], level: float) -> tuple[float | None, ...]:
    """The shift of the head's costs, and the ends of its interval."""
    from pytest_coldstart.stats.randomisation import two_sample_p
    from pytest_coldstart.stats.shift import differences, hodges_lehmann, interval

    base, head = costs
    found = differences([costs])

    def rejects(shift: float, worse: bool) -> bool:
        later = [cost - shift for cost in head]
        one, other = (base, later) if worse else (later, base)
        return two_sample_p(one, other, _LARGE) <= level * (1 + 1e-9)

    return hodges_lehmann(found), *interval(found, lambda d: rejects(d, True), lambda d: rejects(d, False))


def measured(side: Summary) -> int:
    """Boots of a side that enter a metric: failed ones do, unmeasured ones do not."""
    return len(side.values) + side.failed
