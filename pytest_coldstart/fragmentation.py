"""The ratios of GPU memory that a boot's record of it gives. Defined in docs/definitions.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pytest_coldstart.memory import GPU, Allocator, KVCache, Memory
from pytest_coldstart.record import Value

NO_GPU = "no GPU is visible to this boot"
#: What fragmentation is the worst of.
PARTS = ("allocator_fragmentation", "kv_fragmentation")

#: Bytes of a CUDA context where this machine's was not measured: more than any of today's.
_CONTEXT = 1 << 30

Ratio = Callable[[Allocator], float | None]


def fragmentation(memory: Memory) -> Value:
    """The worst part, 0 to 1, once every part that is possible was measured."""
    if "fragmentation" in memory.impossible:
        return Value(None, None, memory.impossible["fragmentation"])
    possible = [name for name in PARTS if name not in memory.impossible]
    values = {name: _PART[name](memory) for name in possible or PARTS}
    lacking = [f"{name}: {value.reason}" for name, value in values.items() if value.value is None]
    if lacking:
        return Value(None, None, "; ".join(lacking))
    name, worst = max(values.items(), key=lambda item: item[1].value or 0.0)
    return Value(worst.value, f"{worst.source} ({name})")


def allocator_fragmentation(memory: Memory) -> Value:
    """1 - active.peak / reserved.peak over the burst, the worst rank's, 0 to 1."""
    if "allocator_fragmentation" in memory.impossible:
        return Value(None, None, memory.impossible["allocator_fragmentation"])
    if memory.gpus and (reason := _no_burst(memory) or _not_reset(memory)):
        return Value(None, None, reason)
    return _worst(memory, "after", lambda rank: _unused(rank.active_peak, rank.reserved_peak))


def kv_fragmentation(memory: Memory) -> Value:
    """1 - tokens / (blocks in use x block size) while the burst was held, 0 to 1.

    More tokens than the blocks have room for are numbers of two instants; where prompts share a prefix, they may also be
    tokens that are counted once for each, and the ratio is 0.
    """
    if "kv_fragmentation" in memory.impossible:
        return Value(None, None, memory.impossible["kv_fragmentation"])
    if reason := _no_burst(memory):
        return Value(None, None, reason)
    cache = memory.kv_at("held")
    if cache is None:
        return Value(None, None, _because(memory, "the KV cache was not read while the burst was held", "KV cache"))
    source = ", ".join(dict.fromkeys(word for word in (cache.source, cache.counted_by) if word)) or "metrics"
    if cache.block_size == 1:
        return Value(0.0, f"{source}; 0 by construction, since a block holds one token")
    if cache.tokens is None or cache.used_blocks is None or cache.block_size is None:
        lacking = [name for name in ("tokens", "used_blocks", "block_size") if getattr(cache, name) is None]
        what = f"the engine does not tell of its KV cache: {', '.join(lacking)}"
        return Value(None, None, _because(memory, what, "KV cache at held"))
    room = cache.used_blocks * cache.block_size
    if not room:
        return Value(None, None, "no block of the KV cache was in use while the burst was held")
    if cache.tokens > room and not memory.burst.shared_tokens:
        return Value(
            None, None, f"{cache.tokens} tokens in blocks with room for {room}: the numbers are not of one instant"
        )
    return _share_of(max(0.0, 1 - cache.tokens / room), source)


def kv_slack(point: str) -> Callable[[Memory], Value]:
    """1 - tokens / (blocks in use x block size) of the reading at a point, at least 0, whatever became of the burst.

    A diagnostic, as :func:`allocator_slack` is: what is judged is :func:`kv_fragmentation`.
    """

    def derive(memory: Memory) -> Value:
        if "kv_fragmentation" in memory.impossible:
            return Value(None, None, memory.impossible["kv_fragmentation"])
        cache = memory.kv_at(point)
        if cache is None:
            return Value(None, None, _because(memory, f"the KV cache was not read at the point {point!r}", "KV cache"))
        if cache.tokens is None or cache.used_blocks is None or cache.block_size is None:
            return Value(None, None, f"the engine does not tell tokens, blocks in use and block size at {point!r}")
        if not cache.used_blocks:
            return Value(None, None, f"no block of the KV cache was in use at the point {point!r}")
        share = max(0.0, 1 - cache.tokens / (cache.used_blocks * cache.block_size))
        return _share_of(share, cache.source or "metrics")

    return derive


_PART = {"allocator_fragmentation": allocator_fragmentation, "kv_fragmentation": kv_fragmentation}


def allocator_slack(point: str) -> Callable[[Memory], Value]:
    """(reserved - active) / reserved at a point, the worst rank's."""
    return lambda memory: _worst(memory, point, lambda rank: _unused(rank.active, rank.reserved))


