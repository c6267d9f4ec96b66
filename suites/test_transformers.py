"""Cold start of transformers serve: the model named at start, or loaded by the first request.

    pytest --coldstart suites/test_transformers.py

Needs transformers[serving] and torch in this environment, or `--coldstart-python transformers=ENV/bin/python`
(`coldstart env transformers ENV` makes one). The model has random weights and is made here.
COLDSTART_TRANSFORMERS_MODEL names another one.
"""

import os

import pytest

MODEL = os.environ.get("COLDSTART_TRANSFORMERS_MODEL", "random:qwen2-tiny")

pytestmark = [
    pytest.mark.coldstart(
        engine="transformers",
        model=MODEL,
        tier=["pristine", "restart"],
        rounds=2,
        requests=5,
        env={"HF_HUB_OFFLINE": "1"},
    ),
    pytest.mark.slo("cold_start<=120s", "warm_first_token<=3s", "leaked_processes<=0"),
]


@pytest.mark.coldstart(options={"preload": True})
# Named at start, the model is there when /health says so: what the first token then takes beyond a warm one is small.
@pytest.mark.slo("readiness_lie<=10s")
def test_preloaded(cold_boot):
    answer = cold_boot.client.complete("Name a colour.", max_tokens=4)
    assert answer.completion_tokens in (None, 4)


@pytest.mark.coldstart(options={"preload": False}, matrix={"continuous_batching": [False, True]})
def test_lazy(cold_boot):
    """/health is 200 with nothing loaded: the gap to the first token is what the autoscaler does not see."""
    assert cold_boot.metrics["ready_gap"].value > cold_boot.metrics["warm_first_token"].value
