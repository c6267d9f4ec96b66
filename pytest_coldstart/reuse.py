"""What a boot did with each of its caches, from the inventories before and after: one statement a cache."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from pytest_coldstart import cache_kinds, units
from pytest_coldstart.record import BootRecord, Cache

HIT, FILLED, GREW, IGNORED, UNKNOWN = "hit", "filled", "grew", "ignored", "unknown"

#: Variables that place a cache of what a boot compiles. Downloads (HF_HOME) are no such cache.
COMPILE_VARIABLES = frozenset(
    {
        "CUDA_CACHE_PATH",
        "DG_JIT_CACHE_DIR",
        "FLASHINFER_WORKSPACE_BASE",
        "PYTHONPYCACHEPREFIX",
        "SGLANG_CACHE_DIR",
        "SGLANG_DG_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_EXTENSIONS_DIR",
        "TRITON_CACHE_DIR",
        "TVM_FFI_CACHE_DIR",
        "VLLM_CACHE_ROOT",
        "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR",
    }
)

#: Where below a variable's path the cache lies, if not in the path itself.
_BELOW = {"FLASHINFER_WORKSPACE_BASE": ".cache/flashinfer"}


@dataclass(frozen=True)
class Statement:
    """``verdict``: hit, filled, grew, ignored or unknown. ``text`` begins with it and has the numbers."""

    cache: str
    verdict: str
    text: str


def statements(record: BootRecord) -> tuple[Statement, ...]:
    """One statement for each cache root of a boot, in their order."""
    return tuple(statement(cache) for cache in record.caches)


def statement(cache: Cache) -> Statement:
    """What a boot did with one cache.

    hit: full before, nothing written. filled: empty before, now files. grew: full before and written to all the
    same. ignored: empty before and after. unknown: nobody counted after the boot. A hit says that nothing was
    written, not that all of it was read.
    """
    before, new = cache.before.files, cache.new_files
    if cache.after is None or new is None:
        return Statement(cache.name, UNKNOWN, f"unknown: {_files(before)} before, not counted after the boot")
    if before and not new:
        return Statement(cache.name, HIT, f"hit: {_files(before)} before, none written")
    if before:
        return Statement(cache.name, GREW, f"grew although full: {_growth(cache, new, _place(cache, new))}")
    if new:
        return Statement(cache.name, FILLED, f"filled: empty before, {_growth(cache, new, '')}")
    return Statement(cache.name, IGNORED, "ignored: empty and not used")


def _place(cache: Cache, new: int) -> str:
    """Whether the new files took the place of old ones: what was there and not used, or what was not there."""
    assert cache.after is not None
    beside = cache.after.files - cache.before.files
    if beside <= 0:
        return "in place of old files"
    old = _files(cache.before.files)
    return f"beside the {old} before" if beside >= new else f"{beside} of {new} beside the {old} before"


def _growth(cache: Cache, new: int, place: str) -> str:
    """``41 kernels compiled again, 3 other files written (3.2 MB, in place of old files)``."""
    parts = _parts(cache, new, again=place.startswith("in place"))
    remarks = [units.show(cache.new_bytes, "B")] if cache.new_bytes is not None else []
    if not cache.new_kinds:  # a record from before kinds were counted
        remarks += [", ".join(PurePath(name).name[:40] for name in cache.new_names[:3])]
    remarks = [text for text in (*remarks, place) if text]
    return ", ".join(parts) + (f" ({', '.join(remarks)})" if remarks else "")


def _parts(cache: Cache, new: int, again: bool) -> list[str]:
    word = " again" if again else ""
    compiled = [_amount(n, kind) for kind, n in cache.new_kinds.items() if kind in cache_kinds.COMPILED]
    rest = {kind: n for kind, n in cache.new_kinds.items() if kind not in cache_kinds.COMPILED}
    written = [_amount(n, kind) for kind, n in rest.items() if kind != cache_kinds.FILES]
    plain = rest.get(cache_kinds.FILES, 0) if cache.new_kinds else new
    if plain:
        written.append(_amount(plain, "other files" if compiled or written else cache_kinds.FILES))
    parts = [f"{', '.join(compiled)} compiled{word}"] if compiled else []
    return parts + ([f"{', '.join(written)} written{word}"] if written else [])


def _files(count: int) -> str:
    return _amount(count, cache_kinds.FILES)


def _amount(count: int, kind: str) -> str:
    if count != 1:
        return f"{count} {kind}"
    return f"1 {kind[:-3]}y" if kind.endswith("ies") else f"1 {kind.removesuffix('s')}"


#: Processes that a sentence names.
_NAMED = 3


def outside(record: BootRecord) -> tuple[str, ...]:
    """A sentence for each compile cache that a process used and no inventory covers.

    An engine may place a cache itself (vLLM sets TORCHINDUCTOR_CACHE_DIR): what counts is what each process had
    set, not what the boot gave it.
    """
    roots = [os.path.realpath(cache.path) for cache in record.caches]
    users: dict[tuple[str, str], list[str]] = {}
    for process in record.attribution.processes:
        for variable, path in process.cache_paths.items():
            if variable in COMPILE_VARIABLES and path and not _covered(variable, path, roots):
                users.setdefault((variable, path), []).append(process.name)
    places: dict[tuple[str, ...], list[str]] = {}
    for (variable, path), names in users.items():
        places.setdefault(tuple(names), []).append(f"{variable}={path}")
    return tuple(
        f"{', '.join(names) if len(names) <= _NAMED else f'{names[0]} and {len(names) - 1} more'} used {', '.join(paths)}, "
        "which no inventory covers"
        for names, paths in places.items()
    )


def moved(records: Sequence[BootRecord]) -> tuple[str, ...]:
    """A sentence for each compile cache that a process placed elsewhere than in the boot before.

    vLLM 0.25 does so by itself: with the model compiled anew it sets TRITON_CACHE_DIR, with the compiled model loaded it
    does not, and the kernels of the first boot are not found by the second.
    """
    found: dict[str, None] = {}
    for before, now in pairwise(records):
        earlier = {process.name: process.cache_paths for process in before.attribution.processes}
        for process in now.attribution.processes:
            then = earlier.get(process.name, process.cache_paths)
            for variable in sorted(COMPILE_VARIABLES):
                old, new = then.get(variable), process.cache_paths.get(variable)
                if old != new and old:
                    state = f"{variable}={new}" if new else f"no {variable}"
                    found[
                        f"round {now.round}: {process.name} has {state} where it had {old} in the boot before: what that one compiled "
                        "there is not found"
                    ] = None
    return tuple(found)


def _covered(variable: str, path: str, roots: list[str]) -> bool:
    places = [path, os.path.join(path, _BELOW[variable])] if variable in _BELOW else [path]
    return any(os.path.commonpath([os.path.realpath(place), root]) == root for place in places for root in roots)
