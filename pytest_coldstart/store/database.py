"""The DuckDB file of a store: opening it beside other processes, and its schema."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import duckdb

from pytest_coldstart.store.errors import StoreError, StoreLocked, StoreNewer
from pytest_coldstart.store.home import CHOOSE

T = TypeVar("T")

#: DuckDB 2 would make files that DuckDB 1.5, which is still supported, cannot open.
_STORAGE = {"storage_compatibility_version": "v1.5.0"}
_HOLDER = re.compile(r"Conflicting lock is held (?:in|by) (.+?\(PID \d+\)|PID \d+)")


def connect(path: Path, read_only: bool = False, wait: float = 20.0) -> duckdb.DuckDBPyConnection:
    """Open the database, waiting up to *wait* seconds while another process holds it.

    :raises StoreLocked: it was held all that time.
    :raises StoreError: it cannot be opened: no DuckDB file, no right to, or made by a later DuckDB.
    """
    return patiently(lambda: duckdb.connect(str(path), read_only=read_only, config=_config()), path, wait)


def patiently(opening: Callable[[], T], path: Path, wait: float) -> T:
    """What *opening* the database at *path* gives, trying again for up to *wait* seconds while another process holds it.

    :raises StoreLocked, StoreError: as :func:`connect`.
    """
    deadline = time.monotonic() + wait
    pause = 0.02
    while True:
        try:
            return opening()
        except duckdb.Error as error:
            if not is_lock(error):
                raise StoreError(f"could not open the store {path}: {said(error)}; {CHOOSE}") from error
            left = deadline - time.monotonic()
            if left <= 0:
                raise locked(path, wait, error) from error
        # Jitter keeps processes that wait for the same lock from waking together.
        time.sleep(min(left, pause * random.uniform(0.5, 1.5)))
        pause = min(pause * 2, 0.5)


def _config() -> dict[str, str | bool | int | float | list[str]]:
    return {**_STORAGE} if int(duckdb.__version__.split(".")[0]) >= 2 else {}


def is_lock(error: duckdb.Error) -> bool:
    text = str(error)
    return isinstance(error, duckdb.IOException) and ("Conflicting lock" in text or "Could not set lock" in text)


def locked(path: Path, wait: float, error: duckdb.Error) -> StoreLocked:
    holder = _HOLDER.search(str(error))
    who = holder[1] if holder else said(error)
    return StoreLocked(
        f"the store {path} is held by {who}, still after {wait:g} s; no result is lost: end that process or wait "
        "for it, then run `coldstart ingest`"
    )


def said(error: duckdb.Error) -> str:
    """The first line of DuckDB's message; the rest repeats the SQL."""
    return str(error).strip().partition("\n")[0]


@lru_cache(maxsize=1)
def migrations() -> dict[int, str]:
    """The SQL of each schema version, in order."""
    folder = files("pytest_coldstart.store") / "migrations"
    found = {int(file.name[:4]): file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".sql")}
    return dict(sorted(found.items()))


def version(con: duckdb.DuckDBPyConnection) -> int:
    """The schema version of a database, 0 when it is empty.

    :raises StoreError: it holds the tables of something else.
    """
    rows = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()").fetchall()
    if not rows:
        return 0
    if ("schema_version",) not in rows:
        raise StoreError(f"the database {_file(con)} holds other tables and is no store; {CHOOSE}")
    newest = con.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchall()
    return int(newest[0][0])


def require_known(found: int, where: str) -> None:
    """:raises StoreNewer: schema version *found* is later than our newest."""
    newest = max(migrations())
    if found > newest:
        raise StoreNewer(
            f"the store {where} has schema version {found}, newer than {newest}, the newest this version of "
            f"pytest-coldstart knows; upgrade it, or {CHOOSE}"
        )


def migrate(con: duckdb.DuckDBPyConnection) -> int:
    """Bring the schema up to date, each step in a transaction; returns its version.

    :raises StoreNewer: a later version of this tool made it.
    :raises StoreError: a step failed; the database is as it was before that step.
    """
    found = version(con)
    require_known(found, _file(con))
    for number, sql in migrations().items():
        if number > found:
            _apply(con, number, sql)
    return max(migrations())


def _apply(con: duckdb.DuckDBPyConnection, number: int, sql: str) -> None:
    try:
        with transaction(con):
            con.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, applied_at TIMESTAMP)")
            con.execute(sql)
            con.execute("INSERT INTO schema_version VALUES (?, ?)", [number, datetime.now(UTC).replace(tzinfo=None)])
    except duckdb.Error as error:
        raise StoreError(f"the store {_file(con)}: migration {number} failed: {said(error)}") from error


@contextmanager
def transaction(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """All or nothing. A database that a fatal error has closed has rolled back by itself."""
    con.execute("BEGIN TRANSACTION")
    try:
        yield
        con.execute("COMMIT")
    except BaseException:
        try:
            con.execute("ROLLBACK")
        except duckdb.Error:
            pass  # a failed COMMIT has already ended the transaction
        raise


def check(path: Path) -> None:
    """Find out before the first boot whether the store can be used; being held is no obstacle.

    :raises StoreNewer: a later version of this tool made it.
    :raises StoreError: it is no DuckDB file, or no store.
    """
    if not path.exists():
        return
    try:
        con = connect(path, read_only=True, wait=0)
    except StoreLocked:
        return
    with con:
        require_known(version(con), str(path))


def reader(path: Path, wait: float = 20.0) -> duckdb.DuckDBPyConnection:
    """Open an existing store read-only, at our schema version.

    :raises StoreError: there is none, or as :func:`connect` and :func:`migrate`.
    """
    if not path.exists():
        raise StoreError(f"there is no store at {path}; run `coldstart ingest`, or {CHOOSE}")
    con = connect(path, read_only=True, wait=wait)
    try:
        found = version(con)
        require_known(found, str(path))
    except BaseException:
        con.close()
        raise
    if found == max(migrations()):
        return con
    con.close()  # an older schema: a reader keeps the writer out, even its own
    with connect(path, wait=wait) as writer:
        migrate(writer)
    return connect(path, read_only=True, wait=wait)


def _file(con: duckdb.DuckDBPyConnection) -> str:
    rows = con.execute("SELECT path FROM duckdb_databases() WHERE database_name = current_database()").fetchall()
    return str(rows[0][0] or ":memory:")
