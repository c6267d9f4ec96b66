"""What differs between versions of vLLM, as data.

Read off the sources of the wheels 0.6.3.post1, 0.8.5, 0.11.0, 0.14.1, 0.19.1, 0.25.1, 0.32.0
and 0.33.0; a row holds from the first of these versions that was seen to have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_coldstart.engines.facts import Since, held, number

#: Fact -> its values, oldest first.
FACTS: Mapping[str, tuple[Since, ...]] = {
    # How a flag that is on by default is turned off: "omit" (it is off by default) or "--no-".
    "negative_flag": (Since((0, 6), "omit"), Since((0, 8), "--no-")),
    # -O0..-O3 as levels of the whole engine; before, -O was the level of torch.compile alone.
    "optimization_flag": (Since((0, 6), "-O"), Since((0, 14), "--optimization-level")),
    # The module behind the console script `vllm`.
    "cli_module": (Since((0, 6), "vllm.scripts"), Since((0, 8), "vllm.entrypoints.cli.main")),
    # Gauge of the KV cache's use, 0 to 1.
    "kv_usage_metric": (Since((0, 6), "vllm:gpu_cache_usage_perc"), Since((0, 11), "vllm:kv_cache_usage_perc")),
    # Default of gpu_memory_utilization: figures of memory do not compare across this line.
    "gpu_memory_utilization": (Since((0, 6), "0.9"), Since((0, 25), "0.92")),
    # Whether a boot's steps are traced, by processes that find OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.
    "spans": (Since((0, 6), "no"), Since((0, 19), "yes")),
    # What a 200 of /health means: the application is built after the engine, so the engine is up;
    # the first request may still compile kernels.
    "health": (Since((0, 6), "engine up, kernels not all compiled"),),
}

#: Engine's own histogram of the time to first token, seconds; the same name since 0.6.
TTFT_HISTOGRAM = "vllm:time_to_first_token_seconds"

#: Cache roots: name -> the variable that places it and the folder below the variable's path.
#: vLLM sets TORCHINDUCTOR_CACHE_DIR itself, below VLLM_CACHE_ROOT, when it compiles; what is
#: compiled outside of that follows our value. A caller's TRITON_CACHE_DIR is kept.
CACHE_VARIABLES: Mapping[str, str] = {
    "vllm": "VLLM_CACHE_ROOT",
    "inductor": "TORCHINDUCTOR_CACHE_DIR",
    "triton": "TRITON_CACHE_DIR",
    "flashinfer": "FLASHINFER_WORKSPACE_BASE",
    "cuda": "CUDA_CACHE_PATH",
}


@dataclass(frozen=True)
class Facts:
    """The facts of one version; an unknown version has those of the newest."""

    version: tuple[int, ...] | None
    values: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.values[name]


def facts_for(version: str | None) -> Facts:
    """The facts that hold for *version*, such as ``0.25.1`` or ``0.32.0+cpu``."""
    return Facts(number(version), {name: held(rows, version) for name, rows in FACTS.items()})
