"""Workflow commands and the badge of a gate."""

import dataclasses
import json
import re

import pytest

from pytest_coldstart.report.gate_github import annotations, badge
from tests.report.gate_sample import BROKEN, REFUSED, REGRESSED, REPORT, SAME, hostile
from tests.report.test_gate_text import NOTHING

#: A workflow command as the runner reads it: the name, then properties, then the data.
COMMAND = re.compile(r"::(error|warning|notice) ((?:file|title)=[^:,\r\n]*(?:,title=[^:,\r\n]*)?)::([^\r\n]+)")


def kinds(found: list[str]) -> list[str]:
    return [line[2:].partition(" ")[0] for line in found]


def test_the_verdict_comes_first_and_each_bad_cell_has_its_kind() -> None:
    found = annotations(REPORT)
    assert kinds(found) == ["notice", "error", "warning"]
    assert found[0].startswith("::notice title=Cold start::REGRESSED: cold_start +18.2 %25 [+12.1, +25.0]")
    assert found[1].startswith(
        "::error file=suites/test_llamacpp.py,title=regressed%3A llamacpp mmap%3Atrue-restart::cold_start +18.2 %25 [+12.1"
    )
    assert found[1].endswith(f"%0Areproduce the head: {REGRESSED.reproduce}")
    assert found[2] == f"::warning title=not compared::{REFUSED.cell_id} was not compared: {REFUSED.reason}"


@pytest.mark.parametrize(
    ("outcome", "verdict", "kind"),
    [
        ("regressed", "fail", ["error"]),
        ("regressed", "warn", ["warning"]),
        ("inconclusive", "warn", ["warning"]),
        ("inconclusive", "pass", []),
        ("improved", "pass", ["notice"]),
        ("same", "pass", []),
    ],
)
def test_an_outcome_and_its_verdict_make_the_kind(outcome: str, verdict: str, kind: list[str]) -> None:
    cell = dataclasses.replace(REGRESSED, outcome=outcome, verdict=verdict)
    assert kinds(annotations(dataclasses.replace(REPORT, cells=(cell,), refused=()))) == ["notice", *kind]


def test_a_broken_slo_is_an_error_and_no_cell_a_warning() -> None:
    found = annotations(dataclasses.replace(NOTHING, broken=(BROKEN,)))
    assert found[1:] == [f"::error title=SLO broken::{BROKEN}", "::warning title=Cold start::no cell was compared"]


def test_hostile_text_makes_no_command_of_its_own() -> None:
    for report in (hostile(REPORT), hostile(NOTHING), hostile(REPORT, "\n::error::x\r::x::,title=y")):
        for line in annotations(report):
            assert COMMAND.fullmatch(line), line
            assert line.isprintable()
            assert len(line) < 20_000


def test_no_more_than_ten_of_a_kind_are_printed_and_the_rest_is_counted() -> None:
    found = annotations(dataclasses.replace(REPORT, cells=(REGRESSED,) * 25, broken=(BROKEN,) * 5, refused=()))
    assert kinds(found) == ["notice", *["error"] * 10]
    assert found[-1] == "::error title=Cold start::and 21 more, which the job summary lists"


@pytest.mark.parametrize(
    ("changes", "message", "color"),
    [
        ({}, "regressed +18.2 %", "red"),
        ({"cells": (SAME,)}, "inconclusive", "lightgrey"),  # another cell was refused
        ({"cells": (SAME,), "refused": ()}, "same", "green"),
        ({"cells": (dataclasses.replace(REGRESSED, verdict="warn"),)}, "regressed +18.2 %", "orange"),
        ({"cells": (dataclasses.replace(SAME, outcome="inconclusive"),)}, "inconclusive", "lightgrey"),
        ({"cells": (SAME,), "broken": (BROKEN,)}, "1 SLO broken", "red"),
        ({"broken": (BROKEN, BROKEN)}, "2 SLOs broken", "red"),
        ({"cells": ()}, "no cell was compared", "lightgrey"),
    ],
)
def test_the_badge_has_the_keys_of_an_endpoint_badge(changes: dict[str, object], message: str, color: str) -> None:
    found = badge(dataclasses.replace(REPORT, **changes))  # type: ignore[arg-type]
    assert found == {"schemaVersion": 1, "label": "cold start", "message": message, "color": color}


def test_the_badge_of_an_improvement_says_how_much_and_of_a_hostile_report_is_one_short_line() -> None:
    change = dataclasses.replace(SAME.changes[0], outcome="improved", change=-0.12)
    better = dataclasses.replace(SAME, outcome="improved", changes=(change,))
    assert badge(dataclasses.replace(REPORT, cells=(better,), refused=()))["message"] == "improved -12.0 %"
    found = badge(hostile(dataclasses.replace(REPORT, broken=(BROKEN,))))
    assert set(found) == {"schemaVersion", "label", "message", "color"}
    assert len(json.dumps(found)) < 200
