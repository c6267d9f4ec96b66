"""Retention: which runs go, and that nothing of them is left or comes back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pytest_coldstart.prune import add
from pytest_coldstart.store.errors import StoreError, StoreLocked
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from pytest_coldstart.store.prune import Keep, prune
from pytest_coldstart.store.runfile import RunFile
from tests.store.samples import HEADER, PASS, record, write
from tests.store.test_database import held

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def ask(home: Home, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(home.database), read_only=True) as con:
        return con.execute(sql).fetchall()


def run(home: Home, day: int, cell: str = "c", close: int | None = 0) -> Path:
    """A run of one boot on a day of November, with its log, samples and cache."""
    boot = f"b-{day:02d}-{cell}"
    (home.logs / f"{boot}.log").write_bytes(b"x" * 100)
    (home.logs / f"{boot}.probe").mkdir()
    (home.logs / f"{boot}.probe" / "7.probe").write_bytes(b"x" * 20)
    made = record(boot, started_at=f"2026-11-{day:02d}T08:00:00+00:00", cell_digest=cell, base_digest=cell)
    return write(home, "main", made, run_id=f"r-{day:02d}-{cell}", close=close)


def cache(home: Home, cell: str) -> Path:
    """A cache that was last used long ago."""
    folder = home.caches / cell
    folder.mkdir()
    (folder / "kernel").write_bytes(b"x" * 1000)
    for path in (folder / "kernel", folder):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return folder


def runs(home: Home) -> list[str]:
    return [name for (name,) in ask(home, "SELECT run_id FROM run ORDER BY 1")]


def test_runs_of_before_some_days_go_with_all_they_left(home: Home) -> None:
    old, new = run(home, 1), run(home, 29)
    size = old.stat().st_size
    done = prune(home, Keep(days=7), now=NOW)
    assert (done.runs, done.boots, done.files, done.bytes, done.problems) == (["r-01-c"], 1, 3, size + 120, [])
    assert runs(home) == ["r-29-c"]
    tables = ("instant", "phase", "metric", "request", "cache", "gpu", "allocator", "kv_cache", "burst", "boot")
    left_in = " UNION ALL ".join(f"SELECT DISTINCT '{table}', boot_id FROM {table}" for table in tables)
    assert sorted(ask(home, left_in)) == sorted((table, "b-29-c") for table in tables)
    assert sorted(os.listdir(home.logs)) == ["b-29-c.log", "b-29-c.probe"]
    assert list(home.runs.iterdir()) == [new]
    assert ask(home, "SELECT file FROM ingested") == [(str(new),)]
    assert ingest(home).boots_added == 0
    assert prune(home, Keep(days=7), now=NOW).runs == []


def test_the_newest_runs_of_each_series_stay_and_one_rule_is_enough_to_stay(home: Home) -> None:
    for day, cell in ((1, "a"), (2, "a"), (3, "a"), (1, "b"), (20, "c"), (21, "c")):
        run(home, day, cell)
    ingest(home)
    assert prune(home, Keep(runs=2), dry_run=True).runs == ["r-01-a"]
    assert prune(home, Keep(runs=1), dry_run=True).runs == ["r-01-a", "r-02-a", "r-20-c"]
    assert prune(home, Keep(days=15, runs=1), dry_run=True, now=NOW).runs == ["r-01-a", "r-02-a"]
    assert prune(home, Keep(days=28.1, runs=1), dry_run=True, now=NOW).runs == ["r-01-a"]
    assert len(runs(home)) == 6
    assert len(list(home.runs.iterdir())) == 6


def test_a_run_stays_that_is_among_the_newest_of_one_of_its_series(home: Home) -> None:
    write(home, "gw0", record("b-1", cell_digest="a"), record("b-2", cell_digest="b"), run_id="r-1")
    write(home, "main", record("b-3", cell_digest="a", started_at="2026-11-03T00:00:00+00:00"), run_id="r-2")
    assert prune(home, Keep(runs=1)).runs == []
    write(home, "main", record("b-4", cell_digest="b", started_at="2026-11-03T00:00:00+00:00"), run_id="r-3")
    assert prune(home, Keep(runs=1)).runs == ["r-1"]


def test_all_files_of_a_run_and_its_verdicts_go(home: Home) -> None:
    write(home, "gw0", record("b-1"), run_id="r-1")
    file = RunFile(home, "r-1", "gw1", HEADER)
    file.verdict("c", "i", "restart", "n", PASS)
    file.close(0)
    run(home, 29)
    assert prune(home, Keep(days=7), now=NOW).files == 2
    assert ask(home, "SELECT count(*) FROM verdict") == [(0,)]
    assert len(list(home.runs.iterdir())) == 1


def test_caches_go_that_no_boot_uses_which_stays(home: Home) -> None:
    run(home, 1, "a")
    run(home, 2, "b")
    run(home, 29, "b")
    run(home, 3, "fresh")
    gone, shared, foreign = cache(home, "a"), cache(home, "b"), cache(home, "other")
    used_just_now = home.caches / "fresh"
    used_just_now.mkdir()
    done = prune(home, Keep(days=7), now=NOW)
    assert (done.boots, done.caches, done.files) == (3, 1, 3 * 3 + 1)
    assert [gone.exists(), shared.exists(), foreign.exists(), used_just_now.exists()] == [False, True, True, True]


def test_a_run_that_is_still_written_stays_whole(home: Home) -> None:
    held_open = RunFile(home, "r-held", "main", HEADER)
    held_open.boot(record("b-held", run_id="r-held"))
    os.utime(held_open.path, (1_600_000_000, 1_600_000_000))
    fresh = left(write(home, "main", record("b-fresh"), run_id="r-fresh", close=None))
    killed = left(write(home, "main", record("b-killed"), run_id="r-killed", close=None))
    os.utime(killed, (1_600_000_000, 1_600_000_000))
    done = prune(home, Keep(days=7), now=NOW)
    assert (done.runs, sorted(done.in_use)) == (["r-killed"], ["r-fresh", "r-held"])
    assert [path.exists() for path in (held_open.path, fresh, killed)] == [True, True, False]
    held_open.close(0)
    assert prune(home, Keep(days=7), now=NOW).runs == ["r-held"]


def left(path: Path) -> Path:
    """The file as a writer that died leaves it: held by nobody."""
    copy = path.with_suffix(".copy")
    shutil.copyfile(path, copy)
    return copy.rename(path)


def test_a_dry_run_says_the_same_and_removes_nothing(home: Home) -> None:
    run(home, 1)
    cache(home, "c")
    ingest(home)
    before = sorted(path for path in home.root.rglob("*"))
    told = prune(home, Keep(days=7), dry_run=True, now=NOW)
    assert sorted(path for path in home.root.rglob("*")) == before
    assert told == prune(home, Keep(days=7), now=NOW)
    assert (told.files, told.caches) == (4, 1)


def test_files_that_were_ingested_from_elsewhere_stay_and_are_not_read_again(home: Home, tmp_path: Path) -> None:
    elsewhere = Path(shutil.move(run(home, 1), tmp_path / "downloaded.jsonl"))
    ingest(home, [elsewhere])
    assert prune(home, Keep(days=7), now=NOW).runs == ["r-01-c"]
    assert elsewhere.exists()
    assert (ingest(home, [elsewhere]).skipped, runs(home)) == (1, [])


def test_ids_that_are_paths_reach_no_file_outside(home: Home) -> None:
    outside = home.root / "keep.log"
    outside.write_text("mine")
    (home.root / "keep").mkdir()
    write(home, "main", record("../keep", base_digest="../keep"), record("..", base_digest=".."), run_id="r-1")
    done = prune(home, Keep(days=7), now=NOW)
    assert (done.boots, done.files, done.caches) == (2, 1, 0)
    assert outside.read_text() == "mine"
    assert (home.root / "keep").is_dir()


@pytest.mark.parametrize("moment", ["files", "rows"])
def test_a_killed_prune_leaves_a_store_that_a_second_one_finishes(home: Home, moment: str) -> None:
    for day in (1, 2, 29):
        run(home, day)
    code = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from pytest_coldstart.store import prune
from pytest_coldstart.store.home import Home

def kill(*_): os.kill(os.getpid(), signal.SIGKILL)

def one_then_kill(self, path, done=[]):
    if done: kill()
    done.append(path)
    return remove(self, path)

remove = prune._Prune._remove
if sys.argv[2] == "files": prune._Prune._remove = one_then_kill
else: prune._Prune._forget = kill
prune.prune(Home.at(Path(sys.argv[1])), prune.Keep(days=7), now=datetime(2026, 11, 30, tzinfo=UTC))
"""
    killed = subprocess.run([sys.executable, "-c", code, str(home.root), moment], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(home.runs.iterdir())) == {"files": 2, "rows": 1}[moment]
    assert ingest(home).boots_added == 0
    assert len(runs(home)) == 3
    prune(home, Keep(days=7), now=NOW)
    assert runs(home) == ["r-29-c"]
    assert [path.name for path in home.runs.iterdir()] == ["r-29-c.main.jsonl"]
    assert sorted(os.listdir(home.logs)) == ["b-29-c.log", "b-29-c.probe"]
    assert ask(home, "SELECT count(*) FROM ingested") == [(1,)]


