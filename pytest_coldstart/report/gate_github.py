"""What a gate found for GitHub: workflow commands that become annotations, and a badge."""

from collections.abc import Iterable
from typing import Any

from pytest_coldstart.gate.comparison import FAIL, IGNORE, CellComparison, GateReport
from pytest_coldstart.report import gate_words as words
from pytest_coldstart.report.columns import fit, one_line
from pytest_coldstart.stats.decision import IMPROVED, INCONCLUSIVE, REGRESSED, SAME

ERROR, WARNING, NOTICE = "error", "warning", "notice"

#: GitHub shows this many annotations of a kind from one step and drops the others.
_MOST = 10
_LONGEST = 4_000
_COLORS = {REGRESSED: "red", INCONCLUSIVE: "lightgrey", IMPROVED: "brightgreen", SAME: "green"}

Annotation = tuple[str, str, str, str]


def annotations(report: GateReport) -> list[str]:
    """Workflow commands, one line each, to be printed by a step: at most ten errors, ten warnings and ten notices.

    error: a regression that the policy fails, a broken SLO. warning: a regression it lets pass, a cell that is undecided or was
    refused, no cell at all. notice: an improvement, and the verdict, which always comes first.
    """
    found = [(NOTICE, "", "Cold start", words.headline(report))]
    found += [(ERROR, "", "SLO broken", text) for text in report.broken]
    for cell in words.ordered(report.cells):
        kind = _kind(cell)
        if kind:
            title = f"{cell.outcome}: {words.cell_name(cell)}"
            lines = [words.cell_headline(cell), *words.reasons(cell), *words.next_steps(cell)]
            found.append((kind, cell.nodeid.partition("::")[0], title, "\n".join(lines)))
    found += [(WARNING, "", "not compared", words.refused_words(item)) for item in report.refused]
    if not report.cells:
        found.append((WARNING, "", "Cold start", words.NO_CELL))
    kept: list[Annotation] = []
    for kind in (ERROR, WARNING, NOTICE):
        kept += _most([item for item in found if item[0] == kind])
    kept.sort(key=lambda item: item != found[0])
    return [_command(*item) for item in kept]


def _kind(cell: CellComparison) -> str:
    if cell.outcome == REGRESSED:
        return ERROR if cell.verdict == FAIL else WARNING
    if cell.outcome == INCONCLUSIVE:
        return "" if cell.verdict == IGNORE else WARNING
    return NOTICE if cell.outcome == IMPROVED else ""


def _most(items: list[Annotation]) -> Iterable[Annotation]:
    if len(items) <= _MOST:
        return items
    more = len(items) - _MOST + 1
    return [*items[: _MOST - 1], (items[0][0], "", "Cold start", f"and {more} more, which the job summary lists")]


def _command(kind: str, file: str, title: str, message: str) -> str:
    """``::error file=a.py,title=b::text``, whatever the parts hold: nothing in them can begin a command of its own."""
    lines = [line for line in map(one_line, message.splitlines()) if line]
    text = "\n".join(lines)[:_LONGEST] or "-"
    parts = [("file", file), ("title", fit(title, 200))]
    properties = ",".join(f"{name}={_property(value)}" for name, value in parts if value)
    return f"::{kind} {properties}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(one_line(text)).replace(":", "%3A").replace(",", "%2C")


def badge(report: GateReport) -> dict[str, Any]:
    """The JSON of a shields.io endpoint badge, schema version 1."""
    color = _COLORS[report.outcome if report.cells else INCONCLUSIVE]
    message = words.verdict(report).lower()
    worst = words.ordered(report.cells)[0] if report.cells else None
    change = words.worst_change(worst) if worst else None
    if report.broken:
        color, count = "red", len(report.broken)
        message = f"{count} SLO{'' if count == 1 else 's'} broken"
    elif not report.cells:
        message = words.NO_CELL
    elif worst and change and worst.outcome == report.outcome and worst.outcome in (REGRESSED, IMPROVED):
        if worst.outcome == REGRESSED and worst.verdict != FAIL:
            color = "orange"
        message += "" if change.change is None else f" {words.percent(change.change)}"
    return {"schemaVersion": 1, "label": "cold start", "message": fit(message, 60), "color": color}
