"""Ratios of memory, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_coldstart import fragmentation
from pytest_coldstart.memory import GPU, Allocator, Burst, KVCache, Load, Memory
from pytest_coldstart.metrics import METRICS, measure
from pytest_coldstart.record import Phase, Request, Value
from tests.store.samples import record

GIB = 1 << 30


def rank(point: str, pid: int = 10, device: int = 0, **values: Any) -> Allocator:
    """A rank that reserved 100 GiB, of which 96 are active: 80 of KV pool, 14 of weights, 2 of other things."""
    known = {"reserved": 100 * GIB, "reserved_peak": 104 * GIB, "active": 96 * GIB, "active_peak": 103 * GIB}
    known |= {"allocated": 95 * GIB, "requested": 76 * GIB, "inactive_split": 3 * GIB, "graph_pools": 2 * GIB}
    return Allocator(point, pid, device, "", **{**known, "expandable": False, **values})


def ranks(pid: int = 10, **values: Any) -> tuple[Allocator, ...]:
    return tuple(rank(point, pid, **values) for point in ("ready", "held", "after"))


#: Five blocks of 16 tokens hold 70: lengths 30 and 40 take 2 and 3.
KV = KVCache("held", 1.0, 16, 1000, 5, 16000, 70, "metrics", 2, 0, 30.0, 120.0, "metrics")
BURST = Burst("abc", requests=2, tokens=70, prompt_tokens=(30, 40), held=True)
DEVICE = GPU(
    0,
    "GPU-1",
    "H200",
    total_bytes=140 * GIB,
    before_bytes=GIB,
    ready_bytes=106 * GIB,
    peak_bytes=110 * GIB,
    after_bytes=GIB,
    process_bytes={"10": 109 * GIB},
    context_bytes={"10": GIB},
)
MEMORY = Memory(
    gpus=(DEVICE,), allocators=ranks(), kv=(KV,), burst=BURST, sizes={"kv_pool": 80 * GIB, "weights": 14 * GIB}
)


def found(memory: Memory, name: str) -> Value:
    return measure(record("b", memory=memory, instants={"start": 0.0, "stopped": 9.0}))[name]


def reason(memory: Memory, name: str) -> str:
    value = found(memory, name)
    assert value.value is None
    assert value.reason
    return value.reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allocator_fragmentation", 1 / 104),
        ("kv_fragmentation", 10 / 80),
        ("fragmentation", 10 / 80),
        ("allocator_slack_ready", 0.04),
        ("allocator_slack_held", 0.04),
        ("pool_slack_held", 4 / 6),  # 4 GiB idle of the 6 that are neither KV pool nor weights
        ("inactive_split", 0.03),
        ("requested_waste", 0.2),
        ("stranded", 4 / 140),  # 109 less a context of 1 less the 104 that were reserved at most
        ("kv_capacity_tokens", 16000),
        ("prefix_cache_hit_rate", 0.25),
        ("kv_pool_memory", 80 * GIB),
        ("weight_memory", 14 * GIB),
        ("graph_memory", 2 * GIB),
        ("gpu_memory_ready", 106 * GIB),
        ("gpu_memory_peak", 110 * GIB),
        ("leaked_gpu_memory", 0),
    ],
)
def test_each_ratio_is_what_arithmetic_says(name: str, value: float) -> None:
    assert found(MEMORY, name).value == pytest.approx(value)


def test_the_worst_of_two_ranks_counts() -> None:
    worse = ranks(11, active=90 * GIB, active_peak=78 * GIB, requested=57 * GIB, inactive_split=7 * GIB, graph_pools=0)
    other = replace(DEVICE, index=1, uuid="GPU-2", process_bytes={"11": 119 * GIB}, context_bytes={"11": GIB})
    other = replace(other, after_bytes=GIB + 5)
    memory = replace(MEMORY, gpus=(DEVICE, other), allocators=(*worse, *ranks()))
    # 1 - 78/104, (100 - 90)/100, the same over 100 - 94, 1 - 57/95, 119 - 1 - 104 of 140
    assert found(memory, "allocator_fragmentation").value == pytest.approx(0.25)
    assert found(memory, "fragmentation") == Value(0.25, "probe (allocator_fragmentation)")
    assert found(memory, "allocator_slack_held").value == pytest.approx(0.1)
    assert found(memory, "pool_slack_held").value == 1.0, "what a log rounds makes no more than all of it"
    assert found(memory, "requested_waste").value == pytest.approx(0.4)
    assert found(memory, "inactive_split").value == pytest.approx(0.07)
    assert found(memory, "stranded").value == pytest.approx(14 / 140)
    assert found(memory, "graph_memory").value == 2 * GIB
    assert found(memory, "gpu_memory_ready").value == 212 * GIB
    assert found(memory, "leaked_gpu_memory").value == 5


def test_a_process_with_two_devices_is_matched_in_their_order() -> None:
    """150 of 140 GiB cannot be: only with the second device's own reserved bytes is it 2 GiB beyond."""
    first = replace(DEVICE, index=4, process_bytes={"10": 108 * GIB})
    second = replace(first, index=2, uuid="GPU-2", process_bytes={"10": 23 * GIB})
    small = rank("after", device=1, reserved=20 * GIB, reserved_peak=20 * GIB)
    memory = replace(MEMORY, gpus=(first, second), allocators=(small, rank("after")))
    assert found(memory, "stranded").value == pytest.approx(3 / 140)  # 108 - 1 - 104 and 23 - 1 - 20
    assert "gave no statistics" in reason(replace(memory, allocators=(small,)), "stranded")


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"tokens": 80}, 0.0),  # full blocks
        ({"tokens": 112}, 0.0),  # seven requests share blocks, each counts its tokens: not below zero
        ({"block_size": 1, "used_blocks": 70}, 0.0),
        ({"tokens": 5}, 15 / 16),  # one token in each of five blocks
    ],
)
def test_blocks_that_are_full_or_shared_waste_nothing(changes: dict[str, Any], value: float) -> None:
    memory = replace(MEMORY, kv=(replace(KV, **changes),), burst=replace(BURST, shared_tokens=16))
    assert found(memory, "kv_fragmentation").value == pytest.approx(value)


