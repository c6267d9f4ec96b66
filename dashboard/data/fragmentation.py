"""What boots did with memory: of each series' newest run the record of its worst boot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import duckdb

from dashboard.data.newest import Boot, newest
from dashboard.data.query import rows
from pytest_coldstart import fragmentation as of
from pytest_coldstart.memory import Memory
from pytest_coldstart.record import Value
from pytest_coldstart.store import memory as store


@dataclass(frozen=True)
class Found:
    """The newest run of one series. ``memory``: of the boot ``boot_id``, whose fragmentation is the largest of those that did
    not fail; None where all failed, ``failure`` then says how. ``leaked``: the largest of all its boots. ``bounds``: on
    fragmentation, as they were judged in that run.
    """

    series: str
    boot_id: str
    memory: Memory | None
    leaked: Value
    boots: int
    failed: int
    failure: str = ""
    bounds: tuple[float, ...] = ()


# Samples are long and not wanted here.
_COLUMNS = {"gpu": "* REPLACE ([]::DOUBLE[] AS sample_times, MAP {}::MAP(VARCHAR, DOUBLE[]) AS samples)"}
_SOME = "boot_id BETWEEN $first AND $last AND boot_id IN (SELECT unnest($boots::VARCHAR[]))"

_BOUNDS = """
SELECT DISTINCT run_id, cell_digest, bound FROM verdict
WHERE metric = 'fragmentation' AND op = '<=' AND list_contains($runs, run_id) AND list_contains($digests, cell_digest)
"""


def memories(con: duckdb.DuckDBPyConnection, series: tuple[str, ...]) -> tuple[Found, ...]:
    """One of each of *series* that has a boot that counts, in their order."""
    boots = newest(con, series)
    if not boots:
        return ()
    read = _read(con, [boot.id for boot in boots])
    bounds: dict[tuple[str, str], list[float]] = defaultdict(list)
    given = {"runs": [boot.run_id for boot in boots], "digests": [boot.cell_digest for boot in boots]}
    for row in rows(con, _BOUNDS, given):
        bounds[row["run_id"], row["cell_digest"]].append(row["bound"])
    grouped: dict[str, list[Boot]] = defaultdict(list)
    for boot in boots:
        grouped[boot.series].append(boot)
    return tuple(
        _found(group, read, tuple(sorted(bounds[group[0].run_id, group[0].cell_digest])))
        for group in (grouped[name] for name in series if name in grouped)
    )


def _read(con: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> dict[str, Memory]:
    given = {"first": min(ids), "last": max(ids), "boots": list(ids)}
    parts: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for table in store.TABLES:
        parts[table] = defaultdict(list)
        asked = f"SELECT rowid AS place, {_COLUMNS.get(table, '*')} FROM {table} WHERE {_SOME}"
        for row in sorted(rows(con, asked, given), key=lambda row: int(row["place"])):
            parts[table][row["boot_id"]].append(row)
    asked = f"SELECT boot_id, memory_sizes, impossible, memory_missing FROM boot WHERE {_SOME}"
    return {row["boot_id"]: _memory(row, partial(_of_boot, parts, row["boot_id"])) for row in rows(con, asked, given)}


def derived(derive: Callable[[Memory], Value], memory: Memory) -> Value:
    """*derive* of a *memory* that another tool may have written: where its numbers are none, they are unmeasured."""
    try:
        return derive(memory)
    except (TypeError, ValueError, ArithmeticError) as error:
        return Value(None, None, f"the record of its memory cannot be read: {error}")


def _memory(row: dict[str, Any], found: Callable[[str], list[dict[str, Any]]]) -> Memory:
    try:
        return Memory.from_dict(store.read(row, found))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Memory(missing=(f"the record of its memory cannot be read: {error}",))


def _of_boot(parts: dict[str, dict[str, list[dict[str, Any]]]], boot_id: str, table: str) -> list[dict[str, Any]]:
    return parts[table].get(boot_id, [])


def _found(boots: Sequence[Boot], read: dict[str, Memory], bounds: tuple[float, ...]) -> Found:
    good = [boot for boot in boots if boot.failure is None]
    worst = max(good, key=lambda boot: _badness(read[boot.id]), default=None)
    leaks = [derived(of.leaked, read[boot.id]) for boot in boots]
    leaked = max(leaks, key=lambda value: -1.0 if value.value is None else value.value)
    failures = [boot.failure for boot in boots if boot.failure is not None]
    shown = worst or boots[-1]
    return Found(
        boots[0].series,
        shown.id,
        read[worst.id] if worst else None,
        leaked,
        len(boots),
        len(failures),
        failures[0] if failures else "",
        bounds,
    )


def _badness(memory: Memory) -> float:
    """The whole, or the worst part that was measured where another one was not."""
    values = [derived(one, memory) for one in (of.fragmentation, of.allocator_fragmentation, of.kv_fragmentation)]
    return max((value.value for value in values if value.value is not None), default=-1.0)
