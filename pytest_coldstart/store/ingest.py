"""Ingest: run files, and other stores, into the database. Doing it again changes nothing.

Many files go into one transaction, and their boots' lines go to the database as they are. Where that fails, for a
broken line or one of an older version, the files are halved until the one at fault stands alone; that one is read
by Python, line by line, which says what is wrong with it or brings it up to date.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import duckdb

from pytest_coldstart.record import RECORD_VERSION, BootRecord
from pytest_coldstart.store import lines
from pytest_coldstart.store.database import connect, migrate, said, transaction
from pytest_coldstart.store.errors import StoreError, why
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.merge import merge
from pytest_coldstart.store.rows import Row, hardware_digest, run_row, utc, verdict_rows
from pytest_coldstart.store.runfile import RunData, encode, read_run

#: What goes into one transaction at most, unless a single file is larger: bytes and files.
_BATCH_BYTES, _BATCH_FILES = 32 << 20, 500
#: Bytes of boots that the database takes apart at a time.
_CHUNK_BYTES = 32 << 20

#: Batches that are stored side by side at most: each takes some 0.3 GB.
_MOST_THREADS = 4

_FATAL = (duckdb.FatalException, duckdb.InternalException)


@dataclass
class IngestReport:
    """What one ingest did. ``files``: read; ``skipped``: unchanged since they were read before."""

    files: int = 0
    boots_added: int = 0
    runs_added: int = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Source:
    """A run file that is to be read, its place among all, and its size when that was decided."""

    path: Path
    place: int
    size: int


def ingest(home: Home, files: Iterable[Path] | None = None, wait: float = 20.0) -> IngestReport:
    """Read *files*, by default all run files of *home*, waiting up to *wait* seconds for the database.

    A folder among them stands for the run files below it. A file is in one transaction whole; one that cannot be read
    becomes a problem of the report and does not stop the others. A file that is still being written is read as far as
    it is complete.

    :raises StoreLocked: another process held the database all the time.
    :raises StoreError: the database cannot be written, or a later version of this tool made it.
    """
    paths = sorted(home.runs.glob("*.jsonl")) if files is None else list(files)
    if not paths:
        return IngestReport()
    try:
        home.database.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the store cannot be written: {home.root}: {why(error)}") from error
    with connect(home.database, wait=wait) as con:
        try:
            migrate(con)
            return _Ingest(con, wait).all(paths)
        except duckdb.Error as error:
            raise StoreError(f"could not write the store {home.database}: {said(error)}") from error


class _Ingest:
    """One ingest into an open database."""

    def __init__(self, con: duckdb.DuckDBPyConnection, wait: float) -> None:
        self.con = con
        self.wait = wait
        self.report = IngestReport()
        self.problems: dict[int, str] = {}  # by the place of the file, since files are not read in order

    def all(self, paths: Iterable[Path]) -> IngestReport:
        batches = list(_batches(list(self._sources(paths))))
        for batch in self._at_once(batches) if len(batches) > 1 else batches:
            self._batch(batch)
        self.report.problems = [self.problems[place] for place in sorted(self.problems)]
        return self.report

    def _at_once(self, batches: Sequence[list[_Source]]) -> list[list[_Source]]:
        """Store batches side by side, one a core; returns those that failed, if only by coming into each other's way."""

        def store(batch: list[_Source]) -> tuple[int, int] | None:
            try:
                with self.con.cursor() as con:
                    return _store(con, [(source.path, _as_written(source.path)) for source in batch], exact=True)
            except _FATAL:
                raise  # the database is gone for this process: the other files would fail too
            except (StoreError, ValueError, duckdb.Error):
                return None

        failed = []
        with ThreadPoolExecutor(min(_MOST_THREADS, len(os.sched_getaffinity(0)))) as pool:
            try:
                for batch, added in zip(batches, pool.map(store, batches), strict=True):
                    if added:
                        self._count(len(batch), *added)
                    else:
                        failed.append(batch)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # an interrupt waits for those that run, and for no more
                raise
        return failed

    def _sources(self, paths: Iterable[Path]) -> Iterator[_Source]:
        """The run files that changed since they were read; other stores are merged on the way."""
        known = dict(self.con.execute("SELECT file, bytes FROM ingested").fetchall())
        seen: set[Path] = set()
        for place, (path, problem) in enumerate(_expanded(paths)):
            if problem:
                self.problems[place] = problem
            elif path in seen:
                continue
            elif path.suffix == ".duckdb":
                self._one(place, path, partial(merge, self.con, path, self.wait))
            else:
                try:
                    size = path.stat().st_size
                except OSError as error:
                    self.problems[place] = f"could not read {path}: {why(error)}"
                    continue
                if known.get(str(path)) == size:
                    self.report.skipped += 1
                else:
                    yield _Source(path, place, size)
            seen.add(path)

    def _batch(self, batch: Sequence[_Source]) -> None:
        """All of them in one transaction; where that fails, each half in one of its own."""
        try:
            runs, boots = _store(self.con, [(source.path, _as_written(source.path)) for source in batch], exact=True)
        except _FATAL:
            raise
        except (StoreError, ValueError, duckdb.Error):
            if len(batch) == 1:
                (source,) = batch
                self._one(source.place, source.path, lambda: _store(self.con, [(source.path, _parsed(source.path))]))
                return
            half = len(batch) // 2
            self._batch(batch[:half])
            self._batch(batch[half:])
        else:
            self._count(len(batch), runs, boots)

    def _one(self, place: int, path: Path, work: Callable[[], tuple[int, int]]) -> None:
        """Do what adds one file; what is wrong with it is a problem of the report."""
        try:
            runs, boots = work()
        except (StoreError, ValueError) as error:
            self.problems[place] = str(error) if str(path) in str(error) else f"{path}: {error}"
        except _FATAL:
            raise
        except duckdb.Error as error:
            self.problems[place] = f"{path}: {said(error)}"
        else:
            self._count(1, runs, boots)

    def _count(self, files: int, runs: int, boots: int) -> None:
        self.report.files += files
        self.report.runs_added += runs
        self.report.boots_added += boots


