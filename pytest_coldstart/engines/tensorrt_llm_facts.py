"""What differs between versions of TensorRT-LLM, as data.

Read off public sources of NVIDIA/TensorRT-LLM (``commands/serve.py``, ``serve/openai_server.py``,
``metrics/collector.py``, ``commands/build.py``, its documentation from 0.18.2 to 1.4.0rc4), never off a boot of ours. A row
holds from the first version that was seen to have it; where a comment says *unverified*, the version is a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Since:
    """One fact: from *version* on, *value*."""

    version: tuple[int, ...]
    value: str


#: Fact -> its values, oldest first.
FACTS: Mapping[str, tuple[Since, ...]] = {
    # The flag that names the YAML file of LLM arguments. The new name came beside the old one, which stayed.
    # First release with --config: unverified; 1.1 lacks it, and a source of 2026 has both.
    "config_flag": (Since((0, 17), "--extra_llm_api_options"), Since((1, 3), "--config")),
    # What runs a model where --backend is not given.
    "default_backend": (Since((0, 17), "tensorrt"), Since((1, 0), "pytorch")),
    # Whether "tensorrt" is a word for --backend; before, that backend ran where the flag was left out.
    "tensorrt_is_a_word": (Since((0, 17), "no"), Since((1, 0), "yes")),
    # Whether there is a TensorRT backend, and trtllm-build. Removed by a documented breaking change; that 1.4 is the
    # first release without it: unverified.
    "tensorrt_backend": (Since((0, 17), "yes"), Since((1, 4), "no")),
    # Whether the argument return_perf_metrics makes it serve Prometheus text at /prometheus/metrics. An argument that
    # a version does not know stops it, so older versions are not given it. Documented for 1.1.0rc5; first: unverified.
    "prometheus": (Since((0, 17), "no"), Since((1, 1), "yes")),
}

#: The engine's own histogram of the time to first token, seconds.
TTFT_HISTOGRAM = "trtllm_time_to_first_token_seconds"
#: Where its Prometheus text is; /metrics holds JSON of iterations.
METRICS_PATH = "/prometheus/metrics"

#: Caches that outlive a boot: name -> the variable that places one.
CACHE_VARIABLES: Mapping[str, str] = {
    "inductor": "TORCHINDUCTOR_CACHE_DIR",
    "triton": "TRITON_CACHE_DIR",
    "flashinfer": "FLASHINFER_WORKSPACE_BASE",
    "cuda": "CUDA_CACHE_PATH",
    # Unverified in its source; named so by public deployments.
    "deep_gemm": "TRTLLM_DG_CACHE_DIR",
    # Of the LLM API's own engine builds, kept where TLLM_LLMAPI_BUILD_CACHE=1.
    "llmapi_build": "TLLM_LLMAPI_BUILD_CACHE_ROOT",
}
#: A file, not a folder: without it the autotuner measures again at every start.
AUTOTUNER_FILE = "TLLM_AUTOTUNER_CACHE_PATH"


def facts_for(version: str | None) -> Mapping[str, str]:
    """The facts that hold for *version*, such as ``1.1.0rc3``; those of the newest where it is not known."""
    match = re.match(r"(\d+)\.(\d+)", version or "")
    number = tuple(int(part) for part in match.groups()) if match else None
    return {name: _value(rows, number) for name, rows in FACTS.items()}


def _value(rows: tuple[Since, ...], number: tuple[int, ...] | None) -> str:
    held = [row.value for row in rows if number is None or row.version <= number]
    return held[-1] if held else rows[0].value
