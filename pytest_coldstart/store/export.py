"""Export: one wide row a boot, or a raw table, as Parquet, CSV or JSON."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import duckdb

from pytest_coldstart.metrics import METRICS, Metric
from pytest_coldstart.store.database import reader, said
from pytest_coldstart.store.errors import StoreError, why
from pytest_coldstart.store.home import Home

FORMATS = {"parquet": "FORMAT parquet", "csv": "FORMAT csv, HEADER", "json": "FORMAT json, ARRAY"}

_IDENTITY = (
    *("b.boot_id", "b.run_id", "b.series", "b.started_at", "b.engine", "b.model_name", "b.cell_id"),
    *("b.cell_digest", "b.nodeid", "b.tier", "b.role", "b.round", "b.outcome", "b.failure_kind", "b.failure_message"),
    *("b.load_average", "r.git_commit", "r.git_branch", "r.git_dirty", "r.hostname", "r.hardware_class"),
    *("r.cpu", "r.cores", "r.memory_bytes", "r.kernel", "r.gpu", "r.driver", "b.versions"),
)


def export(
    home: Home,
    format: str,
    out: TextIO | Path,
    table: str = "boots",
    wait: float = 20.0,
    run_ids: Sequence[str] | None = None,
) -> None:
    """Write *table* to *out*. ``boots`` is one row a boot by start, each metric a column, in its unit.

    *run_ids*: what belongs to these runs alone, of ``boots`` or of a table that has runs or boots in it.

    :raises StoreError: no such store, format or table; Parquet to a stream; or *out* cannot be written.
    """
    if format not in FORMATS:
        raise StoreError(f"unknown format {format!r}; valid formats: {', '.join(FORMATS)}")
    if format == "parquet" and not isinstance(out, Path):
        raise StoreError("parquet is not text: name a file to write it to")
    with reader(home.database, wait) as con:
        if isinstance(out, Path):
            write(con, format, out, table, run_ids)
            return
        query = _query(con, table, run_ids)
        with tempfile.TemporaryDirectory(prefix="coldstart-") as folder:
            part = Path(folder, "part")
            _copy(con, query, format, part)
            with part.open(encoding="utf-8", newline="") as text:
                shutil.copyfileobj(text, out)


def write(
    con: duckdb.DuckDBPyConnection, format: str, out: Path, table: str = "boots", run_ids: Sequence[str] | None = None
) -> None:
    """As :func:`export`, of an open store.

    :raises StoreError: no such table, or *out* cannot be written.
    """
    _copy(con, _query(con, table, run_ids), format, out)


def _query(con: duckdb.DuckDBPyConnection, table: str, run_ids: Sequence[str] | None) -> str:
    if table == "boots":
        return wide_query(run_ids)
    rows = con.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() "
        "UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
    ).fetchall()
    names = [name for (name,) in rows]
    if table not in names:
        raise StoreError(f"unknown table {table!r}; valid tables: boots, {', '.join(names)}")
    return f'SELECT * FROM "{table}"{_of_runs(con, table, run_ids)} ORDER BY ALL'


def _of_runs(con: duckdb.DuckDBPyConnection, table: str, run_ids: Sequence[str] | None) -> str:
    if run_ids is None:
        return ""
    columns = [column[0] for column in con.execute(f'SELECT * FROM "{table}" LIMIT 0').description or ()]
    if "run_id" in columns:
        return f" WHERE {_among(run_ids)}"
    if "boot_id" in columns:
        return f" WHERE boot_id IN (SELECT boot_id FROM boot WHERE {_among(run_ids)})"
    raise StoreError(f"the table {table!r} is of no run: it can be exported whole alone")


def _among(run_ids: Sequence[str]) -> str:
    """Not every DuckDB takes parameters in a COPY."""
    words = ", ".join("'" + run_id.replace("'", "''") + "'" for run_id in run_ids)
    return f"run_id IN ({words or 'NULL'})"


def wide_query(run_ids: Sequence[str] | None = None) -> str:
    """One row a boot, of *run_ids* or of all: who it was, then every registered metric; NULL where it was not measured."""
    columns = ",\n  ".join((*_IDENTITY, *(f'm."{name}"' for name in METRICS)))
    pivot = ",\n  ".join(_column(metric) for metric in METRICS.values())
    boots, metrics = "boot", "metric"
    if run_ids is not None:
        boots = f"(SELECT * FROM boot WHERE {_among(run_ids)})"
        # The bounds let DuckDB skip the metrics of all other times.
        ids = f"FROM boot WHERE {_among(run_ids)}"
        bounds = f"boot_id BETWEEN (SELECT min(boot_id) {ids}) AND (SELECT max(boot_id) {ids})"
        metrics = f"metric WHERE {bounds} AND boot_id IN (SELECT boot_id {ids})"
    return (
        f"WITH m AS (SELECT boot_id,\n  {pivot}\nFROM {metrics} GROUP BY boot_id)\n"
        f"SELECT {columns}\nFROM {boots} b LEFT JOIN run r USING (run_id) LEFT JOIN m USING (boot_id)\n"
        "ORDER BY b.started_at, b.boot_id"
    )


def _column(metric: Metric) -> str:
    return f"CAST(max(value) FILTER (name = '{metric.name}') AS {metric.sql_type}) AS \"{metric.name}\""


def _copy(con: duckdb.DuckDBPyConnection, query: str, format: str, path: Path) -> None:
    quoted = str(path).replace("'", "''")
    try:
        con.execute(f"COPY ({query}) TO '{quoted}' ({FORMATS[format]})").fetchall()
    except duckdb.Error as error:
        raise StoreError(f"could not write {path}: {said(error)}") from error
    except OSError as error:
        raise StoreError(f"could not write {path}: {why(error)}") from error
