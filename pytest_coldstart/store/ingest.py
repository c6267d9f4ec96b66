"""Ingest: run files, and other stores, into the database. Doing it again changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from pytest_coldstart.store.database import connect, migrate, said, transaction
from pytest_coldstart.store.errors import StoreError, why
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.merge import merge
from pytest_coldstart.store.rows import Row, boot_rows, run_row, verdict_rows
from pytest_coldstart.store.runfile import RunData, encode, read_run


@dataclass
class IngestReport:
    """What one ingest did. ``files``: read; ``skipped``: unchanged since they were read before."""

    files: int = 0
    boots_added: int = 0
    runs_added: int = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)


def ingest(home: Home, files: Iterable[Path] | None = None, wait: float = 20.0) -> IngestReport:
    """Read *files*, by default all run files of *home*, waiting up to *wait* seconds for the database.

    Each file is one transaction; one that cannot be read becomes a problem of the report and
    does not stop the others. A file that is still being written is read as far as it is complete.

    :raises StoreLocked: another process held the database all the time.
    :raises StoreError: the database cannot be written, or a later version of this tool made it.
    """
    paths = sorted(home.runs.glob("*.jsonl")) if files is None else list(files)
    report = IngestReport()
    if not paths:
        return report
    try:
        home.database.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the store cannot be written: {home.root}: {why(error)}") from error
    with connect(home.database, wait=wait) as con:
        try:
            migrate(con)
            for path in paths:
                _file(con, path.absolute(), wait, report)
        except duckdb.Error as error:
            raise StoreError(f"could not write the store {home.database}: {said(error)}") from error
    return report


def _file(con: duckdb.DuckDBPyConnection, path: Path, wait: float, report: IngestReport) -> None:
    try:
        if path.suffix == ".duckdb":
            runs, boots = merge(con, path, wait)
        elif _unchanged(con, path):
            report.skipped += 1
            return
        else:
            runs, boots = _run_file(con, path)
    except (StoreError, ValueError) as error:
        report.problems.append(str(error) if str(path) in str(error) else f"{path}: {error}")
    except (duckdb.FatalException, duckdb.InternalException):
        raise  # the database is gone for this process: the other files would fail too
    except duckdb.Error as error:
        report.problems.append(f"{path}: {said(error)}")
    else:
        report.files += 1
        report.runs_added += runs
        report.boots_added += boots


def _unchanged(con: duckdb.DuckDBPyConnection, path: Path) -> bool:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise StoreError(f"could not read {path}: {why(error)}") from error
    return bool(con.execute("SELECT 1 FROM ingested WHERE file = ? AND bytes = ?", [str(path), size]).fetchall())


def _run_file(con: duckdb.DuckDBPyConnection, path: Path) -> tuple[int, int]:
    """Runs and boots that *path* added."""
    data = read_run(path)
    if not data.header:
        return 0, 0  # its writer has not finished the first line
    with transaction(con):
        runs = _run(con, data, path)
        boots = _boots(con, data)
        verdicts = verdict_rows(data.header["run_id"], data.verdicts)
        insert(con, "verdict", verdicts, conflict="OR REPLACE")
        row = {"file": str(path), "bytes": data.size, "closed": data.closed}
        insert(con, "ingested", [row], conflict="OR REPLACE")
    return runs, boots


def _run(con: duckdb.DuckDBPyConnection, data: RunData, path: Path) -> int:
    """Every worker of a run has a file with the same run in it; the worst exit status is the run's."""
    added = insert(con, "run", [run_row(data.header, str(path))], conflict="OR IGNORE")
    status = data.end.get("exit_status")
    if status is not None:
        con.execute(
            "UPDATE run SET exit_status = greatest(coalesce(exit_status, ?), ?) WHERE run_id = ?",
            [status, status, data.header["run_id"]],
        ).fetchall()
    return added


def _boots(con: duckdb.DuckDBPyConnection, data: RunData) -> int:
    ids = [record.boot_id for record in data.boots]
    known = {
        row[0] for row in con.execute("SELECT boot_id FROM boot WHERE list_contains(?, boot_id)", [ids]).fetchall()
    }
    new = {record.boot_id: record for record in data.boots if record.boot_id not in known}
    for table, rows in boot_rows(new.values(), data.header.get("hardware_class")).items():
        insert(con, table, rows)
    return len(new)


def insert(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row], conflict: str = "") -> int:
    """Insert *rows*, whose keys must include every column; returns how many were inserted.

    They travel as one JSON text: a statement for each row would take half a millisecond.
    """
    if not rows:
        return 0
    columns = _columns(con, table)
    picked = [{name: row[name] for name in columns} for row in rows]
    shape = encode(columns).decode()
    names = ", ".join(f'"{name}"' for name in columns)
    sql = (
        f"INSERT {conflict} INTO {table} ({names}) "
        "SELECT unnest(from_json_strict(?::JSON, ?), max_depth := 2) RETURNING 1"
    )
    text = encode({"rows": picked}).decode()[len('{"rows":') : -len("}\n")]
    return len(con.execute(sql, [text, f"[{shape.strip()}]"]).fetchall())


def _columns(con: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    rows = con.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? "
        "AND database_name = current_database() ORDER BY column_index",
        [table],
    ).fetchall()
    return dict(rows)
