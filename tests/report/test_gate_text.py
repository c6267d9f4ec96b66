"""The gate on the terminal: known numbers in their places, at any width, whatever the fields hold."""

import dataclasses
import json

import pytest

from pytest_coldstart.gate.comparison import CellComparison, GateReport, PhaseChange, SideSummary, Summary
from pytest_coldstart.report import gate_words as words
from pytest_coldstart.report.columns import width_of
from pytest_coldstart.report.gate_github import annotations, badge
from pytest_coldstart.report.gate_junit import junit
from pytest_coldstart.report.gate_markdown import comment, markdown
from pytest_coldstart.report.gate_text import text
from tests.report.gate_sample import BROKEN, COLD_START, HOSTILE, REGRESSED, REPORT, SAME, WARM, hostile

NOTHING = GateReport(SideSummary("git:main"), SideSummary("git:topic"))


def test_the_first_line_is_the_verdict_with_its_change_boots_and_phase() -> None:
    assert text(REPORT, 200)[0] == (
        "REGRESSED: cold_start +18.2 % [+12.1, +25.0] of llamacpp mmap:true-restart, decided after 5 boots a side; "
        "phase load_weights +310 ms (100 %) in server"
    )


@pytest.mark.parametrize(
    "line",
    [
        "base git:main at 0123abcdef01, 9 boots of 2 runs",
        "2 cells: 1 regressed, 1 same; 1 refused",
        "  cold_start        1.72 s  2.03 s  +18.2 %  +12.1, +25.0  0.008  regressed",
        "  kernels_compiled       0      41        -             -      -  regressed (warn)",
        "  1 counter did not move",
        "  warm_first_token inconclusive: the budget of 5 boots a side is spent",
        "  cache triton: hit on the base, grew although full on the head: 41 kernels",
        "  differs: options.mmap: true on the base, false on the head",
        "  note: the reference reads of 1 boot strayed",
        "  next: about 14 boots a side would decide warm_first_token",
        f"  next: reproduce the head: {REGRESSED.reproduce}",
        "refused: enforce_eager:true-restart was not compared: the base ran on a NVIDIA H200, the head on a NVIDIA L4",
        "note: boots were made in random order, seed 7",
        "gate: exit code 1; alpha 0.05, policy default, 63 s of boots",
    ],
)
def test_what_was_found_is_there(line: str) -> None:
    assert line in text(REPORT, 200)


def test_the_worst_cell_comes_first() -> None:
    titles = [line for line in text(REPORT, 200) if "; the policy says" in line]
    assert [title.partition(":")[0] for title in titles] == ["llamacpp mmap", "llamacpp fit"]


def test_a_broken_slo_is_the_verdict_where_nothing_regressed_and_is_listed_where_it_did() -> None:
    broken = dataclasses.replace(REPORT, cells=(SAME,), broken=(BROKEN, "another"))
    assert text(broken, 200)[0] == f"SLO BROKEN: {BROKEN}; and 1 more"
    assert f"SLO broken: {BROKEN}" in text(dataclasses.replace(REPORT, broken=(BROKEN,)), 200)


def test_no_cell_says_so_and_why() -> None:
    assert text(NOTHING, 100)[0] == "INCONCLUSIVE: no cell was compared"
    refused = text(dataclasses.replace(REPORT, cells=()), 200)
    assert refused[0].startswith(
        "INCONCLUSIVE: no cell was compared: enforce_eager:true-restart was not compared: the base ran"
    )


def test_cells_that_are_all_the_same_are_counted_and_one_is_told() -> None:
    assert (
        text(dataclasses.replace(REPORT, cells=(SAME, SAME), refused=()), 100)[0]
        == "SAME: 2 cells, no change beyond the margin"
    )
    one = text(dataclasses.replace(REPORT, cells=(SAME,), refused=()), 100)[0]
    assert one == "SAME: cold_start +0.4 % [-2.0, +3.0] of llamacpp fit:true-pristine, decided after 4 boots a side"


