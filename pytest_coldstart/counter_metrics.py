"""Metrics that equal boots count nearly alike (what was compiled, imported, started), and those of the reference workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pytest_coldstart import cache_kinds, workload
from pytest_coldstart.attribution import Process
from pytest_coldstart.derive import NO_PATH, NO_WAKE
from pytest_coldstart.metric import Metric
from pytest_coldstart.record import BootRecord, Cache, Value

#: Seconds from which on a process is counted though it ended before the first answer. Compilers' helpers live for
#: less, and how many of those the samples of the process tree catch is chance.
LASTING = 2.0

#: The probe counts a process's modules once a second. What is imported late is in it after so many more seconds, and
#: of a boot as long as this it is little.
_SETTLED, _LONG = 2.0, 10.0

#: Kinds of cache files, of :mod:`pytest_coldstart.cache_kinds`.
KERNELS = frozenset({"kernels", "entries"})
GRAPHS = frozenset({"graphs", "AOT graphs", "AOT models", "engines"})

FAILED = Value(None, None, "the boot failed")
NOT_PYTHON = "not Python"

Derive = Callable[[BootRecord], Value]


def whole(derive: Derive) -> Derive:
    """Of boots that did not fail: one that failed has not done all of its work."""
    return lambda record: FAILED if record.failed else derive(record)


def lasting(record: BootRecord) -> list[Process] | None:
    """The processes that ran when the path ended, or had lived for :data:`LASTING` by then; None without a path."""
    end = record.attribution.end
    if end is None or not record.attribution.processes:
        return None
    return [
        item
        for item in record.attribution.processes
        if item.start <= end and (_ran_at(item, end) or (item.end or end) - item.start >= LASTING)
    ]


def _ran_at(item: Process, when: float) -> bool:
    return item.end is None or item.end >= when


def processes_started(record: BootRecord) -> Value:
    if record.tier == "wake":
        return Value(None, None, NO_WAKE)
    found = lasting(record)
    return Value(None, None, NO_PATH) if found is None else Value(float(len(found)), "proc")


def modules_imported(record: BootRecord) -> Value:
    if record.tier == "wake":
        return Value(None, None, NO_WAKE)
    end, stopped = record.attribution.end, record.instants.get("stopped")
    if end is None or stopped is None:
        return Value(None, None, NO_PATH)
    running = [item for item in lasting(record) or () if _ran_at(item, end)]
    for item in running:
        if item.missing and item.missing != NOT_PYTHON:
            return Value(None, None, f"{item.name}: {item.missing}")
    told = [item.modules for item in running if item.modules is not None]
    if not told:
        why = record.attribution.missing[:1] or ("no process of it has a probe",)
        return Value(None, None, f"no modules were counted: {why[0]}")
    if stopped < _LONG and stopped - end < _SETTLED:
        return Value(None, None, f"modules are counted once a second, and it was stopped {stopped - end:.1f} s later")
    return Value(float(sum(told)), "probe")


def caches(record: BootRecord, wanted: Callable[[Cache], bool], what: str) -> list[Cache] | str:
    """The caches of one sort, or why their files cannot be told."""
    found = [item for item in record.caches if wanted(item)]
    if not found:
        return f"the engine's adapter names no {what}" + (", or it was not looked at" if record.caches else "")
    for item in found:
        if item.new_files is None:
            return f"the cache {item.name!r} was not counted after the boot"
        if item.new_files and not item.new_kinds:
            return f"what the files of the cache {item.name!r} are was not told"
    return found


def written(kinds: frozenset[str], wanted: Callable[[Cache], bool], what: str) -> Derive:
    """How many files of *kinds* are new, or written again, in the caches of one sort."""

    def derive(record: BootRecord) -> Value:
        found = caches(record, wanted, what)
        return Value(None, None, found) if isinstance(found, str) else Value(float(_files(found, kinds)), "inventory")

    return derive


def _files(found: Iterable[Cache], kinds: frozenset[str]) -> int:
    return sum(count for item in found for kind, count in item.new_kinds.items() if kind in kinds)


def bytecode(item: Cache) -> bool:
    return item.name == "bytecode"


def compiled(item: Cache) -> bool:
    return cache_kinds.is_compile_cache(item.name)


def no_bytecode(item: Cache) -> bool:
    return not bytecode(item)


def cache_files_written(record: BootRecord) -> Value:
    found = caches(record, no_bytecode, "cache")
    if isinstance(found, str):
        return Value(None, None, found)
    return Value(float(sum(item.new_files or 0 for item in found)), "inventory")


def caches_missed(record: BootRecord) -> Value:
    found = caches(record, lambda item: True, "cache")
    if isinstance(found, str):
        return Value(None, None, found)
    full = [item for item in found if item.before.files]
    return Value(float(sum(_files([item], cache_kinds.COMPILED) > 0 for item in full)), "inventory")


def reference(name: str) -> Derive:
    return lambda record: workload.of(record.references, name)


def _counter(name: str, text: str, derive: Derive, source: str = "inventory") -> Metric:
    return Metric(name, "count", text, whole(derive), source, after_stop=True, counter=True)


COUNTER_METRICS = (
    _counter(
        "kernels_compiled",
        "New kernels in the compile caches: Triton's, Inductor's, FlashInfer's and the like, and the driver's of CUDA.",
        written(KERNELS, compiled, "compile cache"),
    ),
    _counter(
        "graphs_compiled",
        "New compiled graphs and engines in the compile caches. A graph that two caches hold is counted in each.",
        written(GRAPHS, compiled, "compile cache"),
    ),
    _counter(
        "bytecode_compiled",
        "Python modules whose bytecode was compiled: new .pyc files, those of the probe's own modules included.",
        written(frozenset({"modules"}), bytecode, "cache of bytecode"),
    ),
    _counter(
        "cache_files_written",
        "Files that are new, or were written again, in all caches but that of bytecode.",
        cache_files_written,
    ),
    _counter(
        "caches_missed",
        "Caches that held files before the start and to which the boot added something compiled all the same.",
        caches_missed,
    ),
    _counter(
        "modules_imported",
        "Modules in the Python processes that run when the path ends, summed. Unmeasured where the probe of one of them "
        "does not tell, or where the engine was stopped so soon that a late import may be missing.",
        modules_imported,
        "probe",
    ),
    _counter(
        "processes_started",
        f"Processes of the engine that run when the path ends, or lived for {LASTING:.0f} s before that. Shorter ones are "
        "left out: how many of them the samples of the process tree see is chance.",
        processes_started,
        "proc",
    ),
)

REFERENCE_METRICS = (
    Metric(
        workload.IMPORT,
        "s",
        "A reference of the machine at that moment, timed after the stop: an interpreter starts, imports a fixed set of "
        "standard modules and ends, the median of three. Comparable within one version of Python, which its source names.",
        reference(workload.IMPORT),
        after_stop=True,
    ),
    Metric(
        workload.READ,
        "B/s",
        "The same: a plain sequential read of the weight files out of the page cache, at most 64 MiB, the median of three.",
        reference(workload.READ),
        better="higher",
        after_stop=True,
    ),
    Metric(
        workload.COPY,
        "B/s",
        "The same: copies from pinned host memory to the first GPU, the best of eight, made once a session.",
        reference(workload.COPY),
        "cuda",
        better="higher",
        after_stop=True,
        gpu=True,
    ),
    Metric(
        workload.TIME,
        "s",
        "How long timing the references took after the stop; it is not in harness_time.",
        reference(workload.TIME),
        after_stop=True,
    ),
)
