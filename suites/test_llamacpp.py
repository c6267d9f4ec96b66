"""Cold start of llama.cpp with its embedded model. Copy it, then change model, axes and bounds.

    pytest --coldstart suites/test_llamacpp.py

The bounds suit SmolLM2-135M on a small shared CPU: its first token takes 0.4 to 1.1 s there, so
the default bound of 500 ms, meant for a GPU, would judge the machine and not the engine.
"""

import pytest

pytestmark = pytest.mark.slo("cold_start<=10s", "warm_first_token<=3s", "leaked_processes<=0", "leaked_bytes<=0B")


@pytest.mark.coldstart(
    engine="llamacpp",
    tier=["pristine", "restart"],
    rounds=3,
    # Timed after the first answer: the judged warm request and four more.
    requests=5,
    prompt_words=[16],
    # One thread: on a shared host a second one is often taken away in the middle of a boot.
    options={"n_ctx": 512, "n_parallel": 1, "n_threads": 1},
    # fit probes the memory of the devices first, which reads the header of the model twice.
    matrix={"fit": [True, False]},
)
def test_cold_start(cold_boot):
    answer = cold_boot.client.complete("Name a colour.", max_tokens=4)
    assert answer.completion_tokens == 4


@pytest.mark.coldstart(
    engine="llamacpp",
    tier="restart",
    rounds=2,
    requests=5,
    warmup={"strategy": "prompts", "count": 2, "lengths": [8, 32]},
    options={"n_ctx": 512, "n_parallel": 1, "n_threads": 1, "fit": False},
)
@pytest.mark.slo("ready_gap<=5s", "ttft_jitter<=3s")
def test_after_warmup(cold_boot):
    assert cold_boot.metrics["warm_first_token"].value is not None
