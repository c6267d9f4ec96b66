"""The words that every format of a gate's report shares: plain text, nothing escaped yet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pytest_coldstart import units
from pytest_coldstart.attribution import UNATTRIBUTED
from pytest_coldstart.gate.comparison import (
    FAIL,
    IGNORE,
    CellComparison,
    Difference,
    GateReport,
    MetricChange,
    PhaseChange,
    Refusal,
    SideSummary,
    Summary,
)
from pytest_coldstart.stats.decision import IMPROVED, INCONCLUSIVE, OUTCOMES, REGRESSED, SAME

TIME, COUNTER = "time", "counter"

NO_CELL = "no cell was compared"

#: A phase that explains less of the change than this is not printed, unless it is the first one.
_SMALL = 0.1
#: Phases of a cell that are printed.
_PHASES = 4


def signed(value: float, unit: str = "s") -> str:
    """``+310 ms``, ``-1.20 s``; zero has no sign."""
    return ("+" if value > 0 else "") + units.show(value, unit)


def percent(fraction: float | None) -> str:
    """``+18.2 %``; ``-`` where it is not known."""
    return "-" if fraction is None or not math.isfinite(fraction) else f"{fraction * 100:+.1f} %"


def interval(change: MetricChange) -> str:
    """``[+12.1, +25.0]``, in percent; empty where there is none."""
    if change.low is None or change.high is None:
        return ""
    low, high = (f"{value * 100:+.1f}" if math.isfinite(value) else "?" for value in (change.low, change.high))
    return f"[{low}, {high}]"


def cell_name(cell: CellComparison) -> str:
    """``llamacpp mmap:true-restart``: the tier is said once."""
    return _named(f"{cell.engine} {cell.cell_id}", cell.tier)


def refused_words(refusal: Refusal) -> str:
    return f"{_named(refusal.cell_id, refusal.tier)} was not compared: {refusal.reason}"


def _named(name: str, tier: str) -> str:
    return name if name.endswith(tier) else f"{name} {tier}"


def value_words(side: Summary, unit: str) -> str:
    """``5.31 s``; ``5.31 s, 1 of 4 failed``; without the median where that one failed; ``failed``; ``unmeasured``."""
    # A report that was read back from JSON has None where a boot failed.
    finite = [value for value in side.values if value is not None and math.isfinite(value)]
    failed = max(side.failed, len(side.values) - len(finite))
    if failed and not finite:
        return "failed"
    if not finite and side.median is None:
        return "unmeasured"
    many = f"{failed} of {len(finite) + failed} failed" if failed else ""
    if side.median is None or not math.isfinite(side.median):
        return many or "unmeasured"
    shown = units.show(side.median, unit)
    return f"{shown}, {many}" if many else shown


def metric_words(change: MetricChange) -> str:
    """``cold_start +18.2 % [+12.1, +25.0]``; of a counter ``kernels 41 to 82``."""
    base, head = value_words(change.base, change.unit), value_words(change.head, change.unit)
    if change.kind == COUNTER or change.change is None or not math.isfinite(change.change):
        return f"{change.metric} {base} to {head}"
    return " ".join(word for word in (change.metric, percent(change.change), interval(change)) if word)


def phase_words(item: PhaseChange) -> str:
    """``load_weights +310 ms (92 %) in EngineCore``, ``load_weights in EngineCore, where boots failed``.

    A phase that moved against the change explains no share of it.
    """
    share = "" if item.share is None or item.share < 0 else f" ({item.share * 100:.0f} %)"
    where = f" in {item.process}" if item.process else ""
    return (
        f"{item.phase}{where}, where boots failed"
        if item.failed
        else f"{item.phase} {signed(item.change)}{share}{where}"
    )


def difference_words(item: Difference) -> str:
    return f"{item.what}: {item.base} on the base, {item.head} on the head"


def shown_phases(cell: CellComparison) -> list[PhaseChange]:
    """The phases worth a line: the first one and those that explain a part of the change one would look at."""
    first = abs(cell.phases[0].change) if cell.phases else 0.0
    rest = [item for item in cell.phases[1:] if abs(item.change) >= max(_SMALL * first, 0.001)]
    return [*cell.phases[:1], *rest[: _PHASES - 1]]


def times(cell: CellComparison) -> list[MetricChange]:
    return [change for change in cell.changes if change.kind != COUNTER]


def moved_counters(cell: CellComparison) -> list[MetricChange]:
    return [change for change in cell.changes if change.kind == COUNTER and change.outcome != SAME]


def worst_change(cell: CellComparison) -> MetricChange | None:
    """The change that made the cell's outcome: of those with that outcome the first, as the policy orders them."""
    gated = [change for change in cell.changes if change.outcome == cell.outcome]
    return next((change for change in gated if change.policy == FAIL), next(iter(gated), None))


def ordered(cells: Iterable[CellComparison]) -> list[CellComparison]:
    """Cells with the worst outcome first; of equal outcomes those that fail, then the largest change."""

    def rank(cell: CellComparison) -> tuple[int, bool, float]:
        change = worst_change(cell)
        size = abs(change.change) if change and change.change is not None else math.inf
        return _place(cell.outcome), cell.verdict != FAIL, -size

    return sorted(cells, key=rank)


def _place(outcome: str) -> int:
    return OUTCOMES.index(outcome) if outcome in OUTCOMES else len(OUTCOMES)


def after_boots(cell: CellComparison) -> str:
    """``decided after 5 boots a side``, ``undecided after 4 boots of the base and 3 of the head``."""
    word = "undecided" if cell.outcome == INCONCLUSIVE else "decided"
    base, head = len(cell.base_boots), len(cell.head_boots)
    if base == head:
        return f"{word} after {base} boot{'' if base == 1 else 's'} a side"
    return f"{word} after {base} boot{'' if base == 1 else 's'} of the base and {head} of the head"