def test_sources_are_said() -> None:
    assert found(MEMORY, "kv_fragmentation").source == "metrics"
    assert found(MEMORY, "fragmentation").source == "metrics (kv_fragmentation)"
    logged = replace(MEMORY, kv=(replace(KV, source="log", counted_by="client", block_size=1),))
    assert found(logged, "kv_fragmentation").source == "log, client; 0 by construction, since a block holds one token"
    assert found(replace(MEMORY, sizes={"graphs": 7}), "graph_memory") == Value(7.0, "log")


def test_a_part_that_cannot_exist_is_left_out_of_the_whole() -> None:
    memory = replace(MEMORY, allocators=(), impossible={"allocator_fragmentation": "its allocator is not torch's"})
    assert found(memory, "fragmentation").value == pytest.approx(0.125)
    assert reason(memory, "allocator_fragmentation") == "its allocator is not torch's"
    memory = replace(MEMORY, kv=(), impossible={"kv_fragmentation": "no blocks"})
    assert found(memory, "fragmentation").value == pytest.approx(1 / 104)


def test_where_no_part_or_not_the_whole_can_exist_the_reasons_are_those() -> None:
    parts = {"allocator_fragmentation": "not torch's", "kv_fragmentation": "no blocks"}
    assert reason(replace(MEMORY, impossible=parts), "fragmentation") == (
        "allocator_fragmentation: not torch's; kv_fragmentation: no blocks"
    )
    assert reason(replace(MEMORY, impossible={"fragmentation": "a CPU build"}), "fragmentation") == "a CPU build"


def test_a_part_that_could_be_and_was_not_measured_makes_the_whole_unmeasured() -> None:
    """However bad the other part is: 12.5 % would break a bound of 5 %, and another bound it would not."""
    memory = replace(
        MEMORY, allocators=(), missing=("a KV thing", "the allocator of process 10 was not read: no answer")
    )
    assert reason(memory, "fragmentation") == (
        "allocator_fragmentation: no allocator was read at the point 'after': "
        "the allocator of process 10 was not read: no answer"
    )
    both = replace(memory, kv=())
    assert "; kv_fragmentation: the KV cache was not read while the burst was held" in reason(both, "fragmentation")


