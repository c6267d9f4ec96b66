"""What a boot did with memory, as text: its devices, its ranks' allocators, its KV cache, and how fast the weights came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_coldstart import units
from pytest_coldstart.fragmentation import PARTS
from pytest_coldstart.load import sentence
from pytest_coldstart.memory import GPU, Allocator, Burst, GPUProcess, KVCache, Memory
from pytest_coldstart.record import BootRecord, Value
from pytest_coldstart.report.columns import fit, one_line, table, width_of, wrapped
from pytest_coldstart.report.waterfall import Track

_PART_WORDS = {"allocator_fragmentation": "allocator", "kv_fragmentation": "KV"}

_STATES = {
    "mig": "its MIG instances share it",
    "no_permission": "we may not read all of it",
    "vanished": "it vanished during the boot",
    "unsupported": "its driver does not tell",
}


@dataclass(frozen=True)
class Part:
    """A table with its rows, or without titles sentences; one of both is empty."""

    titles: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    texts: tuple[str, ...] = ()


def lines(record: BootRecord, width: int) -> list[str]:
    """The section of ``coldstart show``, each line at most *width* columns; empty where nothing is known."""
    found: list[str] = []
    for part in parts(record):
        found += _table(part.titles, part.rows, width) if part.titles else _wrapped(part.texts, width)
    return found


def parts(record: BootRecord) -> list[Part]:
    """All that is known of a boot's memory, in order, without what is empty."""
    memory = record.memory
    names = {str(item.pid): item.name for item in record.attribution.processes}
    words = fragmentation_words(record)
    found = [
        _texts([words] if words else []),
        Part(_DEVICES, tuple(map(_device_row, memory.gpus))),
        _texts(text for gpu in memory.gpus for text in _device(gpu, names)),
        _texts(_sizes(memory.sizes)),
        Part(_ALLOCATOR, tuple(map(_allocator_row, memory.allocators))),
        _texts(_rest(memory)),
        Part(_KV, tuple(map(_kv_row, memory.kv))),
        _texts([*_kv(memory.kv), *_burst(memory.burst), *_load(memory)]),
        _texts(f"not known: {text}" for text in memory.missing),
    ]
    found = [part for part in found if part.rows or part.texts]
    if found and memory.impossible:
        found.append(_texts(f"{name} cannot exist here: {reason}" for name, reason in memory.impossible.items()))
    return found


def _texts(found: Iterable[str]) -> Part:
    return Part(texts=tuple(found))


def fragmentation_words(record: BootRecord) -> str:
    """``fragmentation 1.9 %: allocator 1.2 %, KV 1.9 %``; empty where no part of it was measured."""
    parts = [name for name in PARTS if name in record.metrics]
    if all(record.metrics[name].value is None for name in parts):
        return ""
    words = [f"{_PART_WORDS[name]} {_share(record, name)}" for name in parts]
    return f"fragmentation {_share(record, 'fragmentation')}: {', '.join(words)}"


def _share(record: BootRecord, name: str) -> str:
    """The reason goes with a part; the whole has none but theirs."""
    value = record.metrics.get(name, Value(None))
    if value.value is not None:
        return units.show(value.value, "fraction")
    word = "n/a" if name in record.memory.impossible else "unmeasured"
    return f"{word} ({value.reason})" if name in PARTS else word


def tracks(record: BootRecord) -> list[Track]:
    """Each device's memory in use over time, to be drawn below the waterfall."""
    found = []
    for gpu in record.memory.gpus:
        used = gpu.series.columns.get("memory_used", ())
        samples = [(at, value) for at, value in zip(gpu.series.times, used, strict=False) if value is not None]
        if gpu.total_bytes and samples:
            most = units.show(max(value for _, value in samples), "B")
            words = f"used, in tenths of {units.show(gpu.total_bytes, 'B')}; at most {most}"
            found.append(Track(f"GPU {gpu.index}", tuple(samples), gpu.total_bytes, words))
    return found


