"""Statistics of torch's CUDA caching allocator, read where torch is loaded and CUDA is initialised. Imports nothing of it."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing itself would have to be loaded
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

#: A point at which peaks are reset after the reading, and the points at which segments are looked at, which is dear.
RESETS, LOOKS = "ready", ("ready", "after")
#: Modules with which allocations call back into Python: that thread would wait for the interpreter's lock, which we
#: hold, while it holds the allocator's, which we want.
CALLBACKS = "vllm.device_allocator.cumem"
UNREAD = f"{CALLBACKS} is loaded, with which the allocator calls back into Python and cannot be read safely"

_SAMPLED = (
    ("active_bytes", "current"),
    ("active_bytes", "peak"),
    ("reserved_bytes", "current"),
    ("reserved_bytes", "peak"),
    ("inactive_split_bytes", "current"),
)
_ASKED = (
    ("allocated_bytes", "current"),
    ("allocated_bytes", "peak"),
    ("reserved_bytes", "current"),
    ("reserved_bytes", "peak"),
    ("active_bytes", "current"),
    ("active_bytes", "peak"),
    ("inactive_split_bytes", "current"),
    ("requested_bytes", "current"),
)


def barred() -> bool:
    """Whether the allocator must not be asked in this process."""
    return CALLBACKS in sys.modules


def sampled() -> Iterator[tuple[object, ...]]:
    """Of each device that has been used: its number and what is sampled."""
    for device, stats, _ in _devices():
        values = [_of(stats, name, key) for name, key in _SAMPLED]
        if values[1]:
            yield (device, *values)


def asked(point: str) -> Iterator[tuple[object, ...]]:
    """Of each device on which memory has been reserved: the fields of its line; "" for what this torch does not tell."""
    pools: dict[int, list[Any]] | None = None
    for device, stats, native in _devices():
        if not (_of(stats, "reserved_bytes", "allocated") or _of(stats, "reserved_bytes", "peak")):
            continue
        values = [_of(stats, name, key) for name, key in _ASKED]
        retries, segments = stats.get("num_alloc_retries", ""), _of(stats, "segment", "current")
        if point in LOOKS and pools is None:
            pools = _pools(native)
        graphs, expandable = (pools or {}).get(device, ("", ""))
        yield (device, *values, retries, segments, graphs, expandable)
        if point == RESETS:
            native._cuda_resetPeakMemoryStats(device)


def _devices() -> Iterator[tuple[int, dict[str, Any], Any]]:
    """Number, statistics, and torch's native part. A fork has its parent's statistics, and none of its own."""
    native: Any = getattr(sys.modules["torch"], "_C", None)
    forked = getattr(native, "_cuda_isInBadFork", None)
    if native is None or (forked is not None and forked()):
        return
    for device in range(native._cuda_getDeviceCount()):
        yield device, native._cuda_memoryStats(device), native


def _of(stats: dict[str, Any], name: str, key: str) -> Any:
    try:
        return stats[name]["all"][key]
    except (KeyError, TypeError):
        return ""


def _pools(native: Any) -> dict[int, list[Any]]:
    """Of each device: bytes reserved in private pools, which are CUDA graphs', and whether a segment is expandable (0, 1)."""
    try:
        try:
            snapshot = native._cuda_memorySnapshot(None)
        except TypeError:  # before torch 2.8 or so it took nothing
            snapshot = native._cuda_memorySnapshot()
        found: dict[int, list[Any]] = {}
        for segment in snapshot["segments"]:
            pool = found.setdefault(segment["device"], [0, 0])
            private = tuple(segment["segment_pool_id"]) != (0, 0)
            pool[0] += segment["total_size"] if private else 0
            pool[1] |= int(bool(segment["is_expandable"]))
        return found
    except Exception:
        return {}
