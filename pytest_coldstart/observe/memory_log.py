"""What an engine's log says of the sizes of its memory's parts.

The logs write GB and MB and mean 2**30 and 2**20 bytes, as the engines' sources show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_coldstart.observe.log_patterns import load

#: Of a longer line the rest is not read, and where a line may name its process.
_MOST = 16 * 1024
_PREFIX = 300
_UNITS = {"G": 1 << 30, "M": 1 << 20, "K": 1 << 10}
#: Without a sign: a difference of free memory that went below zero is no size.
_BYTES = r"(?P<size>\d{1,9}(?:\.\d{1,6})?) ?(?P<unit>[GMK])i?B\b"


@dataclass(frozen=True)
class _Part:
    """How a line states the size called *name*.

    ``each``: of several matches in one process the last, the largest (max) or all together (sum). Parts of one name are
    alternatives: the first that matches is read.
    """

    name: str
    regex: re.Pattern[str]
    each: str = "last"


def _part(name: str, regex: str, each: str = "last") -> _Part:
    return _Part(name, re.compile(regex.replace("<bytes>", _BYTES)), each)


_PARTS: Mapping[str, tuple[_Part, ...]] = {
    "vllm": (
        _part("weights", r"Model loading took <bytes>"),
        _part("weights", r"Loading model weights took <bytes>"),
        _part("kv_pool", r"Available KV cache memory: <bytes>"),
        _part("kv_pool", r"reserved <bytes> memory for KV Cache"),
        _part("kv_pool", r" set \((?P<size>\d{1,9}(?:\.\d{1,6})?)/[\d.]{1,16}\) (?P<unit>G)iB for KV cache"),
        _part("graphs", r"Graph capturing finished in .{1,40}took <bytes>"),
        _part("kv_tokens", r"KV cache size: (?P<count>\d{1,3}(?:,\d{3}){1,4}|\d{1,15}) tokens"),
    ),
    "sglang": (
        _part("weights", r"Load weight end\b.{0,300}\bmem usage=<bytes>", "max"),
        # A pool of keys and one of values, or one for both; hybrid models have several.
        _part("kv_pool", r"\b(?:K|V|KV) size: <bytes>", "sum"),
        _part("graphs", r"(?i:cuda graph end)\b.{0,300}\bmem usage=<bytes>", "sum"),
        _part("kv_tokens", r"\bmax_total_num_tokens=(?P<count>\d{1,15})\b"),
        _part("kv_tokens", r"KV Cache is allocated\b.{0,100}#tokens: (?P<count>\d{1,15})\b"),
    ),
    "lmdeploy": (
        _part("kv_pool", r"Object cache budget: <bytes>"),
        # Before 0.15: blocks of a size. Whole MB, as the oldest versions print, are too coarse to multiply.
        _part("block", r"\[BlockManager\] block_size = (?P<size>\d{1,9}\.\d{1,6}) (?P<unit>M)B"),
        _part("blocks", r"\[BlockManager\] max_block_count = (?P<count>\d{1,12})"),
    ),
    "tensorrt-llm": (
        # A draft model has a line of its own, and is the smaller one.
        _part("weights", r"Use <bytes> for model weights", "max"),
        # Once to estimate, once to stay.
        _part("kv_pool", r"Allocated <bytes> for max tokens in paged KV cache"),
        _part("kv_tokens", r"for max tokens in paged KV cache \((?P<count>\d{1,15})\)"),
    ),
    "tgi": (
        _part("kv_tokens", r"KV-cache blocks: (?P<count>\d{1,9}), size: (?P<times>\d{1,6})\b"),
        _part("kv_tokens", r"Setting max batch total tokens to (?P<count>\d{1,15})\b"),
    ),
}


def read_sizes(lines: Iterable[str], family: str) -> dict[str, int]:
    """Sizes that the *lines* of an engine's log state: weights, kv_pool and graphs in bytes, kv_tokens in tokens.

    Of several processes, the one with the most: a size is one rank's. What the log does not say is left out; an engine
    whose log is not known says nothing. Never raises for what a log holds.
    """
    parts = _PARTS.get(family, ())
    form = load(family) if parts else None
    found: dict[_Part, dict[str, list[int]]] = {}
    for line in lines:
        text = line[:_MOST]
        for part in parts:
            for match in part.regex.finditer(text):
                owner = form.process.search(text[:_PREFIX]) if form and form.process else None
                found.setdefault(part, {}).setdefault(owner[0] if owner else "", []).append(_value(match))
    sizes: dict[str, int] = {}
    for part in parts:
        if part in found:
            sizes.setdefault(part.name, max(_together(values, part.each) for values in found[part].values()))
    if {"block", "blocks"} <= set(sizes):
        sizes.setdefault("kv_pool", sizes["block"] * sizes["blocks"])
    return {name: size for name, size in sizes.items() if name not in ("block", "blocks")}


def _value(match: re.Match[str]) -> int:
    groups = match.groupdict()
    if groups.get("size"):
        return round(float(groups["size"]) * _UNITS[groups["unit"]])
    return int(groups["count"].replace(",", "")) * int(groups.get("times") or 1)


def _together(values: list[int], each: str) -> int:
    return {"last": values[-1], "max": max(values), "sum": sum(values)}[each]
