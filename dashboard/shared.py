"""One DuckDB instance for all questions, with each store attached to it as long as it is asked.

Starting an instance takes 40 ms, more than most questions; attaching a store takes 3 ms. A store that is not asked at the
moment is not open either, so that a run can write.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from pytest_coldstart.store.database import patiently

#: After one of these an instance may answer nothing any more.
_FATAL = (duckdb.FatalException, duckdb.InternalException)


class _Instance:
    """A database in memory, which holds nothing itself. ``users``: of each store, how many ask it now."""

    def __init__(self) -> None:
        # No folder for what exceeds the memory: it would be made where the server was started.
        self.con = duckdb.connect(":memory:", config={"temp_directory": ""})
        self.users: Counter[Path] = Counter()
        self.names: dict[Path, str] = {}

    def join(self, path: Path) -> duckdb.DuckDBPyConnection:
        """A connection to the store, which is attached unless others ask it already."""
        name = self.names.setdefault(path, f"store{len(self.names)}")
        con = self.con.cursor()
        try:
            if not self.users[path]:
                file = str(path).replace("'", "''")
                con.execute(f"ATTACH '{file}' AS {name} (TYPE duckdb, READ_ONLY)").fetchall()
            con.execute(f"USE {name}").fetchall()
        except BaseException:
            con.close()
            if not self.users[path]:
                with suppress(duckdb.Error):  # it was not attached; else it would keep the writer out
                    self.con.execute(f"DETACH {name}").fetchall()
            raise
        self.users[path] += 1
        return con

    def leave(self, path: Path, con: duckdb.DuckDBPyConnection) -> None:
        con.close()
        self.users[path] -= 1
        if not self.users[path]:
            self.con.execute(f"DETACH {self.names[path]}").fetchall()


_LOCK = threading.Lock()
_now: _Instance | None = None


@contextmanager
def attached(path: Path, wait: float) -> Iterator[duckdb.DuckDBPyConnection]:
    """A read-only connection to the database at *path*, waiting up to *wait* seconds while another process holds it.

    :raises StoreError: as :func:`pytest_coldstart.store.database.connect`.
    """
    path = path.resolve()  # two ways to one file are one store: it can be attached but once
    instance, con = patiently(lambda: _join(path), path, wait)
    try:
        yield con
    finally:
        try:
            with _LOCK:
                instance.leave(path, con)
        except duckdb.Error:
            _retire(instance)  # it may hold the store still: it goes, and the lock with it, when the last one has left


def _join(path: Path) -> tuple[_Instance, duckdb.DuckDBPyConnection]:
    global _now
    with _LOCK:
        instance = _now = _now or _Instance()
    try:
        with _LOCK:
            return instance, instance.join(path)
    except _FATAL:
        _retire(instance)
        raise


def _retire(instance: _Instance) -> None:
    """Those who use it may go on; the next question gets another one."""
    global _now
    with _LOCK:
        if _now is instance:
            _now = None
