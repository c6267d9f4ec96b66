"""One instance for all stores: each is attached while it is asked, and no longer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from dashboard import shared
from dashboard.shared import attached
from pytest_coldstart.store.database import connect, migrate
from pytest_coldstart.store.errors import StoreError


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "it's a 'store'.duckdb"
    with connect(path) as con:
        migrate(con)
    return path


def is_open(path: Path) -> bool:
    """Whether this process has the file open."""
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return str(path) in {os.readlink(link) for link in links if os.path.lexists(link)}


def can_write(path: Path) -> bool:
    code = f"import duckdb; duckdb.connect({str(path)!r}).execute('CREATE OR REPLACE TABLE mine (x INTEGER)')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_a_store_is_open_while_it_is_asked_and_no_longer(store: Path) -> None:
    with attached(store, 0) as con:
        assert con.execute("SELECT count(*) FROM boot").fetchall() == [(0,)]
        assert is_open(store)
        assert not can_write(store)
        with attached(store, 0) as other:
            assert other.execute("SELECT count(*) FROM main.run").fetchall() == [(0,)]
        assert is_open(store)
    assert not is_open(store)
    assert can_write(store)


def test_two_stores_at_once_are_two(store: Path, tmp_path: Path) -> None:
    with connect(tmp_path / "other.duckdb") as con:
        migrate(con)
        con.execute("INSERT INTO run (run_id) VALUES ('r-1')").fetchall()
    sql = "SELECT count(*) FROM run"
    with attached(store, 0) as one, attached(tmp_path / "other.duckdb", 0) as two:
        assert (one.execute(sql).fetchall(), two.execute(sql).fetchall()) == ([(0,)], [(1,)])


def test_two_ways_to_one_store_are_one(store: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.duckdb"
    link.symlink_to(store)
    sql = "SELECT count(*) FROM run"
    with attached(store, 0) as one, attached(link, 0) as two:
        assert one.execute(sql).fetchall() == two.execute(sql).fetchall() == [(0,)]
    assert not is_open(store)


def test_nothing_can_be_written(store: Path) -> None:
    with attached(store, 0) as con, pytest.raises(duckdb.Error, match="read-only"):
        con.execute("INSERT INTO run (run_id) VALUES ('r-1')").fetchall()


def test_an_error_of_a_question_lets_the_store_go(store: Path) -> None:
    with pytest.raises(duckdb.Error), attached(store, 0) as con:
        con.execute("SELECT * FROM nothing_of_this_name")
    assert not is_open(store)


def test_a_damaged_store_harms_no_other(store: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.duckdb"
    bad.write_bytes(store.read_bytes())
    with bad.open("r+b") as file:
        file.seek(4096)
        file.write(b"\1" * 8192)
    with pytest.raises((StoreError, duckdb.Error)), attached(bad, 0) as con:
        con.execute("SELECT * FROM boot").fetchall()
    with attached(store, 0) as con:
        assert con.execute("SELECT count(*) FROM boot").fetchall() == [(0,)]
    assert not is_open(bad)


def test_an_instance_that_answers_nothing_any_more_is_replaced(store: Path) -> None:
    with attached(store, 0):
        old = shared._now
    assert old is not None
    shared._retire(old)
    with attached(store, 0) as con:
        assert con.execute("SELECT 1").fetchall() == [(1,)]
        assert shared._now is not old
