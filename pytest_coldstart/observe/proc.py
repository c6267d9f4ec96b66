"""What a process tree uses, from /proc: memory, CPU, faults, bytes read from storage.

A process that ended took its counters along; those of ended children live on in the parent
that reaped them (cutime, cminflt, the io sums), and the supervisor reaps whatever has no
other parent. So the sum over the living tree and the supervisor's children is the whole tree.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_coldstart.memory import Series
from pytest_coldstart.observe.processes import Mask, Seen, Table
from pytest_coldstart.observe.samples import Samples
from pytest_coldstart.phases.trace import Life
from pytest_coldstart.process import exit_words
from pytest_coldstart.record import Usage

_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

#: What is kept over time, and samples after which every second one is left out: a record is stored for ever.
_COLUMNS, _KEPT = ("rss", "cpu_time", "read_bytes", "written_bytes"), 400

#: Share of one core that sampling may take; where a sample costs more, fewer are taken.
MOST_CPU = 0.01


@dataclass(frozen=True)
class Sample:
    """Sums over the tree at one moment; ``when`` is a monotonic second."""

    when: float
    processes: int
    rss: int
    cpu_time: float
    minor_faults: int
    major_faults: int
    read_bytes: int | None
    written_bytes: int | None
    #: Those that run, zombies left out: pid -> name.
    names: Mapping[int, str] = field(default_factory=dict)
    #: Zombies: pid -> exit code, below 0 the signal.
    codes: Mapping[int, int] = field(default_factory=dict)
    #: Everything but the supervisor.
    seen: Mapping[int, Seen] = field(default_factory=dict)


def tree(root: int) -> list[int]:
    """*root* and its living descendants, by the kernel's lists of children."""
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                    todo.extend(int(child) for child in file.read().split())
        except OSError:
            continue
    return found


def sample(supervisor: int) -> Sample:
    """Sum over the tree below *supervisor*; of the supervisor itself only what it reaped counts."""
    rss, ticks, minor, major = 0, 0, 0, 0
    read: int | None = 0
    written: int | None = 0
    processes = 0
    names: dict[int, str] = {}
    codes: dict[int, int] = {}
    seen: dict[int, Seen] = {}
    for pid in tree(supervisor):
        found = _stat(pid)
        if found is None:
            continue
        name, state, fields = found
        zombie = state in "ZX"
        if zombie:
            codes[pid] = os.waitstatus_to_exitcode(fields[49])
        elif pid != supervisor:
            names[pid] = name
        # Fields of proc(5), counted from the state: ppid 1, minflt 7, cminflt 8, majflt 9, cmajflt 10,
        # utime 11, stime 12, cutime 13, cstime 14, starttime 19, rss 21, exit code 49.
        minor += fields[8]
        major += fields[10]
        ticks += fields[13] + fields[14]
        if pid != supervisor:
            processes += 1
            seen[pid] = Seen(name, fields[1], fields[19], zombie)
            minor += fields[7]
            major += fields[9]
            ticks += fields[11] + fields[12]
            rss += fields[21] * _PAGE
        read, written = _add_io(pid, read, written)
    return Sample(time.monotonic(), processes, rss, ticks / _TICK, minor, major, read, written, names, codes, seen)


