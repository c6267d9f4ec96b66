"""Asking the store: rows by name, and JSON columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

#: Boots that enter a statistic, as :attr:`pytest_coldstart.record.BootRecord.counted`; for a query whose boot is ``b``.
COUNTED = "b.role = 'measured' AND b.outcome <> 'error'"


def rows(con: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, object] | Sequence[object] = ()) -> list[Any]:
    """The rows of *sql*, each a dict by column. *values*: by name for ``$name``, in order for ``?``."""
    result = con.execute(sql, dict(values) if isinstance(values, Mapping) else list(values))
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def loaded(text: str | None) -> dict[str, Any]:
    """A JSON object of the store; empty where there is none, or something else."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def items(text: str | None) -> list[Any]:
    """A JSON list of the store; empty where there is none, or something else."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []
