"""The memory of a demo boot: GPU samples, the allocator and the KV cache at each point, the burst, the load."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache

from pytest_coldstart.burst import BurstSpec
from pytest_coldstart.demo.cells import DemoCell
from pytest_coldstart.demo.history import NO_BLOCKS, Host
from pytest_coldstart.load import load_of
from pytest_coldstart.memory import GPU, POINTS, Allocator, Burst, KVCache, Memory, Series
from pytest_coldstart.record import Phase

#: Process id of the engine's process that has the GPU.
PID = 4188
_IDLE, _CONTEXT = 580_000_000, 520_000_000
_SAMPLES = 24
#: What the disk gives, and a copy to the device, bytes a second.
DISK, COPY = 3.1e9, 5.4e10
_SPEC = BurstSpec()
#: Bytes of keys and values of a token.
_TOKEN = 131_072


@lru_cache(maxsize=1)
def _lengths() -> tuple[int, ...]:
    return _SPEC.lengths(None)


def memory(
    item: DemoCell, host: Host, phases: Sequence[Phase], warmed: float, day: float, order: random.Random
) -> Memory:
    """What a boot that went well knows; *warmed* is when its timed requests were answered."""
    engine = item.engine
    if not engine.used:
        load = load_of(phases, engine.weights, (_read_speed(item), ""), None, None, None, item.tier)
        return Memory(load=load, impossible=dict(engine.impossible))
    share = float(item.options.get("gpu_memory_utilization", engine.used))
    used = int(host.total * share)
    pool = max(0, used - engine.weights - 5_000_000_000)
    gpu = _gpu(host, used, phases, warmed, order)
    gen, width = (None, None) if item.tier == "wake" else (5, 16)
    return Memory(
        (gpu,),
        () if "allocator_fragmentation" in _impossible(item) else _allocators(item, used, warmed, order),
        _kv(item, pool, warmed, day),
        _burst(warmed),
        load_of(phases, engine.weights, (_read_speed(item), ""), (COPY, ""), gen, width, item.tier),
        {"weights": engine.weights, "kv_pool": pool, **({"graphs": 620_000_000} if _captures(item) else {})},
        _impossible(item),
        ("KV cache at held: its log has no line of blocks in use any more",) if _is_silent(item, day) else (),
    )


def _impossible(item: DemoCell) -> dict[str, str]:
    if item.tier == "wake":
        return {"allocator_fragmentation": "with sleep mode its allocator cannot be asked"}
    return dict(item.engine.impossible)


def _captures(item: DemoCell) -> bool:
    return not item.eager and any(step.phase == "graph_capture" for step in item.engine.steps)


def _is_silent(item: DemoCell, day: float) -> bool:
    """A new version of this engine does not tell of its KV cache any more."""
    return item.engine.name == "turbomind" and day >= NO_BLOCKS


def _read_speed(item: DemoCell) -> float:
    return DISK if item.tier in ("pristine", "redeploy") else 1.15e10


def _gpu(host: Host, used: int, phases: Sequence[Phase], warmed: float, order: random.Random) -> GPU:
    return GPU(
        *(0, f"GPU-{host.name}", host.gpu, "ok", host.total, _IDLE, _IDLE, used, used + 900_000_000, _IDLE),
        process_bytes={str(PID): used - _IDLE},
        context_bytes={str(PID): _CONTEXT},
        persistence=True,
        pcie_gen=5,
        pcie_gen_max=5,
        pcie_width=16,
        pcie_width_max=16,
        series=_samples(used, phases, warmed + 4.0, order),
    )


def _samples(used: int, phases: Sequence[Phase], end: float, order: random.Random) -> Series:
    """Memory grows in the phases that take it, the device works in those that compute."""
    takes = [item for item in phases if item.name in ("load_weights", "kv_alloc", "graph_capture")]
    times = [round(end * (place + 1) / _SAMPLES, 3) for place in range(_SAMPLES)]
    total = sum(item.end - item.begin for item in takes) or 1.0
    columns: dict[str, list[float]] = {
        name: [] for name in ("memory_used", "gpu_utilisation", "memory_utilisation", "pcie_rx", "power", "temperature")
    }
    for when in times:
        now = next((item.name for item in phases if item.begin <= when < item.end), "first_request")
        done = sum(min(when, item.end) - item.begin for item in takes if when > item.begin) / total
        busy = {"graph_capture": 0.7, "first_request": 0.45, "warmup": 0.6, "compile": 0.2}.get(now, 0.0)
        columns["memory_used"].append(float(int(_IDLE + (used - _IDLE) * done)))
        columns["gpu_utilisation"].append(float(round(100 * busy * order.uniform(0.8, 1.0))))
        columns["memory_utilisation"].append(float(round(50 * busy)))
        columns["pcie_rx"].append(6.1e9 if now == "load_weights" else 2e6)
        columns["power"].append(round(118 + 480 * busy, 1))
        columns["temperature"].append(float(int(34 + 20 * busy)))
    return Series(tuple(times), {name: tuple(values) for name, values in columns.items()})


def _allocators(item: DemoCell, used: int, warmed: float, order: random.Random) -> tuple[Allocator, ...]:
    reserved = used - 3_200_000_000
    lost = 0.024 * order.lognormvariate(0, 0.12) * (0.7 if item.eager else 1.0)
    found = []
    for point, at, active in zip(POINTS, (0.1, 1.6, 3.4), (0.941, 0.968, 0.944), strict=True):
        held = int(reserved * active)
        found.append(
            Allocator(
                *(point, PID, 0, item.engine.processes[-1], held, int(reserved * (1 - lost)), reserved, reserved),
                *(held, int(reserved * (1 - lost)), int(reserved * 0.006), int(held * 0.996), 0, 412),
                *(610_000_000 if _captures(item) else 0, False, round(warmed + at, 3)),
            )
        )
    return tuple(found)


def _kv(item: DemoCell, pool: int, warmed: float, day: float) -> tuple[KVCache, ...]:
    if item.engine.name == "transformers":
        return ()
    size = int(item.options.get("block_size", item.engine.block_size))
    blocks = pool // (_TOKEN * size)
    held = sum(-(-length // size) for length in _lengths())
    found = []
    for point, at, running in zip(POINTS, (0.12, 1.62, 3.42), (0, len(_lengths()), 0), strict=True):
        found.append(
            KVCache(
                point,
                round(warmed + at, 3),
                block_size=size,
                total_blocks=blocks,
                used_blocks=None if _is_silent(item, day) else held * bool(running),
                capacity_tokens=blocks * size,
                tokens=sum(_lengths()) * bool(running),
                counted_by="client",
                running=running,
                waiting=0,
                hits=0.0,
                queries=21_000.0,
                source=f"{item.engine.name} metrics",
            )
        )
    return tuple(found)


def _burst(warmed: float) -> Burst:
    begin = round(warmed + 0.3, 3)
    return Burst(
        *(_SPEC.digest, _SPEC.requests, _SPEC.tokens, 0, _lengths(), begin, begin + 1.2, begin + 2.9, True),
    )


def reads(item: DemoCell) -> Mapping[str, int]:
    """Bytes that a boot fetches from storage: nothing where its weights are resident."""
    evicted = item.tier in ("pristine", "redeploy")
    return {"weights": item.engine.weights if evicted else 0, "libraries": 4_100_000_000 if evicted else 12_000_000}
