"""What rules say of stores whose values are known."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

import pytest

from pytest_coldstart.alerts.finding import FIRES, NOT_JUDGED, NOTHING, OK, PENDING, UNMEASURED, Finding
from pytest_coldstart.record import Phase, Value
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.home import Home
from tests.alerts.conftest import NOW, Says
from tests.dashboard.conftest import boot, failed, run
from tests.store.samples import PASS

COLD = 'metric = "cold_start"\nbound = "<= 10s"\n'

BROKEN = dataclasses.replace(PASS, verdict="fail", value=12.0)
MISSING = Verdict("fragmentation", "max", "<=", 0.05, "fraction", None, 1, "unmeasured", "default", None, "no source")


def one(home: Home, *values: float | None, run_id: str = "r-1", minute: int = 0, **header: Any) -> None:
    boots = [boot(f"b-{run_id}-{n}", minute + n, value, round=n) for n, value in enumerate(values)]
    run(home, run_id, boots, [], **header)


def only(found: Any) -> Finding:
    (finding,) = found.findings
    assert isinstance(finding, Finding)
    return finding


# -- bounds


def test_a_bound_fires_on_the_worst_round_of_the_newest_run(home: Home, says: Says) -> None:
    one(home, 2.0, 3.0, run_id="r-1")
    one(home, 2.0, 12.5, 3.0, run_id="r-2", minute=10)
    found = says(COLD)
    finding = only(found)
    assert (found.state, finding.fires, finding.value, finding.bound) == (FIRES, True, "12.50 s", "<= 10.00 s")
    assert (finding.number, finding.run_id, finding.since, finding.earlier) == (12.5, "r-2", "r-2", False)
    assert finding.at == finding.since_at == datetime(2026, 11, 2, 8, 10)
    assert only(says(COLD + 'stat = "p50"')).state == OK


def test_an_older_run_that_broke_it_does_not_count(home: Home, says: Says) -> None:
    one(home, 12.0, run_id="r-1")
    one(home, 2.0, run_id="r-2", minute=10)
    found = says(COLD)
    assert (found.state, only(found).value, only(found).since) == (OK, "2.00 s", None)


def test_since_when_goes_back_to_the_first_run_in_a_row(home: Home, says: Says) -> None:
    for n, value in enumerate([12.0, 2.0, 12.0, 13.0, 14.0]):
        one(home, value, run_id=f"r-{n}", minute=n)
    finding = only(says(COLD))
    assert (finding.run_id, finding.since, finding.since_at) == ("r-4", "r-2", datetime(2026, 11, 2, 8, 2))
    assert not finding.earlier


def test_since_when_may_be_before_what_is_looked_at(home: Home, says: Says) -> None:
    for n in range(12):
        one(home, 12.0, run_id=f"r-{n:02d}", minute=n)
    finding = only(says(COLD))
    assert (finding.since, finding.earlier) == ("r-02", True)


def test_a_rule_can_ask_for_several_runs_in_a_row(home: Home, says: Says) -> None:
    for n, value in enumerate([2.0, 12.0, 13.0]):
        one(home, value, run_id=f"r-{n}", minute=n)
    assert only(says(COLD + "for = 2")).state == FIRES
    found = says(COLD + "for = 3")
    finding = only(found)
    assert (found.state, finding.fires, finding.value) == (PENDING, False, "13.00 s")
    assert finding.reason == "fires in 2 of 3 runs in a row"


def test_unmeasured_fires_as_unmeasured_with_the_reason(home: Home, says: Says) -> None:
    one(home, 2.0, None)
    found = says(COLD)
    finding = only(found)
    assert (found.state, finding.fires, finding.value, finding.number) == (UNMEASURED, True, "unmeasured", None)
    assert finding.reason == "round 1: the instant 'first_done' was not seen"
    assert only(says('metric = "ready"\nbound = "<= 10s"')).reason.endswith("had no such metric")


def test_a_failed_boot_breaks_every_bound(home: Home, says: Says) -> None:
    run(home, "r-1", [boot("b-1", 1, 2.0), failed("b-2", 2)], [])
    finding = only(says(COLD))
    assert (finding.state, finding.value, finding.number, finding.reason) == (FIRES, "failed", None, "exited with 1")
    assert only(says('metric = "kv_capacity_tokens"\nbound = ">= 1"')).state in (FIRES, UNMEASURED)


def test_boots_that_do_not_count_are_no_rounds(home: Home, says: Says) -> None:
    run(
        home,
        "r-1",
        [boot("b-1", 1, 20.0, role="prime"), boot("b-2", 2, 2.0), boot("b-3", 3, 30.0, outcome="error")],
        [],
    )
    assert only(says(COLD)).value == "2.00 s"


def test_a_series_of_which_no_boot_counts_is_never_ok(home: Home, says: Says) -> None:
    run(home, "r-1", [boot("b-1", 1, 2.0, outcome="error")], [])
    assert only(says(COLD)).state == UNMEASURED
    assert only(says('verdict = "fail"')).state == NOT_JUDGED
    assert only(says("failed = 1")).state == NOT_JUDGED
    assert (only(says('stale = "3d"')).state, only(says('stale = "3d"')).value) == (FIRES, "no run")


def test_one_part_that_breaks_the_bound_breaks_the_whole(home: Home, says: Says) -> None:
    metrics = {
        "fragmentation": Value(None, None, "kv is unmeasured"),
        "allocator_fragmentation": Value(0.2, "probe"),
        "kv_fragmentation": Value(None, None, "no counters"),
    }
    run(home, "r-1", [boot("b-1", 1, None, metrics=metrics)], [])
    finding = only(says('metric = "fragmentation"\nbound = "<= 5%"'))
    assert (finding.state, finding.value) == (FIRES, "20 %")
    assert finding.reason == "round 1: by allocator_fragmentation alone"


def test_what_is_unattributed_may_hide_a_phase(home: Home, says: Says) -> None:
    metrics = {"phase.imports": Value(1.0, "probe"), "phase.unattributed": Value(3.0, "probe")}
    run(home, "r-1", [boot("b-1", 1, None, metrics=metrics, phases=(Phase("imports", 0, 1, "probe"),))], [])
    finding = only(says('metric = "phase.imports"\nbound = "<= 2s"'))
    assert (finding.state, finding.reason) == (
        UNMEASURED,
        "1.00 s was seen; with what is unattributed it may be 4.00 s",
    )
    assert only(says('metric = "phase.imports"\nbound = "<= 5s"')).state == OK


# -- verdicts, failed boots, staleness


def test_stored_verdicts_of_the_newest_run(home: Home, says: Says) -> None:
    run(home, "r-1", [boot("b-1", 1, 12.0)], [BROKEN, MISSING])
    finding = only(says('verdict = "fail"'))
    assert (finding.state, finding.metric) == (FIRES, "cold_start")
    assert (finding.value, finding.bound, finding.number) == ("cold_start.max 12.00 s", "<= 10.00 s", 12.0)
    finding = only(says('verdict = "unmeasured"'))
    assert (finding.state, finding.fires, finding.reason) == (UNMEASURED, True, "no source")
    finding = only(says('verdict = ["unmeasured", "fail"]'))
    assert (finding.state, finding.reason) == (FIRES, "also fragmentation.max unmeasured")
    finding = only(says('verdict = "fail"\nmetric = "fragmentation"'))
    assert (finding.state, finding.value, finding.reason) == (OK, "1 unmeasured", "fragmentation.max unmeasured")
    assert only(says('verdict = "fail"\nmetric = "ready"')).state == NOT_JUDGED


def test_a_verdict_on_a_failed_boot_reads_failed(home: Home, says: Says) -> None:
    run(home, "r-1", [failed("b-1", 1)], [dataclasses.replace(BROKEN, value=float("inf"))])
    assert only(says('verdict = "fail"')).value == "cold_start.max failed"


def test_a_run_that_was_not_judged_is_neither_fired_nor_ok(home: Home, says: Says) -> None:
    run(home, "r-1", [boot("b-1", 1, 2.0)], [BROKEN])
    one(home, 2.0, run_id="r-2", minute=10)
    found = says('verdict = "fail"')
    assert (found.state, only(found).fires, only(found).value) == (NOT_JUDGED, False, "not judged")


def test_failed_boots_are_counted(home: Home, says: Says) -> None:
    run(home, "r-1", [boot("b-1", 1, 2.0), failed("b-2", 2), failed("b-3", 3)], [])
    finding = only(says("failed = 2"))
    assert (finding.state, finding.value, finding.reason) == (FIRES, "2 of 3 failed", "exited with 1")
    assert only(says("failed = 3")).state == OK


def test_stale_counts_from_the_last_boot(home: Home, says: Says) -> None:
    one(home, 2.0, 2.0, run_id="r-1")
    last = datetime(2026, 11, 2, 8, 1)
    fresh = only(says('stale = "2h"', last + timedelta(hours=2)))
    assert (fresh.state, fresh.value) == (OK, "2 h")
    finding = only(says('stale = "2h"', last + timedelta(hours=2, seconds=1)))
    assert (finding.state, finding.bound, finding.since) == (FIRES, "<= 2 h", "r-1")


# -- which series


def test_filters_choose_the_series(home: Home, says: Says) -> None:
    one(home, 2.0)
    other = {
        "cell_digest": "d1",
        "cell_id": "vllm-x",
        "engine": "vllm",
        "tier": "pristine",
        "nodeid": "a/test_v.py::t[x]",
    }
    run(home, "r-2", [boot("b-9", 5, 2.0, model={"name": "big"}, **other)], [], gpu=None, hardware_class="cpu1")
    assert len(says(COLD).findings) == 2
    for keys, engine in (
        ('engine = "v*"', "vllm"),
        ('model = ["big", "none"]', "vllm"),
        ('tier = "restart"', "llamacpp"),
        ('cell = "vllm-x"', "vllm"),
        ('cell = "d1-*"', "vllm"),
        ('test = "a/test_v.py::t[x]"', "vllm"),
        ('test = "test_v.py*"', "vllm"),
        ('hardware = "*no GPU"', "vllm"),
        ('hardware = "cpu1"', "vllm"),
        ('gpu = "NVIDIA*"', "llamacpp"),
    ):
        assert [finding.series.engine for finding in says(COLD + keys).findings] == [engine], keys
    found = says(COLD + 'engine = "v*"\ntier = "restart"')
    assert (found.state, found.findings) == (NOTHING, ())


def test_a_branch_is_one_of_runs(home: Home, says: Says) -> None:
    one(home, 2.0, run_id="r-1", git_branch="main")
    one(home, 12.0, run_id="r-2", minute=10, git_branch="topic/a")
    assert only(says(COLD)).run_id == "r-2"
    finding = only(says(COLD + 'branch = "main"'))
    assert (finding.state, finding.run_id) == (OK, "r-1")
    assert only(says(COLD + 'branch = "topic/*"')).state == FIRES
    assert says(COLD + 'branch = "gone"').state == NOTHING


def test_runs_of_a_gate_are_none(home: Home, says: Says) -> None:
    one(home, 2.0, run_id="r-1")
    gate = {"gate": "g", "side": "base", "block": 1, "position": 0}
    one(home, 12.0, run_id="r-2", minute=10, gate=gate)
    assert only(says(COLD)).run_id == "r-1"
    run(home, "r-3", [boot("b-9", 50, 12.0, cell_digest="d1")], [], gate=gate)
    assert len(says(COLD).findings) == 1


def test_a_store_without_boots_matches_nothing(home: Home, says: Says) -> None:
    run(home, "r-1", [boot("b-1", 1, 2.0)], [])
    assert says(COLD + 'engine = "none"').state == NOTHING


# -- changes

CHANGE = 'metric = "cold_start"\nchange = "worse 5%"\n'


@pytest.fixture
def stepped(home: Home) -> Home:
    """Twenty runs, a minute apart: 2 s, and from run 12 on 3 s."""
    pytest.importorskip("ruptures", reason="changes need the extra gate")
    for n in range(20):
        one(home, (3.0 if n >= 12 else 2.0) + 0.004 * (n % 3), run_id=f"r-{n:02d}", minute=n)
    return home


def test_a_new_change_fires_at_its_run(stepped: Home, says: Says) -> None:
    finding = only(says(CHANGE))
    assert (finding.state, finding.since, finding.run_id) == (FIRES, "r-12", "r-19")
    assert finding.value.startswith("+49.")
    assert finding.value.endswith("2.00 s -> 3.00 s")
    assert finding.bound == "< 5 % worse"
    assert only(says(CHANGE + "runs = 8")).state == FIRES
    assert only(says(CHANGE + "runs = 7")).state == OK
    at = datetime(2026, 11, 2, 8, 12)
    assert only(says(CHANGE + "days = 1", at + timedelta(hours=23))).state == FIRES
    assert only(says(CHANGE + "days = 1", at + timedelta(hours=25))).state == OK
    assert only(says(CHANGE + "days = 1000000000")).state == FIRES  # longer than a timedelta can be


def test_the_way_and_the_size_have_to_be_those_of_the_rule(stepped: Home, says: Says) -> None:
    assert only(says(CHANGE.replace("worse 5%", "worse 60%"))).state == OK
    assert only(says(CHANGE.replace("worse", "better"))).state == OK
    assert only(says(CHANGE.replace("worse 5%", "any"))).state == FIRES


def test_an_acknowledged_change_is_silent(stepped: Home, says: Says) -> None:
    from pytest_coldstart.history.acknowledge import FILE_NAME, Place, append, make

    series = only(says(CHANGE)).series
    ack = make(series.id, series.cell_id, "cold_start", "r-12", Place(("r-11", "r-12")), 0.5, "it checks more", "Ada")
    append(stepped.root / FILE_NAME, ack)
    finding = only(says(CHANGE))
    assert (finding.state, finding.reason) == (OK, "acknowledged by Ada: it checks more")


def test_too_few_runs_for_a_change_are_not_judged(home: Home, says: Says) -> None:
    pytest.importorskip("ruptures", reason="changes need the extra gate")
    one(home, 2.0)
    finding = only(says(CHANGE))
    assert (finding.state, finding.fires) == (NOT_JUDGED, False)
    assert "change points need 6" in finding.reason
    assert says(CHANGE + 'branch = "main"').state == NOT_JUDGED
    assert says(CHANGE + 'branch = ["x", "y"]').state == NOTHING


def test_now_is_given(home: Home, says: Says) -> None:
    one(home, 2.0)
    assert only(says('stale = "1h"', NOW)).state == FIRES
