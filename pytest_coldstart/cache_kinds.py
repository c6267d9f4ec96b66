"""What the files of a cache are, by their names alone: data, and the one function that applies it.

Read off the caches of vLLM 0.25.1 on an H200 and 0.32.0 on CPU, and off the sources of torch 2.13 and Triton 3.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

#: (pattern over the path relative to the cache root, kind in the plural); ``*`` matches across folders, the
#: first match counts. What none matches is one of the "files".
Patterns = tuple[tuple[str, str], ...]

_TRITON: Patterns = (
    ("*.autotune.json", "tuning results"),
    ("*.cubin", "kernels"),
    ("*.hsaco", "kernels"),
    ("*__triton_launcher*.so", "launchers"),  # the C stub that starts kernels, and its like
    ("*cuda_utils*.so", "launchers"),
)
#: An fxgraph entry is one compiled graph; an aotautograd entry is what wraps it, and holds it in newer versions.
_INDUCTOR: Patterns = (
    ("*fxgraph/*", "graphs"),
    ("*aotautograd/*", "AOT graphs"),
    ("*.best_config", "tuning results"),
    ("*.h.gch", "precompiled headers"),
    ("*.so", "kernels"),  # C++ of a CPU build
    *_TRITON,
)
_VLLM: Patterns = (
    ("*torch_aot_compile/*/model", "AOT models"),
    ("*/artifact_compile_range_*", "graphs"),
    ("*/artifact_shape_*", "graphs"),
    ("*flashinfer_autotune_cache/*", "tuning results"),
    ("modelinfos/*", "model descriptions"),
    ("startup_plan/*", "startup plans"),
    *_TRITON,
    *_INDUCTOR,
)
_SHARED_OBJECTS: Patterns = (("*.so", "kernels"), ("*.cubin", "kernels"))

KINDS: Mapping[str, Patterns] = {
    "bytecode": (("*.pyc", "modules"),),
    "vllm": _VLLM,
    "inductor": (*_TRITON, *_INDUCTOR),
    "triton": _TRITON,
    "flashinfer": _SHARED_OBJECTS,
    "tvm_ffi": _SHARED_OBJECTS,
    "sglang": (*_TRITON, *_INDUCTOR),
    "deep_gemm": _SHARED_OBJECTS,
    "engines": (("*.engine", "engines"),),
    "gemm_tune": (("*", "tuning results"),),
    "cuda": (("index", "files"), ("*/index", "files"), ("*", "entries")),
}

#: Kinds that a compiler made: what a boot compiled again when they grow.
COMPILED = frozenset({"kernels", "launchers", "graphs", "AOT graphs", "AOT models", "engines", "modules", "entries"})

FILES = "files"


def kind(cache: str, name: str) -> str:
    """What the file *name*, relative to the root of *cache*, is."""
    patterns = KINDS.get(cache.replace("-", "_"), ())
    return next((kind for pattern, kind in patterns if fnmatchcase(name, pattern)), FILES)


def is_compile_cache(cache: str) -> bool:
    """Whether what a boot compiles for its model goes there; not so bytecode and downloads."""
    return cache != "bytecode" and cache.replace("-", "_") in KINDS


def count(cache: str, names: Iterable[str]) -> dict[str, int]:
    """Kind -> number of files, the compiled kinds first and plain files last."""
    found: dict[str, int] = {}
    for name in names:
        of = kind(cache, name)
        found[of] = found.get(of, 0) + 1
    return dict(sorted(found.items(), key=lambda item: (item[0] == FILES, item[0] not in COMPILED, -item[1], item[0])))