def _stat(pid: int) -> tuple[str, str, list[int]] | None:
    """Name, state, and the numbers from the state on, which counts as 0."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    name, _, rest = text.partition(b"(")[2].rpartition(b")")
    state, *fields = rest.split()
    return name.decode("utf-8", "replace"), state.decode(), [0, *map(int, fields)]


def _add_io(pid: int, read: int | None, written: int | None) -> tuple[int | None, int | None]:
    if read is None or written is None:
        return None, None
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            lines = dict(line.split(b": ") for line in file.read().splitlines())
    except (ProcessLookupError, FileNotFoundError):
        return read, written  # gone since it was listed; its parent has its sums
    except OSError:
        return None, None  # another user's process: an incomplete sum would be a wrong one
    return read + int(lines[b"read_bytes"]), written + int(lines[b"write_bytes"])


class TreeObserver:
    """Samples a tree on a thread of its own until :meth:`close`.

    ``base`` is taken at the launch, so that what the supervisor itself read does not count. *mask* takes secrets out
    of the words of command lines.
    """

    def __init__(self, supervisor: int, every: float = 0.1, mask: Mask = tuple) -> None:
        self.supervisor = supervisor
        self.every = every
        self.base = sample(supervisor)
        self.latest = self.base
        self.peak_rss = 0
        self.samples = 0
        self._series = Samples(_COLUMNS, _KEPT)
        self._first: dict[int, float] = {}
        self._ended: dict[int, tuple[float, str]] = {}
        self._codes: dict[int, int] = {}
        self._table = Table(mask)
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True, name="coldstart-proc")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        begin = time.monotonic()
        while not self._closed.is_set():
            cpu = time.thread_time()
            self.take()
            cost = time.thread_time() - cpu
            # Half a millisecond for a few threads, and some 20 us for each more: engines may have hundreds.
            self._closed.wait(max(self.every if time.monotonic() - begin < 30 else self.every * 2, cost / MOST_CPU))

    def take(self) -> Sample:
        """One sample now. Its own thread and the one that watches the boot both ask."""
        with self._lock:
            before = self.latest
            try:
                self.latest = sample(self.supervisor)
            except (OSError, ValueError):
                return self.latest
            self._note(before.names, self.latest)
            self._table.note(self.latest.when, self.latest.seen, self.latest.codes)
            self.samples += 1
            self.peak_rss = max(self.peak_rss, self.latest.rss)
            self._series.add(self.latest.when, self._since(self.latest))
            return self.latest

    def _note(self, before: Mapping[int, str], last: Sample) -> None:
        for pid in last.names:
            self._first.setdefault(pid, last.when)
        for pid in set(before) - set(last.names):
            self._ended[pid] = (last.when, before[pid])
        self._codes |= last.codes

    def lives(self) -> tuple[Life, ...]:
        """The processes of the tree as the samples taken so far saw them; the supervisor is not one of them."""
        with self._lock:
            return self._table.lives()

    def ended(self, but: int | None, within: float = 15.0, lived: float = 3.0) -> list[str]:
        """``name (pid 12, signal SIGKILL)`` of processes that ended in the last *within* seconds, the first one first.

        How one ended is known where its parent had not asked yet at a sample. Those that ended well or lived for less
        than *lived* seconds are helpers that come and go; *but* is left out.
        """
        now = self.take().when
        found = sorted((when, pid, name) for pid, (when, name) in self._ended.copy().items() if pid != but)
        return [
            f"{name} (pid {pid}{f', {exit_words(self._codes[pid])}' if pid in self._codes else ''})"
            for when, pid, name in found
            if now - when <= within and when - self._first.get(pid, when) >= lived and self._codes.get(pid) != 0
        ]

    def _since(self, now: Sample) -> dict[str, float | None]:
        """What is kept of a sample: memory as it is, the rest since the launch."""
        pairs = {name: (getattr(now, name), getattr(self.base, name)) for name in _COLUMNS if name != "rss"}
        sums = {name: None if a is None or b is None else round(a - b, 3) for name, (a, b) in pairs.items()}
        return {"rss": now.rss, **sums}

    def usage(self, origin: float) -> Usage:
        """What was used from the launch until now; *origin* is the monotonic second of the start."""
        last, base = self.take(), self.base
        read = None if last.read_bytes is None or base.read_bytes is None else last.read_bytes - base.read_bytes
        with self._lock:
            series = self._series.series()
        return Usage(
            peak_rss=self.peak_rss,
            minor_faults=last.minor_faults - base.minor_faults,
            major_faults=last.major_faults - base.major_faults,
            cpu_time=last.cpu_time - base.cpu_time,
            read_bytes=read,
            samples=self.samples,
            series=Series(tuple(round(when - origin, 3) for when in series.times), series.columns),
        )


def device_read_bytes(path: Path) -> int | None:
    """Bytes read so far from the block device that holds *path*; None where there is no such device."""
    try:
        device = path.stat().st_dev
        wanted = (str(os.major(device)), str(os.minor(device)))
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            if (fields[0], fields[1]) == wanted:
                return int(fields[5]) * 512
    except OSError:
        pass
    return None
