"""Many files at once: the same rows as one by one, and what is wrong with one stays with it."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pytest_coldstart.attribution import Attribution
from pytest_coldstart.memory import Memory
from pytest_coldstart.record import BootRecord
from pytest_coldstart.store import ingest as module
from pytest_coldstart.store import lines
from pytest_coldstart.store.boots import load
from pytest_coldstart.store.database import reader
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import IngestReport, ingest
from pytest_coldstart.store.runfile import RunFile, encode
from pytest_coldstart.store.shape import sql_type
from tests.store.samples import FULL, HEADER, record, write

PLAIN = BootRecord(
    *("p-1", "r-1", "t", "c", {}, "d", "b", "e", "restart", "measured"), 0, "ok", "2026-11-02T08:00:00.000+00:00"
)


def ask(home: Home, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(home.database), read_only=True) as con:
        return con.execute(sql).fetchall()


def ids(home: Home) -> list[str]:
    return [boot for (boot,) in ask(home, "SELECT boot_id FROM boot ORDER BY 1")]


def test_lines_as_written_give_the_rows_that_parsed_ones_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [FULL, PLAIN, record("b-2", model={"name": ""}), record("b-3", started_at="", memory=Memory())]
    content = {}
    for way in ("as_written", "parsed"):
        home = Home.at(tmp_path / way)
        home.prepare()
        source = write(home, "main", *records)
        if way == "parsed":
            monkeypatch.setattr(module, "_as_written", module._parsed)
        else:
            assert [json.loads(text)["boot_id"] for text in module._as_written(source).lines] == [
                "b-1",
                "p-1",
                "b-2",
                "b-3",
            ]
        assert ingest(home).problems == []
        tables = ("boot", *lines.TABLES)
        with duckdb.connect(str(home.database), read_only=True) as con:
            content[way] = {t: con.execute(f"SELECT * FROM {t} ORDER BY rowid").fetchall() for t in tables}
    assert all(content["parsed"].values())
    assert content["as_written"] == content["parsed"]


def test_records_come_back_whole(home: Home) -> None:
    records = [FULL, PLAIN, record("b-2", attribution=Attribution())]
    write(home, "main", *records)
    assert ingest(home).problems == []
    with reader(home.database) as con:
        for item in records:
            assert dataclasses.replace(load(con, item.boot_id), run_id=item.run_id) == item


def test_the_type_of_a_record_is_that_of_its_parts() -> None:
    assert sql_type(Attribution).startswith('STRUCT("probe" VARCHAR, "end" DOUBLE, "processes" STRUCT("pid" BIGINT, ')
    assert sql_type(tuple[int | None, ...]) == "BIGINT[]"
    assert sql_type(dict[str, float]) == "MAP(VARCHAR, DOUBLE)"
    assert sql_type(dict[str, Any]) == "JSON"
    with pytest.raises(TypeError, match="no SQL type"):
        sql_type(complex)


def broken_line(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.chmod(0o644)
    path.write_text(text.replace(old, new))
    return path


def test_broken_files_among_many_are_named_and_cost_the_others_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_FILES", 3)
    files = [write(home, f"gw{n}", record(f"b-{n}a"), record(f"b-{n}b"), run_id=f"r-{n % 2}") for n in range(7)]
    broken_line(files[1], '"boot_id":"b-1b"', '"boot_id":"b-1b')
    broken_line(files[4], '"cell_digest":"c0ffee000001",', "")
    report = ingest(home, files)
    assert (report.files, report.boots_added, report.runs_added) == (5, 10, 2)
    assert len(report.problems) == 2
    assert f"{files[1]}:3: broken line" in report.problems[0]
    assert f"{files[4]}:2: broken boot line" in report.problems[1]
    assert ids(home) == sorted(f"b-{n}{letter}" for n in (0, 2, 3, 5, 6) for letter in "ab")
    assert ask(home, "SELECT count(*) FROM ingested") == [(5,)]
    assert (ingest(home).skipped, ingest(home).boots_added) == (5, 0)


def test_a_line_of_another_shape_adds_nothing(home: Home) -> None:
    changes = {
        "null": ('"phases":[{', '"phases":null,"other":[{'),
        "word": ('"kind":"first","index":0', '"kind":"first","index":"two"'),
        "number": ('"evidence":{', '"evidence":3,"other":{'),
        "month": ('"started_at":"2026-11-02T08:00:01.250+00:00"', '"started_at":"2026-13-02T08:00:01.250+00:00"'),
    }
    paths = [broken_line(write(home, name, record(f"b-{name}")), *change) for name, change in changes.items()]
    report = ingest(home, [*paths, write(home, "other", record("b-2"))])
    assert [str(path) in problem for path, problem in zip(paths, report.problems, strict=True)] == [True] * 4
    assert ids(home) == ["b-2"]


def test_times_of_other_zones_and_kinds_are_stored_as_utc(home: Home) -> None:
    stamps = ("2026-11-02T09:30:00+01:30", "2026-11-02T08:00:00Z", "2026-11-02T08:00:00", "20261102T080000+0000")
    write(home, "main", *(record(f"b-{n}", started_at=stamp) for n, stamp in enumerate(stamps)))
    assert ingest(home).problems == []
    assert ask(home, "SELECT DISTINCT started_at::VARCHAR FROM boot") == [("2026-11-02 08:00:00",)]


def test_boots_that_several_files_have_are_added_once(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_FILES", 2)
    write(home, "gw0", record("b-1"), record("b-2"), record("b-1", tier="wake"))
    for n in range(5):
        (tmp_path / f"copy{n}.jsonl").write_bytes((home.runs / "r-1.gw0.jsonl").read_bytes())
    report = ingest(home, [home.runs, tmp_path])
    assert report == IngestReport(files=6, boots_added=2, runs_added=1)
    assert ask(home, "SELECT boot_id, tier FROM boot ORDER BY 1") == [("b-1", "restart"), ("b-2", "restart")]
    assert ask(home, "SELECT count(*) FROM metric") == [(10,)]


def test_the_worst_exit_status_of_many_files_is_the_runs(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_FILES", 2)
    for n, status in enumerate((0, 2, 1, None, 0)):
        write(home, f"gw{n}", record(f"b-{n}"), close=status)
    ingest(home)
    assert ask(home, "SELECT exit_status FROM run") == [(2,)]


def test_a_large_file_goes_in_by_parts_and_whole_or_not_at_all(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", 20_000)  # three boots, so that there are three parts
    good = write(home, "gw0", *(record(f"b-{n}") for n in range(7)))
    bad = broken_line(write(home, "gw1", *(record(f"c-{n}") for n in range(7))), '"c-6"', '"c-6')
    report = ingest(home, [bad, good])
    assert (report.boots_added, len(report.problems)) == (7, 1)
    assert f"{bad}:8: broken line" in report.problems[0]
    assert ids(home) == [f"b-{n}" for n in range(7)]


def test_a_folder_stands_for_the_run_files_below_it(home: Home, tmp_path: Path) -> None:
    jobs = tmp_path / "artefacts"
    for job in ("one", "two"):
        (jobs / job / "deep").mkdir(parents=True)
        write(home, job, record(f"b-{job}")).rename(jobs / job / "deep" / "r-1.jsonl")
    (jobs / "samples.jsonl").write_text('{"a": 1}\n')
    (jobs / "empty.jsonl").write_text("")
    (tmp_path / "nothing").mkdir()
    report = ingest(home, [jobs, jobs / "one", tmp_path / "nothing", jobs / "samples.jsonl"])
    assert (report.files, report.boots_added, report.runs_added) == (2, 2, 1)
    assert report.problems[0] == f"there is no run file below {tmp_path / 'nothing'}"
    assert "samples.jsonl:1: not a run file" in report.problems[1]
    assert ingest(home, [jobs]).skipped == 2


def test_a_file_that_grows_is_read_to_its_end_later(home: Home) -> None:
    file = RunFile(home, "r-1", "main", HEADER)
    line = encode({"kind": "boot", **record("b-9", run_id="r-1").to_dict()})
    file.boot(record("b-1"))
    with file.path.open("ab") as other:
        other.write(line[:400])
        other.flush()
        assert ingest(home).boots_added == 1
        other.write(line[400:-1])
        other.flush()
        assert ingest(home).boots_added == 1
        other.write(b"\n")
    file.boot(record("b-2"))
    file.close(0)
    assert ingest(home) == IngestReport(files=1, boots_added=1)
    assert ids(home) == ["b-1", "b-2", "b-9"]
    assert ask(home, "SELECT bytes, closed FROM ingested") == [(os.path.getsize(file.path), True)]


def test_a_field_that_the_tables_know_nothing_of_is_passed_over(home: Home) -> None:
    path = broken_line(write(home, "main", record("b-1")), '"kind":"boot",', '"kind":"boot","of_tomorrow":[1,{"a":2}],')
    assert ingest(home, [path]) == IngestReport(files=1, boots_added=1, runs_added=1)