@pytest.mark.parametrize(
    ("changes", "name", "said"),
    [
        ({"burst": Burst()}, "allocator_fragmentation", "no burst of requests was run"),
        ({"burst": Burst()}, "kv_fragmentation", "no burst of requests was run"),
        ({"burst": replace(BURST, held=False)}, "kv_fragmentation", "not all requests of the burst ran at once"),
        (
            {"burst": replace(BURST, failed=("HTTP 500",))},
            "fragmentation",
            "1 of the burst's 2 requests failed: HTTP 500",
        ),
        ({"kv": (replace(KV, tokens=None),)}, "kv_fragmentation", "does not tell of its KV cache: tokens"),
        ({"kv": (replace(KV, used_blocks=0),)}, "kv_fragmentation", "no block of the KV cache was in use"),
        ({"kv": (replace(KV, point="ready"),)}, "kv_fragmentation", "was not read while the burst was held"),
        ({"kv": (replace(KV, queries=0.0),)}, "prefix_cache_hit_rate", "nothing was looked up"),
        ({"kv": ()}, "prefix_cache_hit_rate", "does not tell of a prefix cache"),
        ({"kv": ()}, "kv_capacity_tokens", "does not tell how much"),
        (
            {"allocators": (*ranks(), rank("ready", 11))},
            "allocator_fragmentation",
            "process 11, device 0, was not read",
        ),
        ({"allocators": ranks(active_peak=None)}, "allocator_fragmentation", "process 10 does not tell"),
        ({"allocators": ranks(reserved_peak=0)}, "allocator_fragmentation", "process 10 does not tell"),
        ({"allocators": ranks(expandable=True)}, "inactive_split", "expandable segments never count"),
        ({"allocators": ranks(expandable=None)}, "inactive_split", "not known whether segments are expandable"),
        ({"allocators": ranks(graph_pools=None)}, "graph_memory", "neither the engine nor every rank's allocator"),
        ({"sizes": {"weights": 1}}, "pool_slack_held", "does not tell the size of its KV pool"),
        ({"sizes": {"weights": 50 * GIB, "kv_pool": 50 * GIB}}, "pool_slack_held", "as large as all"),
        ({"sizes": {}}, "weight_memory", "does not tell the size of its weights"),
        ({"allocators": ()}, "stranded", "process 10 on GPU 0 gave no statistics of its allocator"),
        ({"gpus": (replace(DEVICE, process_bytes={}),)}, "stranded", "NVML does not tell"),
        ({"gpus": (replace(DEVICE, context_bytes={}),)}, "stranded", "process 10's context on GPU 0 is not known"),
        ({"gpus": (replace(DEVICE, after_bytes=None),)}, "leaked_gpu_memory", "left in use on GPU 0 is not known"),
        (
            {"gpus": (DEVICE, GPU(1, "GPU-2", "H200", "vanished", missing=("it fell off the bus",)))},
            "gpu_memory_peak",
            "the peak memory of GPU 1 is not known: its state is vanished; it fell off the bus",
        ),
    ],
)
def test_what_is_missing_is_a_reason_and_never_zero(changes: dict[str, Any], name: str, said: str) -> None:
    assert said in reason(replace(MEMORY, **changes), name)


def test_a_process_that_has_a_context_and_nothing_else_strands_nothing() -> None:
    gpu = replace(DEVICE, process_bytes={"10": 104 * GIB, "12": GIB}, context_bytes={"10": GIB, "12": GIB})
    assert found(replace(MEMORY, gpus=(gpu,)), "stranded").value == 0.0, "103 GiB in use of 104 reserved is not below 0"


def test_without_a_gpu_its_metrics_are_unmeasured_and_the_kv_cache_is_measured_all_the_same() -> None:
    memory = replace(MEMORY, gpus=(), allocators=(), sizes={})
    others = ("load_", "reference_")  # of another part of the record, with reasons of their own
    for name in (metric.name for metric in METRICS.values() if metric.gpu and not metric.name.startswith(others)):
        assert reason(memory, name) == "no GPU is visible to this boot"
    assert reason(memory, "fragmentation") == "allocator_fragmentation: no GPU is visible to this boot"
    assert found(memory, "kv_fragmentation").value == pytest.approx(0.125)


def test_the_newest_reading_of_the_kv_cache_counts() -> None:
    after = replace(KV, point="after", hits=60.0, capacity_tokens=None, total_blocks=None)
    memory = replace(MEMORY, kv=(replace(KV, point="ready", hits=0.0), KV, after))
    assert found(memory, "prefix_cache_hit_rate").value == 0.0, "the burst, which shares nothing, does not count"
    assert found(replace(MEMORY, kv=(KV, after)), "prefix_cache_hit_rate").value == 0.5
    assert found(memory, "kv_capacity_tokens").value == 16000
    blocks = replace(KV, capacity_tokens=None, total_blocks=100)
    assert found(replace(MEMORY, kv=(blocks,)), "kv_capacity_tokens").value == 1600


def test_the_speed_of_the_load_against_what_the_machine_can_do() -> None:
    """8 GB in 4 s are 2 GB/s: a quarter of what a plain read does."""
    load = Load(weight_bytes=8 * 10**9, seconds=4.0, read_speed=8e9, missing=("no GPU to copy to",))
    boot = record("b", memory=Memory(load=load), phases=(Phase("load_weights", 1.0, 5.0, "log"),))
    values = measure(boot)
    assert values["load_speed"] == Value(2e9, "log")
    assert values["load_read_ratio"] == Value(0.25, "log")
    assert values["load_copy_ratio"].reason == "the speed of a copy to the device is not known: no GPU to copy to"
    assert measure(record("b", memory=Memory()))["load_speed"].value is None


