"""Comparisons of stored boots whose values stand in the test: what the page says is what the gate says."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from dashboard import gate_command
from dashboard.compare_rows import BETTER, NOT_JUDGED, UNCLEAR, WORSE, Cell, Row, measured, rows
from dashboard.data.compare import Answer, Asked, answer, offered
from dashboard.data.sides import BOOTS, COMMITS, CONFIGS, RUNS
from dashboard.source import opened
from pytest_coldstart.cli import main
from pytest_coldstart.gate.comparison import GateReport
from pytest_coldstart.gate.judge import compare
from pytest_coldstart.gate.policy import Policies
from pytest_coldstart.gate.sides import load
from pytest_coldstart.record import BootRecord, Value
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from tests.gate import made

pytest.importorskip("scipy", reason="outcomes need the extra gate")

A, B = "a" * 40, "b" * 40
#: Values of which none reaches those of the other side.
SLOW, FAST = (3.0, 3.1, 3.2, 3.3, 3.4), (2.0, 2.1, 2.2, 2.3, 2.4)


def times(first: int, values: Any, **changes: Any) -> list[BootRecord]:
    return [made.boot(first + place, value, **changes) for place, value in enumerate(values)]


def stored(home: Home, runs: dict[str, list[BootRecord]], **headers: dict[str, Any]) -> Home:
    for minute, (run_id, boots) in enumerate(runs.items()):
        at = f"2026-11-02T09:{minute:02d}:00.000+00:00"
        made.run(home, run_id, boots, **{"started_at": at, **headers.get(run_id.replace("-", ""), {})})
    assert ingest(home).problems == []
    return home


def ask(home: Home, kind: str, base: str, head: str, **more: Any) -> Answer:
    with opened(home) as con:
        return answer(con, Asked(kind, base, head, **more))


def only(found: Answer) -> Cell:
    assert found.comparison is not None, (found.base.problem, found.head.problem, found.problem)
    (cell,) = found.comparison.cells
    return cell


def by_name(cell: Cell) -> dict[str, Row]:
    return {row.metric: row for row in rows(cell)}


def gated(home: Home, base: str, head: str, **more: Any) -> GateReport:
    sides = [load(name, text, home, Path.cwd()) for name, text in (("base", base), ("head", head))]
    return compare(sides[0], sides[1], Policies(), history=home, **more)


@pytest.fixture
def two(home: Home) -> Home:
    runs = {"r-1": times(1, FAST), "r-2": times(101, SLOW)}
    return stored(home, runs, r2={"git_commit": B, "kernel": "6.9.1"})


# -- the same words as the gate's


@pytest.mark.parametrize(
    ("base", "head", "outcome"),
    [("r-1", "r-2", "regressed"), ("r-2", "r-1", "improved")],
)
def test_two_runs_come_out_as_the_gate_says(two: Home, base: str, head: str, outcome: str) -> None:
    cell = only(ask(two, RUNS, base, head))
    report = gated(two, f"run:{base}", f"run:{head}")
    assert (cell.outcome, report.cells[0].outcome) == (outcome, outcome)
    for change in report.cells[0].changes:
        row = by_name(cell)[change.metric]
        assert (row.outcome, row.why, row.base, row.head) == (change.outcome, change.reason, change.base, change.head)
        if change.low is not None and change.high is not None:
            assert (row.low, row.high) == (1 + change.low, 1 + change.high)


def test_the_ratio_is_of_the_head_over_the_base_and_the_interval_holds_it(two: Home) -> None:
    row = by_name(only(ask(two, RUNS, "r-1", "r-2")))["cold_start"]
    assert row.ratio == pytest.approx(1.45, abs=0.05)
    assert row.low is not None
    assert row.high is not None
    assert 1.25 < row.low < row.ratio < row.high < 1.7
    assert (row.points, row.base.median, row.head.median) == (WORSE, 2.2, 3.2)
    assert by_name(only(ask(two, RUNS, "r-2", "r-1")))["cold_start"].points == BETTER


def test_few_boots_that_overlap_are_inconclusive(home: Home) -> None:
    stored(home, {"r-1": times(1, (2.0, 2.6)), "r-2": times(101, (2.3, 2.4))})
    cell = only(ask(home, RUNS, "r-1", "r-2"))
    assert cell.outcome == gated(home, "run:r-1", "run:r-2").cells[0].outcome == "inconclusive"
    assert by_name(cell)["cold_start"].points == UNCLEAR


def test_equal_boots_many_enough_are_the_same(home: Home) -> None:
    values = [2.0 + number / 1000 for number in range(12)]
    stored(home, {"r-1": times(1, values), "r-2": times(101, values[::-1])})
    cell = only(ask(home, RUNS, "r-1", "r-2"))
    assert (cell.outcome, by_name(cell)["cold_start"].points) == ("same", UNCLEAR)


def test_interleaved_boots_are_known_to_be(home: Home) -> None:
    runs: dict[str, list[BootRecord]] = {}
    headers: dict[str, dict[str, Any]] = {}
    for number in range(8):
        for side, commit, values in (("base", A, FAST), ("head", B, SLOW)):
            run_id = f"{side}-{number}"
            place = {"gate": "g", "side": side, "block": number // 4, "position": number}
            runs[run_id] = [made.boot(2 * number + (side == "head"), values[number % 5] + number / 100)]
            headers[run_id.replace("-", "")] = {"git_commit": commit, "gate": place}
    stored(home, runs, **headers)
    assert "2 of gates" not in ask(home, COMMITS, A, B).base.problem
    assert ask(home, COMMITS, A, B).base.problem == f"commit {A} has no run that counts: 8 runs of gates left out"
    cell = only(ask(home, COMMITS, A, B, gates=True))
    report = compare(
        *(made_side(home, [run for run in runs if run.startswith(name)], name) for name in ("base", "head")), Policies()
    )
    assert cell.interleaved
    assert cell.outcome == report.cells[0].outcome == "regressed"
    assert "not interleaved" not in " ".join(change.reason for change in cell.changes)


def made_side(home: Home, runs: list[str], name: str) -> Any:
    from pytest_coldstart.gate.sides import of_runs
    from pytest_coldstart.store.runfile import read_run

    return of_runs(name, name, [read_run(file) for run in runs for file in home.runs.glob(f"{run}.*.jsonl")])


def test_how_stable_a_cell_has_been_counts_as_for_the_gate(home: Home) -> None:
    """Twelve runs that scatter widely make the floor so high that a third more is no change."""
    past = {f"p-{number:02d}": times(1 + number * 10, (2.0, 4.0)) for number in range(12)}
    stored(home, {**past, "r-1": times(301, FAST), "r-2": times(401, SLOW)})
    cell = only(ask(home, RUNS, "r-1", "r-2"))
    report = gated(home, "run:r-1", "run:r-2")
    assert cell.outcome == report.cells[0].outcome
    assert cell.changes == report.cells[0].changes
    assert max(change.floor for change in cell.changes if change.metric == "cold_start") > 0.03


# -- kinds


def test_commits_are_matched_cell_by_cell(home: Home) -> None:
    runs = {"r-1": times(1, FAST), "r-2": times(101, SLOW), "r-3": times(151, SLOW, cell_id="b", model="big")}
    stored(home, runs, r2={"git_commit": B})
    found = ask(home, COMMITS, A, B)
    assert only(found).outcome == "regressed"
    assert found.comparison is not None
    assert found.comparison.notes == ("only the base has llamacpp b (5 boots)",)
    assert found.comparison.refused == ()


def test_sides_with_nothing_in_common_say_what_differs(home: Home) -> None:
    runs = {"r-1": times(1, FAST), "r-2": times(101, SLOW, cell_id="b", model="big")}
    found = ask(stored(home, runs), RUNS, "r-1", "r-2").comparison
    assert found is not None
    assert found.cells == ()
    assert found.refused == ("b (restart): model: tiny against big; --allow model compares them all the same",)


def series(home: Home, run: str) -> str:
    with opened(home) as con:
        return str(con.execute("SELECT any_value(series) FROM boot WHERE run_id = ?", [run]).fetchall()[0][0])


def test_configs_may_differ_in_their_options_which_are_shown(home: Home) -> None:
    stored(home, {"r-1": times(1, FAST), "r-2": times(101, SLOW, cell_id="long", options={"ctx": 1024})})
    found = ask(home, CONFIGS, series(home, "r-1"), series(home, "r-2"))
    cell = only(found)
    assert (cell.outcome, found.allow) == ("regressed", ("options.ctx",))
    assert ("options.ctx", "512", "1024") in [(item.what, item.base, item.head) for item in cell.differences]
    report = gated(home, "run:r-1", "run:r-2", allow=found.allow)
    assert report.cells[0].outcome == "regressed"


@pytest.mark.parametrize(
    ("changes", "header", "why"),
    [
        ({"engine": "vllm"}, {}, "engines are never mixed"),
        ({"tier": "pristine"}, {}, "tiers are never mixed"),
        ({}, {"gpu": "NVIDIA L4", "hardware_class": "l4"}, "gpu: NVIDIA H200 against NVIDIA L4"),
    ],
)
def test_what_a_gate_never_compares_is_shown_without_an_outcome(
    home: Home, changes: dict[str, Any], header: dict[str, Any], why: str
) -> None:
    stored(home, {"r-1": times(1, FAST), "r-2": times(101, SLOW, **changes)}, r2=header)
    cell = only(ask(home, CONFIGS, series(home, "r-1"), series(home, "r-2")))
    assert cell.outcome == NOT_JUDGED
    assert why in cell.why
    row = by_name(cell)["cold_start"]
    assert (row.outcome, row.base.median, row.head.median) == (NOT_JUDGED, 2.2, 3.2)
    assert row.ratio == pytest.approx(1.45, abs=0.05)


def test_two_boots_decide_no_time_and_have_no_interval(two: Home) -> None:
    cell = only(ask(two, BOOTS, "20261102T090001", "20261102T090141"))
    row = by_name(cell)["cold_start"]
    assert (cell.outcome, row.outcome, row.points) == ("inconclusive", "inconclusive", UNCLEAR)
    assert (row.ratio, row.low, row.high) == (pytest.approx(1.5), None, None)
    assert "not interleaved" in row.why


def test_what_may_differ_is_chosen_for_runs(home: Home) -> None:
    stored(home, {"r-1": times(1, FAST), "r-2": times(101, SLOW)}, r2={"driver": "575.57"})
    refused = ask(home, RUNS, "r-1", "r-2").comparison
    assert refused is not None
    assert refused.cells == ()
    assert "driver: 570.86.15 against 575.57" in refused.refused[0]
    assert offered(refused.refused) == ["driver"]
    assert only(ask(home, RUNS, "r-1", "r-2", allow=("driver",))).outcome == "regressed"


def test_hardware_is_never_offered() -> None:
    reasons = ["x; --allow gpu --allow hardware --allow options.ctx compares them all the same"]
    assert offered(reasons) == ["options.ctx"]


# -- what is missing


def test_the_same_twice_and_what_is_unknown_are_messages(two: Home) -> None:
    same = ask(two, RUNS, "r-1", "r-1")
    assert (same.comparison, same.problem[:28]) == (None, "Base and head are the same: ")
    unknown = ask(two, RUNS, "nope", "")
    assert (unknown.base.problem, unknown.head.problem) == ("the store has no run 'nope'", "no run is chosen")


def test_failed_boots_are_infinitely_bad_and_said(home: Home) -> None:
    stored(home, {"r-1": times(1, FAST), "r-2": times(101, (None,) * 5), "r-3": times(201, (2.0, None))})
    cell = only(ask(home, RUNS, "r-1", "r-2"))
    report = gated(home, "run:r-1", "run:r-2")
    row = by_name(cell)["cold_start"]
    assert cell.outcome == report.cells[0].outcome
    assert (cell.failed, measured(row.head), row.head.failed, row.ratio) == ((0, 5), 5, 5, None)
    assert cell.steps.problem == "every boot of the head failed: it has no phases to compare"
    assert "the head failed in 5 of 5 boots: exit" in cell.notes
    part = by_name(only(ask(home, RUNS, "r-1", "r-3")))["cold_start"]
    assert (part.head.failed, part.head.values) == (1, (2.0,))


def test_an_unmeasured_metric_has_a_reason_and_no_ratio(home: Home) -> None:
    boots = times(101, SLOW)
    none = {**boots[0].metrics, "cold_start": Value(None, None, "the instant was not seen")}
    boots[0] = dataclasses.replace(boots[0], metrics=none)
    stored(home, {"r-1": times(1, FAST), "r-2": boots})
    row = by_name(only(ask(home, RUNS, "r-1", "r-2")))["cold_start"]
    assert (row.ratio, row.head.unmeasured, measured(row.head)) == (None, 1, 4)
    assert "the instant was not seen" in row.why
    assert "peak_rss" not in by_name(only(ask(home, RUNS, "r-1", "r-2")))


def test_values_of_zero_have_no_ratio(home: Home) -> None:
    def counted(first: int, value: float) -> list[BootRecord]:
        return [
            dataclasses.replace(item, metrics={**item.metrics, "major_faults": Value(value, "proc")})
            for item in times(first, FAST)
        ]

    stored(home, {"r-1": counted(1, 0.0), "r-2": counted(101, 7.0)})
    row = by_name(only(ask(home, RUNS, "r-1", "r-2")))["major_faults"]
    assert (row.ratio, row.why) == (None, "values of zero have no ratio")


def test_where_higher_is_better_a_larger_value_is(home: Home) -> None:
    def loaded(first: int, speed: float) -> list[BootRecord]:
        return [
            dataclasses.replace(item, metrics={**item.metrics, "load_throughput": Value(speed + place, "proc")})
            for place, item in enumerate(times(first, FAST))
        ]

    stored(home, {"r-1": loaded(1, 1e9), "r-2": loaded(101, 2e9)})
    row = by_name(only(ask(home, RUNS, "r-1", "r-2")))["load_throughput"]
    assert (row.points, row.outcome) == (BETTER, NOT_JUDGED)
    assert row.ratio == pytest.approx(2)
    assert row.low is not None
    assert row.low <= row.ratio <= (row.high or 0)


def test_a_broken_slo_of_the_head_is_in_the_report(home: Home) -> None:
    fail = Verdict("cold_start", "max", "<=", 1.0, "s", 3.4, 5, "fail", "marker", "client")
    made.run(home, "r-1", times(1, FAST))
    made.run(home, "r-2", times(101, SLOW), [fail])
    assert ingest(home).problems == []
    found = ask(home, RUNS, "r-1", "r-2").comparison
    assert found is not None
    assert found.report is not None
    assert found.report.broken == ("llamacpp tiny-restart: cold_start.max 3.40 s (<= 1.00 s)",)


def test_without_the_extra_there_are_medians_and_no_outcome(two: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    found = ask(two, RUNS, "r-1", "r-2")
    cell = only(found)
    row = next(row for row in rows(dataclasses.replace(cell, name="anew")) if row.metric == "cold_start")
    assert found.comparison is not None
    assert "pip install 'pytest-coldstart[gate]'" in found.comparison.missing
    assert (cell.outcome, row.outcome, row.low, row.high) == (NOT_JUDGED, NOT_JUDGED, None, None)
    assert row.ratio == pytest.approx(3.2 / 2.2)


def test_a_wrong_policy_is_a_message(two: Home, tmp_path: Path) -> None:
    file = tmp_path / "coldstart-gate.toml"
    file.write_text("[gate]\nalpha = 7\n")
    found = ask(two, RUNS, "r-1", "r-2", policy=(str(file), 1))
    assert found.comparison is None
    assert "gate.alpha" in found.problem
    file.write_text("[gate]\nfloor = 0.9\n")
    assert only(ask(two, RUNS, "r-1", "r-2", policy=(str(file), 2))).outcome == "inconclusive"


# -- commands


def command(found: Answer, home: Home) -> tuple[str, str]:
    cell = found.comparison.cells[0] if found.comparison and found.comparison.cells else None
    return gate_command.stored(found.base, found.head, cell, found.allow, home)


def test_the_command_of_two_runs_gives_the_outcome_of_the_page(two: Home, capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(two, RUNS, "r-1", "r-2")
    words, note = command(found, two)
    assert (words, note) == (f"coldstart gate --base run:r-1 --head run:r-2 --store {two.root}", "")
    assert main(shlex.split(words)[1:]) == 1
    assert "REGRESSED" in capsys.readouterr().out


def test_the_command_of_two_configs_compares_the_same_boots(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    boots = times(1, FAST) + times(101, SLOW, cell_id="long", options={"ctx": 1024})
    stored(home, {"r-1": boots})
    with opened(home) as con:
        ids = [
            row[0] for row in con.execute("SELECT series FROM boot GROUP BY series ORDER BY min(boot_id)").fetchall()
        ]
    found = ask(home, CONFIGS, *ids)
    words, _ = command(found, home)
    assert words == (
        "coldstart gate --base run:r-1 --head run:r-1 --base-cell tiny-restart --head-cell long --allow options.ctx "
        f"--store {home.root}"
    )
    assert main(shlex.split(words)[1:]) == 1
    assert only(found).outcome == "regressed"
    assert "REGRESSED" in capsys.readouterr().out


def test_where_no_gate_decides_it_says_why(two: Home) -> None:
    found = ask(two, BOOTS, "20261102T090001", "20261102T090002")
    assert command(found, two)[0] == ""
    assert "no gate decides" in command(found, two)[1]
    many = ask(two, CONFIGS, series(two, "r-1"), series(two, "r-1"), depth=5)
    assert many.problem.startswith("Base and head are the same")


def test_two_commits_can_be_booted_anew_in_random_order(two: Home) -> None:
    found = ask(two, RUNS, "r-1", "r-2")
    assert found.comparison is not None
    words = gate_command.interleaved(found.comparison.report, [only(found).nodeid])
    assert words == f"coldstart gate --base git:{A} --head git:{B} 'test_llamacpp.py::test_cold_start[tiny-restart]'"


def test_of_one_commit_there_is_nothing_to_boot_anew(home: Home) -> None:
    stored(home, {"r-1": times(1, FAST), "r-2": times(101, SLOW)})
    same = ask(home, RUNS, "r-1", "r-2").comparison
    assert same is not None
    assert gate_command.interleaved(same.report, []) == ""


def test_environments_and_caches_are_those_of_the_gate(two: Home) -> None:
    cell = only(ask(two, RUNS, "r-1", "r-2"))
    assert {item.what for item in cell.differences} == {"kernel", "git_commit"}
    assert cell.caches == gated(two, "run:r-1", "run:r-2").cells[0].caches