def _wrapped(texts: Iterable[str], width: int) -> list[str]:
    return [line for text in texts for line in wrapped(text, width)]


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]], width: int) -> list[str]:
    """A table, or a sentence a row where it would not fit: a number that is cut says something else."""
    rows = [tuple(map(one_line, row)) for row in rows]
    if not rows:
        return []
    widths = [max(map(width_of, column)) for column in zip(titles, *rows, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > width - 2:
        named = ([f"{title} {cell}" for title, cell in zip(titles, row, strict=True) if cell != "-"] for row in rows)
        return _wrapped(map(", ".join, named), width)
    numbers = [index for index, title in enumerate(titles) if title not in ("point", "process")]
    return [f"  {line}" for line in table(titles, rows, width - 2, numbers)]


# -- devices

_DEVICES = ("GPU", "idle", "before", "ready", "peak", "after", "leaked")


def _device_row(gpu: GPU) -> tuple[str, ...]:
    sizes = (gpu.idle_bytes, gpu.before_bytes, gpu.ready_bytes, gpu.peak_bytes, gpu.after_bytes, gpu.leaked_bytes)
    return (str(gpu.index), *(units.show(size, "B") for size in sizes))


def _device(gpu: GPU, names: Mapping[str, str]) -> Iterable[str]:
    """What the table has no room for; *names*: pid -> name of the boot's processes."""
    persistence = {True: "persistence mode on", False: "persistence mode off", None: ""}[gpu.persistence]
    total = units.show(gpu.total_bytes, "B") if gpu.total_bytes else ""
    head = [gpu.name, total, gpu.uuid, _STATES.get(gpu.state, ""), _link(gpu), persistence]
    texts = [", ".join(filter(None, head))]
    used = [
        f"{names.get(pid, f'pid {pid}')} {units.show(size, 'B')}{_context(gpu.context_bytes.get(pid))}"
        for pid, size in gpu.process_bytes.items()
    ]
    texts += [f"most that a process used: {', '.join(used)}"] if used else []
    if gpu.foreign:
        texts.append(f"numbers are suspect: {', '.join(map(_foreign, gpu.foreign))}")
    texts += [f"throttled: {', '.join(gpu.throttle)}"] if gpu.throttle else []
    if gpu.errors:
        texts.append("errors: " + ", ".join(f"{name} {count}" for name, count in gpu.errors.items()))
    texts += [f"not known: {text}" for text in gpu.missing]
    return [f"GPU {gpu.index}: {text}" for text in texts]


def _context(size: int | None) -> str:
    return f" (context {units.show(size, 'B')})" if size is not None else ""


def _foreign(process: GPUProcess) -> str:
    size = units.show(process.bytes, "B") if process.bytes is not None else "an unknown size"
    return f"pid {process.pid} ({process.name}) held {size}"


def _link(gpu: GPU) -> str:
    """``PCIe gen 3 x8, trained down from gen 5 x16``."""
    now = _lane(gpu.pcie_gen, gpu.pcie_width)
    if not now:
        return ""
    down = f", trained down from {_lane(gpu.pcie_gen_max, gpu.pcie_width_max)}" if gpu.trained_down else ""
    return f"PCIe {now}{down}"


def _lane(gen: int | None, width: int | None) -> str:
    return " ".join([*([f"gen {gen}"] if gen is not None else []), *([f"x{width}"] if width is not None else [])])


def _sizes(sizes: Mapping[str, int]) -> list[str]:
    words = [f"{name.replace('_', ' ').replace('kv', 'KV')} {units.show(size, 'B')}" for name, size in sizes.items()]
    return [f"the engine says: {', '.join(words)}"] if words else []


# -- allocators

_ALLOCATOR = ("point", "process", "device", "reserved", "peak", "active", "peak", "slack", "retries")


def _allocator_row(item: Allocator) -> tuple[str, ...]:
    slack = 1 - item.active / item.reserved if item.active is not None and item.reserved else None
    return (
        *(item.point, _rank(item), str(item.device)),
        *(units.show(size, "B") for size in (item.reserved, item.reserved_peak, item.active, item.active_peak)),
        *(units.show(slack, "fraction"), units.show(item.retries, "count")),
    )


def _rank(item: Allocator) -> str:
    return fit(item.process, 24) or f"pid {item.pid}"


def _rest(memory: Memory) -> Iterable[str]:
    """What each rank's allocator says besides, at the last point at which it was read."""
    last = {(item.pid, item.device): item for item in memory.allocators}
    for item in last.values():
        facts = (("in pools of CUDA graphs", item.graph_pools), ("in inactive splits", item.inactive_split))
        words = [f"{units.show(size, 'B')} {name}" for name, size in facts if size is not None]
        words += [f"{item.segments} segments"] if item.segments is not None else []
        words += ["expandable segments"] if item.expandable else []
        if words:
            yield f"{_rank(item)}, device {item.device}, {item.point}: {', '.join(words)}"


# -- KV cache, burst, load

_KV = ("point", "used blocks", "of", "tokens", "fragmentation", "capacity", "hit rate", "running", "waiting")


def _kv_row(item: KVCache) -> tuple[str, ...]:
    room = item.used_blocks * item.block_size if item.used_blocks and item.block_size else None
    lost = max(0.0, 1 - item.tokens / room) if room and item.tokens is not None else None
    rate = item.hits / item.queries if item.hits is not None and item.queries else None
    return (
        *(item.point, _count(item.used_blocks), _count(item.total_blocks), _count(item.tokens)),
        *(units.show(lost, "fraction"), _count(item.capacity_tokens), units.show(rate, "fraction")),
        *(_count(item.running), _count(item.waiting)),
    )


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _kv(readings: Iterable[KVCache]) -> list[str]:
    """Where its numbers come from, once for all readings alike."""
    found: dict[str, None] = {}
    for item in readings:
        size = f"blocks of {item.block_size} tokens" if item.block_size else ""
        counted = f"tokens counted by {item.counted_by}" if item.counted_by else ""
        words = ", ".join(filter(None, (size, counted, f"from {item.source}" if item.source else "")))
        if words:
            found[f"KV cache: {words}"] = None
    return list(found)


def _burst(burst: Burst) -> list[str]:
    if burst == Burst():
        return []
    lengths = burst.prompt_tokens
    prompts = f" of {min(lengths):,} to {max(lengths):,} prompt tokens" if lengths else ""
    shared = f", {burst.shared_tokens} shared" if burst.shared_tokens else ""
    held = f"all held at {units.show(burst.held_at, 's')}" if burst.held else "not all held at once"
    text = f"burst {burst.digest}: {burst.requests} requests{prompts}{shared}, {burst.tokens} tokens each; {held}"
    return [text, *(f"burst: {item}" for item in burst.failed)]


def _load(memory: Memory) -> list[str]:
    said = sentence(memory.load)
    return [*([said] if said else []), *(f"load: {text}" for text in memory.load.missing if text not in said)]


def cell_line(records: Iterable[BootRecord]) -> str:
    """One line for the summary of a run: the worst fragmentation of a cell's boots with its parts, and that boot's load."""
    known = [(item, fragmentation_words(item)) for item in records if not item.failed]
    kept = [(item, words) for item, words in known if words or item.memory.gpus]
    if not kept:
        return ""
    worst, words = max(kept, key=lambda one: _fragmentation(one[0]))
    load = sentence(worst.memory.load) if worst.memory.gpus and worst.memory.load.speed else ""
    return "; ".join(filter(None, (words, load, *_suspicions(item for item, _ in kept))))


def _suspicions(records: Iterable[BootRecord]) -> list[str]:
    """What makes the numbers of a cell's boots suspect, each once."""
    found: dict[str, None] = {}
    for gpu in (gpu for record in records for gpu in record.memory.gpus):
        for process in gpu.foreign:
            found[f"suspect: pid {process.pid} ({process.name}) was on GPU {gpu.index} too"] = None
        if gpu.trained_down:
            found[f"suspect: the PCIe link of GPU {gpu.index} had trained down"] = None
    return list(found)


def _fragmentation(record: BootRecord) -> float:
    names = ("fragmentation", *PARTS)
    values = [record.metrics[name].value for name in names if name in record.metrics]
    return max((value for value in values if value is not None), default=-1.0)
