"""What a boot did with memory: plain data, written as JSON and read back the same.

All sizes are bytes, all offsets seconds from the boot's start, all shares 0 to 1. What was not measured is None, and
``missing`` says why. Definitions of the ratios made from this: :mod:`pytest_coldstart.fragmentation`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytest_coldstart.attribution import known

#: When memory is read: once the engine is warm and idle, while a burst of requests is held, after the burst.
POINTS = ("ready", "held", "after")


@dataclass(frozen=True)
class GPUProcess:
    """A process on a device. ``bytes`` is None where the driver does not tell."""

    pid: int
    name: str
    bytes: int | None = None


@dataclass(frozen=True)
class Series:
    """Samples over time: column -> one value a sample, None where it could not be read. ``times``: seconds from the start."""

    times: tuple[float, ...] = ()
    columns: dict[str, tuple[float | None, ...]] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Series:
        columns = {name: tuple(values) for name, values in data.get("columns", {}).items()}
        return cls(tuple(data.get("times", ())), columns)


@dataclass(frozen=True)
class GPU:
    """One device of a boot.

    ``state``: ok, mig (its instances share it), no_permission, vanished or unsupported. ``idle_bytes``: in use before
    anything of ours ran; ``before_bytes``: just before this start; ``after_bytes``: after the stop, once it had settled.
    ``foreign``: processes on it that are none of this boot's. ``process_bytes``: pid of the engine -> its largest use.
    ``context_bytes``: pid -> what a bare CUDA context takes on this device.
    """

    index: int
    uuid: str
    name: str
    state: str = "ok"
    total_bytes: int | None = None
    idle_bytes: int | None = None
    before_bytes: int | None = None
    ready_bytes: int | None = None
    peak_bytes: int | None = None
    after_bytes: int | None = None
    process_bytes: dict[str, int] = field(default_factory=dict)
    context_bytes: dict[str, int] = field(default_factory=dict)
    foreign: tuple[GPUProcess, ...] = ()
    persistence: bool | None = None
    #: Its PCIe link at its best during the load, and what device and slot could have.
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    throttle: tuple[str, ...] = ()
    #: Errors that were counted during the boot: name -> count.
    errors: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    series: Series = Series()

    @property
    def trained_down(self) -> bool:
        """Whether its link never came up to its full generation and width while it was busy."""
        pairs = ((self.pcie_gen, self.pcie_gen_max), (self.pcie_width, self.pcie_width_max))
        return any(now is not None and most is not None and now < most for now, most in pairs)

    @property
    def leaked_bytes(self) -> int | None:
        """What stayed in use after the stop beyond what was before the start, at least 0.

        None beside foreign processes: what they took or gave back cannot be told from a leak.
        """
        if self.before_bytes is None or self.after_bytes is None or self.foreign:
            return None
        return max(0, self.after_bytes - self.before_bytes)


@dataclass(frozen=True)
class Allocator:
    """Statistics of torch's CUDA caching allocator, of one device in one process (a rank), at one point.

    Peaks count from the point ``ready``, where they are reset. ``graph_pools``: reserved bytes in private pools of CUDA
    graphs. ``at``: when it was read. ``expandable``: whether it has expandable segments, which never count as inactive splits.
    """

    point: str
    pid: int
    device: int
    process: str = ""
    allocated: int | None = None
    allocated_peak: int | None = None
    reserved: int | None = None
    reserved_peak: int | None = None
    active: int | None = None
    active_peak: int | None = None
    inactive_split: int | None = None
    requested: int | None = None
    retries: int | None = None
    segments: int | None = None
    graph_pools: int | None = None
    expandable: bool | None = None
    at: float | None = None


@dataclass(frozen=True)
class KVCache:
    """The engine's KV cache in one reading, all numbers of the same instant.

    ``tokens``: tokens whose keys and values are held, by the engine's own counters, else by the client's (``counted_by``:
    metrics, log or client). ``capacity_tokens``: what the pool can hold. ``hits`` and ``queries``: prefix-cache tokens
    since the engine's start.
    """

    point: str
    at: float | None = None
    block_size: int | None = None
    total_blocks: int | None = None
    used_blocks: int | None = None
    capacity_tokens: int | None = None
    tokens: int | None = None
    counted_by: str = ""
    running: int | None = None
    waiting: int | None = None
    hits: float | None = None
    queries: float | None = None
    source: str = ""


@dataclass(frozen=True)
class Burst:
    """The requests of mixed lengths that were held at once.

    ``digest`` is over lengths, tokens, seed and shared prefix: the ratios depend on them. ``prompt_tokens``: as the
    engine counted them, in the order of the requests. ``held``: whether all of them ran at once when memory was read.
    """

    digest: str = ""
    requests: int = 0
    tokens: int = 0
    shared_tokens: int = 0
    prompt_tokens: tuple[int, ...] = ()
    begin: float | None = None
    held_at: float | None = None
    end: float | None = None
    held: bool = False
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Load:
    """How fast the weights came, beside what the machine can do.

    Speeds are bytes a second. ``seconds``: of the phase load_weights. ``read_speed``: a plain read of the same files in
    the state the tier asks for; ``copy_speed``: from pinned host memory to the device; ``link_speed``: what the PCIe
    link can carry at most. ``bound_by``: disk, page_cache (the plain read, where the tier keeps the weights resident),
    pcie (the copy or the link), loader (none of them), or empty where it cannot be told.
    """

    weight_bytes: int | None = None
    seconds: float | None = None
    read_speed: float | None = None
    copy_speed: float | None = None
    link_speed: float | None = None
    bound_by: str = ""
    missing: tuple[str, ...] = ()

    @property
    def speed(self) -> float | None:
        return self.weight_bytes / self.seconds if self.weight_bytes and self.seconds else None


@dataclass(frozen=True)
class Memory:
    """All of it. ``sizes``: what the engine itself says of parts: weights, kv_pool, graphs, activations -> bytes.

    ``impossible``: metrics that cannot exist for this engine on this device, with the reason.
    """

    gpus: tuple[GPU, ...] = ()
    allocators: tuple[Allocator, ...] = ()
    kv: tuple[KVCache, ...] = ()
    burst: Burst = Burst()
    load: Load = Load()
    sizes: dict[str, int] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)
    #: Why some of it is not known, one sentence each.
    missing: tuple[str, ...] = ()

    def at(self, point: str) -> tuple[Allocator, ...]:
        """The ranks' statistics at one point."""
        return tuple(item for item in self.allocators if item.point == point)

    def kv_at(self, point: str) -> KVCache | None:
        return next((item for item in self.kv if item.point == point), None)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Memory:
        """Read back what dataclasses.asdict wrote; keys of a later minor version are ignored."""
        data = {name: value for name, value in data.items() if name in cls.__dataclass_fields__}
        data["gpus"] = tuple(_gpu(item) for item in data.get("gpus", ()))
        data["allocators"] = tuple(known(Allocator, item) for item in data.get("allocators", ()))
        data["kv"] = tuple(known(KVCache, item) for item in data.get("kv", ()))
        burst = data.get("burst", {})
        tuples = {name: tuple(burst.get(name, ())) for name in ("prompt_tokens", "failed")}
        data["burst"] = known(Burst, {**burst, **tuples})
        load = data.get("load", {})
        data["load"] = known(Load, {**load, "missing": tuple(load.get("missing", ()))})
        data["missing"] = tuple(data.get("missing", ()))
        data["sizes"] = _dict_of(int, data.get("sizes", {}), "sizes")
        data["impossible"] = _dict_of(str, data.get("impossible", {}), "impossible")
        return cls(**data)


def _dict_of(kind: type, value: Any, name: str) -> dict[str, Any]:
    """:raises TypeError: *value* is no dict of words -> *kind*."""
    if not isinstance(value, dict) or not all(isinstance(item, kind) for item in value.values()):
        raise TypeError(f"{name} is no object with a value of kind {kind.__name__} for each name")
    return value


def _gpu(item: dict[str, Any]) -> GPU:
    return known(
        GPU,
        {
            **item,
            **{name: _dict_of(int, item.get(name, {}), name) for name in ("process_bytes", "context_bytes", "errors")},
            "foreign": tuple(known(GPUProcess, entry) for entry in item.get("foreign", ())),
            "throttle": tuple(item.get("throttle", ())),
            "missing": tuple(item.get("missing", ())),
            "series": Series.from_dict(item.get("series", {})),
        },
    )
