"""The cells of the demo: which engines there are, how they boot, and with which options in which tiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pytest_coldstart.cell import Cell

#: Requests after the warm-up of each boot: one that is judged, and twenty for the distribution.
REQUESTS = 21


@dataclass(frozen=True)
class Step:
    """A stretch of the critical path. ``seconds``: with everything resident and cached; ``cold``: with empty caches."""

    phase: str
    process: str
    seconds: float
    detail: str = ""
    cold: float | None = None


@dataclass(frozen=True)
class Cache:
    """A cache root when it is full: files of one kind."""

    name: str
    files: int
    kind: str
    bytes: int


@dataclass(frozen=True)
class Engine:
    """How one engine boots. ``ttft``: its usual time to first token when warm, seconds; ``tail``: how far slow ones are off.

    ``used``: share of the GPU that it takes, 0 where it takes none. ``impossible``: what its adapter declares.
    """

    name: str
    package: str
    model: str
    weights: int
    steps: tuple[Step, ...]
    ttft: float
    tail: float
    caches: tuple[Cache, ...] = ()
    used: float = 0.9
    block_size: int = 16
    impossible: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()

    @property
    def processes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.process for step in self.steps))


@dataclass(frozen=True)
class DemoCell:
    """A cell of the demo. ``rounds``: boots of it in each run."""

    engine: Engine
    tier: str
    options: Mapping[str, Any]
    name: str
    rounds: int = 1

    @cached_property
    def cell(self) -> Cell:
        requests = {"count": REQUESTS, "words": [16, 64]}
        return Cell(self.engine.name, self.engine.model, self.tier, self.options, requests=requests)

    @cached_property
    def content(self) -> dict[str, Any]:
        return self.cell.content()

    @cached_property
    def digest(self) -> str:
        return self.cell.digest

    @cached_property
    def base_digest(self) -> str:
        return self.cell.base_digest

    @property
    def nodeid(self) -> str:
        return f"suites/test_demo_{self.engine.name}.py::test_cold_start[{self.name}]"

    @property
    def eager(self) -> bool:
        return bool(self.options.get("enforce_eager"))


def _torch(main: str, worker: str, imports: tuple[float, float], *own: Step) -> tuple[Step, ...]:
    """An engine with a server that starts a worker, both of which import torch; between it and its answer, its *own* steps."""
    return (
        Step("spawn", main, 0.05),
        Step("imports", main, imports[0], "torch"),
        Step("unattributed", main, 0.18, "argparse:parse_args"),
        Step("spawn", worker, 0.09),
        Step("imports", worker, imports[1], "transformers"),
        Step("device_init", worker, 1.05, "torch.cuda"),
        *own,
        Step("server_start", main, 0.35, "uvicorn"),
        Step("first_request", main, 0.21),
    )


_COMPILED = (
    Step("distributed_init", "EngineCore", 0.24, "gloo"),
    Step("load_weights", "EngineCore", 2.3, "safetensors"),
    Step("profile", "EngineCore", 0.9, "memory"),
    Step("compile", "EngineCore", 0.85, "load of AOT models", cold=27.5),
    Step("kv_alloc", "EngineCore", 0.11),
    Step("graph_capture", "EngineCore", 1.7, "67 sizes"),
    Step("unattributed", "EngineCore", 0.3, "vllm.v1.engine.core:__init__"),
)
_VLLM = _torch("server", "EngineCore", (4.6, 3.4), *_COMPILED)
_BYTECODE = Cache("bytecode", 8140, "modules", 176 << 20)
_8B = 16_060_556_376

VLLM = Engine(
    *("vllm", "vllm", "demo/llama-8b", _8B, _VLLM, 0.031, 0.16),
    (_BYTECODE, Cache("vllm", 38, "AOT models", 61 << 20), Cache("triton", 41, "kernels", 9 << 20)),
    command=("vllm", "serve", "demo/llama-8b"),
)
SGLANG = Engine(
    "sglang",
    "sglang",
    "demo/llama-8b",
    _8B,
    _torch(
        *("server", "scheduler", (5.1, 4.4)),
        Step("load_weights", "scheduler", 2.6, "safetensors"),
        Step("kv_alloc", "scheduler", 0.2),
        Step("compile", "scheduler", 0.4, "load of kernels", cold=14.0),
        Step("graph_capture", "scheduler", 2.4, "23 sizes"),
        Step("warmup", "scheduler", 0.6),
    ),
    *(0.027, 0.22),
    (_BYTECODE, Cache("tvm_ffi", 17, "kernels", 22 << 20), Cache("flashinfer", 12, "kernels", 48 << 20)),
    block_size=1,
    command=("python", "-m", "sglang.launch_server", "--model-path", "demo/llama-8b"),
)
TURBOMIND = Engine(
    "turbomind",
    "lmdeploy",
    "demo/llama-8b",
    _8B,
    (
        Step("spawn", "server", 0.05),
        Step("imports", "server", 4.9, "lmdeploy"),
        Step("device_init", "server", 0.9, "cuda"),
        Step("load_weights", "server", 4.4, "convert and copy"),
        Step("kv_alloc", "server", 0.15),
        Step("warmup", "server", 1.3, "gemm tuning", cold=3.1),
        Step("server_start", "server", 0.3, "uvicorn"),
        Step("first_request", "server", 0.16),
    ),
    *(0.024, 0.12),
    (_BYTECODE, Cache("gemm_tune", 1, "tuning results", 40 << 10)),
    used=0.8,
    block_size=32,
    impossible={"allocator_fragmentation": "its allocator is its own: torch's holds nothing of it"},
    command=("lmdeploy", "serve", "api_server", "demo/llama-8b"),
)
TENSORRT = Engine(
    "tensorrt_llm",
    "tensorrt-llm",
    "demo/llama-8b",
    _8B,
    _torch(
        *("server", "mpi worker", (4.3, 3.3)),
        Step("distributed_init", "mpi worker", 0.8, "mpi"),
        Step("load_weights", "mpi worker", 3.2, "safetensors"),
        Step("profile", "mpi worker", 1.6, "memory"),
        Step("kv_alloc", "mpi worker", 0.3),
        Step("warmup", "mpi worker", 1.6, "autotuner", cold=9.5),
        Step("graph_capture", "mpi worker", 2.0, "32 sizes"),
    ),
    *(0.022, 0.1),
    (_BYTECODE, Cache("triton", 12, "kernels", 3 << 20)),
    block_size=32,
    impossible={
        "kv_fragmentation": "the blocks that it tells of are not of the instant at which tokens can be counted"
    },
    command=("trtllm-serve", "demo/llama-8b"),
)
LLAMACPP = Engine(
    "llamacpp",
    "xllamacpp",
    "demo-smollm-135m.gguf",
    98_362_432,
    (
        Step("spawn", "server", 0.04),
        Step("imports", "server", 0.24, "xllamacpp"),
        Step("load_weights", "server", 0.21, "tensors"),
        Step("tokenizer", "server", 0.14, "vocabulary"),
        Step("kv_alloc", "server", 0.03),
        Step("warmup", "server", 0.09),
        Step("server_start", "server", 0.02),
        Step("first_request", "server", 0.28),
    ),
    *(0.046, 0.12),
    (Cache("bytecode", 60, "modules", 1_779_262),),
    used=0.0,
    impossible={
        "fragmentation": "neither its allocator nor its KV cache can be read",
        "allocator_fragmentation": "its allocator is not torch's",
        "kv_fragmentation": "it does not tell how full its KV cache is",
    },
    command=("python", "xllamacpp_server.py", "--model", "demo-smollm-135m.gguf"),
)
TRANSFORMERS = Engine(
    "transformers",
    "transformers",
    "demo/llama-1b",
    2_471_645_608,
    (
        Step("spawn", "server", 0.05),
        Step("imports", "server", 5.6, "transformers"),
        Step("device_init", "server", 0.8, "torch.cuda"),
        Step("load_weights", "server", 0.9, "safetensors"),
        Step("server_start", "server", 0.3, "uvicorn"),
        Step("first_request", "server", 0.9),
    ),
    *(0.085, 0.25),
    (_BYTECODE,),
    used=0.08,
    impossible={"kv_fragmentation": "it has no metrics, so it does not tell how full its KV cache is"},
    command=("transformers", "serve", "demo/llama-1b"),
)

#: The path of an engine that was put to sleep and is woken.
WAKE = (
    Step("load_weights", "EngineCore", 0.86, "copy back from the host"),
    Step("kv_alloc", "EngineCore", 0.12),
    Step("unattributed", "EngineCore", 0.06, "vllm.device_allocator.cumem:wake_up"),
    Step("first_request", "server", 0.19),
)


def _cells() -> tuple[DemoCell, ...]:
    def vllm(tier: str, rounds: int = 1, **options: Any) -> DemoCell:
        given = {"enforce_eager": False, "block_size": 16, "gpu_memory_utilization": 0.9, **options}
        words = [f"{name}:{value}".lower() for name, value in options.items()]
        return DemoCell(VLLM, tier, given, "-".join([*words, tier]), rounds)

    others: tuple[tuple[Engine, str, dict[str, Any]], ...] = (
        *((SGLANG, tier, {"mem_fraction_static": 0.88}) for tier in ("redeploy", "restart")),
        *((TURBOMIND, tier, {"cache_max_entry_count": 0.8}) for tier in ("redeploy", "restart")),
        *((TENSORRT, tier, {"backend": "pytorch"}) for tier in ("pristine", "restart")),
        *((LLAMACPP, tier, {"n_ctx": 512}) for tier in ("pristine", "restart")),
        (TRANSFORMERS, "restart", {"dtype": "bfloat16"}),
    )
    # The pages open at what was booted last: what the story is about.
    return (
        *(DemoCell(engine, tier, options, tier) for engine, tier, options in others),
        vllm("restart", enforce_eager=False, block_size=32),
        vllm("restart", enforce_eager=False, gpu_memory_utilization=0.6),
        *(vllm(tier, enforce_eager=True) for tier in ("pristine", "restart", "wake")),
        *(vllm(tier, enforce_eager=False) for tier in ("pristine", "redeploy")),
        vllm("restart", 2, enforce_eager=False),
    )


CELLS = _cells()
