"""Rules on an engine's work on its model: weights, compiling and its caches, graphs, profiling, what is done too late."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from pytest_coldstart.attribution import Hint, Process
from pytest_coldstart.cache_kinds import is_compile_cache
from pytest_coldstart.coldness import RESIDENT_AT_LEAST, TOLD_APART
from pytest_coldstart.hints.settings import advice
from pytest_coldstart.hints.view import View, clipped, seconds, sums
from pytest_coldstart.load import sentence
from pytest_coldstart.memory import Load
from pytest_coldstart.phases.rules import PROCESS_RULES
from pytest_coldstart.record import Phase
from pytest_coldstart.reuse import FILLED, GREW, HIT, IGNORED, Statement, outside, statements
from pytest_coldstart.units import show

#: A stretch of phase compile that loads what was compiled before, and one that compiles kernels.
_LOADS = re.compile(r"\bload\b")
_KERNELS = ("kernel JIT", "C++ ")

#: Weights in the page cache that come slower than this, B/s, are held up by their loader: one thread copies faster.
RESIDENT_RATE = 4e9

#: What belongs before an engine says that it is ready.
_LATE_LOAD = ("device_init", "distributed_init", "load_weights", "kv_alloc", "tokenizer")
_LATE_COMPILE = ("compile", "graph_capture", "profile")


def cache_not_reused(view: View) -> Hint | None:
    """Caches were kept, and the boot compiled all the same."""
    stake = seconds(_compiling(view))
    found = [item for item in statements(view.record) if is_compile_cache(item.cache)]
    if not view.keeps_caches or not stake:
        return None
    guilty = [item for item in found if item.verdict == GREW]
    if not guilty and not any(item.verdict in (HIT, FILLED) for item in found):
        guilty = [item for item in found if item.verdict == IGNORED]  # one empty cache beside a full one is no fault
    lines = [*(f"{item.cache} {item.text}" for item in guilty), *outside(view.record)]
    if not lines:
        return None
    off = view.record.environment.get("VLLM_DISABLE_COMPILE_CACHE", "")
    what = f"unset VLLM_DISABLE_COMPILE_CACHE={off}" if off not in ("", "0") else advice(view, "compile_cache")
    return Hint("cache_not_reused", f"{show(stake, 's')} compile on kept caches ({'; '.join(lines)}): {what}", stake)


def caches_empty(view: View) -> Hint | None:
    """The boot compiled into empty caches: what a filled one would save at the most."""
    stake = seconds(_compiling(view))
    filled: list[Statement] = [
        item for item in statements(view.record) if is_compile_cache(item.cache) and item.verdict == FILLED
    ]
    if view.record.evidence.state.get("caches") != "empty" or not stake or not filled:
        return None
    names = "; ".join(f"{item.cache} {item.text}" for item in filled)
    text = f"{show(stake, 's')} compile into empty caches ({names}): ship them filled; {advice(view, 'compile_cache')}"
    return Hint("caches_empty", text, stake)


def kernel_jit(view: View) -> Hint | None:
    """Kernels are compiled although caches are kept: by child processes, or where the probe says so."""
    children = [process for process in view.record.attribution.processes if _is_compiler(process)]
    pieces = _compiling(view)
    named = [piece for piece in pieces if piece.detail.startswith(_KERNELS)]
    if not view.keeps_caches or not (children or named):
        return None
    stake = seconds(named) + _overlap([piece for piece in pieces if piece not in named], children)
    counts = sums(((_program(process), 1.0) for process in children), 3)
    by = [f"{int(count)} {name}" for name, count in counts] or list(dict.fromkeys(piece.detail for piece in named))[:3]
    what = advice(view, "kernel_jit")
    text = f"kernels are compiled though caches are kept ({', '.join(by)}), {show(stake, 's')}: {what}"
    return Hint("kernel_jit", text, stake)


def _compiling(view: View) -> list[Phase]:
    return [piece for piece in view.pieces("compile") if not _LOADS.search(piece.detail)]


def _program(process: Process) -> str:
    return re.sub(r" \d+$", "", process.name)


def _is_compiler(process: Process) -> bool:
    return any(rule.phase == "compile" and fnmatchcase(_program(process), rule.name) for rule in PROCESS_RULES)


def _overlap(pieces: Iterable[Phase], children: Iterable[Process]) -> float:
    """Seconds of the pieces, which do not overlap, in which at least one child lived; one that never ended counts not."""
    lives = sorted((child.start, child.end) for child in children if child.end is not None)
    stake = 0.0
    for piece in pieces:
        at = piece.begin
        for begin, end in lives:
            begin, end = max(begin, at), min(end, piece.end)
            if end > begin:
                stake, at = stake + end - begin, end
    return stake


def weights(view: View) -> Hint | None:
    """Weights come slower than what they come from could give them."""
    size, took = view.record.evidence.weight_bytes, view.seconds("load_weights")
    what = advice(view, "weights")
    if size >= TOLD_APART and took and view.record.memory.load.bound_by:
        return _against_references(view.record.memory.load, took, what)
    if size < TOLD_APART or not took or not what:
        return None
    rate, share = size / took, view.record.evidence.resident_fraction
    read = f"weights ({show(size, 'B')}) come at {show(rate, 'B/s')}, {show(took, 's')}"
    if share is not None and share >= RESIDENT_AT_LEAST:
        if rate >= RESIDENT_RATE:
            return None
        return Hint("weights", f"{read}, though they were in the page cache: their loader is the limit: {what}", took)
    disk = _disk_rate(view)
    if disk is None or disk <= rate:
        return None
    text = f"{read}, where the disk gave at least {show(disk, 'B/s')} over the whole boot: {what}"
    return Hint("weights", text, took - size / disk)


def _against_references(load: Load, took: float, what: str) -> Hint | None:
    """The references of the machine were timed: only where none of them is the limit can another loader help."""
    known = [speed for speed in (load.read_speed, load.copy_speed, load.link_speed) if speed]
    if load.bound_by != "loader" or not load.weight_bytes or not known:
        return None
    best = load.weight_bytes / min(known)
    text = f"{sentence(load)}; a parallel or streaming loader could take it from {show(took, 's')} to {show(best, 's')}"
    return Hint("weights", f"{text}: {what}".removesuffix(": "), took - best)


def _disk_rate(view: View) -> float | None:
    """B/s that the disk gave at least: all that was read of it over the whole boot, as if it had never paused."""
    read = view.record.evidence.device_read_bytes
    return read / view.total if read and view.total else None


def graph_capture(view: View) -> Hint | None:
    stake = view.seconds("graph_capture")
    if not stake:
        return None
    return Hint("graph_capture", f"graph capture takes {show(stake, 's')}: {advice(view, 'graph_capture')}", stake)


def profile(view: View) -> Hint | None:
    stake = view.seconds("profile")
    what = advice(view, "profile")
    if not stake or not what:
        return None
    return Hint("profile", f"the engine profiles its memory for {show(stake, 's')}: {what}", stake)


def ready_too_early(view: View) -> Hint | None:
    """The engine said that it was ready and had not loaded or compiled everything."""
    ready = view.record.instants.get("ready")
    if ready is None:
        return None
    late = clipped(view.pieces(*_LATE_LOAD, *_LATE_COMPILE), ready)
    stake = sum(value for _, value in late)
    if not late:
        return None
    parts = sums(((piece.name, value) for piece, value in late), 3)
    names = ", ".join(f"{name} {show(value, 's')}" for name, value in parts)
    what = advice(view, "late_load" if parts[0][0] in _LATE_LOAD else "late_compile")
    text = f"ready at {show(ready, 's')}, and {show(stake, 's')} of work before the first answer ({names}): {what}"
    return Hint("ready_too_early", text, stake)
