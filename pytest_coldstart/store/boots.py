"""Boots of the store: one found by its id or as the last one, and any number read back whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import duckdb

from pytest_coldstart.record import BootRecord, Cache, Phase, Request, Value
from pytest_coldstart.store import memory
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.rows import TABLES

#: Words that stand for a boot: the newest by its start, and what it must be besides.
LAST = {"last": "true", "last-failed": "outcome = 'failed'"}

#: How many boots a message about a wrong id lists.
_LISTED = 5

_NEWEST = "ORDER BY started_at DESC NULLS LAST, boot_id DESC"
#: Columns of the table boot that are keys of a record under the same name: plain ones, and JSON texts.
_PLAIN = (
    *("boot_id", "run_id", "nodeid", "cell_id", "cell_digest", "base_digest", "engine", "tier", "role", "round"),
    *("outcome", "poll_delay", "log_path", "log_bytes", "load_average", "harness_time"),
)
_JSON = ("cell", "versions", "command", "environment", "evidence", "model", "usage", "stop", "attribution", "hints")
_HOST = (
    *("hostname", "cpu", "cores", "memory_bytes", "kernel", "gpu", "driver", "hardware_class"),
    *("git_commit", "git_branch", "git_dirty"),
)

Row = dict[str, Any]


def find(con: duckdb.DuckDBPyConnection, word: str) -> str:
    """The id of the boot that *word* names: an id, the beginning of one id alone, ``last`` or ``last-failed``.

    :raises StoreError: no boot or several; the message lists up to five of them, the newest first.
    """
    if word in LAST:
        found = _rows(con, f"SELECT boot_id FROM boot WHERE {LAST[word]} {_NEWEST} LIMIT 1", [])
        if not found:
            raise StoreError(f"the store holds no {'failed boot' if word == 'last-failed' else 'boot'}")
        return str(found[0]["boot_id"])
    columns = "boot_id, started_at, cell_id, outcome"
    matching = "FROM boot WHERE starts_with(boot_id, ?)"
    found = _rows(con, f"SELECT {columns} {matching} ORDER BY boot_id LIMIT 2", [word]) if word else []
    if found and (len(found) == 1 or found[0]["boot_id"] == word):  # a whole id sorts before what begins with it
        return str(found[0]["boot_id"])
    if found:
        count = _rows(con, f"SELECT count(*) AS n {matching}", [word])[0]["n"]
        listed = _rows(con, f"SELECT {columns} {matching} {_NEWEST} LIMIT {_LISTED}", [word])
        raise StoreError(f"the ids of {count} boots begin with {word!r}{_list('the newest of them', listed)}")
    listed = _rows(con, f"SELECT {columns} FROM boot {_NEWEST} LIMIT {_LISTED}", [])
    raise StoreError(
        f"the store has no boot {word!r}{_list('the newest it has', listed) if listed else ': it is empty'}"
    )


def _list(title: str, rows: Iterable[Row]) -> str:
    lines = [f"  {row['boot_id']}  {_shown(row['started_at'])}  {row['cell_id']}  {row['outcome']}" for row in rows]
    return "\n".join([f"; {title}:", *lines])


def _shown(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at else "no start"


def load(con: duckdb.DuckDBPyConnection, boot_id: str) -> BootRecord:
    """The record of one boot as its run file holds it, from the tables alone.

    :raises StoreError: there is no such boot, or a row of it cannot be read.
    """
    found = load_all(con, [boot_id])
    if not found:
        raise StoreError(f"the store has no boot {boot_id!r}")
    return found[0]


def load_all(con: duckdb.DuckDBPyConnection, boot_ids: Sequence[str]) -> list[BootRecord]:
    """The records of several boots in the order of their starts, one query a table; ids that the store lacks are left out.

    :raises StoreError: a row of a boot cannot be read.
    """
    return records(fetched(con, boot_ids))


@dataclass(frozen=True)
class Fetched:
    """Rows of boots as the tables hold them. ``parts``: table -> boot -> its rows in the order in which they were written."""

    boots: Sequence[Row] = ()
    parts: Mapping[str, Mapping[str, list[Row]]] = field(default_factory=dict)


def fetched(con: duckdb.DuckDBPyConnection, boot_ids: Sequence[str], tables: Sequence[str] = TABLES) -> Fetched:
    """What :func:`records` are made of, so that the store can be let go before they are. What is in none of *tables* they lack."""
    if not boot_ids:
        return Fetched()
    # Ids begin with the time of the boot: the bounds spare a big table's other parts.
    some = "boot_id BETWEEN ? AND ? AND boot_id IN (SELECT unnest(?::VARCHAR[]))"
    values = [min(boot_ids), max(boot_ids), list(boot_ids)]
    boots = _rows(con, f"SELECT * FROM boot WHERE {some} ORDER BY started_at, boot_id", values)
    parts: dict[str, dict[str, list[Row]]] = {}
    for table in tables:
        parts[table] = {}
        # In the order in which they were written: the tables are only ever appended to. DuckDB would sort them at thrice the cost.
        rows = _rows(con, f"SELECT rowid AS place, * FROM {table} WHERE {some}", values)
        for row in sorted(rows, key=lambda row: int(row["place"])):
            parts[table].setdefault(row["boot_id"], []).append(row)
    return Fetched(boots, parts)


def records(found: Fetched) -> list[BootRecord]:
    """The records of boots that were fetched, in the order of their starts.

    :raises StoreError: a row of a boot cannot be read.
    """
    return [_record(row, found.parts) for row in found.boots]


def _record(row: Row, parts: Mapping[str, Mapping[str, list[Row]]]) -> BootRecord:
    def rows(table: str) -> list[Row]:
        return parts.get(table, {}).get(row["boot_id"], [])

    try:
        data = {name: row[name] for name in _PLAIN} | {name: json.loads(row[name] or "null") for name in _JSON}
        data["started_at"] = _moment(row["started_at"])
        data["failure"] = _failure(row)
        data |= _parts(row, rows)
        # Made here, since a hundred boots have ten thousand.
        metrics = {item["name"]: Value(item["value"], item["source"], item["reason"]) for item in rows("metric")}
        if data["harness_time"] is None:  # a store of before the column has it as a metric
            data["harness_time"] = metrics.get("harness_time", Value(None)).value
        known = {name: value for name, value in data.items() if value is not None or name in _NONE}
        return replace(BootRecord.from_dict(known), metrics=metrics)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"the boot {row['boot_id']} cannot be read: {type(error).__name__}: {error}") from error


#: Keys that a record may hold as None.
_NONE = ("poll_delay", "failure", "log_path", "load_average", "harness_time")


def host(con: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, Any]:
    """Where a run was made: what its row tells of host and commit; empty where there is no such run."""
    found = _rows(con, f"SELECT {', '.join(_HOST)} FROM run WHERE run_id = ?", [run_id])
    return found[0] if found else {}


def _parts(boot: Row, rows: Callable[[str], list[Row]]) -> dict[str, Any]:
    offsets = {row["name"]: row["seconds"] for row in rows("instant")}
    return {
        "instants": {name: value for name, value in offsets.items() if not name.startswith("endpoint:")},
        "endpoints": {
            name.removeprefix("endpoint:"): value for name, value in offsets.items() if name.startswith("endpoint:")
        },
        "phases": [_picked(Phase, row | {"begin": row["begin_s"], "end": row["end_s"]}) for row in rows("phase")],
        "requests": [_picked(Request, row) for row in rows("request")],
        "caches": [_cache(row) for row in rows("cache")],
        "memory": memory.read(boot, rows),
        "references": json.loads(boot["reference_workloads"] or "{}"),
    }


def _picked(kind: type, row: Row) -> Row:
    return {name: row[name] for name in kind.__dataclass_fields__}  # type: ignore[attr-defined]


def _cache(row: Row) -> Row:
    def state(when: str) -> Row | None:
        if row[f"files_{when}"] is None:
            return None
        return {name: row[f"{name}_{when}"] for name in ("files", "bytes", "digest")}

    new = {name: json.loads(row[name] or empty) for name, empty in (("new_names", "[]"), ("new_kinds", "{}"))}
    return {**_picked(Cache, row | new | {"before": state("before"), "after": state("after")})}


def _failure(row: Row) -> Row | None:
    if row["failure_kind"] is None:
        return None
    return {
        "kind": row["failure_kind"],
        "message": row["failure_message"] or "",
        "instant": row["failure_instant"] or "",
        "log_tail": row["log_tail"] or "",
        "diagnosis": json.loads(row["failure_diagnosis"] or "[]"),
    }


def _moment(at: datetime | None) -> str:
    """As records write it; the column holds UTC without a zone."""
    return at.replace(tzinfo=UTC).isoformat(timespec="milliseconds") if at else ""


def _rows(con: duckdb.DuckDBPyConnection, sql: str, values: list[Any]) -> list[Row]:
    cursor = con.execute(sql, values)
    names = [item[0] for item in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
