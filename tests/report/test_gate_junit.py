"""The gate as JUnit XML, read back by a parser."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree

from pytest_coldstart.gate.comparison import GateReport
from pytest_coldstart.report.gate_junit import junit
from tests.report.gate_sample import BROKEN, HOSTILE, REGRESSED, REPORT, hostile
from tests.report.test_gate_text import NOTHING


def cases(report: GateReport) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(junit(report))
    assert root.tag == "testsuites"
    (suite,) = root.findall("testsuite")
    found = suite.findall("testcase")
    for element in (root, suite):
        assert element.get("tests") == str(len(found))
        assert element.get("failures") == str(len(suite.findall("testcase/failure")))
        assert element.get("skipped") == str(len(suite.findall("testcase/skipped")))
    return {str(case.get("name")): case for case in found}


def state(case: ElementTree.Element) -> list[str]:
    return [child.tag for child in case]


def test_each_gated_metric_of_a_cell_is_a_case() -> None:
    found = cases(REPORT)
    assert {name: state(case) for name, case in found.items()} == {
        "llamacpp mmap:true-restart cold_start": ["failure"],
        "llamacpp mmap:true-restart warm_first_token": ["skipped"],
        "llamacpp mmap:true-restart kernels_compiled": ["system-out"],
        "llamacpp mmap:true-restart modules_imported": ["system-out"],
        "llamacpp fit:true-pristine cold_start": ["system-out"],
        "enforce_eager:true-restart restart": ["skipped"],
    }
    failure = found["llamacpp mmap:true-restart cold_start"][0]
    assert failure.get("message") == "cold_start +18.2 % [+12.1, +25.0]: regressed"
    assert f"next: reproduce the head: {REGRESSED.reproduce}" in str(failure.text).splitlines()
    assert found["llamacpp mmap:true-restart cold_start"].get("classname") == "coldstart.llamacpp.restart"


def test_a_counter_that_the_policy_does_not_look_at_is_a_case_only_where_it_moved() -> None:
    changes = tuple(dataclasses.replace(change, policy="pass") for change in REGRESSED.changes)
    found = cases(dataclasses.replace(REPORT, cells=(dataclasses.replace(REGRESSED, changes=changes),)))
    assert "llamacpp mmap:true-restart kernels_compiled" in found
    assert "llamacpp mmap:true-restart modules_imported" not in found
    assert state(found["llamacpp mmap:true-restart cold_start"]) == ["system-out"]


def test_what_is_undecided_fails_where_the_policy_says_so() -> None:
    undecided = dataclasses.replace(REGRESSED, outcome="inconclusive", verdict="fail")
    found = cases(dataclasses.replace(REPORT, cells=(undecided,)))
    case = found["llamacpp mmap:true-restart warm_first_token"]
    assert state(case) == ["failure"]
    assert state(cases(REPORT)["llamacpp mmap:true-restart warm_first_token"]) == ["skipped"]
    assert "about 14 boots a side would decide it" in str(case[0].get("message"))


def test_a_regression_of_an_unstable_cell_is_no_failure() -> None:
    found = cases(dataclasses.replace(REPORT, cells=(dataclasses.replace(REGRESSED, verdict="warn"),)))
    assert state(found["llamacpp mmap:true-restart cold_start"]) == ["system-out"]


def test_a_broken_slo_is_a_failure_and_no_cell_is_a_skipped_case() -> None:
    assert state(cases(dataclasses.replace(REPORT, broken=(BROKEN,)))["SLO 1"]) == ["failure"]
    assert {name: state(case) for name, case in cases(NOTHING).items()} == {"no cell was compared": ["skipped"]}


def test_hostile_text_comes_back_as_text_with_what_xml_cannot_hold_escaped() -> None:
    found = cases(dataclasses.replace(hostile(REPORT), broken=(HOSTILE,)))
    text = str(found["SLO 1"][0].text)
    assert text == HOSTILE.replace("\r", "\\u000d").replace("\x1b", "\\u001b").replace("\x00", "\\u0000").replace(
        "\ud800", "\\ud800"
    )
    junit(hostile(NOTHING)).encode("utf-8")
