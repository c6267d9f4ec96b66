"""One cell of vLLM, for a gate of two environments on a CUDA host. Run by gate.sh."""

import pytest


@pytest.mark.coldstart(
    engine="vllm",
    model="random:qwen2-0.5b",
    tier="restart",
    rounds=1,
    requests=5,
    options={"max_model_len": 2048, "enforce_eager": True},
    # Set on some hosts; whether bytecode is kept is what the two environments differ in.
    env={"PYTHONDONTWRITEBYTECODE": "", "HF_HUB_OFFLINE": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"},
)
@pytest.mark.slo("cold_start<=300s", "warm_first_token<=2s", "fragmentation<=60%")
def test_cold_start(cold_boot):
    pass
