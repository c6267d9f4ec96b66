"""Boots on a CUDA host whose memory is shown in docs/gpu-memory.md. Run by memory.sh, which sets the variables."""

import os

import pytest

SITES, WORK, READINGS = (os.environ[f"COLDSTART_{name}"] for name in ("SITES", "WORK", "READINGS"))
OFFLINE = {"HF_HUB_OFFLINE": "1"}
#: Bytecode is kept from boot to boot, in a folder that no tier empties: what is shown here is memory, not imports.
KEPT = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{WORK}/bytecode"}
VLLM = {
    **OFFLINE,
    **KEPT,
    "PYTHONPATH": f"{WORK}/check:{SITES}/vllm",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "COLDSTART_CHECK": READINGS,
}

#: The three default bounds, two of them wide enough that a run goes on; fragmentation <= 5 % stands as it is.
pytestmark = pytest.mark.slo("cold_start<=300s", "warm_first_token<=2s")


def vllm(model, tier, **options):
    return pytest.mark.coldstart(
        engine="vllm",
        model=f"random:qwen2-{model}",
        tier=[tier],
        rounds=1,
        requests=5,
        options={"max_model_len": 2048, **options},
        env=VLLM,
    )


def twice(engine, env, **options):
    """Two boots of one cell: caches empty, and full."""
    return pytest.mark.coldstart(
        engine=engine,
        model="random:qwen2-0.5b",
        tier=["pristine", "restart"],
        rounds=1,
        requests=5,
        options=options,
        env={**OFFLINE, "PYTHONPATH": f"{SITES}/{'lmdeploy' if engine == 'turbomind' else engine}", **env},
    )


@vllm("0.5b", "scale_out", block_size=16, enforce_eager=True, gpu_memory_utilization=0.85)
def test_small_block16_eager_085(cold_boot):
    pass


@vllm("0.5b", "scale_out", block_size=16, enforce_eager=False, gpu_memory_utilization=0.92)
def test_small_block16_compiled_092(cold_boot):
    pass


@vllm("0.5b", "scale_out", block_size=32, enforce_eager=True, gpu_memory_utilization=0.92)
def test_small_block32_eager_092(cold_boot):
    pass


@vllm("0.5b", "scale_out", block_size=32, enforce_eager=False, gpu_memory_utilization=0.85)
def test_small_block32_compiled_085(cold_boot):
    pass


@vllm("0.5b", "scale_out", block_size=16, enforce_eager=True, gpu_memory_utilization=0.92)
def test_small_block16_eager_092(cold_boot):
    pass


# One from the disk, one from the page cache.
@vllm("7b", "pristine", block_size=16, enforce_eager=True, gpu_memory_utilization=0.92)
def test_large_block16(cold_boot):
    pass


@vllm("7b", "scale_out", block_size=32, enforce_eager=True, gpu_memory_utilization=0.92)
def test_large_block32(cold_boot):
    pass


@twice("turbomind", {"TM_COMM_NVLS_ENABLE": "0"}, cache_max_entry_count=0.8)
def test_lmdeploy(cold_boot):
    pass


@twice("turbomind", {"TM_COMM_NVLS_ENABLE": "0"}, cache_max_entry_count=0.5, quant_policy=8)
def test_lmdeploy_quantised_kv(cold_boot):
    pass


SGLANG = {"SGLANG_ENABLE_JIT_DEEPGEMM": "0"}


@twice("sglang", SGLANG, cuda_graph_backend_prefill="disabled", mem_fraction_static=0.85)
def test_sglang(cold_boot):
    pass


@twice("sglang", SGLANG, disable_cuda_graph=True, mem_fraction_static=0.85, page_size=16)
def test_sglang_pages_of_16(cold_boot):
    pass
