"""Whether the store is whole: its file, its tables, and the run files beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

import duckdb

from dashboard.data.query import rows
from pytest_coldstart.store.database import migrations, version
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.runfile import is_held, read_run

#: Files that are looked at, at most: of logs, and of run files that are not in the store.
LOGS, UNREAD = 20_000, 20
#: Bytes of run files that are read to tell whether they are broken.
_READ = 32 << 20


@dataclass(frozen=True)
class Tables:
    """The database. ``counts``: rows by table, as the catalogue estimates them; ``ingested``: bytes read of each run file."""

    schema: int
    newest_schema: int
    counts: Mapping[str, int]
    oldest: datetime | None
    newest: datetime | None
    ingested: Mapping[str, int]


@dataclass(frozen=True)
class RunFileState:
    """A run file that is not in the store as it is. ``state``: being written, not ingested, grown, or broken."""

    path: Path
    bytes: int
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Files:
    """The folder. ``unread``: run files that are not in the store as they are, at most :data:`UNREAD` of ``unread_total``;
    ``whole``: all logs were counted."""

    database_bytes: int
    run_files: int
    run_bytes: int
    unread: tuple[RunFileState, ...]
    unread_total: int
    logs: int
    log_bytes: int
    whole: bool


_COUNTS = """
SELECT table_name AS name, estimated_size AS rows FROM duckdb_tables()
WHERE database_name = current_database() ORDER BY table_name
"""
_ENDS = "SELECT min(started_at) AS oldest, max(started_at) AS newest FROM boot"
_INGESTED = "SELECT file, bytes FROM ingested"


def tables(con: duckdb.DuckDBPyConnection) -> Tables:
    """The database, without reading more of it than small tables."""
    (ends,) = rows(con, _ENDS)
    counts = {row["name"]: int(row["rows"] or 0) for row in rows(con, _COUNTS)}
    ingested = {row["file"]: int(row["bytes"] or 0) for row in rows(con, _INGESTED)}
    return Tables(version(con), max(migrations()), counts, ends["oldest"], ends["newest"], ingested)


def files(home: Home, ingested: Mapping[str, int], logs: int = LOGS) -> Files:
    """What lies beside the database; *ingested* as in :class:`Tables`. Nothing is opened but run files that are not in there."""
    sizes = dict(_sizes(home.runs, ".jsonl"))
    changed = [path for path, size in sorted(sizes.items()) if ingested.get(str(path)) != size]
    found = list(islice(_sizes(home.logs), logs + 1))
    return Files(
        database_bytes=sum(size for _, size in _stat(home.database, Path(f"{home.database}.wal"))),
        run_files=len(sizes),
        run_bytes=sum(sizes.values()),
        unread=tuple(_state(path, sizes[path], ingested) for path in changed[:UNREAD]),
        unread_total=len(changed),
        logs=min(len(found), logs),
        log_bytes=sum(size for _, size in found[:logs]),
        whole=len(found) <= logs,
    )


def _sizes(folder: Path, suffix: str = "") -> Iterator[tuple[Path, int]]:
    """Each file directly in *folder*, and below its folders where no *suffix* is asked for; links are not followed."""
    try:
        entries = sorted(folder.iterdir()) if suffix else folder.iterdir()
        for path in entries:
            if path.is_dir() and not path.is_symlink():
                if not suffix:
                    yield from _sizes(path)
            elif path.name.endswith(suffix):
                yield from _stat(path)
    except OSError:
        return


def _stat(*paths: Path) -> Iterator[tuple[Path, int]]:
    for path in paths:
        with suppress(OSError):
            yield path, path.lstat().st_size


def _state(path: Path, size: int, ingested: Mapping[str, int]) -> RunFileState:
    if is_held(path):
        return RunFileState(path, size, "being written", "its run has not ended")
    if size <= _READ:
        try:
            data = read_run(path)
        except StoreError as error:
            return RunFileState(path, size, "broken", str(error))
        if not data.header:
            return RunFileState(path, size, "broken", "it has no first line")
    read = ingested.get(str(path))
    if read is not None:
        return RunFileState(path, size, "grown", f"{read} bytes of it are in the store")
    return RunFileState(path, size, "not ingested")
