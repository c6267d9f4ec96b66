from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import duckdb
import pytest

from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import Failure, Value
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.export import export
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from tests.store.samples import record, write


@pytest.fixture
def filled(home: Home) -> Home:
    write(
        home,
        "main",
        record("later", started_at="2026-11-02T10:00:00+00:00", metrics={"cold_start": Value(4.5, "client")}),
        record("sooner", started_at="2026-11-02T09:00:00+00:00"),
        record(
            *("failed",),
            started_at="2026-11-02T11:00:00+00:00",
            outcome="failed",
            failure=Failure("exit", 'said "no", then left', "start"),
            metrics={},
        ),
    )
    ingest(home)
    return home


def test_csv_to_a_stream(filled: Home) -> None:
    out = io.StringIO()
    export(filled, "csv", out)
    got = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [row["boot_id"] for row in got] == ["sooner", "later", "failed"]
    assert [row["cold_start"] for row in got] == ["2.0", "4.5", ""]
    assert [row["peak_rss"] for row in got] == ["1000000.0", "", ""]
    assert got[0]["started_at"] == "2026-11-02 09:00:00"
    assert (got[0]["git_commit"], got[0]["hostname"], got[0]["tier"]) == ("0123abc", "node7", "restart")
    assert got[2]["failure_message"] == 'said "no", then left'
    assert set(METRICS) <= set(got[0])


def test_json_to_a_file(filled: Home, tmp_path: Path) -> None:
    export(filled, "json", tmp_path / "it's.json")
    got = json.loads((tmp_path / "it's.json").read_text())
    assert [(row["boot_id"], row["outcome"], row["cold_start"]) for row in got] == [
        ("sooner", "ok", 2.0),
        ("later", "ok", 4.5),
        ("failed", "failed", None),
    ]
    assert got[0]["versions"] == {"xllamacpp": "2026.10"}


def test_parquet(filled: Home, tmp_path: Path) -> None:
    export(filled, "parquet", tmp_path / "boots.parquet")
    with duckdb.connect() as con:
        got = con.execute(
            "SELECT boot_id, round, cold_start, harness_time, typeof(cold_start), typeof(started_at) FROM read_parquet(?)",
            [str(tmp_path / "boots.parquet")],
        ).fetchall()
    assert got == [
        ("sooner", 2, 2.0, 0.5, "DOUBLE", "TIMESTAMP"),
        ("later", 2, 4.5, None, "DOUBLE", "TIMESTAMP"),
        ("failed", 2, None, None, "DOUBLE", "TIMESTAMP"),
    ]


def test_raw_tables_and_views(filled: Home) -> None:
    out = io.StringIO()
    export(filled, "csv", out, table="metric")
    got = list(csv.reader(io.StringIO(out.getvalue())))
    assert got[0] == ["boot_id", "name", "value", "unit", "source", "reason"]
    assert ["sooner", "of_my_own", "3.0", "", "log", ""] in got
    assert len(got) == 7
    out = io.StringIO()
    export(filled, "json", out, table="series")
    assert json.loads(out.getvalue())[0]["boots"] == 3


def test_what_cannot_be_exported(filled: Home, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unknown format 'xlsx'; valid formats: parquet, csv, json"):
        export(filled, "xlsx", io.StringIO())
    with pytest.raises(StoreError, match="name a file"):
        export(filled, "parquet", io.StringIO())
    with pytest.raises(StoreError, match="unknown table 'boats'; valid tables: boots, allocator, boot, burst, cache, "):
        export(filled, "csv", io.StringIO(), table="boats")
    with pytest.raises(StoreError, match=r"could not write .*nope/x\.csv: .*No such file"):
        export(filled, "csv", tmp_path / "nope" / "x.csv")
    with pytest.raises(StoreError, match="there is no store"):
        export(Home.at(tmp_path / "empty"), "csv", io.StringIO())
