"""The gate as markdown: what is said, what is escaped, and what is left out where room is short."""

from __future__ import annotations

import dataclasses
import html
import re

import pytest

from pytest_coldstart.report.gate_markdown import COMMENT_LIMIT, MARKER, comment, escaped, markdown
from tests.report.gate_sample import BROKEN, REGRESSED, REPORT, SAME, hostile
from tests.report.test_gate_text import NOTHING


def test_a_comment_begins_with_the_line_by_which_it_is_found_and_a_summary_does_not() -> None:
    assert comment(REPORT).splitlines()[:2] == [MARKER, "### ❌ Cold start: regressed"]
    assert MARKER not in markdown(REPORT)


def test_the_table_has_a_row_for_each_time_and_each_counter_that_moved() -> None:
    rows = [line for line in comment(REPORT).splitlines() if line.startswith("| llamacpp")]
    assert rows == [
        "| llamacpp mmap:true-restart | cold_start | 1.72 s | 2.03 s | +18.2 % &#91;+12.1, +25.0&#93; | ❌ regressed |",
        "| llamacpp mmap:true-restart | warm_first_token | 25 ms | 27 ms | +4.0 % &#91;-20.0, +31.0&#93; | ❔ inconclusive |",
        "| llamacpp mmap:true-restart | kernels_compiled | 0 | 41 | - | ⚠️ regressed (warn) |",
        "| llamacpp fit:true-pristine | cold_start | 1.72 s | 1.73 s | +0.4 % &#91;-2.0, +3.0&#93; | ✅ same |",
    ]


@pytest.mark.parametrize("of", [markdown, comment])
@pytest.mark.parametrize(
    "words",
    [
        "phase load_weights +310 ms (100 %) in server: most by tensors: +302 ms",
        "grew although full on the head: 41 kernels",
        "differs: versions.xllamacpp: 0.2.1 on the base, 0.2.2 on the head",
        "refused: enforce_eager:true-restart was not compared",
        f"```sh\n{REGRESSED.reproduce}\n```",
        "about 14 boots a side would decide warm_first_token",
        "exit code 1",
    ],
)
def test_what_was_found_is_there(of: object, words: str) -> None:
    assert callable(of)
    assert words in html.unescape(of(REPORT))


def test_broken_slos_and_no_cell_are_said() -> None:
    for of in (markdown, comment):
        found = html.unescape(of(dataclasses.replace(NOTHING, broken=(BROKEN,))))
        assert "### ❌ Cold start: slo broken" in found
        assert f"SLO broken: {BROKEN}" in found
        assert "| cell |" not in found
        assert "no cell was compared" in of(NOTHING)


ALLOWED_HTML = {"details", "details open", "/details", "summary", "/summary", "sub", "/sub"}


@pytest.mark.parametrize("of", [markdown, comment])
def test_text_from_outside_is_only_text(of: object) -> None:
    assert callable(of)
    found = of(hostile(REPORT)).removeprefix(MARKER)
    plain = re.sub(r"\n```+sh\n.*\n```+\n", "\n", found)  # in a fence nothing is markup
    assert plain.count("\n```") == 0
    assert set(re.findall(r"<([^>]*)>", plain)) <= ALLOWED_HTML
    assert "`" not in plain
    assert not re.search(r"\]\(", plain)
    assert not re.search(r"@octocat|#1\b", html.unescape(plain))  # GitHub looks for those in the text that is left
    assert not re.search(r"[\x00-\x09\x0b-\x1f\ud800]", found)
    rows = [line for line in plain.splitlines() if line.startswith("|")]
    assert len(rows) >= 5
    assert {line.count("|") for line in rows} == {7}
    assert all(line.startswith(("|", "-", "#", "**", "<", "Repro")) or not line for line in plain.splitlines())


def test_a_command_with_fences_stays_in_its_own() -> None:
    cell = dataclasses.replace(REGRESSED, reproduce="pytest ``` ```` x")
    assert "\n`````sh\npytest ``` ```` x\n`````\n" in markdown(dataclasses.replace(REPORT, cells=(cell,)))


def test_names_stay_readable_in_the_source() -> None:
    assert escaped("cold_start of enforce_eager:true") == "cold_start of enforce_eager:true"
    assert escaped("_a_ *b* https://x") == "&#95;a&#95; &#42;b&#42; https&#58;//x"


def test_a_long_text_is_cut_and_says_so() -> None:
    assert escaped("x" * 400) == "x" * 300 + "..."
    assert len(escaped("#" * 400)) < 1010


def many(outcome: str, verdict: str, count: int) -> tuple[object, ...]:
    cell = REGRESSED if outcome == "regressed" else SAME
    change = dataclasses.replace(cell.changes[0], outcome=outcome)
    return tuple(
        dataclasses.replace(cell, cell_id=f"{outcome}-{n}", outcome=outcome, verdict=verdict, changes=(change,))
        for n in range(count)
    )


def test_of_too_many_cells_those_that_are_the_same_are_left_out_first() -> None:
    cells = (*many("same", "pass", 900), *many("improved", "pass", 30), *many("regressed", "fail", 20))
    found = comment(dataclasses.replace(REPORT, cells=cells))
    assert 50_000 < len(found.encode()) <= COMMENT_LIMIT
    rows = [line.split()[2] for line in found.splitlines() if line.startswith("| llamacpp")]
    assert sum(row.startswith("regressed") for row in rows) == 20
    assert sum(row.startswith("improved") for row in rows) == 30
    kept = sum(row.startswith("same") for row in rows)
    assert f"\n{900 - kept} cells left out here: {900 - kept} same.\n" in found
    assert len(re.findall("<details", found)) == len(re.findall("</details", found)) == 20


@pytest.mark.parametrize("words", ["#" * 5000, "@octocat " * 900, "模" * 5000, "\x00" * 5000])
def test_whatever_the_fields_hold_a_comment_has_room(words: str) -> None:
    report = dataclasses.replace(REPORT, broken=(BROKEN,) * 50, notes=("n",) * 50, refused=REPORT.refused * 50)
    found = comment(hostile(report, words))
    assert len(found.encode()) <= COMMENT_LIMIT
    assert found.startswith(MARKER)
    assert "and 39 more" in found
