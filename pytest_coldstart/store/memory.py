"""A boot's memory, read back from the rows of its tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_coldstart.memory import GPU, Allocator, Burst, KVCache, Load

Row = dict[str, Any]

#: Tables of which a boot has a row for each device, reading or rank, or one.
TABLES = ("gpu", "allocator", "kv_cache", "burst", "weight_load")

#: Fields whose columns have another name, since SQL reserves theirs.
_RENAMED = {"foreign": "foreign_processes", "at": "at_s", "begin": "begin_s", "end": "end_s"}
#: Columns that DuckDB hands out as text.
_JSON = ("process_bytes", "context_bytes", "foreign_processes", "throttle", "errors", "missing", "failed")


def read(boot: Mapping[str, Any], found: Callable[[str], Sequence[Row]]) -> Row:
    """The memory of a row of the table boot, as a record holds it; *found* gives the boot's rows of a table."""
    gpus = [_fields(GPU, row) for row in found("gpu")]
    return {
        "gpus": gpus,
        "allocators": [_fields(Allocator, row) for row in found("allocator")],
        "kv": [_fields(KVCache, row) for row in found("kv_cache")],
        "burst": next((_fields(Burst, row) for row in found("burst")), {}),
        "load": next((_fields(Load, row) for row in found("weight_load")), {}),
        "sizes": json.loads(boot["memory_sizes"] or "{}"),
        "impossible": json.loads(boot["impossible"] or "{}"),
        "missing": json.loads(boot["memory_missing"] or "[]"),
    }


def _fields(kind: type, row: Row) -> Row:
    """*row* by the names of *kind*'s fields."""
    values = {name: json.loads(row[name]) if name in _JSON else row[name] for name in row}
    if kind is GPU:
        values["series"] = {"times": row["sample_times"], "columns": row["samples"]}
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return {name: values[_RENAMED.get(name, name)] for name in names}
