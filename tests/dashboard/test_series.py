"""The series of a store, against values that stand in the test."""

from __future__ import annotations

from datetime import datetime

import duckdb
import pytest

from dashboard.ask import stamp
from dashboard.data.series import NOT_DERIVED, Reading, Series, all_series, is_demo
from dashboard.source import opened
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import boot, failed, run


def found(home: Home) -> tuple[Series, ...]:
    with opened(home) as con:
        return all_series(con)


def only(home: Home) -> Series:
    (series,) = found(home)
    return series


def test_a_series_counts_every_boot_the_failed_ones_too(home: Home) -> None:
    boots = [
        boot("1", 1, 2.0),
        boot("2", 2, 3.0, role="prime"),
        failed("3", 3),
        boot("4", 4, 4.0, outcome="error"),
        boot("5", 5, None),
    ]
    run(home, "r-1", boots, [])
    series = only(home)
    assert (series.boots, series.failed, series.errors) == (5, 1, 1)
    assert (series.first, series.last) == (datetime(2026, 11, 2, 8, 1), datetime(2026, 11, 2, 8, 5))
    assert (series.engine, series.cell_id, series.tier, series.model) == (
        *("llamacpp", "llamacpp-tiny-restart", "restart"),
        "tiny",
    )
    assert series.hardware == "AMD EPYC 9654, 96 cores, 756 GiB, NVIDIA H200"
    assert (series.nodeid, series.branch, series.run_id) == ("test_a.py::test_boot[x]", "main", "r-1")


def test_another_cell_and_another_machine_are_series_of_their_own(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    run(home, "r-2", [boot("2", 2, 2.0, cell_digest="other")], [])
    run(home, "r-3", [boot("3", 3, 2.0)], [], hardware_class="small", cpu=None, cores=None, gpu=None, memory_bytes=None)
    series = found(home)
    assert [(item.run_id, item.boots) for item in series] == [("r-3", 1), ("r-2", 1), ("r-1", 1)]
    assert series[0].hardware == "CPU unknown, ? cores, memory unknown, no GPU"


def test_what_a_series_is_called_comes_from_its_newest_boot(home: Home) -> None:
    run(home, "r-1", [boot("new", 9, 2.0, cell_id="renamed", nodeid="suites/test_b.py::test_it")], [])
    run(home, "r-2", [boot("old", 1, 2.0)], [])
    assert (only(home).cell_id, only(home).test, only(home).run_id) == ("renamed", "test_b.py::test_it", "r-1")


@pytest.mark.parametrize(
    ("row", "reading"),
    [
        ({"outcome": "ok", "known": True, "value": 2.0, "reason": None}, Reading(2.0)),
        ({"outcome": "ok", "known": True, "value": None, "reason": "why"}, Reading(None, "why")),
        ({"outcome": "ok", "known": False, "value": None, "reason": None}, Reading(None, NOT_DERIVED)),
        ({"outcome": "failed", "known": True, "value": 2.0, "reason": None}, Reading(None, "killed", failed=True)),
    ],
)
def test_a_failed_boot_has_no_value_whatever_is_stored(row: dict[str, object], reading: Reading) -> None:
    assert Reading.of({"failure_message": "killed", **row}) == reading


def test_a_store_without_boots_has_no_series(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    with duckdb.connect(str(home.database)) as con:
        con.execute("DELETE FROM boot").fetchall()
    assert found(home) == ()


def test_a_run_that_says_so_makes_the_store_a_demo(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    with opened(home) as con:
        assert not is_demo(con)
    run(home, "r-2", [boot("2", 2, 2.0)], [], demo=True)
    with opened(home) as con:
        assert is_demo(con)


def test_nothing_is_written_and_nothing_stays_open(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    before = home.database.read_bytes(), stamp(home)
    found(home)
    assert (home.database.read_bytes(), stamp(home)) == before
    assert sorted(path.name for path in home.root.glob("coldstart.duckdb*")) == ["coldstart.duckdb"]
    with duckdb.connect(str(home.database)) as con:  # a reader left open would keep this out
        con.execute("CREATE TABLE later (x INTEGER)").fetchall()
