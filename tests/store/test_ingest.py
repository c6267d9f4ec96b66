from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pytest_coldstart.record import RECORD_VERSION, Failure
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.database import connect, migrate
from pytest_coldstart.store.errors import StoreError, StoreLocked, StoreNewer
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import IngestReport, ingest
from pytest_coldstart.store.runfile import RunFile
from tests.store.samples import FULL, HEADER, PASS, record, write
from tests.store.test_database import held

TABLES = ("run", "boot", "instant", "phase", "metric", "request", "cache", "verdict", "ingested")


def rows(home: Home, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(home.database), read_only=True) as con:
        return con.execute(sql).fetchall()


def counts(home: Home) -> dict[str, int]:
    return {table: rows(home, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def full(home: Home) -> Path:
    file = RunFile(home, "r-1", "main", HEADER)
    file.boot(FULL)
    file.verdict("c0ffee000001", "llamacpp-tiny-restart", "restart", "test_a.py::t", PASS)
    file.close(1)
    return file.path


def test_report_and_repeat(home: Home) -> None:
    full(home)
    assert ingest(home) == IngestReport(files=1, boots_added=1, runs_added=1, skipped=0, problems=[])
    before = counts(home)
    numbers = (1, 1, 8, 2, 5, 2, 2, 1, 1)
    assert before == dict(zip(TABLES, numbers, strict=True))
    assert ingest(home) == IngestReport(files=0, boots_added=0, runs_added=0, skipped=1, problems=[])
    with connect(home.database) as con:
        con.execute("DELETE FROM ingested").fetchall()
    assert ingest(home) == IngestReport(files=1, boots_added=0, runs_added=0, skipped=0, problems=[])
    assert counts(home) == before


def test_the_run(home: Home) -> None:
    path = full(home)
    ingest(home)
    (row,) = rows(home, "SELECT * FROM run")
    plain = (*row[:13], *(json.loads(value) for value in row[13:17]), *row[17:])
    assert plain == (
        *("r-1", datetime.datetime(2026, 11, 2, 8, 0), "node7", "AMD EPYC 9654", 96, 811748818944, "6.8.0"),
        *("NVIDIA H200", "570.86.15", "h200x1-epyc9654", "0123abc", True, "main"),
        *({"provider": "github", "run": 17}, {"pytest": "9.2.0"}, ["pytest", "-q"]),
        *({"locale": "C.UTF-8", "worker": "main"}, RECORD_VERSION, 1, str(path)),
    )


def test_the_boot(home: Home) -> None:
    full(home)
    ingest(home)
    with duckdb.connect(str(home.database), read_only=True) as con:
        cursor = con.execute("SELECT * FROM boot")
        names = [item[0] for item in cursor.description or ()]
        got = dict(zip(names, cursor.fetchall()[0], strict=True))
    documents = ("cell", "versions", "command", "environment", "evidence", "model", "usage", "stop")
    documents += (
        "attribution",
        "hints",
        "failure_diagnosis",
        "memory_sizes",
        "impossible",
        "memory_missing",
        "reference_workloads",
    )
    parsed = {name: json.loads(got.pop(name)) for name in documents}
    series = got.pop("series")
    # sha256("h200x1-epyc9654") by sha256sum
    assert series == "c0ffee000001-8e0a4be3"
    assert got == {
        "boot_id": "b-1",
        "run_id": "r-1",
        "cell_digest": "c0ffee000001",
        "base_digest": "ba5e00000001",
        "cell_id": "llamacpp-tiny-restart",
        "nodeid": "test_a.py::test_boot[x]",
        "engine": "llamacpp",
        "model_name": "tiny",
        "tier": "restart",
        "role": "measured",
        "round": 2,
        "outcome": "ok",
        "started_at": datetime.datetime(2026, 11, 2, 8, 0, 1, 250000),
        "failure_kind": "exit",
        "failure_message": "exited with 1",
        "failure_instant": "listen",
        "log_tail": "last\nlines \u2713",
        "log_path": "/h/logs/b-1.log",
        "log_bytes": 512,
        "load_average": 1.5,
        "poll_delay": 0.02,
        "harness_time": 0.5,
    }
    assert parsed["cell"] == {"engine": "llamacpp", "model": "tiny", "options": {"ctx": 512}}
    assert parsed["command"] == ["server", "--ctx", "512"]
    assert parsed["environment"] == {"HF_HOME": "/c/hf"}
    assert parsed["model"] == {"name": "tiny", "bytes": 100}
    assert parsed["versions"] == {"xllamacpp": "2026.10"}
    assert parsed["hints"] == [{"rule": "imports", "text": "imports take 0.25 s", "seconds": 0.25}]
    assert parsed["failure_diagnosis"] == ["imports of server since 0.0 s", "poll()"]
    assert parsed["memory_sizes"] == {"weights": 15_300_000_000, "kv_pool": 110_000_000_000}
    assert parsed["attribution"]["unmatched"] == [{"engine": "llamacpp", "version": "1.2", "pattern": "weights"}]
    assert parsed["usage"]["peak_rss"] == 1_000_000
    assert parsed["reference_workloads"]["reference_import"] == {
        "value": 0.0625,
        "source": "python 3.11.7",
        "reason": None,
    }
    assert parsed["stop"]["leaked_processes"] == ["123 python"]
    assert parsed["evidence"]["weights"] == [
        {
            "path": "/m/w.gguf",
            "bytes": 100,
            "resident_bytes": 100,
            "filesystem": "ext4",
            "status": "proved",
            "reason": "",
        }
    ]
    assert parsed["evidence"]["device_read_bytes"] == 8192


def test_the_parts_of_the_boot(home: Home) -> None:
    full(home)
    ingest(home)
    assert rows(home, "SELECT name, seconds FROM instant ORDER BY name") == [
        *(("endpoint:/health", 1.25), ("endpoint:/v1/models", 0.75), ("first_done", 2.0), ("first_token", 1.5)),
        *(("listen", 0.5), ("ready", 1.25), ("start", 0.0), ("stopped", 7.5)),
    ]
    assert rows(home, "FROM phase ORDER BY position") == [
        ("b-1", 0, "imports", 0.0, 0.25, "probe", "server", "torch"),
        ("b-1", 1, "load_weights", 0.25, 1.0, "log", "", ""),
    ]
    assert rows(home, "FROM metric ORDER BY name") == [
        ("b-1", "cold_start", 2.0, "s", "client", None),
        ("b-1", "fragmentation", None, "fraction", None, "no source"),
        ("b-1", "harness_time", 0.5, "s", "client", None),
        ("b-1", "of_my_own", 3.0, None, "log", None),
        ("b-1", "peak_rss", 1_000_000.0, "B", "proc", None),
    ]
    first, second = rows(home, "FROM request ORDER BY position")
    assert first[:8] == ("b-1", 0, "first", 0, 1.3, 1.5, 1.6, 2.0)
    assert first[8] == pytest.approx(0.2)
    assert first[9:] == ("d1", 9, 16, 17, "length", 2, None, 0.125)
    assert second == ("b-1", 1, "warm", 0, 3.0, *[None] * 4, "", None, None, 0, None, 1, "reset by peer", None)
    caches = rows(home, "FROM cache ORDER BY name DESC")
    assert caches[0] == ("b-1", "xdg", "/c/xdg", 1, 10, "aa", 3, 30, "bb", 2, '["x","y z"]', '{"kernels":2}', 20)
    assert caches[1][:10] == ("b-1", "triton", "/c/triton", 0, 0, "ee", None, None, None, None)
    assert rows(home, "FROM verdict") == [
        (
            *("r-1", "c0ffee000001", "llamacpp-tiny-restart", "restart", "test_a.py::t", "cold_start", "max", "<="),
            *(10.0, "s", 2.0, 3, "pass", "default", "client", None),
        )
    ]


def test_the_series_view(home: Home) -> None:
    write(home, "main", record("b-1"), record("b-2", cell_id="renamed", started_at="2026-11-03T00:00:00+00:00"))
    ingest(home)
    ((series, *rest),) = rows(home, "FROM series")
    assert series.startswith("c0ffee000001-")
    assert rest == [
        *("llamacpp", "tiny", "restart", "renamed", 2),
        *(datetime.datetime(2026, 11, 2, 8, 0, 1, 250000), datetime.datetime(2026, 11, 3)),
    ]


def test_workers_of_one_run(home: Home) -> None:
    write(home, "gw0", record("b-1"), close=0)
    write(home, "gw1", record("b-2"), close=1)
    write(home, "gw2", record("b-3"), close=0)
    assert ingest(home) == IngestReport(files=3, boots_added=3, runs_added=1)
    assert rows(home, "SELECT run_id, exit_status FROM run") == [("r-1", 1)]


def test_a_file_that_is_still_being_written(home: Home) -> None:
    file = RunFile(home, "r-1", "main", HEADER)
    file.boot(record("b-1"))
    assert ingest(home).boots_added == 1
    assert rows(home, "SELECT closed FROM ingested") == [(False,)]
    assert ingest(home).skipped == 1
    file.boot(record("b-2"))
    with open(file.path, "ab") as other:
        other.write(b'{"kind":"boot","bo')
    assert ingest(home) == IngestReport(files=1, boots_added=1)
    assert rows(home, "SELECT exit_status FROM run") == [(None,)]
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[: -len('{"kind":"boot","bo')])
    file.close(0)
    assert ingest(home) == IngestReport(files=1)
    assert rows(home, "SELECT exit_status FROM run") == [(0,)]
    assert rows(home, "SELECT closed FROM ingested") == [(True,)]


def test_the_last_verdict_of_a_repeated_test_holds(home: Home) -> None:
    file = RunFile(home, "r-1", "main", HEADER)
    for value, word in ((12.0, "fail"), (9.0, "pass")):
        file.verdict("c", "i", "restart", "n", Verdict("cold_start", "max", "<=", 10.0, "s", value, 1, word, "ini"))
        ingest(home)
    assert rows(home, "SELECT value, verdict FROM verdict") == [(9.0, "pass")]


def test_one_bad_file_does_not_stop_the_others(home: Home, tmp_path: Path) -> None:
    good = write(home, "a", record("b-1"))
    newer = home.runs / "r.b.jsonl"
    newer.write_text('{"kind":"run","version":9,"run_id":"r"}\n')
    broken = home.runs / "r.c.jsonl"
    broken.write_text('{"kind":"run","version":1,"run_id":"r"}\noops\n{"kind":"end"}\n')
    odd = write(home, "d", record("b-2", round="two"))
    timeless = write(home, "e", record("b-3", started_at="yesterday"))
    report = ingest(home, [newer, broken, odd, timeless, tmp_path / "gone.jsonl", tmp_path / "gone.duckdb", good])
    assert (report.files, report.boots_added, report.runs_added) == (1, 1, 1)
    assert len(report.problems) == 6
    for problem, word in zip(
        report.problems,
        ("record version 9", "r.c.jsonl:2: broken line", "two", "yesterday", "No such file", "there is no store"),
        strict=True,
    ):
        assert word in problem
    for problem, path in zip(report.problems, (newer, broken, odd, timeless), strict=False):
        assert str(path) in problem
    assert rows(home, "SELECT boot_id FROM boot") == [("b-1",)]


def test_nothing_to_ingest_makes_no_database(home: Home) -> None:
    assert ingest(home) == IngestReport()
    assert not home.database.exists()


def test_text_that_databases_dislike(home: Home) -> None:
    write(home, "main", record("b-1", environment={"A": "nul \0, quote ' and \udcff"}, cell_id="it's; DROP TABLE boot"))
    assert ingest(home).problems == []
    ((cell_id, environment),) = rows(home, "SELECT cell_id, environment FROM boot")
    assert cell_id == "it's; DROP TABLE boot"
    assert json.loads(environment) == {"A": "nul \0, quote ' and ?"}


def test_another_store_as_a_source(tmp_path: Path) -> None:
    one, two = Home.at(tmp_path / "it's one"), Home.at(tmp_path / "two")
    for home, boots in ((one, ("b-1", "b-2")), (two, ("b-2", "b-3"))):
        home.prepare()
        write(home, "main", *(record(boot) for boot in boots))
        ingest(home)
    full_two = counts(two)
    assert ingest(two, [one.database]) == IngestReport(files=1, boots_added=1, runs_added=0)
    assert rows(two, "SELECT boot_id FROM boot ORDER BY 1") == [("b-1",), ("b-2",), ("b-3",)]
    assert counts(two)["metric"] == full_two["metric"] // 2 * 3
    assert ingest(two, [one.database]) == IngestReport(files=1, boots_added=0, runs_added=0)


def test_sources_that_are_no_store_or_newer_or_held(home: Home, tmp_path: Path) -> None:
    foreign, newer, busy = (tmp_path / f"{name}.duckdb" for name in ("foreign", "newer", "busy"))
    with duckdb.connect(str(foreign)) as con:
        con.execute("CREATE TABLE a (x INTEGER)").fetchall()
    for path in (newer, busy):
        with connect(path) as con:
            migrate(con)
    with connect(newer) as con:
        con.execute("INSERT INTO schema_version VALUES (7, NULL)").fetchall()
    with held(busy, 60) as pid:
        report = ingest(home, [foreign, newer, busy, write(home, "main", record("b-1"))], wait=0.5)
    assert (report.files, report.boots_added) == (1, 1)
    assert "is no store" in report.problems[0]
    assert "schema version 7" in report.problems[1]
    assert f"PID {pid}" in report.problems[2]


def test_a_newer_or_held_store_is_refused(home: Home) -> None:
    write(home, "main", record("b-1"))
    with connect(home.database) as con:
        migrate(con)
    with held(home.database, 60) as pid, pytest.raises(StoreLocked, match=f"PID {pid}"):
        ingest(home, wait=0.3)
    with held(home.database, 1.0):
        assert ingest(home, wait=20).boots_added == 1
    with connect(home.database) as con:
        con.execute("INSERT INTO schema_version VALUES (99, NULL)").fetchall()
    with pytest.raises(StoreNewer):
        ingest(home)


def test_a_full_disk_costs_nothing_that_was_stored(mounted: Callable[[str], Path], home: Home) -> None:
    small = Home.at(mounted("size=8m"))
    assert ingest(small, [write(home, "a", record("b-1"))]).boots_added == 1
    with open(small.root / "filler", "wb", buffering=0) as filler:
        with contextlib.suppress(OSError):
            while True:
                filler.write(b"\0" * 4096)
    noise = random.Random(1).randbytes(500_000).hex()
    source = write(home, "b", record("b-2", failure=Failure("exit", "x", "start", noise)))
    try:
        problems = ingest(small, [source]).problems
    except StoreError as error:
        problems = [str(error)]
    assert len(problems) == 1
    assert "No space left on device" in problems[0]
    os.remove(small.root / "filler")
    assert ingest(small, [source]) == IngestReport(files=1, boots_added=1)
    assert rows(small, "SELECT boot_id, length(log_tail) FROM boot ORDER BY 1") == [("b-1", None), ("b-2", 1_000_000)]


def test_processes_that_ingest_at_once_lose_and_double_nothing(home: Home) -> None:
    for worker in range(6):
        write(home, f"gw{worker}", *(record(f"b-{worker}-{n}") for n in range(5)))
    code = """
import sys
from pathlib import Path
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
report = ingest(Home.at(Path(sys.argv[1])), wait=60)
assert not report.problems, report.problems
print(report.boots_added)
"""
    command = [sys.executable, "-c", code, str(home.root)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    added = [int(process.communicate(timeout=120)[0]) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0, 0]
    assert sum(added) == 30
    assert counts(home)["boot"] == 30
    assert counts(home)["metric"] == 150