def pool_slack(memory: Memory) -> Value:
    """(reserved - active) / (reserved - KV pool - weights) while held: what is left of the pools' dilution."""
    pool, weights = memory.sizes.get("kv_pool"), memory.sizes.get("weights")
    if memory.gpus and (pool is None or weights is None):
        lacking = " and ".join(name for name, size in (("KV pool", pool), ("weights", weights)) if size is None)
        return Value(None, None, f"the engine does not tell the size of its {lacking}")
    fixed = (pool or 0) + (weights or 0)
    if any(rank.reserved is not None and rank.reserved <= fixed for rank in memory.at("held")):
        return Value(None, None, "by the engine, KV pool and weights are as large as all that its allocator reserved")

    def ratio(rank: Allocator) -> float | None:
        if rank.reserved is None or rank.active is None:
            return None
        return min(1.0, (rank.reserved - rank.active) / (rank.reserved - fixed))  # sizes are rounded in a log

    return _worst(memory, "held", ratio)


def inactive_split(memory: Memory) -> Value:
    """Bytes of inactive split blocks over reserved bytes after the burst, the worst rank's."""
    ranks = () if "allocator_fragmentation" in memory.impossible else memory.at("after")
    if any(rank.expandable for rank in ranks):
        return Value(None, None, "expandable segments never count as inactive splits")
    if any(rank.expandable is None for rank in ranks):
        return Value(None, None, "it is not known whether segments are expandable, which never count")
    return _worst(memory, "after", lambda rank: _share(rank.inactive_split, rank.reserved))


def requested_waste(memory: Memory) -> Value:
    """(allocated - requested) / allocated after the burst, the worst rank's: what rounding up costs."""
    return _worst(memory, "after", lambda rank: _unused(rank.requested, rank.allocated))


def stranded(memory: Memory) -> Value:
    """Bytes of a device that its processes use beyond their context and torch's pools, over its total; the worst device's."""
    if not memory.gpus:
        return Value(None, None, NO_GPU)
    if "allocator_fragmentation" in memory.impossible:
        return Value(None, None, memory.impossible["allocator_fragmentation"])  # its pools are not torch's
    shares = []
    for gpu in memory.gpus:
        if not gpu.total_bytes or not gpu.process_bytes:
            return Value(None, None, f"NVML does not tell what each process uses of GPU {gpu.index}")
        beyond = 0
        for pid, used in gpu.process_bytes.items():
            context = gpu.context_bytes.get(pid)
            if context is None:
                return Value(None, None, f"the size of process {pid}'s context on GPU {gpu.index} is not known")
            reserved = _reserved(memory, int(pid), gpu)
            if reserved is None and used > context:
                return Value(None, None, f"process {pid} on GPU {gpu.index} gave no statistics of its allocator")
            beyond += used - context - (reserved or 0)
        shares.append(max(0, beyond) / gpu.total_bytes)
    return _share_of(max(shares), "nvml, probe")


def kv_capacity(memory: Memory) -> Value:
    """Tokens that the KV cache can hold, by the last reading that tells."""
    for cache in _readings(memory):
        if cache.capacity_tokens is not None:
            return Value(float(cache.capacity_tokens), cache.source or "metrics")
        if cache.total_blocks is not None and cache.block_size is not None:
            return Value(float(cache.total_blocks * cache.block_size), cache.source or "metrics")
    return Value(None, None, _because(memory, "the engine does not tell how much its KV cache can hold", "KV cache"))


def prefix_hit_rate(memory: Memory) -> Value:
    """Tokens found in the prefix cache over tokens looked up from the engine's start until it was ready.

    The burst shares nothing on purpose, and would only dilute it.
    """
    for cache in filter(None, (memory.kv_at("ready"), *_readings(memory))):
        if cache.hits is not None and cache.queries is not None:
            if not cache.queries:
                return Value(None, None, "nothing was looked up in the prefix cache")
            return _share_of(cache.hits / cache.queries, cache.source or "metrics")
    return Value(None, None, _because(memory, "the engine does not tell of a prefix cache", "KV cache"))


def size(name: str, what: str) -> Callable[[Memory], Value]:
    """Bytes of one part, by what the engine itself says."""

    def derive(memory: Memory) -> Value:
        if name not in memory.sizes:
            return Value(None, None, f"the engine does not tell the size of its {what}" if memory.gpus else NO_GPU)
        return Value(float(memory.sizes[name]), "log")

    return derive


def graph_memory(memory: Memory) -> Value:
    """Bytes of CUDA graphs, of one rank: by the engine, else the largest sum of a rank's private pools."""
    if "graphs" in memory.sizes:
        return Value(float(memory.sizes["graphs"]), "log")
    if not memory.gpus:
        return Value(None, None, NO_GPU)
    pools = [rank.graph_pools for rank in memory.at("after") or memory.at("ready")]
    known = [pool for pool in pools if pool is not None]
    if not known or len(known) < len(pools):
        return Value(None, None, "neither the engine nor every rank's allocator tells the size of CUDA graphs")
    return Value(float(max(known)), "probe")