def cell_headline(cell: CellComparison) -> str:
    """What became of one cell, in one sentence."""
    change = worst_change(cell)
    found = f"{metric_words(change)} of {cell_name(cell)}" if change else cell_name(cell)
    blamed = cell.blamed if cell.outcome in (REGRESSED, IMPROVED) else None
    if blamed and blamed.phase == UNATTRIBUTED:
        blamed = None  # it names nothing; the detail says why
    words = f"{found}, {after_boots(cell)}" + (f"; phase {phase_words(blamed)}" if blamed else "")
    if cell.outcome == REGRESSED and cell.verdict != FAIL:
        words += "; the policy lets it " + ("pass" if cell.verdict == IGNORE else "pass with a warning")
    return words


def verdict(report: GateReport) -> str:
    """``REGRESSED``, ``SLO BROKEN``, ``SAME`` ...: the first word of every format."""
    fails = any(cell.outcome == REGRESSED and cell.verdict == FAIL for cell in report.cells)
    if report.broken and not fails:
        return "SLO BROKEN"
    return (report.outcome if report.cells else INCONCLUSIVE).upper()


def headline(report: GateReport) -> str:
    """The verdict and what made it, in one line."""
    word = verdict(report)
    if word == "SLO BROKEN":
        return f"{word}: {report.broken[0]}" + _more(len(report.broken) - 1)
    if not report.cells:
        why = f": {refused_words(report.refused[0])}{_more(len(report.refused) - 1)}" if report.refused else ""
        return f"{word}: {NO_CELL}{why}"
    worst = ordered(report.cells)[0]
    if report.refused and worst.outcome in (SAME, IMPROVED):
        return f"{word}: {refused_words(report.refused[0])}{_more(len(report.refused) - 1)}"
    alike = sum(cell.outcome == worst.outcome for cell in report.cells)
    if worst.outcome == SAME and alike > 1:
        return f"{word}: {alike} cells, no change beyond the margin"
    return f"{word}: {cell_headline(worst)}" + _more(alike - 1, "cell")


def _more(count: int, noun: str = "") -> str:
    return f"; and {count} more{f' {noun}' if noun else ''}{'s' if noun and count > 1 else ''}" if count > 0 else ""


def counts(report: GateReport) -> str:
    """``3 cells: 1 regressed, 2 same; 1 refused; 1 SLO broken``."""
    number = len(report.cells)
    by = [f"{sum(cell.outcome == name for cell in report.cells)} {name}" for name in OUTCOMES]
    text = f"{number} cell{'' if number == 1 else 's'}"
    found = [item for item in by if not item.startswith("0 ")]
    parts = [f"{text}: {', '.join(found)}" if found else text]
    parts += [f"{len(report.refused)} refused"] if report.refused else []
    count = len(report.broken)
    parts += [f"{count} SLO{'' if count == 1 else 's'} broken"] if count else []
    return "; ".join(parts)


def side_words(name: str, side: SideSummary) -> str:
    """``base git:main at 0123abcdef01, 12 boots (1 failed) of 2 runs``; of a side that names one run, which: ``of run ID``."""
    commit = f" at {side.commit[:12]}" if side.commit else ""
    failed = f" ({side.failed} failed)" if side.failed else ""
    runs = f" of {len(side.runs)} run{'' if len(side.runs) == 1 else 's'}" if side.runs else ""
    if side.text.startswith("run:") and len(side.runs) == 1:
        runs = f" of run {side.runs[0]}"
    return f"{name} {side.text}{commit}, {side.boots} boot{'' if side.boots == 1 else 's'}{failed}{runs}"


def terms(report: GateReport) -> str:
    """How it was decided, and what the command ends with."""
    booted = f", {report.seconds:.0f} s of boots" if report.seconds else ""
    return f"exit code {report.exit_code}; alpha {report.alpha:.3g}, policy {report.policy}{booted}"


def next_steps(cell: CellComparison) -> list[str]:
    """What to do about a cell that did not come out well; empty for one that did."""
    needs: dict[int, list[str]] = {}
    for change in cell.changes:
        if change.outcome == INCONCLUSIVE and change.needs:
            needs.setdefault(change.needs, []).append(change.metric)
    steps = [f"about {count} boots a side would decide {listed(names)}" for count, names in needs.items()]
    if cell.outcome in (REGRESSED, INCONCLUSIVE) and cell.reproduce:
        steps.append(f"reproduce the head: {cell.reproduce}")
    return steps


def reasons(cell: CellComparison) -> list[str]:
    """Why metrics came out as they did, where they say so; those that say the same in one line."""
    found: dict[tuple[str, str], list[str]] = {}
    for change in cell.changes:
        if change.reason:
            found.setdefault((change.outcome, change.reason), []).append(change.metric)
    return [f"{listed(names)} {outcome}: {reason}" for (outcome, reason), names in found.items()]


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def first_of(items: Sequence[str], most: int) -> list[str]:
    """At most *most* of them, the last one saying how many are left out."""
    if len(items) <= most:
        return list(items)
    return [*items[: most - 1], f"and {len(items) - most + 1} more"]


def outcome_words(change: MetricChange) -> str:
    """``regressed``; with what the policy does where it does not fail: ``regressed (warn)``."""
    return (
        f"{change.outcome} ({change.policy})"
        if change.outcome == REGRESSED and change.policy != FAIL
        else change.outcome
    )
