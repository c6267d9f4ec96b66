"""What the pages read from a real database, against values that stand in the test."""

from __future__ import annotations

import dataclasses
from datetime import datetime

import duckdb
import pytest

from dashboard import data
from dashboard.source import Unusable
from pytest_coldstart.record import Value
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import boot, failed, run

PASS = Verdict("cold_start", "max", "<=", 10.0, "s", 3.0, 2, "pass", "default", "client")
FAIL = dataclasses.replace(PASS, bound=1.0, verdict="fail", bound_source="marker")
UNMEASURED = Verdict("warm_first_token", "max", "<=", 0.5, "s", None, 2, "unmeasured", "default", None, "round 1: none")


def only(home: Home) -> data.Series:
    (series,) = data.series(home)
    return series


def test_a_series_counts_every_boot_the_failed_ones_too(home: Home) -> None:
    boots = [
        boot("1", 1, 2.0),
        boot("2", 2, 3.0, role="prime"),
        failed("3", 3),
        boot("4", 4, 4.0, outcome="error"),
        boot("5", 5, None),
    ]
    run(home, "r-1", boots, [PASS])
    series = only(home)
    assert (series.boots, series.failed, series.errors) == (5, 1, 1)
    assert series.last_seen == datetime(2026, 11, 2, 8, 5)
    assert (series.engine, series.cell_id, series.tier, series.model) == (
        *("llamacpp", "llamacpp-tiny-restart", "restart"),
        "tiny",
    )
    assert series.hardware == "AMD EPYC 9654, 96 cores, 756 GiB, NVIDIA H200"


def test_the_verdicts_are_those_of_the_newest_run_alone(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [FAIL])
    run(home, "r-2", [boot("2", 2, 3.0)], [PASS, UNMEASURED])
    series = only(home)
    assert series.run_id == "r-2"
    assert [(item.metric, item.bound, item.verdict) for item in series.verdicts] == [
        ("cold_start", 10.0, "pass"),
        ("warm_first_token", 0.5, "unmeasured"),
    ]
    assert series.verdicts[0].nodeid == "test_a.py::test_boot[x]"
    assert series.verdict == "unmeasured"


@pytest.mark.parametrize(
    ("verdicts", "word"),
    [
        ([], "not judged"),
        ([PASS], "pass"),
        ([dataclasses.replace(UNMEASURED, verdict="n/a")], "n/a"),
        ([dataclasses.replace(UNMEASURED, verdict="n/a"), PASS], "pass"),
        ([UNMEASURED, FAIL, PASS], "fail"),
    ],
)
def test_a_series_is_as_good_as_its_worst_verdict(home: Home, verdicts: list[Verdict], word: str) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], verdicts)
    assert only(home).verdict == word


def test_another_cell_and_another_machine_are_series_of_their_own(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [PASS])
    run(home, "r-2", [boot("2", 2, 2.0, cell_digest="other")], [FAIL])
    run(home, "r-3", [boot("3", 3, 2.0)], [], hardware_class="small", cpu=None, cores=None, gpu=None, memory_bytes=None)
    found = data.series(home)
    assert [(item.run_id, item.boots, item.verdict) for item in found] == [
        ("r-3", 1, "not judged"),
        ("r-2", 1, "fail"),
        ("r-1", 1, "pass"),
    ]
    assert found[0].hardware == "CPU unknown, ? cores, memory unknown, no GPU"


def test_the_newest_reading_is_of_the_last_boot_that_counts(home: Home) -> None:
    boots = [boot("1", 1, 2.0), boot("2", 2, 3.5), boot("3", 3, 9.0, role="prime"), boot("4", 4, 9.0, outcome="error")]
    run(home, "r-1", boots, [])
    found = data.newest(home, ("cold_start", "warm_first_token"))
    id = only(home).id
    assert found[id, "cold_start"] == data.Reading(3.5, None)
    assert found[id, "warm_first_token"] == data.Reading(None, data.NOT_DERIVED)


def test_the_newest_reading_of_a_failed_boot_says_so(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0), failed("2", 2)], [])
    assert data.newest(home, ("cold_start",)) == {
        (only(home).id, "cold_start"): data.Reading(None, "exited with 1", failed=True)
    }


def test_a_series_of_priming_boots_alone_has_no_reading(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0, role="prime")], [])
    assert data.newest(home, ("cold_start",)) == {}


def test_points_are_every_boot_in_order_with_its_reason(home: Home) -> None:
    boots = [
        failed("3", 3),
        boot("1", 1, 2.0),
        boot("4", 4, None),
        boot("2", 2, 3.0, role="prime"),
        boot("5", 5, 4.0, outcome="error"),
        boot("other", 6, 1.0, cell_digest="other"),
    ]
    run(home, "r-1", boots, [])
    id = next(item.id for item in data.series(home) if item.boots == 5)
    points = data.points(home, id, "cold_start")
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
    assert (first.commit, first.dirty, first.branch) == ("0123abc", True, "main")
    assert first.versions == {"xllamacpp": "2026.10"}
    assert first.source == "client"


def test_a_failed_boot_has_no_value_whatever_is_stored(home: Home) -> None:
    run(home, "r-1", [failed("1", 1, metrics={"cold_start": Value(2.0, "client")})], [])
    (point,) = data.points(home, only(home).id, "cold_start")
    assert point.reading == data.Reading(None, "exited with 1", failed=True)


def test_names_are_values_and_no_sql(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    assert data.points(home, "'; DROP TABLE boot; --", "' OR 1=1") == []
    assert only(home).boots == 1


def test_a_store_without_boots_is_named(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    with duckdb.connect(str(home.database)) as con:
        con.execute("DELETE FROM boot").fetchall()
    with pytest.raises(Unusable, match="The store holds no boots yet"):
        data.series(home)


def test_nothing_is_written_and_nothing_stays_open(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [PASS])
    before = home.database.read_bytes()
    data.points(home, only(home).id, "cold_start")
    assert home.database.read_bytes() == before
    assert sorted(path.name for path in home.root.glob("coldstart.duckdb*")) == ["coldstart.duckdb"]
    with duckdb.connect(str(home.database)) as con:  # a reader left open would keep this out
        con.execute("CREATE TABLE later (x INTEGER)").fetchall()
