"""The metrics of GPU memory, of the KV cache and of how fast the weights came."""

from __future__ import annotations

from collections.abc import Callable

from pytest_coldstart import fragmentation as of
from pytest_coldstart.memory import Load, Memory
from pytest_coldstart.metric import Metric
from pytest_coldstart.record import BootRecord, Value


def memory(derive: Callable[[Memory], Value]) -> Callable[[BootRecord], Value]:
    return lambda record: derive(record.memory)


def load(get: Callable[[Load, float], float | None], lacking: str) -> Callable[[BootRecord], Value]:
    """From the speed at which the weights came, bytes a second."""

    def derive(record: BootRecord) -> Value:
        item = record.memory.load
        value = None if item.speed is None else get(item, item.speed)
        if value is None:
            what = "the bytes of the weights or the time of their load" if item.speed is None else lacking
            return Value(None, None, ": ".join((f"{what} is not known", *item.missing[:1])))
        sources = sorted({phase.source for phase in record.phases if phase.name == "load_weights"})
        return Value(value, ", ".join(sources) or "probe")

    return derive


def over(speed: float, most: float | None) -> float | None:
    return speed / most if most else None


MEMORY_METRICS = (
    Metric(
        "fragmentation",
        "fraction",
        "The worst of allocator_fragmentation and kv_fragmentation over a burst of mixed-length requests. Unmeasured "
        "until each of the two that is possible for the engine is measured.",
        memory(of.fragmentation),
        source="probe",
    ),
    Metric(
        "allocator_fragmentation",
        "fraction",
        "1 - active.peak / reserved.peak of torch's CUDA caching allocator over the burst, of the worst rank; peaks "
        "are reset at the point ready, after the timed requests.",
        memory(of.allocator_fragmentation),
        source="probe",
        gpu=True,
    ),
    Metric(
        "kv_fragmentation",
        "fraction",
        "1 - tokens / (blocks in use x block size) of the KV cache while the burst is held, at least 0.",
        memory(of.kv_fragmentation),
        source="metrics",
    ),
    Metric(
        "allocator_slack_ready",
        "fraction",
        "(reserved - active) / reserved of the allocator at the point ready (after the timed requests), of the worst rank. It tells of idleness.",
        memory(of.allocator_slack("ready")),
        source="probe",
        gpu=True,
    ),
    Metric(
        "allocator_slack_held",
        "fraction",
        "The same while the burst is held.",
        memory(of.allocator_slack("held")),
        source="probe",
        gpu=True,
    ),
    Metric(
        "pool_slack_held",
        "fraction",
        "(reserved - active) / (reserved - KV pool - weights) while the burst is held, of the worst rank: a large KV "
        "pool makes every ratio over reserved look good.",
        memory(of.pool_slack),
        source="probe",
        gpu=True,
    ),
    Metric(
        "inactive_split",
        "fraction",
        "Inactive split blocks over reserved bytes after the burst, of the worst rank. Unmeasured with expandable "
        "segments, which never count.",
        memory(of.inactive_split),
        source="probe",
        gpu=True,
    ),
    Metric(
        "requested_waste",
        "fraction",
        "(allocated - requested) / allocated after the burst, of the worst rank: what rounding up costs.",
        memory(of.requested_waste),
        source="probe",
        gpu=True,
    ),
    Metric(
        "stranded",
        "fraction",
        "What the engine's processes use of a device at most, beyond a CUDA context and the most that torch reserved, "
        "over its total, of the worst device, at least 0.",
        memory(of.stranded),
        source="nvml",
        after_stop=True,
        gpu=True,
    ),
    Metric(
        "kv_capacity_tokens",
        "count",
        "Tokens that the KV cache can hold, by the engine.",
        memory(of.kv_capacity),
        source="metrics",
        better="higher",
    ),
    Metric(
        "prefix_cache_hit_rate",
        "fraction",
        "Tokens found in the prefix cache over tokens looked up there, from the engine's start to the point ready (else to the last reading).",
        memory(of.prefix_hit_rate),
        source="metrics",
        better="higher",
    ),
    Metric(
        "kv_pool_memory",
        "B",
        "Size of the KV cache's pool by the engine, of one rank.",
        memory(of.size("kv_pool", "KV pool")),
        source="log",
    ),
    Metric(
        "weight_memory",
        "B",
        "Size of the weights in memory by the engine, of one rank.",
        memory(of.size("weights", "weights")),
        source="log",
    ),
    Metric(
        "graph_memory",
        "B",
        "Size of the CUDA graphs by the engine, of one rank; else what private pools of the allocator reserve, of the "
        "largest rank.",
        memory(of.graph_memory),
        source="log",
        gpu=True,
    ),
    Metric(
        "gpu_memory_ready",
        "B",
        "Memory in use at the point ready (after the timed requests), over all devices of the boot.",
        memory(of.over_devices(lambda gpu: gpu.ready_bytes, "the memory in use at ready of")),
        source="nvml",
        gpu=True,
    ),
    Metric(
        "gpu_memory_peak",
        "B",
        "The sum of each device's largest memory in use.",
        memory(of.over_devices(lambda gpu: gpu.peak_bytes, "the peak memory of")),
        source="nvml",
        gpu=True,
    ),
    Metric(
        "leaked_gpu_memory",
        "B",
        "What stayed in use after the stop beyond what was before the start, over all devices of the boot.",
        memory(of.leaked),
        source="nvml",
        after_stop=True,
        gpu=True,
    ),
    Metric(
        "load_speed",
        "B/s",
        "Bytes of the weight files over the time of the phase load_weights.",
        load(lambda item, speed: speed, ""),
        source="probe",
        better="higher",
    ),
    Metric(
        "load_read_ratio",
        "fraction",
        "load_speed over a plain read of the same files in the state that the tier asks for, in the same run.",
        load(lambda item, speed: over(speed, item.read_speed), "the speed of a plain read of these files"),
        source="probe",
        after_stop=True,
        better="higher",
    ),
    Metric(
        "load_copy_ratio",
        "fraction",
        "load_speed over a copy from pinned host memory to the device, in the same run.",
        load(lambda item, speed: over(speed, item.copy_speed), "the speed of a copy to the device"),
        source="probe",
        after_stop=True,
        better="higher",
        gpu=True,
    ),
)