def test_a_held_or_missing_store_is_refused(home: Home) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        prune(home, Keep(days=7))
    run(home, 1)
    ingest(home)
    with held(home.database, 60) as pid, pytest.raises(StoreLocked, match=f"PID {pid}"):
        prune(home, Keep(days=7), now=NOW, wait=0.2)
    assert len(list(home.runs.iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say what to keep"),
        (["--keep-days", "0"], "not between 0 and 36500"),
        (["--keep-days", "-3"], "not between"),
        (["--keep-days", "nan"], "not between"),
        (["--keep-days", "inf"], "not between"),
        (["--keep-runs", "0"], "at least 1 run"),
        (["--keep-days", "5", "--keep-runs", "-1"], "at least 1 run"),
    ],
)
def test_rules_that_make_no_sense_are_refused(
    home: Home, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(home, *words) == 4
    assert message in capsys.readouterr().err
    assert not home.database.exists()


def test_the_command_prints_what_went(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    size = run(home, 1).stat().st_size
    RunFile(home, "r-x", "main", HEADER).boot(record("b-x", run_id="r-x"))
    ingest(home)
    assert command(home, "--keep-runs", "1", "--dry-run") == 0
    assert capsys.readouterr().out.startswith("would remove 0 runs")
    run(home, 2)
    assert command(home, "--keep-runs", "1") == 0
    out, err = capsys.readouterr()
    assert out == (
        f"r-01-c\nremoved 1 runs with 1 boots, 3 files ({size + 120} bytes), caches of 0 cells; store: {home.root}\n"
    )
    assert err == ""


def command(home: Home, *words: str) -> int:
    import argparse

    store = argparse.ArgumentParser(add_help=False)
    store.add_argument("--store", type=Path)
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers(), store)
    arguments = parser.parse_args(["prune", "--store", str(home.root), *words])
    return int(arguments.run(arguments))
