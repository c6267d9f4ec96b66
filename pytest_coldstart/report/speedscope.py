"""The stack samples of one boot as a file for https://www.speedscope.app."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest_coldstart
from pytest_coldstart.phases.timeline import GAP
from pytest_coldstart.phases.trace import Frame, ProcessTrace, Sample
from pytest_coldstart.record import BootRecord

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(record: BootRecord, traces: Sequence[ProcessTrace], origin: float | None = None) -> dict[str, Any]:
    """A "sampled" profile for the main thread of each process, longest first; frames are shared.

    A sample weighs the seconds that it stands for: to the middle between it and its neighbours, and all of a gap
    before it in which nothing could be sampled. Values of a profile are seconds from the boot's start.

    :param traces: what the probe wrote; a process without samples is left out.
    :param origin: the boot's start in seconds of the monotonic clock; None: by the processes that both know.
    :raises ValueError: no process has a sample, or nothing says when the boot started.
    """
    if origin is None:
        origin = _origin(record, traces)
    names = {process.pid: process.name for process in record.attribution.processes}
    frames = _Frames()
    profiles = []
    for item in traces:
        samples = [sample for sample in item.samples if sample.thread == 0]
        if samples:
            profiles.append(_profile(names.get(item.pid, f"pid {item.pid}"), item, samples, origin, frames))
    if not profiles:
        raise ValueError(f"boot {record.boot_id} has no stack samples; boot with --coldstart-probe=full")
    profiles.sort(key=lambda profile: profile["startValue"] - profile["endValue"])
    return {
        "$schema": SCHEMA,
        "name": f"{record.cell_id} {record.boot_id}",
        "exporter": f"pytest-coldstart {pytest_coldstart.__version__}",
        "activeProfileIndex": 0,
        "shared": {"frames": frames.found},
        "profiles": profiles,
    }


def _origin(record: BootRecord, traces: Sequence[ProcessTrace]) -> float:
    starts = {process.pid: process.start for process in record.attribution.processes}
    for item in traces:
        if item.pid in starts:
            return item.started - starts[item.pid]
    raise ValueError(f"boot {record.boot_id}: none of the processes with samples is one of its record")


def _profile(
    name: str, item: ProcessTrace, samples: Sequence[Sample], origin: float, frames: _Frames
) -> dict[str, Any]:
    edges = _edges(item, samples)
    return {
        "type": "sampled",
        "name": name,
        "unit": "seconds",
        "startValue": edges[0] - origin,
        "endValue": edges[-1] - origin,
        "samples": [frames.stack(sample) for sample in samples],
        "weights": [right - left for left, right in pairwise(edges)],
    }


def _edges(item: ProcessTrace, samples: Sequence[Sample]) -> list[float]:
    """Where the time of each sample begins, and where that of the last one ends."""
    first, last = samples[0].when, samples[-1].when
    begin = first if item.python is None else min(item.python, first)
    between = [
        before.when if after.when - before.when > GAP else (before.when + after.when) / 2
        for before, after in pairwise(samples)
    ]
    return [begin, *between, min(max(item.last, last), last + GAP)]


class _Frames:
    """Every frame once, as speedscope shares them between profiles."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self._places: dict[tuple[str, str], int] = {}

    def stack(self, sample: Sample) -> list[int]:
        """The frames of a sample, outermost first; a module that is being imported is named at the end."""
        stack = [self._place(*_named(frame)) for frame in sample.stack]
        innermost = sample.stack[-1].module if sample.stack else ""
        if sample.importing and innermost != sample.importing:
            stack.append(self._place(f"import {sample.importing}", ""))
        return stack

    def _place(self, name: str, file: str) -> int:
        place = self._places.get((name, file))
        if place is None:
            place = self._places[name, file] = len(self.found)
            self.found.append({"name": name, "file": file} if file else {"name": name})
        return place


def _named(frame: Frame) -> tuple[str, str]:
    return (f"{frame.module}:{frame.function}" if frame.module else frame.function or "?", frame.file)
