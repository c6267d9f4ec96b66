"""Boots on a CUDA host whose critical paths are shown in docs/phases.md. Run by phases.sh, which sets the variables."""

import os

import pytest

SITES, MODEL, WORK = (os.environ[f"COLDSTART_{name}"] for name in ("SITES", "MODEL", "WORK"))
OFFLINE = {"HF_HUB_OFFLINE": "1"}
VLLM = {**OFFLINE, "PYTHONPATH": f"{SITES}/vllm", "VLLM_USE_FLASHINFER_SAMPLER": "0"}

pytestmark = [
    pytest.mark.slo("cold_start<=300s", "warm_first_token<=2s", "attributed>=95%"),
]


def caches(engine):
    """Where the generic engine's command keeps what it compiles: empty at the first boot, full at the second."""
    names = (
        "TRITON_CACHE_DIR",
        "FLASHINFER_WORKSPACE_BASE",
        "TVM_FFI_CACHE_DIR",
        "CUDA_CACHE_PATH",
        "PYTHONPYCACHEPREFIX",
    )
    return {"PYTHONDONTWRITEBYTECODE": "", **{name: f"{WORK}/caches/{engine}/{name.lower()}" for name in names}}


def vllm(**env):
    return pytest.mark.coldstart(
        engine="vllm",
        model="random:qwen2-0.5b",
        tier=["pristine", "restart"],
        rounds=1,
        requests=5,
        options={"max_model_len": 2048},
        env={**VLLM, **env},
    )


def generic(engine, *command, rounds=2, **env):
    """The first round is the first boot: the generic engine knows of no caches, so they fill as rounds go by."""
    return pytest.mark.coldstart(
        engine="openai",
        tier=["restart"],
        rounds=rounds,
        requests=5,
        command=["python3", "-m", *command],
        options={"weights": MODEL, "served_model": MODEL, "stop_grace": 20},
        env={**OFFLINE, "PYTHONPATH": f"{SITES}/{engine}", "HOME": f"{WORK}/home-{engine}", **env},
    )


@vllm()
def test_vllm(cold_boot):
    pass


@vllm(PYTHONDONTWRITEBYTECODE="1")
def test_vllm_without_bytecode(cold_boot):
    pass


@generic(
    "vllm",
    *("vllm.entrypoints.cli.main", "serve", MODEL, "--port", "{port}", "--max-model-len", "2048"),
    rounds=3,
    VLLM_USE_FLASHINFER_SAMPLER="0",
    PYTHONDONTWRITEBYTECODE="",
    PYTHONPYCACHEPREFIX=f"{WORK}/bytecode",
)
def test_vllm_with_its_own_cache_folders(cold_boot):
    pass


@generic(
    "sglang",
    *("sglang.launch_server", "--model-path", MODEL, "--port", "{port}", "--cuda-graph-backend-prefill=disabled"),
    SGLANG_ENABLE_JIT_DEEPGEMM="0",
    **caches("sglang"),
)
def test_sglang(cold_boot):
    pass


@generic(
    "lmdeploy",
    *("lmdeploy", "serve", "api_server", MODEL, "--backend", "turbomind", "--server-port", "{port}"),
    *("--log-level", "INFO"),
    TM_COMM_NVLS_ENABLE="0",
    **caches("lmdeploy"),
)
def test_lmdeploy(cold_boot):
    pass