def over_devices(get: Callable[[GPU], int | None], what: str) -> Callable[[Memory], Value]:
    """A sum of bytes over the boot's devices, each of which has to tell."""

    def derive(memory: Memory) -> Value:
        if not memory.gpus:
            return Value(None, None, NO_GPU)
        values = [(gpu, get(gpu)) for gpu in memory.gpus]
        silent = [gpu for gpu, value in values if value is None]
        if silent:
            why = "; ".join([f"its state is {silent[0].state}"] * (silent[0].state != "ok") + list(silent[0].missing))
            return Value(None, None, f"{what} GPU {silent[0].index} is not known" + (f": {why}" if why else ""))
        return Value(float(sum(value or 0 for _, value in values)), "nvml")

    return derive


def leaked(memory: Memory) -> Value:
    """Bytes that stayed in use after the stop beyond what was before the start, over the boot's devices."""
    others = [(gpu.index, process) for gpu in memory.gpus for process in gpu.foreign]
    if others:
        index, process = others[0]
        return Value(
            None,
            None,
            f"pid {process.pid} ({process.name}) is on GPU {index} too, and what it takes cannot be told from a leak; "
            "--coldstart-foreign-gpu=allow leaves the bound out",
        )
    return over_devices(lambda gpu: gpu.leaked_bytes, "what the boot left in use on")(memory)


# -- what they have in common


def _worst(memory: Memory, point: str, ratio: Ratio) -> Value:
    """The largest ratio over all ranks at a point; every rank that was ever read has to have one."""
    if not memory.gpus:
        return Value(None, None, NO_GPU)
    if "allocator_fragmentation" in memory.impossible:
        return Value(None, None, memory.impossible["allocator_fragmentation"])  # what torch's says is not of the engine
    ranks = memory.at(point)
    if not ranks:
        return Value(None, None, _because(memory, f"no allocator was read at the point {point!r}", "allocator"))
    lost = {(rank.pid, rank.device) for rank in memory.allocators} - {(rank.pid, rank.device) for rank in ranks}
    if lost:
        pid, device = min(lost)
        return Value(
            None, None, f"the allocator of process {pid}, device {device}, was not read at the point {point!r}"
        )
    silent = _silent(memory, {rank.pid for rank in ranks})
    if silent:
        return Value(None, None, f"process {silent[0]} uses a GPU and gave no statistics of its allocator")
    values = []
    for rank in ranks:
        value = ratio(rank)
        if value is None:
            return Value(None, None, f"the allocator of process {rank.pid} does not tell what it takes at {point!r}")
        if not 0 <= value <= 1:
            return _share_of(value, "probe")
        values.append(value)
    return Value(max(values), "probe")


def _share_of(value: float, source: str) -> Value:
    """*value*, where it can be a share at all."""
    if 0 <= value <= 1:
        return Value(value, source)
    return Value(None, None, f"{value:.3g} is no share: the numbers that it is made of ({source}) do not fit together")


def _silent(memory: Memory, known: set[int]) -> list[int]:
    """Processes that use more of a device than a bare context, and are not among the *known* ones."""
    return sorted(
        int(pid)
        for gpu in memory.gpus
        for pid, used in gpu.process_bytes.items()
        if used > gpu.context_bytes.get(pid, _CONTEXT) * 2 and int(pid) not in known
    )


def _not_reset(memory: Memory) -> str:
    """Why peaks are not those of the burst: a rank's were not reset at ready, or not before the burst began."""
    begin = memory.burst.begin
    ready = {(rank.pid, rank.device): rank for rank in memory.at("ready")}
    for rank in memory.at("after"):
        found = ready.get((rank.pid, rank.device))
        if found is None or (begin is not None and found.at is not None and found.at > begin):
            return f"the peaks of process {rank.pid}'s allocator were not reset before the burst"
    return ""


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def _unused(used: int | None, whole: int | None) -> float | None:
    return None if used is None or not whole else 1 - used / whole


def _no_burst(memory: Memory) -> str:
    """Why there was no burst that a ratio could be taken over; empty where there was one."""
    burst = memory.burst
    if not burst.requests:
        return _because(memory, "no burst of requests was run", "burst")
    if burst.failed:
        return f"{len(burst.failed)} of the burst's {burst.requests} requests failed: {burst.failed[0]}"
    if not burst.held:
        told = (why for why in memory.missing if "never held whole" in why)
        return next(told, "not all requests of the burst ran at once, so none was held")
    return ""


def _because(memory: Memory, what: str, about: str) -> str:
    """*what*, and the first sentence on it that whoever read the memory left."""
    return ": ".join((what, *[why for why in memory.missing if about in why][:1]))


def _readings(memory: Memory) -> Iterable[KVCache]:
    """The last one first."""
    return reversed(memory.kv)


def _reserved(memory: Memory, pid: int, gpu: GPU) -> int | None:
    """The most that a process's torch reserved on a device. It counts the devices that it sees from 0, in this order."""
    devices = sorted({rank.device for rank in memory.allocators if rank.pid == pid})
    places = [item.uuid for item in memory.gpus if str(pid) in item.process_bytes]
    if len(devices) != len(places):
        return None
    device = devices[places.index(gpu.uuid)]
    ranks = [rank for rank in memory.allocators if (rank.pid, rank.device) == (pid, device)]
    return max((max(rank.reserved or 0, rank.reserved_peak or 0) for rank in ranks), default=None)
