"""What the trend reads from a real database, against values that stand in the test."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard.data import changes as searched
from dashboard.data.changes import acknowledgements, changes
from dashboard.data.series import NOT_DERIVED, Reading, Series, all_series
from dashboard.data.trend import Asked, Trend, all_branches, branches, measured, panels, trend
from dashboard.source import opened
from pytest_coldstart.history.acknowledge import FILE_NAME, Place, append, make
from pytest_coldstart.history.points import histories
from pytest_coldstart.history.read import all_series as series_of_history
from pytest_coldstart.record import Value
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import boot, failed, run

PASS = Verdict("cold_start", "max", "<=", 10.0, "s", 3.0, 2, "pass", "default", "client")
GATE = {"gate": {"gate": "g", "side": "head"}}


def only(home: Home) -> Series:
    with opened(home) as con:
        (found,) = all_series(con)
    return found


def asked(home: Home, **more: object) -> Trend:
    series = only(home)
    with opened(home) as con:
        return trend(con, dataclasses.replace(Asked(series.id, series.cell_digest, "cold_start"), **more))


def test_boots_are_in_order_each_with_its_state_and_reason(home: Home) -> None:
    boots = [
        failed("3", 3),
        boot("1", 1, 2.0),
        boot("4", 4, None),
        boot("2", 2, 3.0, role="prime"),
        boot("5", 5, 4.0, outcome="error"),
    ]
    run(home, "r-1", boots, [])
    points = asked(home).points
    assert [(item.boot_id, item.state, item.counted, item.reading.value) for item in points] == [
        ("1", "ok", True, 2.0),
        ("2", "prime", False, 3.0),
        ("3", "failed", True, None),
        ("4", "unmeasured", True, None),
        ("5", "error", False, 4.0),
    ]
    assert points[2].failure == "exit: exited with 1"
    assert points[3].reading.reason == "the instant 'first_done' was not seen"
    first = points[0]
    assert (first.commit, first.dirty, first.branch, first.source) == ("0123abc", True, "main", "client")


def test_a_failed_boot_has_no_value_whatever_is_stored(home: Home) -> None:
    run(home, "r-1", [failed("1", 1, metrics={"cold_start": Value(2.0, "client")})], [])
    assert asked(home).points[0].reading == Reading(None, "exited with 1", failed=True)


def test_a_metric_that_was_not_derived_then_is_unmeasured(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    (point,) = asked(home, metric="warm_first_token").points
    assert (point.reading, point.state) == (Reading(None, NOT_DERIVED), "unmeasured")


def test_the_newest_boots_alone_are_read_and_all_are_counted(home: Home) -> None:
    run(home, "r-1", [boot(str(n), n, float(n)) for n in range(1, 6)], [])
    run(home, "r-2", [boot(str(n), n, float(n)) for n in range(6, 9)], [])
    found = asked(home, newest=3)
    assert [item.boot_id for item in found.points] == ["6", "7", "8"]
    assert found.total == 8
    assert [item.run_id for item in found.runs] == ["r-2"]


def test_boots_of_a_gate_are_left_out_as_in_the_history_unless_they_are_asked_for(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [PASS])
    run(home, "r-2", [boot("2", 2, 9.0)], [], **GATE)
    found = asked(home)
    assert ([item.boot_id for item in found.points], found.total, found.left_out) == (["1"], 1, 1)
    found = asked(home, gates=True)
    assert [(item.boot_id, item.gate, item.counted) for item in found.points] == [("1", "", True), ("2", "head", False)]
    assert (found.total, found.left_out) == (2, 0)
    assert [item.run_id for item in found.runs] == ["r-1"]
    assert [item.bound for item in found.bounds] == [10.0]  # of the newest run that is none of a gate


def test_one_branch_alone(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    run(home, "r-2", [boot("2", 2, 3.0)], [], git_branch="feature")
    found = asked(home, branch="feature")
    assert ([item.boot_id for item in found.points], [item.run_id for item in found.runs]) == (["2"], ["r-2"])
    assert found.total == 1
    with opened(home) as con:
        assert branches(con, only(home).id) == all_branches(con) == ("feature", "main")


def test_the_bounds_are_those_of_the_newest_run_on_this_metric(home: Home) -> None:
    old = dataclasses.replace(PASS, bound=1.0, verdict="fail")
    other = dataclasses.replace(PASS, metric="warm_first_token", bound=0.5)
    run(home, "r-1", [boot("1", 1, 2.0)], [old])
    run(home, "r-2", [boot("2", 2, 3.0)], [PASS, other])
    assert [(item.bound, item.verdict, item.bound_source) for item in asked(home).bounds] == [(10.0, "pass", "default")]


def test_runs_are_those_of_the_history(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0), boot("2", 2, 9.0, role="prime"), failed("3", 3)], [])
    run(home, "r-2", [boot("4", 4, 3.0), boot("5", 5, None)], [])
    with opened(home) as con:
        (history,) = histories(con, series_of_history(con), "cold_start")
    assert asked(home).runs == history.runs
    with opened(home) as con:
        assert panels(con, (only(home).id,), "cold_start", None, 1) == {only(home).id: history.runs[1:]}


def test_metrics_with_a_value_are_told_from_those_without(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0, metrics={"cold_start": Value(2.0, "x"), "ready": Value(None, None, "no")})], [])
    run(home, "r-2", [boot("2", 2, 2.0, metrics={"listen": Value(1.0, "x")})], [])
    with opened(home) as con:
        assert measured(con, 2) == {"cold_start", "listen"}
        assert measured(con, 1) == {"listen"}


def test_a_run_that_the_cap_cuts_in_two_has_no_median(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0), boot("2", 2, 9.0)], [])
    run(home, "r-2", [boot("3", 3, 3.0)], [])
    assert [item.run_id for item in asked(home, newest=2).runs] == ["r-2"]
    assert [item.run_id for item in asked(home, newest=3).runs] == ["r-1", "r-2"]


def test_names_are_values_and_no_sql(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    wrong = "'; DROP TABLE boot; --"
    with opened(home) as con:
        assert trend(con, Asked(wrong, wrong, wrong, wrong)).points == ()
    assert only(home).boots == 1


# -- change points


def stepped(home: Home, runs: int = 20, **header: object) -> None:
    """A run each minute: 2 s, and 3 s from the tenth run on."""
    for n in range(runs):
        value = (2.0 if n < 10 else 3.0) + 0.002 * (n % 3)
        head = {"git_commit": f"{n:040d}", "git_dirty": False, "driver": "570" if n < 10 else "580", **header}
        run(home, f"r-{n:02d}", [boot(f"b-{n:02d}", n, value)], [], **head)


@pytest.fixture
def gate() -> None:
    pytest.importorskip("ruptures", reason="change points need the extra gate")


@pytest.mark.usefixtures("gate")
def test_change_points_and_moves_are_those_of_the_history(home: Home) -> None:
    stepped(home)
    found = changes(only(home), "cold_start", asked(home), ())
    with opened(home) as con:
        (history,) = histories(con, series_of_history(con), "cold_start")
    assert found.history.points == history.points
    (point,) = found.history.points
    assert (point.index, point.commits) == (10, (f"{9:040d}", f"{10:040d}"))
    assert [(item.run_id, move.differences[0].what) for item, move in found.moved] == [("r-10", "driver")]
    assert found.reason == ""


@pytest.mark.usefixtures("gate")
def test_the_newest_runs_alone_are_searched_and_that_is_said(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped(home)
    monkeypatch.setattr(searched, "SEARCHED", 8)
    found = changes(only(home), "cold_start", asked(home), ())
    assert (len(found.history.runs), found.history.points) == (8, ())
    assert "only the newest 8 of 20 runs were searched" in found.reason
    assert len(found.moved) == 1


def test_without_the_extra_it_says_what_to_install(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    monkeypatch.setattr(searched, "find_spec", lambda name: None)
    found = changes(only(home), "cold_start", asked(home), ())
    assert found.reason == "change points need the extra gate: pip install 'pytest-coldstart[gate]'"
    assert (found.history.points, len(found.history.runs)) == ((), 1)


def test_the_search_is_loaded_beside_the_page() -> None:
    pytest.importorskip("ruptures", reason="change points need the extra gate")
    code = (
        "import sys; from dashboard.data import changes; assert 'ruptures' not in sys.modules; "
        "assert not changes.loaded(); changes._loader.join(); assert changes.loaded(); assert 'ruptures' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=Path(__file__).parents[2])


@pytest.mark.usefixtures("gate")
def test_an_acknowledgement_is_read_once_the_file_has_changed(home: Home) -> None:
    stepped(home)
    assert acknowledgements(home).given == ()
    series, path = only(home), home.root / FILE_NAME
    append(path, make(series.id, series.cell_id, "cold_start", "r-10", Place(("r-09", "r-10")), None, "known", "me"))
    given = acknowledgements(home).given
    assert [(one.reason, one.author) for one in given] == [("known", "me")]
    assert acknowledgements(home).given is given
    (point,) = changes(series, "cold_start", asked(home), given).history.points
    assert point.acknowledged == given[0]
    with path.open("a") as file:
        file.write("{broken\n")
    assert acknowledgements(home).given == given
    assert acknowledgements(home).problems[0].startswith(f"{path}:2: broken acknowledgement")


def test_a_file_of_acknowledgements_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    (home.root / FILE_NAME).mkdir()
    found = acknowledgements(home)
    assert found.given == ()
    assert "could not read" in found.problems[0]
