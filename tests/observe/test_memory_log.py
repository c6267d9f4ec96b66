"""Sizes that engines logged. The numbers here were read in the logs by a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_coldstart.observe.memory_log import read_sizes

LOGS = Path(__file__).parents[1] / "data" / "logs"
GIB, MIB = 1 << 30, 1 << 20


def gib(number: float) -> int:
    return round(number * GIB)


#: Log, family, and what it states.
STATED = [
    ("vllm-0.6.3", "vllm", {"weights": gib(7.1216)}),
    ("vllm-0.8.5", "vllm", {"weights": gib(3.4213), "graphs": gib(0.48), "kv_tokens": 613_024}),
    # Four ranks: a size is one rank's.
    ("vllm-0.11.0", "vllm", {"weights": gib(14.29), "graphs": gib(1.2), "kv_tokens": 1_215_872}),
    (
        "vllm-0.14.1",
        "vllm",
        {"weights": gib(14.99), "kv_pool": gib(54.45), "graphs": gib(0.61), "kv_tokens": 396_448},
    ),
    # "Model loading took -0.10 GiB memory": no size.
    ("vllm-0.19.1", "vllm", {"graphs": gib(0.51), "kv_tokens": 1_058_128}),
    (
        "vllm-0.25.1-cold",
        "vllm",
        {"weights": gib(0.92), "kv_pool": gib(126.55), "graphs": gib(0.39), "kv_tokens": 11_058_128},
    ),
    ("vllm-0.25.1-eager", "vllm", {"weights": gib(0.92), "kv_tokens": 11_058_128}),
    ("vllm-0.32.0-cpu-compiled", "vllm", {"kv_tokens": 2_097_152}),
    ("vllm-0.33.0", "vllm", {"weights": gib(17.7), "graphs": gib(0.77), "kv_tokens": 396_448}),
    (
        "sglang-0.4.6",
        "sglang",
        {"weights": gib(7.5), "kv_pool": 2 * gib(29.79), "graphs": gib(1.1), "kv_tokens": 976_210},
    ),
    ("sglang-0.5.14-fails", "sglang", {"weights": gib(0.98), "kv_pool": 2 * gib(62.32), "kv_tokens": 10_891_475}),
    (
        "sglang-0.5.14-cached",
        "sglang",
        {"weights": gib(0.98), "kv_pool": 2 * gib(62.6), "graphs": gib(0.31), "kv_tokens": 10_940_127},
    ),
    # Two captures, of which the second says -0.01 GB.
    ("sglang-0.5.23", "sglang", {"graphs": gib(0.21)}),
    ("lmdeploy-0.18.0", "lmdeploy", {"kv_pool": round(112_788.10 * MIB)}),
    # Estimated at first (0.56 GiB, 8224 tokens), then allocated.
    ("tensorrt-llm-1.1", "tensorrt-llm", {"weights": gib(63.32), "kv_pool": gib(5.95), "kv_tokens": 86_720}),
    ("tgi-3.3", "tgi", {"kv_tokens": 412_342}),
]


@pytest.mark.parametrize(("log", "family", "sizes"), STATED, ids=[row[0] for row in STATED])
def test_sizes_are_those_in_the_log(log: str, family: str, sizes: dict[str, int]) -> None:
    with (LOGS / f"{log}.log").open(encoding="utf-8") as lines:
        assert read_sizes(lines, family) == sizes


@pytest.mark.parametrize(
    ("line", "family", "sizes"),
    [
        ("INFO [cpu_worker.py:260] Explicitly set (1.0/10.09) GiB for KV cache on node 0.", "vllm", gib(1)),
        ("INFO Auto set (5.5/10.09) GiB for KV cache on node 0, with 6.0 GiB requested memory", "vllm", gib(5.5)),
        ("INFO Initial free memory 79.1 GiB, reserved 8.0 GiB memory for KV Cache as specified", "vllm", gib(8)),
        ("KV Cache is allocated. #tokens: 5, KV size: 3.50 GB", "sglang", gib(3.5)),
        # The region that this budget made was 110.14 GiB: MB are 2**20 bytes.
        ("[TM][INFO] Object cache budget: 112788.10 MB from free 140985.12 MB and", "lmdeploy", round(112788.1 * MIB)),
        ("[BlockManager] block_size = 2.250 MB\n[BlockManager] max_block_count = 40", "lmdeploy", 90 * MIB),
        ("[BlockManager] block_size = 6 MB\n[BlockManager] max_block_count = 1274", "lmdeploy", None),
        ("Available KV cache memory: -1.20 GiB", "vllm", None),
        ("Available KV cache memory: 1.20 TB", "vllm", None),
        ("Available KV cache memory: 1.20 GiB", "sglang", None),
    ],
)
def test_size_of_the_kv_cache_in_a_line(line: str, family: str, sizes: int | None) -> None:
    assert read_sizes(line.splitlines(), family).get("kv_pool") == sizes


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        ("GPU KV cache size: 999,999,999,999,999 tokens", {"kv_tokens": 999_999_999_999_999}),
        (f"GPU KV cache size: {'9' * 16} tokens", {}),
        (f"GPU KV cache size: {',999' * 9} tokens", {}),
        ("GPU KV cache size: 9,999,999,999,999,999 tokens", {}),
        ("Available KV cache memory: 9999999999.0 GiB", {}),
    ],
)
def test_numbers_of_more_digits_than_any_memory_has_are_none(line: str, sizes: dict[str, int]) -> None:
    assert read_sizes([line], "vllm") == sizes


def test_blocks_and_their_size_make_a_capacity() -> None:
    line = "INFO text_generation_launcher: KV-cache blocks: 25771, size: 16"
    assert read_sizes([line], "tgi") == {"kv_tokens": 412_336}


@pytest.mark.parametrize("family", ["vllm", "sglang", "lmdeploy", "tensorrt-llm", "tgi", "llamacpp", "unknown", "../x"])
def test_noise_says_nothing_and_takes_no_time(family: str) -> None:
    noise = ["", "\x00\udcff", "9" * 100_000, "Load weight end " * 5000, "KV cache size: , tokens", "took GiB " * 9000]
    assert read_sizes(noise, family) == {}
