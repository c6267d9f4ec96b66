"""What a gate found as JUnit XML: one test case for each gated metric of a cell."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from pytest_coldstart.gate.comparison import FAIL, IGNORE, CellComparison, GateReport, MetricChange
from pytest_coldstart.report import gate_words as words
from pytest_coldstart.stats.decision import INCONCLUSIVE, REGRESSED, SAME

FAILURE, SKIPPED = "failure", "skipped"


def junit(report: GateReport) -> str:
    """A regression that the policy fails is a failure, so is a broken SLO; what is undecided, unless the policy fails that, or was refused is skipped.

    A regression that the policy lets pass is a test that passed, with its text as output. Characters that XML cannot hold
    are escaped as ``\\u0000``.
    """
    suites = ElementTree.Element("testsuites", name="coldstart gate")
    suite = ElementTree.SubElement(suites, "testsuite", name="coldstart gate", errors="0", time=f"{report.seconds:.3f}")
    if report.made_at:
        suite.set("timestamp", _xml(report.made_at))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(report):
        ElementTree.SubElement(properties, "property", name=name, value=_xml(value))
    for cell in words.ordered(report.cells):
        for change in _gated(cell):
            _metric(suite, cell, change)
    for number, text in enumerate(report.broken, 1):
        _case(suite, "coldstart.slo", f"SLO {number}", FAILURE, f"SLO broken: {text}", text)
    for item in report.refused:
        text = words.refused_words(item)
        _case(suite, "coldstart.refused", f"{item.cell_id} {item.tier}", SKIPPED, text, text)
    if not report.cells:
        _case(suite, "coldstart.gate", words.NO_CELL, SKIPPED, words.headline(report), words.NO_CELL)
    for element in (suites, suite):
        element.set("tests", str(len(suite.findall("testcase"))))
        element.set("failures", str(len(suite.findall(f"testcase/{FAILURE}"))))
        element.set("skipped", str(len(suite.findall(f"testcase/{SKIPPED}"))))
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=False) + "\n"


def _properties(report: GateReport) -> Iterator[tuple[str, str]]:
    yield "coldstart.verdict", words.headline(report)
    yield "coldstart.base", words.side_words("base", report.base)
    yield "coldstart.head", words.side_words("head", report.head)
    yield "coldstart.exit_code", str(report.exit_code)
    for note in report.notes:
        yield "coldstart.note", note


def _gated(cell: CellComparison) -> list[MetricChange]:
    """Times, and counters that the policy looks at or that moved."""
    counters = [change for change in cell.changes if change.kind == words.COUNTER]
    return words.times(cell) + [item for item in counters if item.policy != IGNORE or item.outcome != SAME]


def _metric(suite: ElementTree.Element, cell: CellComparison, change: MetricChange) -> None:
    text = f"{words.metric_words(change)}: {change.outcome}" + (f"; {change.reason}" if change.reason else "")
    if change.outcome == INCONCLUSIVE and change.needs:
        text += f"; about {change.needs} boots a side would decide it"
    kind = ""
    if change.outcome == REGRESSED and change.policy == FAIL and cell.verdict == FAIL:
        kind = FAILURE
    elif change.outcome == INCONCLUSIVE:
        fails = cell.outcome == INCONCLUSIVE and cell.verdict == FAIL and change.policy == FAIL
        kind = FAILURE if fails else SKIPPED
    name = f"{words.cell_name(cell)} {change.metric}"
    _case(suite, f"coldstart.{cell.engine}.{cell.tier}", name, kind, text, "\n".join([text, *_why(cell)]))


def _why(cell: CellComparison) -> list[str]:
    lines = [words.after_boots(cell)]
    lines += [
        f"phase {words.phase_words(item)}" + (f": {item.detail}" if item.detail else "")
        for item in words.shown_phases(cell)
    ]
    lines += [f"cache {text}" for text in cell.caches]
    lines += [f"differs: {words.difference_words(item)}" for item in cell.differences]
    lines += [f"note: {note}" for note in cell.notes]
    return lines + [f"next: {step}" for step in words.next_steps(cell)]


def _case(suite: ElementTree.Element, classname: str, name: str, kind: str, message: str, text: str) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=_xml(classname), name=_xml(name), time="0")
    if kind:
        ElementTree.SubElement(case, kind, message=_xml(message)).text = _xml(text)
    else:
        ElementTree.SubElement(case, "system-out").text = _xml(text)


def _xml(text: str) -> str:
    """*text* with the characters that XML 1.0 cannot hold escaped."""
    return "".join(char if _allowed(ord(char)) else f"\\u{ord(char):04x}" for char in text)


def _allowed(code: int) -> bool:
    return (
        code in (0x9, 0xA) or 0x20 <= code < 0x7F or 0xA0 <= code < 0xD800 or 0xE000 <= code < 0xFFFE or code > 0xFFFF
    )
