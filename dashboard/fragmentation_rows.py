"""Fragmentation of series: ratios at each point, and the settings that they depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.data.fragmentation import derived
from pytest_coldstart import fragmentation as of
from pytest_coldstart import units
from pytest_coldstart.memory import POINTS, Memory
from pytest_coldstart.record import Value
from pytest_coldstart.slo import DEFAULTS, parse_bound

#: Where ratios are taken: at the points, which are diagnostics, and over the burst, which is what SLOs judge.
BURST = "burst"
PLACES = (*POINTS, BURST)

#: Part -> the metric that is judged.
JUDGED = {"allocator": "allocator_fragmentation", "KV": "kv_fragmentation", "combined": "fragmentation"}
PARTS = tuple(JUDGED)

#: What the engines call the tokens in one block of the KV cache, and the share of memory that they may use.
BLOCK_OPTIONS = ("block_size", "page_size", "tokens_per_block", "cache_block_seq_len", "cb_block_size")
SHARE_OPTIONS = (
    *("gpu_memory_utilization", "mem_fraction_static", "cache_max_entry_count"),
    *("kv_cache_free_gpu_memory_fraction", "cuda_memory_fraction"),
)
UNKNOWN = "not set"

#: The bound of series on which none was judged.
BOUND = next(
    bound.value for bound in (parse_bound(text, "default", ()) for text in DEFAULTS) if bound.metric == "fragmentation"
)


@dataclass(frozen=True)
class Setting:
    """What the ratios depend on, as text; ``share``: with the option's name."""

    block: str
    share: str


def ratio(memory: Memory, place: str, part: str) -> Value:
    """One ratio, 0 to 1. ``combined`` is the worst part, once each that is possible was measured."""
    if place == BURST:
        judge = {"allocator": of.allocator_fragmentation, "KV": of.kv_fragmentation, "combined": of.fragmentation}
        return derived(judge[part], memory)
    if part == "allocator":
        return derived(of.allocator_slack(place), memory)
    if part == "KV":
        return derived(of.kv_slack(place), memory)
    return _worst(memory, place)


def _worst(memory: Memory, place: str) -> Value:
    possible = [part for part in ("allocator", "KV") if JUDGED[part] not in memory.impossible]
    if "fragmentation" in memory.impossible or not possible:
        return Value(None, None, memory.impossible.get("fragmentation", "neither part can exist here"))
    values = {part: ratio(memory, place, part) for part in possible}
    lacking = [f"{part}: {value.reason}" for part, value in values.items() if value.value is None]
    if lacking:
        return Value(None, None, "; ".join(lacking))
    return max(values.values(), key=lambda value: value.value or 0.0)


def ratios(memory: Memory) -> dict[tuple[str, str], Value]:
    """Every ratio, by place and part."""
    return {(place, part): ratio(memory, place, part) for place in PLACES for part in PARTS}


def said(value: Value, name: str, memory: Memory, unit: str = "fraction") -> str:
    """``1.9 %``, ``n/a: <why>`` where *name*, or what it is made of, cannot exist for the engine, or ``unmeasured: <why>``."""
    if value.value is not None:
        return units.show(value.value, unit)
    cannot = name in memory.impossible or value.reason in memory.impossible.values()
    word = "n/a" if cannot else "unmeasured"
    return f"{word}: {value.reason or 'no reason is stored'}"


def setting(memory: Memory | None, options: Mapping[str, object]) -> Setting:
    """By the engine's own reading of its blocks, else by the option of the cell."""
    read = [cache.block_size for cache in memory.kv if cache.block_size is not None] if memory else []
    block = next((options[name] for name in BLOCK_OPTIONS if options.get(name) is not None), None)
    share = next((f"{options[name]} ({name})" for name in SHARE_OPTIONS if options.get(name) is not None), UNKNOWN)
    return Setting(str(read[-1] if read else block if block is not None else UNKNOWN), share)


def retries(memory: Memory) -> str:
    """How often allocators had to give memory back and ask again, over all ranks, by their last readings."""
    last = {(rank.pid, rank.device): rank.retries for rank in memory.allocators}
    known = [number for number in last.values() if number is not None]
    return str(sum(known)) if known and len(known) == len(last) else "unmeasured"
