from __future__ import annotations

import pytest

from pytest_coldstart.record import BootRecord, Value
from pytest_coldstart.store.history import expected_seconds
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from tests.store.samples import record, write
from tests.store.test_database import held


def boot(name: str, stopped: float | None, harness: float | None, **changes: str) -> BootRecord:
    instants = {"start": 0.0} if stopped is None else {"start": 0.0, "stopped": stopped}
    metrics = {"cold_start": Value(1.0, "client")} | (
        {} if harness is None else {"harness_time": Value(harness, "client")}
    )
    return record(name, instants=instants, metrics=metrics, **changes)


def test_the_median_of_boots_that_were_measured(home: Home) -> None:
    boots = [
        boot("1", 10.0, 1.0),  # 11
        boot("2", 20.0, 2.0),  # 22
        boot("3", 30.0, None),  # 30
        boot("4", 1000.0, 1.0, role="prime"),
        boot("5", 1000.0, 1.0, outcome="failed"),
        boot("6", 1000.0, 1.0, outcome="error"),
        boot("7", None, 1.0),
        boot("8", 3.0, 1.0, cell_digest="other"),  # 4
        boot("9", 3.0, 1.0, cell_digest="not asked for"),
    ]
    write(home, "main", *boots)
    ingest(home)
    got = expected_seconds(home, ["c0ffee000001", "other", "never seen"])
    assert got == {"c0ffee000001": 22.0, "other": 4.0}
    assert expected_seconds(home, []) == {}


def test_no_store_or_a_held_one_is_no_history(home: Home) -> None:
    assert expected_seconds(home, ["c0ffee000001"]) == {}
    write(home, "main", record("1"))
    ingest(home)
    assert expected_seconds(home, ["c0ffee000001"]) == {"c0ffee000001": pytest.approx(8.0)}
    with held(home.database, 60):
        assert expected_seconds(home, ["c0ffee000001"]) == {}
