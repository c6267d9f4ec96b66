"""Cold start of TensorRT-LLM: eager and with graphs, then one option at a time, and an engine that is built first.

    pytest --coldstart suites/test_tensorrt_llm.py

Needs tensorrt-llm in this environment, or `--coldstart-python tensorrt_llm=ENV/bin/python`, and a GPU. Not yet run on the
real engine. The model has random weights and is made here; COLDSTART_TENSORRT_LLM_MODEL names another one. What is built by
trtllm-build needs COLDSTART_TENSORRT_LLM_CHECKPOINT too, the folder of that model's converted checkpoint, and a version
that still has the TensorRT backend.
"""

import os

import pytest

MODEL = os.environ.get("COLDSTART_TENSORRT_LLM_MODEL", "random:qwen2-tiny")
CHECKPOINT = os.environ.get("COLDSTART_TENSORRT_LLM_CHECKPOINT")

pytestmark = [
    pytest.mark.coldstart(
        engine="tensorrt_llm",
        model=MODEL,
        rounds=2,
        requests=21,
        options={"max_seq_len": 1024},
        env={"HF_HUB_OFFLINE": "1"},
    ),
    pytest.mark.slo("cold_start<=300s", "warm_first_token<=3s", "readiness_lie<=30s", "leaked_processes<=0"),
]


@pytest.mark.coldstart(tier=["pristine", "restart"], matrix={"cuda_graphs": [True, False]})
def test_cold_start(cold_boot):
    answer = cold_boot.client.complete("Name a colour.", max_tokens=4)
    assert answer.completion_tokens == 4


@pytest.mark.coldstart(
    tier="restart",
    rounds=1,
    # One axis at a time, each against the first cell.
    matrix={
        "max_batch_size": [256],
        "tokens_per_block": [32],
        "enable_block_reuse": [True],
        "kv_cache_free_gpu_memory_fraction": [0.9],
        "kv_cache_dtype": ["auto"],
        "enable_chunked_prefill": [False],
        "load_format": ["auto"],
        "autotuner_cache": [False],
    },
    include=[
        {"max_batch_size": 16},
        {"tokens_per_block": 64},
        {"enable_block_reuse": False},
        {"kv_cache_free_gpu_memory_fraction": 0.5},
        {"kv_cache_dtype": "fp8"},
        {"enable_chunked_prefill": True},
        {"load_format": "dummy"},
        {"autotuner_cache": True},
    ],
)
def test_axes(cold_boot):
    assert cold_boot.metrics["cold_start"].value is not None


if CHECKPOINT:

    @pytest.mark.coldstart(
        tier=["pristine", "restart"],
        options={"max_seq_len": 1024, "backend": "tensorrt", "checkpoint": CHECKPOINT},
        matrix={"kv_cache_type": ["paged", "continuous"], "context_fmha": [True, False]},
    )
    @pytest.mark.slo("cold_start<=1800s")
    def test_built_engine(cold_boot):
        """The first boot builds and is long; the next ones find the engine in the cell's caches."""
        assert cold_boot.metrics["cold_start"].value is not None
