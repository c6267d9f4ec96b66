"""What a gate found, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_coldstart.gate.comparison import CellComparison, GateReport, MetricChange
from pytest_coldstart.report import gate_words as words
from pytest_coldstart.report.columns import fit, table, width_of, wrapped
from pytest_coldstart.stats.decision import SAME

#: Lines of one kind below a cell.
_MOST = 12
_TITLES = ("metric", "base", "head", "change", "interval, %", "p", "outcome")
_NUMBERS = (1, 2, 3, 4, 5)


def text(report: GateReport, width: int) -> list[str]:
    """The verdict, a table a cell, what explains it and what to do next: lines of at most *width* columns, 40 at least.

    Control characters of names and messages are escaped.
    """
    width = max(width, 40)
    found = _wrapped([words.headline(report)], width, "")
    sides = [words.side_words("base", report.base), words.side_words("head", report.head)]
    found += _wrapped([*sides, words.counts(report)], width, "")
    found += _wrapped([f"SLO broken: {line}" for line in report.broken], width, "")
    for cell in words.ordered(report.cells):
        found += _cell(cell, width)
    lines = [f"refused: {words.refused_words(item)}" for item in report.refused]
    lines += [f"note: {note}" for note in report.notes]
    if lines:
        found += ["", *_wrapped(lines, width, "")]
    found += ["", *_wrapped([f"gate: {words.terms(report)}"], width, "")]
    return [_no_command(line, width) for line in found]


def _no_command(line: str, width: int) -> str:
    """*line* without what a CI runner takes for a command where a job's output has it: ``::error::`` at its begin, ``##[``."""
    line = line.replace("##[", "## [")
    if line.lstrip().startswith("::"):
        line = line.replace("::", ": :", 1)
    blank = len(line) - len(line.lstrip())
    return line[:blank] + fit(line[blank:], width - blank) if width_of(line) > width else line


def _cell(cell: CellComparison, width: int) -> list[str]:
    title = f"{words.cell_name(cell)}: {cell.outcome}, {words.after_boots(cell)}; the policy says {cell.verdict}"
    shown = [*words.times(cell), *words.moved_counters(cell)]
    found = ["", *_wrapped([title], width, "")]
    if shown:
        found += [f"  {line}" for line in table(_TITLES, map(_row, shown), width - 2, _NUMBERS)]
    still = len(cell.changes) - len(shown)
    lines = [f"{still} counter{'' if still == 1 else 's'} did not move"] if still else []
    lines += words.reasons(cell)
    if cell.outcome != SAME:
        lines += [
            f"phase {words.phase_words(item)}" + (f": {item.detail}" if item.detail else "")
            for item in words.shown_phases(cell)
        ]
    lines += [f"cache {line}" for line in words.first_of(cell.caches, _MOST)]
    lines += words.first_of([f"differs: {words.difference_words(item)}" for item in cell.differences], _MOST)
    lines += [f"note: {note}" for note in words.first_of(cell.notes, _MOST)]
    lines += [f"next: {step}" for step in words.next_steps(cell)]
    return found + _wrapped(lines, width, "  ")


def _row(change: MetricChange) -> tuple[str, ...]:
    base, head = words.value_words(change.base, change.unit), words.value_words(change.head, change.unit)
    p = "-" if change.p is None else f"{change.p:.2g}"
    between = words.interval(change).strip("[]") or "-"
    return change.metric, base, head, words.percent(change.change), between, p, words.outcome_words(change)


def _wrapped(lines: Iterable[str], width: int, indent: str) -> list[str]:
    return [part for line in lines for part in wrapped(line, width, indent)]