def test_what_another_prompt_length_costs_the_first_time() -> None:
    """First and second request of each length: 0.5 and 0.1 s, 0.9 and 0.8 s."""
    times = (0.5, 0.1, 0.9, 0.8)
    shapes = tuple(Request("shape", number, 10.0, 10.0 + ttft) for number, ttft in enumerate(times))
    values = measure(record("b", requests=shapes))
    assert values["shape_ttft_max"].value == pytest.approx(0.9)
    assert values["shape_penalty"].value == pytest.approx(0.4)
    values = measure(record("b", requests=shapes[:3]))
    assert values["shape_ttft_max"].value == pytest.approx(0.9)
    assert values["shape_penalty"].reason == "a request of prompt length 2 gave no token, or was not sent"
    assert measure(record("b"))["shape_ttft_max"].reason == "no requests of other prompt lengths were sent"


def test_a_failed_boot_has_none_of_it() -> None:
    values = measure(record("b", outcome="failed", memory=MEMORY))
    assert {values[name] for name in ("fragmentation", "gpu_memory_peak")} == {Value(None, None, "the boot failed")}


def test_nothing_is_told_of_pools_that_are_not_the_engines() -> None:
    """TurboMind: torch's allocator reads next to nothing while 115 GB are in use."""
    gpu = GPU(0, "GPU-0", "H200", total_bytes=150, process_bytes={"7": 121}, context_bytes={"7": 1})
    ranks = (Allocator("after", 7, 0, reserved=2, active=1, inactive_split=1),)
    memory = Memory(gpus=(gpu,), allocators=ranks, impossible={"allocator_fragmentation": "its allocator is its own"})
    for found in (fragmentation.stranded(memory), fragmentation.inactive_split(memory)):
        assert (found.value, found.reason) == (None, "its allocator is its own")


def test_peaks_that_were_not_reset_before_the_burst_are_not_its_peaks() -> None:
    burst = replace(MEMORY.burst, begin=10.0)
    ranks = tuple(rank for rank in MEMORY.allocators if rank.point != "ready")
    assert found(replace(MEMORY, allocators=ranks), "allocator_fragmentation").value is None
    late = tuple(replace(rank, at=11.0 if rank.point == "ready" else 12.0) for rank in MEMORY.allocators)
    value = found(replace(MEMORY, allocators=late, burst=burst), "allocator_fragmentation")
    assert "were not reset before the burst" in (value.reason or "")
    early = tuple(replace(rank, at=9.0 if rank.point == "ready" else 12.0) for rank in MEMORY.allocators)
    assert found(replace(MEMORY, allocators=early, burst=burst), "allocator_fragmentation").value is not None


def test_a_process_on_a_gpu_that_gave_no_statistics_is_not_left_out() -> None:
    gpu = replace(MEMORY.gpus[0], process_bytes={"999": 130 << 30}, context_bytes={"999": 500 << 20})
    value = found(replace(MEMORY, gpus=(gpu,)), "allocator_fragmentation")
    assert (value.value, value.reason) == (None, "process 999 uses a GPU and gave no statistics of its allocator")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"allocators": ranks(active_peak=105 * GIB)}, "allocator_fragmentation"),
        ({"allocators": ranks(inactive_split=101 * GIB)}, "inactive_split"),
        ({"allocators": ranks(requested=96 * GIB)}, "requested_waste"),
        ({"gpus": (replace(DEVICE, total_bytes=3 * GIB),)}, "stranded"),
        ({"kv": (replace(KV, hits=121.0),)}, "prefix_cache_hit_rate"),
    ],
)
def test_a_share_below_0_or_above_1_is_none(changes: dict[str, Any], name: str) -> None:
    assert "is no share: the numbers that it is made of" in reason(replace(MEMORY, **changes), name)


def test_why_a_burst_was_not_held_and_why_a_number_of_the_kv_cache_is_gone_is_said() -> None:
    why = ("the burst was never held whole: 5 of 6 requests ran at once", "KV cache at held: used_blocks=9 cannot be")
    memory = replace(MEMORY, missing=why)
    assert why[0] in reason(replace(memory, burst=replace(BURST, held=False)), "kv_fragmentation")
    assert why[1] in reason(replace(memory, kv=(replace(KV, used_blocks=None),)), "kv_fragmentation")


def test_more_tokens_than_room_are_numbers_of_two_instants() -> None:
    """KV has more room than tokens; with one block there is room for 16 of them."""
    value = found(replace(MEMORY, kv=(replace(KV, used_blocks=1),)), "kv_fragmentation")
    assert "not of one instant" in (value.reason or "")
    shared = replace(MEMORY.burst, shared_tokens=8)
    assert found(replace(MEMORY, kv=(replace(KV, used_blocks=1),), burst=shared), "kv_fragmentation").value == 0.0
