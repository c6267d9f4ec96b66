"""What a gate found as markdown: a job summary, and a short comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_coldstart.gate.comparison import FAIL, CellComparison, GateReport, MetricChange
from pytest_coldstart.report import gate_words as words
from pytest_coldstart.report.columns import one_line
from pytest_coldstart.stats.decision import IMPROVED, INCONCLUSIVE, OUTCOMES, REGRESSED, SAME

#: The first line of a comment, by which it is found again and updated. Renderers do not show it.
MARKER = "<!-- pytest-coldstart: gate -->"

#: GitHub refuses a comment of more than 65 536 characters and a job summary of more than 1 MiB.
COMMENT_LIMIT, SUMMARY_LIMIT = 65_000, 1_000_000

#: Characters of a text from outside, and lines of one kind, beyond which the rest is left out.
_LONGEST, _MOST = 300, 12
#: Bytes of it once it is escaped; so many that what comes before the cells fits a comment, whatever it holds.
_BYTES = 1_000
_SIGNS = {REGRESSED: "❌", INCONCLUSIVE: "❔", IMPROVED: "🚀", SAME: "✅"}
#: What markdown or HTML could take for its own. An underscore within a word is none, so that names stay readable in the source.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~&$@#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)")
#: A zero-width space keeps @name and #1 from becoming a mention or a link.
_APART = "@#"
_TABLE = ("| cell | metric | base | head | change | outcome |", "| --- | --- | --: | --: | --: | --- |")


def markdown(report: GateReport) -> str:
    """The job summary: every cell with what explains it. At most 1,000,000 bytes of UTF-8; see :func:`comment`."""
    return _fitted("", report, _details, SUMMARY_LIMIT)


def comment(report: GateReport) -> str:
    """The body of a comment: the verdict, a table of all cells, the worst ones in a few lines each.

    It begins with :data:`MARKER`. At most 65,000 bytes of UTF-8: cells that are the same are left out first, then those that
    improved, then those that are inconclusive; how many is said.
    """
    return _fitted(f"{MARKER}\n", report, _few_words, COMMENT_LIMIT)


def escaped(text: str) -> str:
    """*text* on one line, at most 300 characters and 1,000 bytes, as plain text for markdown and HTML."""
    text = one_line(text)
    kept = text[:_LONGEST]
    while _size(_SPECIAL.sub(_entity, kept)) > _BYTES:
        kept = kept[: len(kept) * 3 // 4]
    return _SPECIAL.sub(_entity, kept) + ("" if kept == text else "...")


def _entity(match: re.Match[str]) -> str:
    return f"&#{ord(match[0])};" + ("&#8203;" if match[0] in _APART else "")


@dataclass(frozen=True)
class _Cell:
    comparison: CellComparison
    rows: str
    section: str

    @property
    def size(self) -> int:
        return _size(self.rows) + _size(self.section)


def _fitted(marker: str, report: GateReport, section: Callable[[CellComparison], str], limit: int) -> str:
    head = marker + "\n".join(_head(report)) + "\n"
    foot = f"\n<sub>{escaped(words.terms(report))}</sub>\n"
    table = "\n" + "\n".join(_TABLE) + "\n"
    room = limit - sum(map(_size, (head, foot, table))) - _LONGEST
    kept: list[_Cell] = []
    left: list[CellComparison] = []
    for cell in words.ordered(report.cells):
        made = _Cell(cell, _rows(cell), section(cell))
        room -= made.size
        # Once one is left out, so are all that matter less: what is there has no holes.
        if room < 0 or left:
            left.append(cell)
        else:
            kept.append(made)
    body = table + "".join(cell.rows for cell in kept) if kept else ""
    body += "".join(cell.section for cell in kept)
    if left:
        by = [f"{sum(cell.outcome == name for cell in left)} {name}" for name in OUTCOMES]
        count = f"{len(left)} cell{'' if len(left) == 1 else 's'}"
        body += f"\n{count} left out here: {', '.join(item for item in by if not item.startswith('0 '))}.\n"
    return head + body + foot


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _head(report: GateReport) -> list[str]:
    verdict, _, rest = words.headline(report).partition(": ")
    sign = "❌" if report.broken else _SIGNS[report.outcome if report.cells else INCONCLUSIVE]
    lines = [f"### {sign} Cold start: {verdict.lower()}", "", f"**{escaped(rest)}**", ""]
    sides = (words.side_words("base", report.base), words.side_words("head", report.head))
    lines += [*(f"- {escaped(side)}" for side in sides), f"- {escaped(words.counts(report))}"]
    lines += _items("SLO broken: ", report.broken)
    lines += _items("refused: ", [words.refused_words(item) for item in report.refused])
    return lines + _items("note: ", report.notes)


def _items(before: str, texts: Sequence[str]) -> list[str]:
    return [f"- {before}{escaped(text)}" for text in words.first_of(texts, _MOST)]


def _rows(cell: CellComparison) -> str:
    shown = [*words.times(cell), *words.moved_counters(cell)[:_MOST]]
    return "".join(f"| {' | '.join(map(escaped, _row(cell, change)))} |\n" for change in shown)


def _row(cell: CellComparison, change: MetricChange) -> Iterable[str]:
    moved = " ".join(text for text in (words.percent(change.change), words.interval(change)) if text)
    base, head = words.value_words(change.base, change.unit), words.value_words(change.head, change.unit)
    sign = "⚠️" if change.outcome == REGRESSED and change.policy != FAIL else _SIGNS.get(change.outcome, "")
    return words.cell_name(cell), change.metric, base, head, moved, f"{sign} {words.outcome_words(change)}"


def _few_words(cell: CellComparison) -> str:
    """The worst cells alone have a section in a comment: what explains each, and what to do."""
    if cell.outcome not in (REGRESSED, INCONCLUSIVE):
        return ""
    return _section(cell, phases=2, differences=5)


def _details(cell: CellComparison) -> str:
    return _section(cell, phases=4, differences=_MOST)


def _section(cell: CellComparison, phases: int, differences: int) -> str:
    lines = words.first_of(words.reasons(cell), _MOST)
    if cell.outcome != SAME:
        lines += [
            f"phase {words.phase_words(item)}" + (f": {item.detail}" if item.detail else "")
            for item in words.shown_phases(cell)[:phases]
        ]
    lines += [f"cache {text}" for text in words.first_of(cell.caches, differences)]
    lines += words.first_of([f"differs: {words.difference_words(item)}" for item in cell.differences], differences)
    lines += [f"note: {text}" for text in words.first_of(cell.notes, differences)]
    parts = [f"- {escaped(line)}\n" for line in lines]
    steps = [step for step in words.next_steps(cell) if not step.endswith(cell.reproduce) or not cell.reproduce]
    parts += [f"- {escaped(step)}\n" for step in steps]
    if len(steps) < len(words.next_steps(cell)):
        parts.append(_code(cell.reproduce))
    if not parts:
        return ""
    title = f"{_SIGNS.get(cell.outcome, '')} {escaped(words.cell_name(cell))}: {escaped(cell.outcome)}"
    opened = " open" if cell.outcome == REGRESSED else ""
    return f"\n<details{opened}><summary>{title}, {words.after_boots(cell)}</summary>\n\n{''.join(parts)}\n</details>\n"


def _code(command: str) -> str:
    """A command to copy, in a fence longer than any run of backticks in it."""
    command = one_line(command)
    fence = "```"
    while fence in command:
        fence += "`"
    return f"\nReproduce the head:\n\n{fence}sh\n{command}\n{fence}\n"