def test_a_regression_that_the_policy_lets_pass_says_so() -> None:
    warned = dataclasses.replace(REGRESSED, verdict="warn")
    assert text(dataclasses.replace(REPORT, cells=(warned,)), 300)[0].endswith(
        "; the policy lets it pass with a warning"
    )


def test_metrics_that_are_undecided_for_one_reason_share_its_line() -> None:
    other = dataclasses.replace(WARM, metric="cold_start")
    found = text(dataclasses.replace(REPORT, cells=(dataclasses.replace(REGRESSED, changes=(other, WARM)),)), 200)
    assert "  cold_start and warm_first_token inconclusive: the budget of 5 boots a side is spent" in found
    assert "  next: about 14 boots a side would decide cold_start and warm_first_token" in found


def test_phases_that_explain_next_to_nothing_are_not_told() -> None:
    phases = [
        PhaseChange("compile", "", 0.0, 1.0),
        PhaseChange("profile", "", 0.0, 0.1),
        PhaseChange("spawn", "", 0.0, 0.09),
    ]
    cell = dataclasses.replace(REGRESSED, phases=tuple(phases))
    found = " ".join(text(dataclasses.replace(REPORT, cells=(cell,)), 200))
    assert "phase compile +1.00 s" in found
    assert "phase profile +100 ms" in found
    assert "phase spawn" not in found


def failed_cell(head: Summary) -> CellComparison:
    change = dataclasses.replace(COLD_START, head=head, change=None, low=None, high=None)
    phase = PhaseChange("warmup", "server", 0.1, 0.2, None, "2 of 2 boots of the head failed: exit", failed=True)
    return dataclasses.replace(REGRESSED, changes=(change,), phases=(phase,))


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        (Summary((float("inf"),) * 2, 2, median=float("inf")), "failed"),
        (Summary((1.0, float("inf"), float("inf")), 2, median=float("inf")), "2 of 3 failed"),
        (Summary((), 2), "failed"),  # as JSON gives it back
        (Summary((1.0, 1.5, float("inf")), 1, median=1.5), "1.50 s, 1 of 3 failed"),
        (Summary((), 0, 3, "no warm-up"), "unmeasured"),
    ],
)
def test_failed_and_unmeasured_boots_are_no_numbers(head: Summary, shown: str) -> None:
    first, *rest = text(dataclasses.replace(REPORT, cells=(failed_cell(head),)), 200)
    assert first.startswith(f"REGRESSED: cold_start 1.72 s to {shown} of llamacpp")
    assert first.endswith("; phase warmup in server, where boots failed")
    assert any(f"  {shown}  " in line for line in rest)


def test_a_report_that_was_read_back_from_json_says_the_same() -> None:
    cells = (failed_cell(Summary((1.0, float("inf")), 1, median=float("inf"))), REGRESSED, SAME)
    report = dataclasses.replace(REPORT, cells=cells, broken=(BROKEN,))
    back = GateReport.from_dict(json.loads(json.dumps(report.to_dict(), allow_nan=False)))
    for of in (lambda one: text(one, 100), markdown, comment, junit, annotations, badge):
        assert of(back) == of(report)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_asked_or_could_be_a_command_of_a_runner(width: int) -> None:
    for report in (
        REPORT,
        hostile(REPORT),
        hostile(NOTHING),
        hostile(REPORT, "::error::x "),
        hostile(REPORT, "##[error]x"),
    ):
        found = text(report, width)
        assert max(map(width_of, found)) <= width
        assert all(line.isprintable() for line in found)
        assert not any(line.lstrip().startswith("::") or "##[" in line for line in found)


def test_every_field_is_shown_though_it_is_hostile() -> None:
    found = "".join("".join(text(hostile(REPORT), 10_000)).split())
    assert found.count("octocat") >= 20
    assert "\\x1b[31m\\x00" in found
    assert HOSTILE not in found


def test_a_side_that_names_one_run_says_which() -> None:
    side = dataclasses.replace(REPORT.base, text="run:last", commit=None, runs=("r-1",), boots=4, failed=0)
    assert words.side_words("base", side) == "base run:last, 4 boots of run r-1"
    assert words.side_words("base", dataclasses.replace(side, text="git:main")) == "base git:main, 4 boots of 1 run"
