"""Cold start of SGLang: with and without CUDA graphs, then one engine option at a time. Copy it, then change it.

    pytest --coldstart suites/test_sglang.py

Needs SGLang in this environment, or `--coldstart-python sglang=ENV/bin/python`, and a GPU. A pristine boot compiles
kernels for more than a minute; one that finds them takes half a minute.

The model has random weights and is made here (1 GB), so nothing is downloaded. COLDSTART_SGLANG_MODEL names another
one: `random:qwen2-7b`, a folder, or OWNER/NAME in the local hub cache.
"""

import os

import pytest

MODEL = os.environ.get("COLDSTART_SGLANG_MODEL", "random:qwen2-0.5b")

pytestmark = [
    pytest.mark.coldstart(
        engine="sglang",
        model=MODEL,
        rounds=2,
        requests=21,
        # Without prefill graphs: 0.5.14 dies in their capture where the context is shorter than a prefill step.
        options={"context_length": 4096, "cuda_graph_backend_prefill": "disabled"},
        env={"HF_HUB_OFFLINE": "1"},
    ),
    pytest.mark.slo("cold_start<=300s", "warm_first_token<=3s", "readiness_lie<=30s", "leaked_processes<=0"),
]


@pytest.mark.coldstart(tier=["pristine", "restart"], matrix={"disable_cuda_graph": [False, True]})
def test_cold_start(cold_boot):
    answer = cold_boot.client.complete("Name a colour.", max_tokens=4)
    assert answer.completion_tokens == 4


@pytest.mark.coldstart(
    tier="restart",
    rounds=1,
    # One axis at a time, each against the first cell: a full product would be 192 cells.
    matrix={
        "mem_fraction_static": [0.85],
        "page_size": [1],
        "disable_radix_cache": [False],
        "max_running_requests": [256],
        "chunked_prefill_size": [4096],
        "kv_cache_dtype": ["auto"],
        "load_format": ["auto"],
    },
    include=[
        {"mem_fraction_static": 0.5},
        {"page_size": 16},
        {"page_size": 64},
        {"disable_radix_cache": True},
        {"max_running_requests": 16},
        {"chunked_prefill_size": 1024},
        {"kv_cache_dtype": "fp8_e5m2"},
        {"load_format": "dummy"},
    ],
)
# Half of a page of 64 tokens is more than 5 % of the burst's requests; a page of one token wastes nothing.
@pytest.mark.slo("fragmentation<=10%")
def test_axes(cold_boot):
    assert cold_boot.metrics["cold_start"].value is not None
