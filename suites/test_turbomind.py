"""Cold start of LMDeploy's TurboMind: defaults, then one engine option at a time. Copy it, then change it.

    pytest --coldstart suites/test_turbomind.py

Needs LMDeploy in this environment, or `--coldstart-python turbomind=ENV/bin/python`, and a GPU.

The model has random weights and is made here (1 GB), so nothing is downloaded. COLDSTART_TURBOMIND_MODEL names another
one: `random:qwen2-7b`, a folder, or OWNER/NAME in the local hub cache.

TurboMind has no CUDA graphs, so there is no eager axis, and no allocator that can be read, so fragmentation is bounded
by its KV cache alone.
"""

import os

import pytest

MODEL = os.environ.get("COLDSTART_TURBOMIND_MODEL", "random:qwen2-0.5b")

pytestmark = [
    pytest.mark.coldstart(
        engine="turbomind",
        model=MODEL,
        rounds=2,
        requests=21,
        options={"session_len": 4096},
        env={"HF_HUB_OFFLINE": "1"},
    ),
    pytest.mark.slo("cold_start<=120s", "warm_first_token<=3s", "readiness_lie<=30s", "leaked_processes<=0"),
]


@pytest.mark.coldstart(tier=["pristine", "restart"], matrix={"gemm_tune": [False, True]})
# Of fragmentation its KV cache is the part that can be read. Half of a block of 64 tokens, its default, is more than 5 % of
# the burst's requests, whose lengths are mixed.
@pytest.mark.slo("fragmentation<=10%")
def test_cold_start(cold_boot):
    answer = cold_boot.client.complete("Name a colour.", max_tokens=4)
    assert answer.completion_tokens == 4


@pytest.mark.coldstart(
    tier="restart",
    rounds=1,
    # One axis at a time, each against the first cell.
    matrix={
        "cache_max_entry_count": [0.8],
        "cache_block_seq_len": [64],
        "max_batch_size": [256],
        "quant_policy": [0],
    },
    include=[
        {"cache_max_entry_count": 0.5},
        {"cache_block_seq_len": 128},
        {"max_batch_size": 16},
        {"quant_policy": 8},
        {"quant_policy": 4},
    ],
)
@pytest.mark.slo("fragmentation<=20%")  # half of a block of 128 tokens is more than a tenth of a short request
def test_axes(cold_boot):
    assert cold_boot.metrics["cold_start"].value is not None


# Blocks that are kept for later prefixes count as used: what they waste cannot be read.
@pytest.mark.coldstart(tier="restart", rounds=1, options={"session_len": 4096, "enable_prefix_caching": True})
def test_prefix_caching(cold_boot):
    assert cold_boot.metrics["cold_start"].value is not None