def _expanded(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Each file, with its problem or none; a folder is the run files below it."""
    for path in (path.absolute() for path in paths):
        if not path.is_dir():
            yield path, ""
            continue
        try:
            below = run_files(path)
        except OSError as error:
            yield path, f"could not read {path}: {why(error)}"
            continue
        yield from ((file, "") for file in below)
        if not below:
            yield path, f"there is no run file below {path}"


def run_files(folder: Path) -> list[Path]:
    """The run files anywhere below *folder*: those JSON lines that begin with a run.

    :raises OSError: one of them cannot be read.
    """
    return [path for path in sorted(folder.rglob("*.jsonl")) if path.is_file() and _begins_a_run(path)]


def _begins_a_run(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(1 << 20)
    return b'"kind":"run"' in first.replace(b" ", b"")


def _batches(sources: Sequence[_Source]) -> Iterator[list[_Source]]:
    batch: list[_Source] = []
    size = 0
    for source in sources:
        if batch and (size + source.size > _BATCH_BYTES or len(batch) == _BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += source.size
    if batch:
        yield batch


def _as_written(path: Path) -> RunData:
    """The file with its boots as lines of this version.

    :raises StoreError: it cannot be taken so, which is no problem of the file as yet.
    """
    data = read_run(path, parse=False)
    if data.header and data.header["version"] != RECORD_VERSION:
        raise StoreError("an older version")
    data.lines += map(_line, data.boots)  # a last line without its end, which is whole
    return data


def _parsed(path: Path) -> RunData:
    """The file with each line parsed and written again, as this version does.

    :raises StoreError: it cannot be read, or a line is broken.
    :raises ValueError: a time is none.
    """
    data = read_run(path)
    data.lines = list(map(_line, data.boots))
    return data


def _line(record: BootRecord) -> str:
    started = utc(record.started_at)
    return encode({**record.to_dict(), "started_at": f"{started}+00:00" if started else ""}).decode()


def _chunks(files: Iterable[RunData]) -> Iterator[tuple[list[str], list[str]]]:
    """Lines of boots, and of each the hardware that makes its cell a series."""
    texts: list[str] = []
    classes: list[str] = []
    size = 0
    for data in files:
        hardware = hardware_digest(data.header.get("hardware_class"))
        for text in data.lines:
            texts.append(text)
            classes.append(hardware)
            size += len(text)
            if size > _CHUNK_BYTES:
                yield texts, classes
                texts, classes, size = [], [], 0
    if texts:
        yield texts, classes


def _store(
    con: duckdb.DuckDBPyConnection, files: Sequence[tuple[Path, RunData]], exact: bool = False
) -> tuple[int, int]:
    """Add files in one transaction; returns the runs and boots that are new.

    A file without a header is one whose writer has not finished the first line.
    """
    files = [(path, data) for path, data in files if data.header]
    if not files:
        return 0, 0
    with transaction(con):
        runs = _runs(con, files)
        boots = sum(lines.add(con, *chunk, exact) for chunk in _chunks(data for _, data in files))
        verdicts = {key: row for _, data in files for key, row in verdict_rows(data).items()}
        insert(con, "verdict", list(verdicts.values()), conflict="OR REPLACE")
        read = [{"file": str(path), "bytes": data.size, "closed": data.closed} for path, data in files]
        insert(con, "ingested", read, conflict="OR REPLACE")
    return runs, boots


def _runs(con: duckdb.DuckDBPyConnection, files: Sequence[tuple[Path, RunData]]) -> int:
    """Every worker of a run has a file with the same run in it; the worst exit status is the run's."""
    rows: dict[str, Row] = {}
    worst: dict[str, int] = {}
    for path, data in files:
        run_id, status = data.header["run_id"], data.end.get("exit_status")
        rows.setdefault(run_id, run_row(data.header, str(path)))
        if status is not None:
            worst[run_id] = max(worst.get(run_id, status), status)
    added = insert(con, "run", list(rows.values()), conflict="OR IGNORE")
    con.execute(
        "UPDATE run SET exit_status = greatest(coalesce(run.exit_status, found.status), found.status) "
        "FROM (SELECT unnest(?::VARCHAR[]) AS run_id, unnest(?::INTEGER[]) AS status) found "
        "WHERE run.run_id = found.run_id AND (run.exit_status IS NULL OR run.exit_status < found.status)",
        [list(worst), list(worst.values())],
    ).fetchall()
    return added


def insert(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row], conflict: str = "") -> int:
    """Insert *rows*, whose keys must include every column; returns how many were inserted.

    They travel as one JSON text: a statement for each row would take half a millisecond.
    """
    if not rows:
        return 0
    columns = lines.table_columns(con, [table])[table]
    picked = [{name: row[name] for name in columns} for row in rows]
    shape = encode(columns).decode()
    names = ", ".join(f'"{name}"' for name in columns)
    sql = (
        f"INSERT {conflict} INTO {table} ({names}) "
        "SELECT unnest(from_json_strict(?::JSON, ?), max_depth := 2) RETURNING 1"
    )
    text = encode({"rows": picked}).decode()[len('{"rows":') : -len("}\n")]
    return len(con.execute(sql, [text, f"[{shape.strip()}]"]).fetchall())
