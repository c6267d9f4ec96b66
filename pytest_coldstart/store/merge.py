"""Merge: the rows of another store, read-only, into an open one."""

from __future__ import annotations

import time
from pathlib import Path

import duckdb

from pytest_coldstart.store.database import is_lock, locked, require_known, said, transaction
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.rows import TABLES


def merge(con: duckdb.DuckDBPyConnection, path: Path, wait: float = 20.0) -> tuple[int, int]:
    """Copy what the store at *path* has and *con* lacks; returns the runs and boots added.

    :raises StoreLocked: another process held *path* for *wait* seconds.
    :raises StoreNewer: a later version of this tool made it.
    :raises StoreError: there is no store at *path*, or it is the open one.
    """
    _attach(con, path, wait)
    try:
        _require_store(con, path)
        with transaction(con):
            return _copy(con)
    finally:
        con.execute("DETACH other").fetchall()


def _attach(con: duckdb.DuckDBPyConnection, path: Path, wait: float) -> None:
    if not path.is_file():
        raise StoreError(f"there is no store at {path}")
    quoted = str(path).replace("'", "''")
    deadline = time.monotonic() + wait
    while True:
        try:
            con.execute(f"ATTACH '{quoted}' AS other (READ_ONLY)").fetchall()
            return
        except duckdb.Error as error:
            if not is_lock(error):
                raise StoreError(f"could not open the store {path}: {said(error)}") from error
            if time.monotonic() >= deadline:
                raise locked(path, wait, error) from error
        time.sleep(0.1)


def _require_store(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    sql = "SELECT 1 FROM duckdb_tables() WHERE database_name = 'other' AND table_name = 'schema_version'"
    if not con.execute(sql).fetchall():
        raise StoreError(f"the database {path} is no store")
    newest = con.execute("SELECT coalesce(max(version), 0) FROM other.schema_version").fetchall()
    require_known(int(newest[0][0]), str(path))


def _copy(con: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    # BY NAME: a store of an older schema lacks columns, which are then NULL.
    runs = con.execute("INSERT OR IGNORE INTO run BY NAME SELECT * FROM other.run RETURNING 1").fetchall()
    tables = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'other'").fetchall()
    # A store of an older schema has not all of them either.
    for table in (name for name in TABLES if (name,) in tables):
        con.execute(
            f"INSERT INTO {table} BY NAME SELECT * FROM other.{table} WHERE boot_id NOT IN (SELECT boot_id FROM boot)"
        ).fetchall()
    boots = con.execute("INSERT OR IGNORE INTO boot BY NAME SELECT * FROM other.boot RETURNING 1").fetchall()
    con.execute("INSERT OR IGNORE INTO verdict BY NAME SELECT * FROM other.verdict").fetchall()
    return len(runs), len(boots)
