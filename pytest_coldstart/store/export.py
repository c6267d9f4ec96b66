"""Export: one wide row a boot, or a raw table, as Parquet, CSV or JSON."""

from __future__ import annotations

import shutil
import tempfile
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


def export(home: Home, format: str, out: TextIO | Path, table: str = "boots", wait: float = 20.0) -> None:
    """Write *table* to *out*. ``boots`` is one row a boot by start, each metric a column, in its unit.

    :raises StoreError: no such store, format or table; Parquet to a stream; or *out* cannot be written.
    """
    if format not in FORMATS:
        raise StoreError(f"unknown format {format!r}; valid formats: {', '.join(FORMATS)}")
    if format == "parquet" and not isinstance(out, Path):
        raise StoreError("parquet is not text: name a file to write it to")
    with reader(home.database, wait) as con:
        query = _query(con, table)
        if isinstance(out, Path):
            _copy(con, query, format, out)
            return
        with tempfile.TemporaryDirectory(prefix="coldstart-") as folder:
            part = Path(folder, "part")
            _copy(con, query, format, part)
            with part.open(encoding="utf-8", newline="") as text:
                shutil.copyfileobj(text, out)


def _query(con: duckdb.DuckDBPyConnection, table: str) -> str:
    if table == "boots":
        return wide_query()
    rows = con.execute(
        "SELECT table_name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
    ).fetchall()
    names = [name for (name,) in rows]
    if table not in names:
        raise StoreError(f"unknown table {table!r}; valid tables: boots, {', '.join(names)}")
    return f'SELECT * FROM "{table}" ORDER BY ALL'


def wide_query() -> str:
    """One row a boot: who it was, then every registered metric; NULL where it was not measured."""
    columns = ",\n  ".join((*_IDENTITY, *(f'm."{name}"' for name in METRICS)))
    pivot = ",\n  ".join(_column(metric) for metric in METRICS.values())
    return (
        f"WITH m AS (SELECT boot_id,\n  {pivot}\nFROM metric GROUP BY boot_id)\n"
        f"SELECT {columns}\nFROM boot b LEFT JOIN run r USING (run_id) LEFT JOIN m USING (boot_id)\n"
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
