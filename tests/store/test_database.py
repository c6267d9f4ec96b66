from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from pytest_coldstart.store.database import check, connect, migrate, reader, version
from pytest_coldstart.store.errors import StoreError, StoreLocked, StoreNewer


@contextmanager
def held(path: Path, seconds: float, read_only: bool = False) -> Iterator[int]:
    """Another real process that holds *path*; its PID."""
    code = (
        f"import duckdb, time; c = duckdb.connect({str(path)!r}, read_only={read_only}); "
        f"print('held', flush=True); time.sleep({seconds})"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder.pid
        finally:
            holder.kill()


#: The schema that this version makes; one numbered migration a version.
NEWEST = 5


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.duckdb"
    with connect(path) as con:
        assert migrate(con) == NEWEST
    return path


def names(con: duckdb.DuckDBPyConnection) -> set[str]:
    return {row[0] for row in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}


def test_migrate_makes_the_tables_once(store: Path) -> None:
    with connect(store) as con:
        assert migrate(con) == NEWEST
        assert names(con) == {
            *("run", "boot", "instant", "phase", "metric", "request", "cache", "verdict"),
            *("gpu", "allocator", "kv_cache", "burst", "weight_load", "ingested", "schema_version"),
        }
        assert con.execute("SELECT version FROM schema_version").fetchall() == [
            (number,) for number in range(1, NEWEST + 1)
        ]
        assert con.execute("SELECT count(*) FROM series").fetchall() == [(0,)]


def test_no_column_has_a_time_zone(store: Path) -> None:
    with connect(store) as con:
        rows = con.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND data_type LIKE '%TIME ZONE%'"
        ).fetchall()
    assert rows == []


def test_duckdb_1_5_can_read_the_file(store: Path) -> None:
    # The main header: a checksum of 8 bytes, "DUCK", then the storage version, little-endian.
    head = store.read_bytes()[:20]
    assert head[8:12] == b"DUCK"
    assert 64 <= int.from_bytes(head[12:20], "little") <= 68


def test_a_newer_schema_is_refused(store: Path) -> None:
    with connect(store) as con:
        con.execute("INSERT INTO schema_version VALUES (99, now()::TIMESTAMP)").fetchall()
        with pytest.raises(StoreNewer, match=f"schema version 99, newer than {NEWEST}"):
            migrate(con)
    with pytest.raises(StoreNewer, match=r"s\.duckdb has schema version 99.*upgrade it"):
        check(store)
    with pytest.raises(StoreNewer):
        reader(store)


def test_a_failed_migration_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_coldstart.store import database

    monkeypatch.setattr(
        database, "migrations", lambda: {1: "CREATE TABLE a (x INTEGER)", 2: "CREATE TABLE b (y INT); oops"}
    )
    with connect(tmp_path / "s.duckdb") as con:
        with pytest.raises(StoreError, match="migration 2 failed"):
            migrate(con)
        assert version(con) == 1
        assert names(con) == {"a", "schema_version"}


def test_an_older_store_is_migrated_for_a_reader(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_coldstart.store import database

    steps = {**database.migrations(), NEWEST + 1: "CREATE TABLE later (x INTEGER)"}
    monkeypatch.setattr(database, "migrations", lambda: steps)
    with reader(store) as con:
        assert "later" in names(con)
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            con.execute("DROP TABLE later")


def test_check_lets_pass_what_is_fine(store: Path, tmp_path: Path) -> None:
    check(tmp_path / "none.duckdb")
    check(store)
    with held(store, 30):
        check(store)


def test_check_refuses_what_is_no_store(tmp_path: Path) -> None:
    text = tmp_path / "text.duckdb"
    text.write_text("not a database\n" * 1000)
    with pytest.raises(StoreError, match=r"text\.duckdb.*not a valid DuckDB database.*--coldstart-store"):
        check(text)
    with duckdb.connect(str(tmp_path / "foreign.duckdb")) as con:
        con.execute("CREATE TABLE customers (id INTEGER)").fetchall()
    with pytest.raises(StoreError, match=r"foreign\.duckdb holds other tables and is no store"):
        check(tmp_path / "foreign.duckdb")


@pytest.mark.parametrize("reading", [False, True], ids=["writer", "reader"])
def test_a_held_store_is_waited_for_and_then_named(store: Path, reading: bool) -> None:
    with held(store, 60, read_only=reading) as pid:
        begin = time.monotonic()
        with pytest.raises(StoreLocked) as caught:
            connect(store, wait=1.0)
        waited = time.monotonic() - begin
    assert 0.9 <= waited < 5
    message = str(caught.value)
    assert str(store) in message
    assert f"PID {pid}" in message
    assert "after 1 s" in message
    assert "coldstart ingest" in message


def test_a_store_that_is_released_in_time_is_opened(store: Path) -> None:
    with held(store, 1.5):
        begin = time.monotonic()
        with connect(store, wait=20) as con:
            assert version(con) == NEWEST
        assert time.monotonic() - begin > 0.5


def test_two_readers_at_once(store: Path) -> None:
    with held(store, 30, read_only=True):
        with reader(store, wait=0) as con:
            assert version(con) == NEWEST


def test_a_missing_store_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no store at .*none\.duckdb; run `coldstart ingest`"):
        reader(tmp_path / "none.duckdb")


def test_a_read_only_place(mounted: Callable[[str], Path]) -> None:
    point = mounted("ro,size=1m")
    with pytest.raises(StoreError, match=r"could not open the store .*Read-only file system"):
        connect(point / "s.duckdb", wait=0)
