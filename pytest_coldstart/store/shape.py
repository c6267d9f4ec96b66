"""Shape: the DuckDB type of what a data class writes as JSON, so that the database can read it by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_SCALARS = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN", Any: "JSON"}


def sql_type(hint: Any) -> str:
    """The type of a value that is annotated *hint*: a scalar, a data class, a list, a map, or one of them or None.

    :raises TypeError: no value of that kind is written.
    """
    if hint in _SCALARS:
        return _SCALARS[hint]
    if is_dataclass(hint):
        inside = ", ".join(f'"{name}" {kind}' for name, kind in columns(hint).items())
        return f"STRUCT({inside})"
    origin, inner = get_origin(hint), [item for item in get_args(hint) if item not in (NoneType, Ellipsis)]
    if origin in (UnionType, Union) and len(inner) == 1:
        return sql_type(inner[0])
    if origin in (tuple, list, Sequence) and len(inner) == 1:
        return f"{sql_type(inner[0])}[]"
    if origin is dict and inner[0] is str:
        return "JSON" if inner[1] is Any else f"MAP(VARCHAR, {sql_type(inner[1])})"
    raise TypeError(f"no SQL type for {hint!r}")


def columns(kind: Any) -> dict[str, str]:
    """The type of each field of a data class, in order."""
    hints = get_type_hints(kind)
    return {item.name: sql_type(hints[item.name]) for item in fields(kind)}


def required(kind: Any) -> tuple[str, ...]:
    """The fields of a data class that are never None."""
    hints = get_type_hints(kind)
    return tuple(item.name for item in fields(kind) if NoneType not in get_args(hints[item.name]))
