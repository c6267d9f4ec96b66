"""Other sources beside the critical path: they fill what is unattributed, and where they differ it is said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from pytest_coldstart.attribution import (
    DISAGREE_SECONDS,
    DISAGREE_SHARE,
    UNATTRIBUTED,
    Disagreement,
    Reading,
)
from pytest_coldstart.phases.chain import chain
from pytest_coldstart.phases.path import Step, step_of
from pytest_coldstart.phases.tree import Node

#: A source's number over more phases than this is of a stretch of time, in which there are others too.
_COMPARED = 2
#: Sources of a step that the probe and the table of processes saw.
_SEEN = ("probe", "probe gap", "proc")


def with_our_names(readings: Sequence[Reading], nodes: Sequence[Node]) -> list[Reading]:
    """The readings with each engine's name of a process replaced by the one it has here, where one is meant."""
    found = []
    for reading in readings:
        node = next((node for node in nodes if _means(reading.process, node)), None)
        found.append(replace(reading, process=node.name) if node else reading)
    return found


def _means(said: str, node: Node) -> bool:
    """Whether an engine's name of a process is that of *node*: "Worker_TP0" is "VLLM::Worker_TP0"."""
    if said == f"pid {node.pid}":
        return True
    return bool(said) and said.rpartition("::")[2] == node.name.rpartition("::")[2]


def filled(steps: Sequence[Step], readings: Sequence[Reading]) -> list[Step]:
    """The path with unattributed time given to readings of one phase that say when it was; the shortest wins."""
    clocked = [
        (reading.end - reading.begin, reading.begin, reading.end, reading)
        for reading in readings
        if reading.begin is not None and reading.end is not None and len(reading.phases) == 1
    ]
    result: list[Step] = []
    for step in steps:
        here = [item for item in clocked if _may_fill(item[3], step) and item[1] < step.end and item[2] > step.begin]
        if step.phase != UNATTRIBUTED or not here:
            result.append(step)
            continue
        cuts = {step.begin, step.end}
        cuts.update(cut for item in here for cut in item[1:3] if step.begin < cut < step.end)
        for begin, end in pairwise(sorted(cuts)):
            part = replace(step, begin=begin, end=end)
            inside = [item for item in here if item[1] <= begin and item[2] >= end]
            if inside:
                reading = min(inside, key=lambda item: item[0])[3]
                process = reading.process or step.process
                part = Step(begin, end, reading.phases[0], reading.source, process, reading.text)
            result.append(part)
    return result


def _may_fill(reading: Reading, step: Step) -> bool:
    """Of a process that was seen to work, what another process says of itself explains nothing."""
    return step.open or not reading.process or reading.process == step.process


@dataclass(frozen=True)
class _Sum:
    phases: tuple[str, ...]
    process: str
    source: str
    seconds: float
    text: str
    #: When that was, apart and in order; empty where the source does not say.
    intervals: tuple[tuple[float, float], ...] = ()
    #: What it may be off by because it was rounded, seconds.
    resolution: float = 0.0


def disagreements(
    steps: Sequence[Step], nodes: Sequence[Node], readings: Sequence[Reading], origin: float, end: float
) -> tuple[Disagreement, ...]:
    """Each reading against what the probe saw in the same phases, and against every other source's reading of them.

    A reading that names a process is held against that process and all below it, any other against the path; one
    that says when it was, against what was seen in that time alone.
    """
    sums = _sums(readings)
    found = []
    below: dict[str, list[Step]] = {
        node.name: [step_of(piece, origin) for piece in chain(node, node.begin, origin + end, [])]
        for node in nodes
        if any(item.process == node.name for item in sums) and any(trace.samples for trace in node.traces)
    }
    for item in sums:
        if len(item.phases) > _COMPARED:
            continue
        seen = _seen(item, steps, below)
        if seen is None:
            continue
        least, open_time = seen
        # What the probe could not name may be what the other source names: of that it says nothing.
        nearest = min(max(item.seconds, least), least + open_time)
        if _differ(nearest, item.seconds, item.resolution):
            found.append(Disagreement(item.phases, "probe", least, item.source, item.seconds, item.text))
    for one, other in combinations(sums, 2):
        if (one.phases, one.process) == (other.phases, other.process) and one.source != other.source:
            texts = " / ".join(dict.fromkeys((one.text, other.text)))
            if _differ(one.seconds, other.seconds, one.resolution + other.resolution):
                found.append(Disagreement(one.phases, one.source, one.seconds, other.source, other.seconds, texts))
    return tuple(found)


def _differ(one: float, other: float, resolution: float = 0.0) -> bool:
    """*resolution*: what a figure may be off by because it was rounded, such as "4 secs"."""
    return abs(one - other) - resolution > max(DISAGREE_SECONDS, DISAGREE_SHARE * max(one, other))


def _sums(readings: Sequence[Reading]) -> list[_Sum]:
    """One number for each source, process and set of phases: what overlaps or says the same twice counts once."""
    groups: defaultdict[tuple[tuple[str, ...], str, str, bool], list[Reading]] = defaultdict(list)
    for reading in readings:
        clocked = reading.begin is not None and reading.end is not None
        groups[tuple(sorted(reading.phases)), reading.process, reading.source, clocked].append(reading)
    sums = []
    for (phases, process, source, _), group in groups.items():
        text = " / ".join(dict.fromkeys(item.text for item in group))
        intervals = _union(
            [(item.begin, item.end) for item in group if item.begin is not None and item.end is not None]
        )
        by_text: defaultdict[str, float] = defaultdict(float)
        for item in group:
            by_text[item.text] += item.seconds
        seconds = sum(end - begin for begin, end in intervals) if intervals else max(by_text.values())
        resolution = sum(item.resolution for item in group)
        sums.append(_Sum(phases, process, source, seconds, text, intervals, resolution))
    return sums


def _union(intervals: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The same time in intervals that do not touch, in order."""
    result: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return tuple(result)


def _seen(item: _Sum, steps: Sequence[Step], below: Mapping[str, Sequence[Step]]) -> tuple[float, float] | None:
    """Seconds that the probe saw of these phases, and those that it could give no phase; None if it did not look.

    *below*: process -> what it and its own did.
    """
    looked = below.get(item.process) if item.process else steps
    if not looked or not any(step.source.startswith("probe") for step in looked):
        return None
    intervals = item.intervals or ((float("-inf"), float("inf")),)
    seen = open_time = 0.0
    for step in looked:
        here = sum(max(min(step.end, end) - max(step.begin, begin), 0.0) for begin, end in intervals)
        if step.phase == UNATTRIBUTED or step.source not in _SEEN:
            open_time += here
        elif step.phase in item.phases:
            seen += here
    return seen, open_time
