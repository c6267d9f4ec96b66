"""Lines: the boots of run files as rows of tables, made by the database itself.

A boot is some 15 KB of JSON and a hundred rows; made into objects and rows by Python, that takes many times as long.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import duckdb

from pytest_coldstart.memory import GPU, Allocator, Burst, KVCache, Load
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import BootRecord, Cache, Phase, Request, Value
from pytest_coldstart.store.rows import TABLES
from pytest_coldstart.store.shape import columns, required, sql_type

#: How records write a start: UTC, with its zone.
_MOMENT = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?\+00:00"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _read(text: str, kind: Any) -> str:
    """SQL that reads the JSON of the SQL expression *text* as *kind*; a key that is missing or doubled is an error."""
    return f"from_json_strict({text}, {_quoted(json.dumps(sql_type(kind)))})"


def _unless_default(field: str, kind: type) -> str:
    """A list of the one *field*, NULL where it holds nothing."""
    default = _read(_quoted(json.dumps(asdict(kind()))), kind)
    return f"CASE WHEN {field} IS DISTINCT FROM {default} THEN [{field}] END"


def _units() -> str:
    pairs = ", ".join(f"{_quoted(name)}: {_quoted(metric.unit)}" for name, metric in METRICS.items())
    return f"map_extract_value(MAP {{{pairs}}}, item.key)"


#: Each table of a boot: the list that its rows are made of, and the data class of its items (None: of no class).
_ITEMS: dict[str, tuple[str, type | None]] = {
    "instant": (
        "map_entries(instants) || list_transform(map_entries(endpoints), "
        "lambda e: {'key': 'endpoint:' || e.key, 'value': e.value})",
        None,
    ),
    "phase": ("phases", Phase),
    "metric": ("map_entries(metrics)", None),
    "request": ("requests", Request),
    "cache": ("caches", Cache),
    "gpu": ("memory.gpus", GPU),
    "allocator": ("memory.allocators", Allocator),
    "kv_cache": ("memory.kv", KVCache),
    "burst": (_unless_default("memory.burst", Burst), Burst),
    "weight_load": (_unless_default("memory.load", Load), Load),
}

#: Columns that are no field of the same name: table -> column -> what it holds.
_COLUMNS: dict[str, dict[str, str]] = {
    "boot": {
        "series": "cell_digest || '-' || hardware",
        "model_name": "coalesce(nullif(model->>'name', ''), cell->>'model')",
        "started_at": "CAST(nullif(replace(started_at, '+00:00', ''), '') AS TIMESTAMP)",
        "reference_workloads": 'to_json("references")',
        "memory_sizes": "to_json(memory.sizes)",
        "impossible": "to_json(memory.impossible)",
        "memory_missing": "to_json(memory.missing)",
        "failure_kind": "failure.kind",
        "failure_message": "failure.message",
        "failure_instant": "failure.instant",
        "failure_diagnosis": "to_json(failure.diagnosis)",
        "log_tail": "failure.log_tail",
    },
    "instant": {"name": "item.key", "seconds": "item.value"},
    "phase": {"begin_s": 'item."begin"', "end_s": 'item."end"'},
    "metric": {
        "name": "item.key",
        "unit": _units(),
        **{name: f'item.value."{name}"' for name in Value.__dataclass_fields__},
    },
    "request": {"ttft": "item.first_token - item.sent"},
    "cache": {
        f"{name}_{when}": f'item."{when}"."{name}"'
        for name in ("files", "bytes", "digest")
        for when in ("before", "after")
    },
    "gpu": {
        "foreign_processes": 'to_json(item."foreign")',
        "sample_times": "item.series.times",
        "samples": "item.series.columns",
    },
    "allocator": {"at_s": 'item."at"'},
    "kv_cache": {"at_s": 'item."at"'},
    "burst": {"begin_s": 'item."begin"', "end_s": 'item."end"'},
}


class OddLine(ValueError):
    """A line is not as this version writes it."""


def add(con: duckdb.DuckDBPyConnection, lines: Sequence[str], hardware: Sequence[str], exact: bool = True) -> int:
    """Insert the boots of *lines*, each as :meth:`BootRecord.to_dict` writes it, and return how many were new.

    *hardware*: of each, what makes a cell a series. Belongs in a transaction; of two lines of a boot the first holds.
    *exact*: whether a value that no record lacks may not be missing, which lines that Python has read need no more.

    :raises OddLine: one is not so, or lacks a value.
    :raises duckdb.Error: one is no JSON, lacks a key or holds a value of another kind.
    """
    con.execute(_incoming(), [list(lines), list(hardware)]).fetchall()
    ((odd,),) = con.execute(_odd()).fetchall() if exact else [(0,)]
    if odd:
        raise OddLine(f"{odd} boots are not as this version writes them")
    con.execute(
        "DELETE FROM incoming WHERE boot_id IN (SELECT boot_id FROM boot) "
        "OR rowid NOT IN (SELECT min(rowid) FROM incoming GROUP BY boot_id)"
    ).fetchall()
    for table, found in table_columns(con, ("boot", *TABLES)).items():
        con.execute(_insert(table, found)).fetchall()
    ((count,),) = con.execute("SELECT count(*) FROM incoming").fetchall()
    con.execute("DROP TABLE incoming").fetchall()
    return int(count)


@lru_cache(maxsize=1)
def _incoming() -> str:
    return (
        f"CREATE OR REPLACE TEMP TABLE incoming AS SELECT unnest({_read('line', BootRecord)}), hardware "
        "FROM (SELECT unnest(?::VARCHAR[]) AS line, unnest(?::VARCHAR[]) AS hardware)"
    )


@lru_cache(maxsize=1)
def _odd() -> str:
    """How many boots lack a value or start at a time that is written otherwise."""
    lacking = " OR ".join(f'"{name}" IS NULL' for name in required(BootRecord))
    moment = f"started_at = '' OR regexp_full_match(started_at, {_quoted(_MOMENT)})"
    return f"SELECT count(*) FROM incoming WHERE {lacking} OR NOT ({moment})"


def _insert(table: str, into: Mapping[str, str]) -> str:
    """What makes rows of a table, whose columns and types are *into*, from the boots that came in."""
    special = _COLUMNS.get(table, {})
    items, kind = _ITEMS.get(table, ("", BootRecord))
    known = columns(kind) if kind else {}
    names, values = [], []
    for name, wanted in into.items():
        if name in special:
            value = special[name]
        elif items and name in ("boot_id", "position"):
            value = name
        else:
            value = f'item."{name}"' if items else f'"{name}"'
            if wanted == "JSON" and known[name] != "JSON":
                value = f"to_json({value})"
        names.append(f'"{name}"')
        values.append(value)
    source = "incoming"
    if items:
        lists = f"(SELECT boot_id, {items} AS items FROM incoming)"
        source = f"(SELECT boot_id, unnest(items) AS item, generate_subscripts(items, 1) - 1 AS position FROM {lists})"
    return f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {source}"


def table_columns(con: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> dict[str, dict[str, str]]:
    """Of those *tables* that the store has, the columns with their types, in order."""
    rows = con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE list_contains(?, table_name) "
        "AND database_name = current_database() ORDER BY table_name, column_index",
        [list(tables)],
    ).fetchall()
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in rows:
        found.setdefault(table, {})[column] = kind
    return found
