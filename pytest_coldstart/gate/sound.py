"""Whether what a run file holds is what we write: JSON that parses may still be anything, and files come from anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pytest_coldstart.record import BootRecord
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.runfile import RunData

#: What a comparison reads of a run's first line.
_HEADER: Mapping[str, Any] = {
    **dict.fromkeys(("run_id", "gpu", "cpu", "driver", "hardware_class", "git_commit"), str),
    "memory_bytes": float,
    "versions": dict[str, Any],
}
_CELL: Mapping[str, Any] = {"options": dict[str, Any], "env": dict[str, Any]}
_WORDS = {str: "a text", float: "a number", int: "a number", bool: "true or false", dict: "a table", tuple: "a list"}


def check(data: RunData, place: str) -> RunData:
    """*data*, read from *place*, where every value is of the kind that its field has; None is no value, and always may be.

    :raises StoreError: one is of another kind; the message names it.
    """
    try:
        for name, kind in _HEADER.items():
            _check(data.header.get(name), kind, f"the run's {name}")
        memory = data.header.get("memory_bytes")
        if memory is not None and not math.isfinite(memory):
            raise ValueError(f"the run's memory_bytes is {memory}, not a number")
        for boot in data.boots:
            where = f"boot {boot.boot_id}: "
            for item in fields(BootRecord):
                if item.default is MISSING and item.default_factory is MISSING and getattr(boot, item.name) is None:
                    raise ValueError(f"{where}it has no {item.name}")
            _check(boot, BootRecord, where)
            for name, kind in _CELL.items():
                _check(boot.cell.get(name), kind, f"{where}cell.{name}")
    except ValueError as error:
        raise StoreError(f"{place}: broken: {error}") from None
    return data


def _check(value: Any, hint: Any, name: str) -> None:
    """:raises ValueError: *value* is not what is annotated *hint*."""
    if value is None or hint is Any:
        return
    origin = get_origin(hint)
    inner = [item for item in get_args(hint) if item not in (NoneType, Ellipsis)]
    if origin in (UnionType, Union):
        if len(inner) == 1:
            _check(value, inner[0], name)
    elif is_dataclass(hint):
        begin = name if name.endswith(" ") else f"{name}."
        for field, kind in _hints(hint).items():  # type: ignore[arg-type]
            _check(getattr(value, field), kind, f"{begin}{field}")
    elif origin in (tuple, list, Sequence):
        _be(value, tuple, (tuple, list), name)
        for number, item in enumerate(value):
            _check(item, inner[0], f"{name}[{number}]")
    elif origin in (dict, Mapping):
        _be(value, dict, (Mapping,), name)
        for key, item in value.items():
            _check(item, inner[1], f"{name}.{key}")
    elif hint in (int, float):
        _be(value, hint, (int, float), name)
    elif hint in (str, bool):
        _be(value, hint, (hint,), name)


def _be(value: Any, kind: type, kinds: tuple[type, ...], name: str) -> None:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        text = repr(value)
        raise ValueError(f"{name} is {text if len(text) < 60 else text[:60] + '...'}, not {_WORDS[kind]}")


@lru_cache
def _hints(kind: Any) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind)}
