"""Statistics of torch's allocator that the probes gave when they were asked. Of files that may end anywhere."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_coldstart.memory import Allocator
from pytest_coldstart.probe.lines import lines_of, plain

#: The file in the folder of the probe's output that names the point that is asked for.
ASK = "memory"

_POLL = 0.1
#: The fields of a line ``M`` after its kind, its time and the point.
_FIELDS = (
    *("allocated", "allocated_peak", "reserved", "reserved_peak", "active", "active_peak", "inactive_split"),
    *("requested", "retries", "segments", "graph_pools"),
)


@dataclass
class _File:
    """What one process's file says of its allocator."""

    pid: int
    #: Whether it has had CUDA memory, or what bars it from being asked.
    has_memory: bool = False
    readings: list[Allocator] = field(default_factory=list)
    #: Point -> why it was not read there; "" is for all the sampling.
    unread: dict[str, str] = field(default_factory=dict)
    ended: str = ""

    def answered(self, point: str) -> bool:
        return point in self.unread or any(item.point == point for item in self.readings)


def read_allocators(folder: Path) -> tuple[tuple[Allocator, ...], list[str]]:
    """Every answer in *folder*, by pid, device and point in the order they came, and why some are missing.

    ``process`` is left empty, and ``at`` is a second of the monotonic clock. Of two answers of one device to one point the later one counts. Lines that cannot be
    read are passed over, and so is a folder that is not there.
    """
    found: dict[tuple[int, int, str], Allocator] = {}
    missing: list[str] = []
    for item in _files(folder):
        found.update({(one.pid, one.device, one.point): one for one in item.readings})
        reasons = dict.fromkeys(item.unread.values())
        missing += [f"the allocator of process {item.pid} was not read: {why}" for why in reasons]
    return tuple(found[key] for key in sorted(found, key=lambda key: key[:2])), missing


def wait_for(folder: Path, point: str, patience: float = 3.0) -> list[str]:
    """Wait until each living process that has had CUDA memory answered *point*, at most *patience* seconds.

    Returns one sentence for each that did not. What an answer says, :func:`read_allocators` reads.
    """
    deadline = time.monotonic() + patience
    while True:
        waiting = [item for item in _newest(folder) if item.has_memory and not item.answered(point)]
        waiting = [item for item in waiting if _lives(item.pid)]
        if not waiting or time.monotonic() >= deadline:
            break
        time.sleep(_POLL)
    return [
        f"the allocator of process {item.pid} was not read at the point {point!r}: "
        + (f"its probe has ended: {item.ended}" if item.ended else f"no answer within {patience:g} s")
        for item in waiting
    ]


def _files(folder: Path) -> list[_File]:
    """Of every process, in the order of their beginnings; other files than PID-MICROSECONDS.probe are passed over."""
    named = [(path.stem.partition("-"), path) for path in folder.glob("*.probe")]
    ours = [(int(at), int(pid), path) for (pid, _, at), path in named if pid.isdecimal() and at.isdecimal()]
    return [_file(pid, path) for _, pid, path in sorted(ours)]


def _newest(folder: Path) -> list[_File]:
    """The last file of each process: one that executed another program has more than one."""
    return list({item.pid: item for item in _files(folder)}.values())


def _file(pid: int, path: Path) -> _File:
    item = _File(pid)
    for raw in (lines_of(path) or [b""])[:-1]:
        if raw[:2] not in (b"G\t", b"M\t", b"U\t", b"X\t") or raw.endswith(b"\0"):
            continue
        try:
            _take(item, raw.decode("utf-8", "replace").split("\t"))
        except (ValueError, IndexError):
            continue
    return item


def _take(item: _File, fields: list[str]) -> None:
    """One line. :raises ValueError, IndexError: it is not whole."""
    kind = fields[0]
    if kind == "U":
        item.unread[fields[2]] = plain(fields[3])
        item.has_memory = True
    elif kind == "X":
        item.ended = "" if fields[2] == "done" else plain(fields[2])
    elif kind == "G":
        item.has_memory = True
    else:
        numbers = [int(text) if text else None for text in fields[4 : 5 + len(_FIELDS)]]
        values: dict[str, Any] = dict(zip(_FIELDS, numbers, strict=False))
        values["expandable"] = None if numbers[len(_FIELDS)] is None else bool(numbers[len(_FIELDS)])
        item.readings.append(Allocator(fields[2], item.pid, int(fields[3]), at=int(fields[1]) / 1e6, **values))
        item.has_memory = True


def _lives(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
