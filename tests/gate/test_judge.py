"""The comparison: from boots with known numbers to outcomes, verdicts and exit codes."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from pytest_coldstart.gate.comparison import GateReport, MetricChange, Side, Summary
from pytest_coldstart.gate.judge import compare, verdict_of
from pytest_coldstart.gate.policy import Policies, Policy
from pytest_coldstart.memory import Memory
from pytest_coldstart.record import BootRecord, Value
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from pytest_coldstart.store.runfile import CellVerdict
from tests.gate.made import boot, interleaved, run, side

#: Complete separation. Two metrics need seven boots a side for it, one alone needs four.
SLOWER = {
    "base": (2.00, 2.01, 2.02, 2.03, 2.01, 2.02, 2.00, 2.03),
    "head": (2.40, 2.41, 2.42, 2.43, 2.42, 2.41, 2.40, 2.43),
}
EQUAL = {"base": (2.00, 2.02, 2.01, 2.03), "head": (2.01, 2.02, 2.00, 2.03)}
COLD = Policies(Policy(metrics={"cold_start": "fail"}))


def change_of(report: GateReport, metric: str = "cold_start"):
    (cell,) = report.cells
    return next(change for change in cell.changes if change.metric == metric)


def with_metric(record: BootRecord, name: str, value: Value) -> BootRecord:
    return dataclasses.replace(record, metrics={**record.metrics, name: value})


def test_a_slower_head_is_regressed_by_how_much_and_fails() -> None:
    report = compare(*interleaved(SLOWER), Policies())
    change = change_of(report)
    assert (report.outcome, report.exit_code) == ("regressed", 1)
    assert (report.cells[0].outcome, report.cells[0].verdict, report.cells[0].interleaved) == (
        "regressed",
        "fail",
        True,
    )
    assert change.change == pytest.approx(0.2, abs=0.005)
    assert (change.base.median, change.head.median) == pytest.approx((2.015, 2.415))
    assert (change.base.values, change.head.values) == (SLOWER["base"], SLOWER["head"])
    assert report.cells[0].base_boots == tuple(boot(number).boot_id for number in range(0, 16, 2))


def test_a_faster_head_is_improved_and_passes() -> None:
    report = compare(*interleaved({"base": SLOWER["head"], "head": SLOWER["base"]}), Policies())
    assert (report.outcome, report.cells[0].verdict, report.exit_code) == ("improved", "pass", 0)


def test_equal_sides_are_the_same_within_the_margin() -> None:
    report = compare(*interleaved(EQUAL), COLD)
    assert (report.outcome, report.exit_code) == ("same", 0)


def test_a_change_below_the_floor_fails_nothing() -> None:
    report = compare(*interleaved(SLOWER), Policies(Policy(floor=0.25)))
    assert change_of(report).outcome == "inconclusive"
    assert report.exit_code == 10


def test_one_boot_a_side_decides_no_time() -> None:
    report = compare(side("base", [boot(1, 2.0)]), side("head", [boot(2, 9.0)]), Policies())
    change = change_of(report)
    assert (change.outcome, report.exit_code) == ("inconclusive", 10)
    assert change.needs is None or change.needs > 1
    assert report.cells[0].interleaved is False
    assert "not interleaved" in change.reason


def test_what_the_policy_says_of_an_undecided_cell_is_the_exit_code() -> None:
    sides = side("base", [boot(1, 2.0)]), side("head", [boot(2, 9.0)])
    verdicts = {word: compare(*sides, Policies(Policy(inconclusive=word))) for word in ("fail", "warn", "pass")}
    assert {word: report.cells[0].verdict for word, report in verdicts.items()} == {w: w for w in verdicts}
    assert {word: report.exit_code for word, report in verdicts.items()} == {"fail": 10, "warn": 10, "pass": 0}


def test_a_head_that_fails_is_never_improved_nor_the_same() -> None:
    faster = {"base": (4.0, 4.1, 4.2, 4.3, 4.1, 4.2), "head": (2.0, 2.1, 2.2, 2.3, None, 2.1)}
    report = compare(*interleaved(faster), COLD)
    assert (report.outcome, report.exit_code) == ("inconclusive", 10)
    assert change_of(report).head.failed == 1
    assert "the head failed in 1 of 6 boots: exit" in report.cells[0].notes
    equal = {"base": (2.0,) * 12, "head": (2.0,) * 11 + (None,)}
    assert compare(*interleaved(equal), COLD).outcome != "same"
    worse = {"base": (2.0, 2.1, 2.2, 2.3), "head": (None,) * 4}
    assert compare(*interleaved(worse), COLD).outcome == "regressed"


def test_an_unmeasured_metric_is_inconclusive_with_its_reason_and_the_other_is_judged() -> None:
    base, head = interleaved(SLOWER)
    lost = with_metric(head.boots[1].record, "warm_first_token", Value(None, None, "the connection was reset"))
    boots = tuple(
        dataclasses.replace(item, record=lost) if item.record.boot_id == lost.boot_id else item for item in head.boots
    )
    report = compare(base, dataclasses.replace(head, boots=boots), Policies())
    change = change_of(report, "warm_first_token")
    assert change.outcome == "inconclusive"
    assert change.reason == f"head: boot {lost.boot_id}: warm_first_token is unmeasured: the connection was reset"
    assert (change.head.unmeasured, len(change.head.values)) == (1, 7)
    assert change_of(report).outcome == "regressed"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_is_inconclusive_and_names_the_boot(value: float) -> None:
    bad = with_metric(boot(2, 2.0), "cold_start", Value(value, "client"))
    report = compare(side("base", [boot(1), bad]), side("head", [boot(3), boot(4)]), COLD)
    change = change_of(report)
    assert (change.outcome, report.exit_code) == ("inconclusive", 10)
    assert change.reason == f"base: boot {bad.boot_id}: cold_start is {value}, which is no measurement"


def test_a_metric_that_cannot_exist_for_the_engine_is_left_out() -> None:
    memory = Memory(impossible={"warm_first_token": "the engine has no streams"})
    report = compare(*interleaved(SLOWER, memory=memory), Policies())
    assert "warm_first_token" not in [change.metric for change in report.cells[0].changes]


def test_a_metric_that_the_policy_passes_is_shown_and_fails_nothing() -> None:
    policy = Policies(Policy(metrics={"cold_start": "pass", "ready": "warn"}))
    base, head = interleaved(SLOWER)

    def ready(given: Side) -> Side:
        records = [
            with_metric(item.record, "ready", Value(1.0 + 0.001 * n, "client")) for n, item in enumerate(given.boots)
        ]
        boots = zip(given.boots, records, strict=True)
        return dataclasses.replace(given, boots=tuple(dataclasses.replace(item, record=r) for item, r in boots))

    report = compare(ready(base), ready(head), policy)
    assert change_of(report).outcome == "regressed"
    assert (report.cells[0].outcome, report.exit_code) == ("same", 0)
    warned = compare(base, head, Policies(Policy(metrics={"cold_start": "warn"})))
    assert (warned.cells[0].outcome, warned.cells[0].verdict, warned.exit_code) == ("regressed", "warn", 0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("regressed", "fail"), ("inconclusive", "fail")], ("regressed", "fail")),
        ([("regressed", "warn"), ("inconclusive", "fail")], ("inconclusive", "warn")),
        ([("regressed", "warn"), ("inconclusive", "warn"), ("same", "fail")], ("regressed", "warn")),
        ([("regressed", "pass"), ("same", "fail")], ("same", "pass")),
        ([("improved", "warn"), ("same", "fail")], ("same", "pass")),
        ([("inconclusive", "warn"), ("same", "fail")], ("same", "pass")),
        ([("inconclusive", "warn"), ("same", "warn")], ("inconclusive", "warn")),
        ([("regressed", "pass")], ("regressed", "pass")),
        ([], ("inconclusive", "warn")),
    ],
)
def test_the_worst_of_what_is_gated_most_strictly_is_the_outcome(
    changes: list[tuple[str, str]], expected: tuple[str, str]
) -> None:
    none = Summary()
    made = [MetricChange("m", "s", "time", outcome, none, none, policy=policy) for outcome, policy in changes]
    assert verdict_of(made, Policy()) == expected


def test_counters_that_did_not_move_do_not_make_an_undecided_time_the_same() -> None:
    """The series is unstable or the policy mild, so that the time warns; what fails are counters alone."""
    none = Summary()

    def made(time: str, counter: str) -> list[MetricChange]:
        return [
            MetricChange("cold_start", "s", "time", time, none, none, policy="warn"),
            MetricChange("kernels_compiled", "count", "counter", counter, none, none, policy="fail"),
        ]

    assert verdict_of(made("inconclusive", "same"), Policy()) == ("inconclusive", "warn")
    assert verdict_of(made("inconclusive", "regressed"), Policy()) == ("regressed", "fail")
    assert verdict_of(made("regressed", "same"), Policy()) == ("regressed", "warn")
    assert verdict_of(made("same", "same"), Policy()) == ("same", "pass")


def test_all_cells_are_one_family() -> None:
    """Complete separation at four boots a side has p = 1/70 one-sided, which is enough for one comparison and not for nine."""
    first = {name: values[:4] for name, values in SLOWER.items()}

    def cells(count: int) -> GateReport:
        halves = [interleaved(first, cell_id=f"c{n}", model=f"m{n}") for n in range(count)]
        sides = [
            Side(name, name, tuple(item for half in halves for item in half[index].boots))
            for index, name in enumerate(("base", "head"))
        ]
        return compare(*sides, COLD, final=False)

    assert [cell.outcome for cell in cells(1).cells] == ["regressed"]
    many = cells(9)
    assert {cell.outcome for cell in many.cells} == {"inconclusive"}
    assert all(change.final is False for cell in many.cells for change in cell.changes if change.kind == "time")


def test_a_block_without_the_other_side_is_left_out_and_said() -> None:
    base, head = interleaved({"base": (*SLOWER["base"], 2.0), "head": SLOWER["head"]})
    report = compare(base, head, COLD)
    assert report.outcome == "regressed"
    assert "1 boot left out: the block has no boot of the other side" in report.cells[0].notes


def test_primes_and_contradicted_boots_of_a_live_side_do_not_count() -> None:
    base, head = interleaved(SLOWER)
    prime = dataclasses.replace(head.boots[0], record=boot(90, 99.0, role="prime"))
    wrong = dataclasses.replace(head.boots[0], record=boot(91, 99.0, outcome="error"))
    report = compare(base, dataclasses.replace(head, boots=(*head.boots, prime, wrong)), COLD)
    assert (report.head.boots, change_of(report).head.values) == (8, SLOWER["head"])


def test_broken_slos_of_the_head_are_said_and_exit_1() -> None:
    base, head = interleaved(EQUAL)
    record = head.boots[0].record

    def told(value: float | None, verdict: str, **more: str) -> CellVerdict:
        found = Verdict("cold_start", "max", "<=", 2.025, "s", value, 1, verdict, "command line", **more)
        return CellVerdict(record.cell_digest, record.cell_id, record.tier, record.nodeid, found)

    passed = compare(base, dataclasses.replace(head, verdicts=(told(2.0, "pass"),)), COLD)
    assert (passed.broken, passed.exit_code) == ((), 0)
    runs = (told(2.01, "pass"), told(2.03, "fail"))
    failed = compare(base, dataclasses.replace(head, verdicts=runs), COLD)
    assert failed.broken == ("llamacpp tiny-restart: cold_start.max 2.03 s (<= 2.02 s)",)
    assert (failed.outcome, failed.exit_code) == ("same", 1)
    unmeasured = compare(
        base, dataclasses.replace(head, verdicts=(told(None, "unmeasured", reason="no source"),)), COLD
    )
    assert unmeasured.broken == ("llamacpp tiny-restart: cold_start.max unmeasured (<= 2.02 s): no source",)
    of_the_base = compare(dataclasses.replace(base, verdicts=runs), head, COLD)
    assert of_the_base.broken == ()


def test_nothing_to_compare_is_inconclusive_with_the_reasons() -> None:
    report = compare(side("base", [boot(1)]), side("head", [boot(2)], gpu="NVIDIA L4"), Policies())
    assert (report.cells, report.outcome, report.exit_code) == ((), "inconclusive", 10)
    assert report.refused[0].reason.startswith("gpu: NVIDIA H200 against NVIDIA L4")


def test_a_report_is_plain_json_and_read_back_the_same() -> None:
    report = compare(*interleaved({"base": (2.0, 2.1, 2.2, 2.3), "head": (None,) * 4}), COLD)
    text = json.dumps(report.to_dict(), allow_nan=False)
    again = GateReport.from_dict(json.loads(text))
    assert json.dumps(again.to_dict(), allow_nan=False) == text
    assert (again.outcome, again.exit_code) == (report.outcome, report.exit_code) == ("regressed", 1)


def test_a_cell_that_has_been_unstable_warns_and_its_scatter_raises_the_floor(tmp_path) -> None:
    home = Home.at(tmp_path / "store")
    for index in range(3):
        wide = [2.0 + 0.4 * ((3 * index + n) % 5) for n in range(4)]
        run(home, f"r-{index}", [boot(10 * index + n, seconds) for n, seconds in enumerate(wide)])
    ingest(home)
    report = compare(*interleaved({"base": (2.0, 2.1, 2.2, 2.3), "head": (9.0, 9.1, 9.2, 9.3)}), COLD, history=home)
    assert (report.cells[0].outcome, report.cells[0].verdict, report.exit_code) == ("regressed", "warn", 0)
    assert report.cells[0].unstable
    assert change_of(report).floor > 0.03
    assert any(note.startswith("cold_start is unstable: ") for note in report.cells[0].notes)
    small = compare(*interleaved(SLOWER), COLD, history=home)
    assert small.cells[0].outcome == "inconclusive"
