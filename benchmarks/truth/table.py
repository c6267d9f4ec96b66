"""Which delays are put into which boots, and where each must be found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SECONDS = 3.0
#: libc's loader runs it; the path is known once it is compiled.
LIBRARY = "late.so"


@dataclass(frozen=True)
class Injection:
    """One delay and where the critical path must have it.

    ``process``, ``module``, ``function``, ``how``: see injected/sitecustomize.py; a ``how`` of "compiler" delays the C++
    compiler. ``phase``, ``detail``: expected; a detail is looked for at the beginning of the path's, "" is not looked
    for. ``hot``: a frame that ``attribution.hottest`` must name with the seconds. ``spread``: ranks are waited for.
    """

    name: str
    process: str
    module: str
    function: str
    how: str
    phase: str
    detail: str = ""
    hot: str = ""
    spread: bool = False
    seconds: float = SECONDS

    @property
    def inside(self) -> dict[str, Any]:
        """What the engine's processes are told."""
        names = ("name", "process", "module", "function", "how", "seconds")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Case:
    """One boot. ``control``: without injections, the boot that the cases of the same ``kind`` are compared with.

    ``kind`` says what the cell is; boots of one kind share their caches. ``importtime``: each process has CPython time
    its imports.
    """

    name: str
    engine: str
    kind: str
    tier: str
    injections: Sequence[Injection] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    model: str = "random:qwen2-tiny"
    importtime: bool = False

    @property
    def control(self) -> bool:
        return not self.injections and not self.importtime


_MAIN, _CORE, _WORKER = "main", "EngineCore", "VllmWorker-0"
_INSPECTION = "vllm.model_executor.models.registry"

_FRONT_END = (
    Injection("import-hold", _MAIN, "transformers.configuration_utils", "", "hold", "imports", "transformers"),
    Injection("import-sleep", _MAIN, "fastapi", "", "sleep", "imports", "fastapi"),
    Injection("unknown", _MAIN, "vllm.entrypoints.cli.main", "main", "zzz_unknown:ponder", "unattributed",
              hot="zzz_unknown:ponder"),
    Injection("tokenizer", _MAIN, "transformers.models.auto.tokenization_auto", "AutoTokenizer.from_pretrained", "sleep",
              "tokenizer"),
    Injection("routes", _MAIN, "vllm.entrypoints.launchers.app", "build_app", "sleep", "server_start"),
    Injection("server", _MAIN, "uvicorn.server", "Server.startup", "sleep", "server_start"),
)  # fmt: skip
_LOADER = ("vllm.model_executor.model_loader.weight_utils", "safetensors_weights_iterator")
#: vLLM on a CPU has a worker of its own, also for a single rank.
_BEHIND = (
    Injection("core-import-hold", _CORE, "vllm.v1.engine.core", "", "hold", "imports", "vllm"),
    Injection("worker-import-hold", _WORKER, "vllm.v1.worker.cpu_worker", "", "hold", "imports", "vllm"),
    Injection("weights", _WORKER, *_LOADER, "sleep", "load_weights"),
    Injection("weights-hold", _WORKER, "vllm.model_executor.model_loader.base_loader", "BaseModelLoader.load_model", "hold",
              "load_weights"),
    Injection("kv-cache", _WORKER, "vllm.v1.worker.gpu_model_runner", "GPUModelRunner.initialize_kv_cache_tensors", "sleep",
              "kv_alloc"),
)  # fmt: skip
_CHILD = (Injection("child-exit", _INSPECTION, "", "exit", LIBRARY, "imports", "model inspection"),)
_COMPILER = (Injection("compiler", "", "", "", "compiler", "compile"),)
_RANK = (Injection("slow-rank", r"VllmWorker-1", *_LOADER, "sleep", "load_weights", spread=True),)

_SERVE = (
    Injection("import-hold", _MAIN, "transformers.generation.utils", "", "hold", "imports", "transformers"),
    Injection("import-sleep", _MAIN, "fastapi", "", "sleep", "imports", "fastapi"),
    Injection("unknown", _MAIN, "transformers.cli.transformers", "main", "zzz_unknown:ponder", "unattributed",
              hot="zzz_unknown:ponder"),
    Injection("tokenizer", _MAIN, "transformers.models.auto.tokenization_auto", "AutoTokenizer.from_pretrained", "sleep",
              "tokenizer"),
    Injection("weights", _MAIN, "transformers.core_model_loading", "convert_and_load_state_dict_in_model", "sleep",
              "load_weights"),
    Injection("weights-thread", _MAIN, "transformers.core_model_loading", "_materialize_copy", "sleep", "load_weights"),
    Injection("server", _MAIN, "uvicorn.server", "Server.startup", "sleep", "server_start"),
)  # fmt: skip

_VLLM: dict[str, Any] = {
    "options": {"max_model_len": 1024},
    "env": {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"},
}
_EAGER: dict[str, Any] = {**_VLLM, "options": {**_VLLM["options"], "enforce_eager": True}}
_RANKS: dict[str, Any] = {
    "options": {**_EAGER["options"], "tensor_parallel_size": 2},
    "env": {**_VLLM["env"], "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
    "model": "random:qwen2-tiny,heads=2,kv_heads=2",
}
_TRANSFORMERS: dict[str, Any] = {"options": {"preload": True}, "env": {"HF_HUB_OFFLINE": "1"}}

#: In this order: a pristine boot fills the caches that a restart of its kind needs.
CASES: tuple[Case, ...] = (
    Case("transformers-pristine", "transformers", "transformers", "pristine", **_TRANSFORMERS),
    Case("transformers-restart", "transformers", "transformers", "restart", **_TRANSFORMERS),
    Case("transformers-delayed", "transformers", "transformers", "restart", _SERVE, **_TRANSFORMERS),
    Case("transformers-importtime", "transformers", "transformers", "restart", importtime=True, **_TRANSFORMERS),
    Case("vllm-pristine", "vllm", "vllm", "pristine", **_EAGER),
    Case("vllm-restart", "vllm", "vllm", "restart", **_EAGER),
    Case("vllm-delayed", "vllm", "vllm", "restart", (*_FRONT_END, *_BEHIND), **_EAGER),
    Case("vllm-importtime", "vllm", "vllm", "restart", importtime=True, **_EAGER),
    Case("vllm-child", "vllm", "vllm", "pristine", _CHILD, **_EAGER),
    Case("vllm-compiled", "vllm", "vllm compiled", "pristine", _COMPILER, **_VLLM),
    Case("vllm-ranks", "vllm", "vllm tensor parallel", "pristine", **_RANKS),
    Case("vllm-slow-rank", "vllm", "vllm tensor parallel", "restart", _RANK, **_RANKS),
)
