"""What differs between versions of SGLang, and where it keeps caches, as data.

Read off the sources of 0.4.6, 0.5.14 and 0.5.23 and off boots of 0.5.14 on an H200; a row holds from the first of these
versions that was seen to have it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_coldstart.engines.facts import Since

#: Flags that changed: option -> its words, oldest first; ``{}`` stands for the value.
FLAGS: Mapping[str, tuple[Since, ...]] = {
    "cuda_graph_max_bs": (
        Since((0, 4, 6), "--cuda-graph-max-bs {}"),
        Since((0, 5, 14), "--cuda-graph-max-bs-decode {}"),
    ),
    "disable_cuda_graph": (
        Since((0, 4, 6), "--disable-cuda-graph"),
        Since((0, 5, 14), "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled"),
    ),
}

#: What a 200 of /health means. In 0.4.6 it came at once; later each 200 costs the engine one generated token.
HEALTH = (Since((0, 4, 6), "HTTP server up"), Since((0, 5, 14), "the server's own warm-up request was answered"))

#: The engine's own histogram of the time to first token, seconds.
TTFT_HISTOGRAM = "sglang:time_to_first_token_seconds"

#: Cache roots: name -> the variable that places it. Compiled graphs go below SGLANG_CACHE_DIR, where SGLang then also
#: puts Triton's and Inductor's; SGLang sets DG_JIT_CACHE_DIR itself, from its own variable.
CACHE_VARIABLES: Mapping[str, str] = {
    "sglang": "SGLANG_CACHE_DIR",
    "tvm_ffi": "TVM_FFI_CACHE_DIR",
    "flashinfer": "FLASHINFER_WORKSPACE_BASE",
    "deep_gemm": "SGLANG_DG_CACHE_DIR",
    "inductor": "TORCHINDUCTOR_CACHE_DIR",
    "triton": "TRITON_CACHE_DIR",
    "cuda": "CUDA_CACHE_PATH",
}
