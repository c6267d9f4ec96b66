"""Numbers of a boot's memory that cannot be: each becomes None, and a sentence says so, before a record is made of them.

They come from an engine, a driver or a log, which may say anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pytest_coldstart.memory import GPU, Allocator, Burst, GPUProcess, KVCache, Load, Memory

#: The largest whole number that the store holds.
MOST = 2**63 - 1

_T = TypeVar("_T", GPU, GPUProcess, Allocator, KVCache, Burst, Load)


def is_whole(value: Any) -> bool:
    """Whether *value* is a whole number from 0 to :data:`MOST`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def plausible(memory: Memory) -> Memory:
    """*memory* without numbers that cannot be; what was dropped is in its ``missing``."""
    wrong: list[str] = []
    return replace(
        memory,
        gpus=tuple(_gpu(item, wrong) for item in memory.gpus),
        allocators=tuple(
            _numbers(item, f"allocator of process {item.pid} at {item.point}", wrong) for item in memory.allocators
        ),
        kv=tuple(_cache(item, wrong) for item in memory.kv),
        burst=_burst(memory.burst, wrong),
        load=_numbers(memory.load, "load", wrong),
        sizes=_entries(memory.sizes, "sizes by the engine's log", wrong),
        missing=tuple(dict.fromkeys((*memory.missing, *wrong))),
    )


def _numbers(item: _T, owner: str, wrong: list[str]) -> _T:
    """*item* with None in place of every wrong number that may be None."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if value is None or field.type not in ("int | None", "float | None"):
            continue
        if not (is_whole(value) if field.type == "int | None" else _is_finite(value)):
            changes[field.name] = None
            wrong.append(_sentence(owner, field.name, value))
    return replace(item, **changes) if changes else item


def _gpu(item: GPU, wrong: list[str]) -> GPU:
    owner = f"GPU {item.index}"
    columns = {
        name: tuple(value if value is None or _is_finite(value) else None for value in column)
        for name, column in item.series.columns.items()
    }
    return replace(
        _numbers(item, owner, wrong),
        process_bytes=_entries(item.process_bytes, f"{owner}, bytes of processes", wrong),
        context_bytes=_entries(item.context_bytes, f"{owner}, bytes of contexts", wrong),
        errors=_entries(item.errors, f"{owner}, errors", wrong),
        foreign=tuple(_numbers(process, f"{owner}, process {process.pid}", wrong) for process in item.foreign),
        series=replace(item.series, columns=columns),
    )


def _cache(item: KVCache, wrong: list[str]) -> KVCache:
    owner = f"KV cache at {item.point}"
    item = _numbers(item, owner, wrong)
    if item.block_size == 0:
        item = replace(item, block_size=None)
        wrong.append(_sentence(owner, "block_size", 0))
    for name in ("hits", "queries"):
        if (getattr(item, name) or 0) < 0:
            wrong.append(_sentence(owner, name, getattr(item, name)))
            changes: dict[str, Any] = {name: None}
            item = replace(item, **changes)
    if item.used_blocks is not None and item.total_blocks is not None and item.used_blocks > item.total_blocks:
        wrong.append(f"{owner}: used_blocks={item.used_blocks} is more than total_blocks={item.total_blocks}")
        item = replace(item, used_blocks=None)
    return item


def _burst(item: Burst, wrong: list[str]) -> Burst:
    item = _numbers(item, "burst", wrong)
    bad = [count for count in item.prompt_tokens if not is_whole(count)]
    if bad:
        wrong.append(_sentence("burst", "prompt_tokens", bad[0]))
    return replace(item, prompt_tokens=()) if bad else item


def _entries(sizes: Mapping[str, int], owner: str, wrong: list[str]) -> dict[str, int]:
    wrong += [_sentence(owner, name, value) for name, value in sizes.items() if not is_whole(value)]
    return {name: value for name, value in sizes.items() if is_whole(value)}


def _is_finite(value: Any) -> bool:
    """An offset may lie before the start, so it may be below 0; no whole number is too large for this question."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MOST and value == value


def _sentence(owner: str, name: str, value: Any) -> str:
    # A whole number of thousands of digits cannot even be written out.
    too_long = isinstance(value, int) and abs(value) > 10**40
    return f"{owner}: {name}={'a number of many digits' if too_long else str(value)[:60]} cannot be"
