"""Numbers that cannot be, in the memory of a boot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_coldstart.memory import Burst, KVCache, Memory
from pytest_coldstart.plausible import plausible
from tests.store.memory_sample import MEMORY

KV = KVCache("held", 1.0, 16, 1000, 5, 16000, 70, "metrics", 2, 0, 30.0, 120.0, "metrics")


def test_a_memory_whose_numbers_can_be_is_left_as_it_is() -> None:
    assert plausible(MEMORY) == MEMORY
    assert plausible(Memory()) == Memory()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("used_blocks", 1001, "used_blocks=1001 is more than total_blocks=1000"),
        ("used_blocks", -1, "used_blocks=-1 cannot be"),
        ("block_size", 0, "block_size=0 cannot be"),
        ("block_size", -16, "block_size=-16 cannot be"),
        ("tokens", -1, "tokens=-1 cannot be"),
        ("tokens", 2**63, "tokens=9223372036854775808 cannot be"),
        ("capacity_tokens", 10**50, "capacity_tokens=a number of many digits cannot be"),
        ("total_blocks", 1000.5, "total_blocks=1000.5 cannot be"),
        ("total_blocks", True, "total_blocks=True cannot be"),
        ("running", "two", "running=two cannot be"),
        ("hits", float("nan"), "hits=nan cannot be"),
        ("queries", float("inf"), "queries=inf cannot be"),
        ("queries", -2.0, "queries=-2.0 cannot be"),
    ],
)
def test_a_number_of_the_kv_cache_that_cannot_be_is_none_with_a_sentence(name: str, value: Any, words: str) -> None:
    found = plausible(Memory(kv=(replace(KV, **{name: value}),), missing=("before",)))
    assert found.kv == (replace(KV, **{name: None}),)
    assert found.missing == ("before", f"KV cache at held: {words}")


def test_numbers_of_devices_allocators_logs_and_bursts_are_looked_at_as_well() -> None:
    gpu = replace(MEMORY.gpus[0], peak_bytes=-1, process_bytes={"71": 2**64, "72": 5}, errors={"xid": -1})
    gpu = replace(gpu, series=replace(gpu.series, columns={"power": (1.0, float("nan"), "much")}))  # type: ignore[dict-item]
    rank = replace(MEMORY.allocators[0], reserved=10**30)
    broken = replace(
        MEMORY,
        gpus=(gpu,),
        allocators=(rank,),
        sizes={"weights": 2**63, "graphs": 2**63 - 1},
        burst=Burst(prompt_tokens=(3, -3)),
        load=replace(MEMORY.load, copy_speed=float("inf")),
    )
    found = plausible(broken)
    assert found.gpus[0].peak_bytes is None
    assert (found.gpus[0].process_bytes, found.gpus[0].errors) == ({"72": 5}, {})
    assert found.gpus[0].series.columns == {"power": (1.0, None, None)}
    assert found.allocators == (replace(rank, reserved=None),)
    assert (found.sizes, found.burst.prompt_tokens, found.load.copy_speed) == ({"graphs": 2**63 - 1}, (), None)
    assert len(found.missing) - len(MEMORY.missing) == 7
