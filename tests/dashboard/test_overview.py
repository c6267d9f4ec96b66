"""How series stand, against values that stand in the test; and what the overview says of it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboard import tiles
from dashboard.data.overview import Standing, branches, medians, standings
from dashboard.data.series import Series, all_series
from dashboard.data.verdicts import RunVerdict, worst
from dashboard.source import opened
from pytest_coldstart.record import BootRecord
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.home import Home
from tests.dashboard import conftest as store

PASS = Verdict("cold_start", "max", "<=", 10.0, "s", 3.0, 2, "pass", "default", "client")
FAIL = dataclasses.replace(PASS, bound=1.0, verdict="fail", bound_source="marker")
UNMEASURED = Verdict("warm_first_token", "max", "<=", 0.5, "s", None, 2, "unmeasured", "default", None, "round 1: none")
FIRST = datetime(2026, 11, 2)
GATE = {"gate": "g", "side": "head", "block": 1, "position": 1}


def booted(name: str, hours: float, value: float | None = 2.0, **changes: Any) -> BootRecord:
    record = store.boot(name, 1, value, **changes)
    return dataclasses.replace(record, started_at=(FIRST + timedelta(hours=hours)).replace(tzinfo=UTC).isoformat())


def ran(home: Home, hours: float, *cells: str, verdicts: Any = (), branch: str = "main", **header: Any) -> str:
    """A run that started *hours* after :data:`FIRST`, and booted each of *cells* once."""
    run_id = f"r-{hours:06.1f}-{branch}"
    boots = [booted(f"{run_id}-{cell}", hours, cell_digest=cell) for cell in cells]
    began = (FIRST + timedelta(hours=hours)).replace(tzinfo=UTC).isoformat()
    store.run(home, run_id, boots, list(verdicts), **{"started_at": began, "git_branch": branch, **header})
    return run_id


def standing(home: Home, cell: str = "a", branch: str | None = None) -> Standing:
    with opened(home) as con:
        (series,) = (item.id for item in all_series(con) if item.cell_digest == cell)
        return standings(con, branch)[series]


# -- the newest run


def test_the_verdicts_are_those_of_the_newest_run_alone(home: Home) -> None:
    ran(home, 0, "a", verdicts=[FAIL])
    newest = ran(home, 1, "a", verdicts=[PASS, UNMEASURED])
    found = standing(home)
    assert (found.run_id, found.boot_id, found.branch) == (newest, f"{newest}-a", "main")
    assert [(item.metric, item.bound, item.verdict) for item in found.verdicts] == [
        ("cold_start", 10.0, "pass"),
        ("warm_first_token", 0.5, "unmeasured"),
    ]
    assert found.verdict == "unmeasured"


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ([], "not judged"),
        (["pass"], "pass"),
        (["n/a"], "n/a"),
        (["n/a", "pass"], "pass"),
        (["unmeasured", "fail", "pass"], "fail"),
    ],
)
def test_a_series_is_as_good_as_its_worst_verdict(words: list[str], word: str) -> None:
    assert worst(verdict(word) for word in words) == word


def test_a_failed_boot_of_the_newest_run_is_named_with_its_reason(home: Home) -> None:
    boots = [booted("1", 0, cell_digest="a"), store.failed("2", 1, cell_digest="a"), booted("3", 9, cell_digest="a")]
    store.run(home, "r-1", boots, [])
    found = standing(home)
    assert (found.boots, found.failed, found.boot_id, found.failed_boot) == (3, 1, "3", "2")
    assert found.failure == "exited with 1"


def test_a_gates_runs_are_left_out(home: Home) -> None:
    run_id = ran(home, 0, "a", verdicts=[PASS])
    ran(home, 1, "a", "b", verdicts=[FAIL], gate=GATE)
    assert (standing(home).run_id, standing(home).verdict) == (run_id, "pass")
    with opened(home) as con:
        assert {item.cell_digest for item in all_series(con)} == {"a", "b"}
        assert len(standings(con)) == 1
        (runs,) = medians(con, (standing(home).series,), "cold_start").values()
    assert [item.run_id for item in runs] == [run_id]


def test_a_branch_can_be_asked_for(home: Home) -> None:
    on_main = ran(home, 0, "a", verdicts=[PASS])
    on_topic = ran(home, 1, "a", "b", verdicts=[FAIL], branch="topic")
    assert [standing(home, branch=name).run_id for name in (None, "main", "topic")] == [on_topic, on_main, on_topic]
    with opened(home) as con:
        assert branches(con) == ("main", "topic")
        assert len(standings(con, "main")) == 1


# -- stale


def test_a_series_is_late_after_three_of_its_usual_intervals(home: Home) -> None:
    for hours in (0, 48, 96):
        ran(home, hours, "a")
    found = standing(home)
    assert found.usual == timedelta(days=2)
    last = FIRST + timedelta(hours=96)
    assert not found.late(last + timedelta(days=6))
    assert found.late(last + timedelta(days=6, seconds=1))
    assert tiles.why_stale(found, last + timedelta(days=7)) == "last run 7 d ago, usually one every 2 d"


def test_nothing_is_late_within_a_day(home: Home) -> None:
    for hours in (0, 0.1, 0.2):
        ran(home, hours, "a")
    last = FIRST + timedelta(hours=0.2)
    assert not standing(home).late(last + timedelta(days=1))
    assert standing(home).late(last + timedelta(days=1, seconds=1))


def test_a_series_that_ran_once_has_no_usual_interval(home: Home) -> None:
    ran(home, 0, "a")
    assert not standing(home).stale(FIRST + timedelta(days=900))


def test_a_series_is_missing_from_newer_runs_of_its_suite(home: Home) -> None:
    ran(home, 0, "a", "b")
    ran(home, 1, "a", "b")
    ran(home, 2, "b")
    ran(home, 3, "b")
    found = standing(home)
    assert (found.missed, found.most_missed, found.missing) == (2, 0, True)
    why = "missing from the last 2 runs of its test file on this branch and hardware class"
    assert tiles.why_stale(found, FIRST + timedelta(hours=4)) == why
    assert not standing(home, "b").missing


def test_a_series_that_is_in_every_third_run_is_not_missing_from_the_next_two(home: Home) -> None:
    for hours in range(9):
        ran(home, hours, "b", *(["a"] if hours % 3 == 0 else []))
    assert (standing(home).missed, standing(home).most_missed, standing(home).missing) == (2, 2, False)
    ran(home, 9, "b")
    assert standing(home).missing


@pytest.mark.parametrize(
    "header",
    [{"branch": "topic"}, {"hardware_class": "other"}, {"gate": GATE}],
    ids=["another branch", "another hardware class", "a gate"],
)
def test_a_series_is_missing_from_no_run_where_it_is_not_expected(home: Home, header: dict[str, Any]) -> None:
    ran(home, 0, "a", "b")
    ran(home, 1, "b", **header)
    assert not standing(home).missing


def test_a_series_is_not_missing_from_another_suite(home: Home) -> None:
    ran(home, 0, "a")
    store.run(home, "r-2", [booted("2", 1, cell_digest="b", nodeid="test_other.py::test_boot")], [])
    assert not standing(home).missing


# -- medians


@pytest.mark.parametrize(
    ("values", "median", "counts"),
    [
        ([2.0, 4.0, 3.0], 3.0, (3, 0, 0)),
        ([2.0, "failed", 4.0], 4.0, (3, 1, 0)),  # 2, 4, infinity
        ([2.0, "failed"], None, (2, 1, 0)),
        (["failed"], None, (1, 1, 0)),
        ([2.0, None, 2.0], None, (3, 0, 1)),
    ],
)
def test_a_failed_boot_is_infinite_in_a_median_and_an_unmeasured_one_leaves_none(
    home: Home, values: list[Any], median: float | None, counts: tuple[int, int, int]
) -> None:
    boots = [
        store.failed(str(minute), minute) if value == "failed" else store.boot(str(minute), minute, value)
        for minute, value in enumerate(values)
    ]
    store.run(home, "r-1", boots, [])
    with opened(home) as con:
        (series,) = all_series(con)
        ((found,),) = medians(con, (series.id,), "cold_start").values()
    assert found.value == median
    assert (found.boots, found.failed, found.unmeasured) == counts


def test_names_are_values_and_no_sql(home: Home) -> None:
    ran(home, 0, "a")
    with opened(home) as con:
        assert standings(con, "'; DROP TABLE boot; --") == {}
        assert medians(con, ("' OR 1=1",), "x'") == {"' OR 1=1": ()}
        assert len(all_series(con)) == 1


# -- words


def series(name: str = "s", **changes: Any) -> Series:
    fields = dict.fromkeys(
        ("engine", "cell_id", "cell_digest", "model", "tier", "nodeid", "hardware", "gpu", "branch"), "x"
    )
    counts: dict[str, Any] = {"boots": 1, "failed": 0, "errors": 0, "first": FIRST, "last": FIRST, "run_id": "r"}
    return Series(id=name, **{**fields, **counts, **changes})


def verdict(word: str, **changes: Any) -> RunVerdict:
    fields: dict[str, Any] = {
        "metric": "cold_start",
        "stat": "max",
        "op": "<=",
        "bound": 10.0,
        "unit": "s",
        "value": 2.0,
    }
    words = dict.fromkeys(("run_id", "cell_digest", "cell_id", "tier", "nodeid"), "x")
    return RunVerdict(**{**words, **fields, "rounds": 2, "verdict": word, "bound_source": "default", **changes})


def tile(word: str, stale: str = "", at: int = 0) -> tiles.Tile:
    judged = () if word == "not judged" else (verdict(word),)
    starts = (FIRST + timedelta(hours=at),)
    return tiles.Tile(
        series(f"{word} {at}"), Standing("s", "r", "main", 1, 0, 0, "b", starts=starts, verdicts=judged), stale
    )


@pytest.mark.parametrize(
    ("found", "sentence", "bad"),
    [
        ([tile("pass")], "The one series is inside its SLOs.", "pass"),
        ([tile("pass"), tile("n/a")], "All 2 series are inside their SLOs.", "pass"),
        ([tile("fail"), *[tile("pass")] * 6], "1 of 7 series breaks an SLO.", "fail"),
        ([*[tile("fail")] * 2, tile("pass", "why")], "2 of 3 series break an SLO; 1 is stale.", "fail"),
        ([tile("pass", "why")], "The one series is inside its SLOs; 1 is stale.", "stale"),
        (
            [tile("unmeasured"), tile("not judged")],
            "None of 2 series breaks an SLO; 1 has one unmeasured, which counts as broken; 1 is not judged.",
            "fail",
        ),
        ([tile("not judged")] * 2, "None of 2 series breaks an SLO; 2 are not judged.", "stale"),
    ],
)
def test_the_answer_is_one_sentence(found: list[tiles.Tile], sentence: str, bad: str) -> None:
    assert tiles.answer(found) == (sentence, bad)


def test_breaches_come_first_then_unmeasured_not_judged_and_pass() -> None:
    words = ["pass", "n/a", "not judged", "unmeasured", "fail"]
    made = {word: tile(word) for word in words}
    standing = {word: item.standing for word, item in made.items() if item.standing}
    found = tiles.tiles([series(word) for word in words], standing, FIRST)
    assert [item.verdict for item in found] == ["fail", "unmeasured", "not judged", "pass", "n/a"]


def test_what_only_gates_have_booted_is_not_judged_and_on_no_branch() -> None:
    (found,) = tiles.tiles([series()], {}, FIRST)
    assert (found.verdict, found.standing) == ("not judged", None)
    assert tiles.tiles([series()], {}, FIRST, all_branches=False) == []


def test_a_tile_has_the_three_slos_and_every_other_broken_one() -> None:
    judged = (verdict("pass"), verdict("fail", bound=1.0), verdict("fail", metric="leaked_bytes", unit="B"))
    more = (verdict("pass", metric="ready"), verdict("n/a", metric="fragmentation", value=None, reason="no GPU"))
    item = tiles.Tile(series(), Standing("s", "r", "main", 1, 0, 0, "b", verdicts=judged + more))
    assert [(name, found and found.verdict) for name, found in item.slos] == [
        ("cold_start", "fail"),
        ("warm_first_token", None),
        ("fragmentation", "n/a"),
        ("leaked_bytes", "fail"),
    ]
    assert (item.first, item.bound) == ("cold_start", 1.0)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (None, "not judged"),
        (verdict("pass"), "2.00 s"),
        (verdict("fail", value=None), "failed"),
        (verdict("unmeasured", value=None), "unmeasured"),
        (verdict("n/a", value=None), "n/a"),
    ],
)
def test_a_value_that_nobody_measured_is_a_word(item: RunVerdict | None, words: str) -> None:
    assert tiles.value(item) == words
