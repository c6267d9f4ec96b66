"""Cold start of Text Generation Inference: eager and with graphs, then one option at a time.

    pytest --coldstart suites/test_tgi.py

Needs text-generation-launcher on PATH, or beside the interpreter of `--coldstart-python tgi=ENV/bin/python`, and a GPU. Its
image is run as in docs/engines.md. Not yet run on the real engine. The model has random weights and is made here;
COLDSTART_TGI_MODEL names another one.
"""

import os

import pytest

MODEL = os.environ.get("COLDSTART_TGI_MODEL", "random:qwen2-tiny")

pytestmark = [
    pytest.mark.coldstart(
        engine="tgi",
        model=MODEL,
        rounds=2,
        requests=21,
        options={"max_input_tokens": 960, "max_total_tokens": 1024},
        env={"HF_HUB_OFFLINE": "1"},
    ),
    pytest.mark.slo("cold_start<=300s", "warm_first_token<=3s", "readiness_lie<=30s", "leaked_processes<=0"),
]


@pytest.mark.coldstart(
    tier=["pristine", "restart"],
    matrix={"cuda_graphs": [pytest.param([1, 2, 4, 8], id="graphs"), pytest.param([0], id="eager")]},
)
def test_cold_start(cold_boot):
    answer = cold_boot.client.complete("Name a colour.", max_tokens=4)
    assert 1 <= answer.completion_tokens <= 4  # it may end by itself


@pytest.mark.coldstart(
    tier="restart",
    rounds=1,
    # One axis at a time, each against the first cell. The attention decides the size of a block, and whether there is
    # prefix caching.
    matrix={
        "attention": ["flashinfer"],
        "prefix_caching": [True],
        "max_batch_size": [64],
        "cuda_memory_fraction": [0.9],
    },
    include=[
        {"attention": "flashdecoding"},
        {"attention": "paged", "prefix_caching": False},
        {"prefix_caching": False},
        {"max_batch_size": 8},
        {"cuda_memory_fraction": 0.5},
        {"kv_cache_dtype": "fp8_e5m2"},
    ],
)
def test_axes(cold_boot):
    assert cold_boot.metrics["cold_start"].value is not None
