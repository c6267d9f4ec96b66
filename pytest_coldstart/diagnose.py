"""Why a boot goes nowhere: which phase, which process, since when, where it stands and what it waits on."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_coldstart.observe.open_files import OpenFiles
from pytest_coldstart.observe.proc import sample
from pytest_coldstart.observe.processes import Table, command_of, command_words, is_python, probe_prevented
from pytest_coldstart.observe.waits import BLOCKED, LOCK, SERVES, wait_of
from pytest_coldstart.phases.names import name_all
from pytest_coldstart.phases.trace import Frame, Life, ProcessTrace, Sample
from pytest_coldstart.phases.tree import Node
from pytest_coldstart.process import printable, read_log_tail

#: At most so many lines, of so many characters, with so many frames of a stack.
MOST_LINES, WIDTH, FRAMES = 12, 400, 6
#: Seconds after which the diagnosis is given up: who reads of a process that is stuck in the kernel can be stuck too.
PATIENCE = 5.0
#: A stack counts as the same while it was not away for longer: a loop that polls is elsewhere now and then.
_AWAY = 1.0
#: A start that was read twice may differ by so much.
_SAME = 0.1
#: Where threads stand that wait for work.
_WAITING = ("threading", "queue", "selectors", "concurrent.futures.thread", "multiprocessing.connection")

_IMPORT_SYSTEM = ("_frozen_importlib", "importlib._bootstrap")

Classify = Callable[[Sample], tuple[str, str]]


def diagnose(
    supervisor_pid: int,
    leader_pid: int | None,
    now: float,
    origin: float,
    traces: Sequence[ProcessTrace],
    log_path: Path,
    classify: Classify | None = None,
    mask: Callable[[str], str] = str,
    log_origin: float | None = None,
) -> tuple[str, ...]:
    """What holds up the tree below *supervisor_pid*, a line each, the most telling first; at most 12 lines.

    To be called while the tree lives and before anything of it is signalled. *now*, *origin* (the boot's start) and
    *log_origin* (from which the log counts, where it is another) are seconds of the monotonic clock. *leader_pid* is
    the engine's first process. *classify* gives a sample's phase and detail, "" unknown. *mask* takes secrets out of
    every line. Never raises, and takes at most about 5 s.
    """
    found: list[str] = []
    log = _Log(log_path, now - (origin if log_origin is None else log_origin), mask)

    def look() -> None:
        try:
            found.extend(_Look(supervisor_pid, leader_pid, now, origin, traces, log, classify).lines())
        except Exception as error:  # whatever it is, the boot's own failure is what has to be told
            found.append(f"no diagnosis: {type(error).__name__}: {error}")

    thread = threading.Thread(target=look, daemon=True, name="coldstart-diagnosis")
    thread.start()
    thread.join(PATIENCE)
    lines = list(found) or [f"no diagnosis: looking at the processes took more than {PATIENCE:g} s"]
    return tuple(_cut(printable(mask(line))) for line in lines[:MOST_LINES])


@dataclass(frozen=True)
class _Standing:
    """Where a process stands by its probe. ``since``: from when on its stack was the same."""

    sample: Sample
    since: float
    silent: float


@dataclass(frozen=True)
class _Log:
    """An engine's log. ``age``: seconds that it has been written for."""

    path: Path
    age: float
    mask: Callable[[str], str]

    def line(self, pid: int | None) -> str:
        """What its last line that names the process says, or else its last line."""
        lines = [line for line in read_log_tail(self.path, 100_000, None).splitlines() if line.strip()]
        named = [line for line in lines if pid is not None and re.search(rf"\bpid[=: ]{pid}\b", line)]
        if not lines:
            return "the log is empty"
        offset, text = _split(named[-1] if named else lines[-1])
        age = "" if offset is None else f", {max(0.0, self.age - offset):.1f} s old"
        return f"{'its last line of the log' if named else 'the last line of the log'}{age}: {self.mask(text)!r}"


class _Look:
    """One look at a tree."""

    def __init__(
        self,
        supervisor: int,
        leader: int | None,
        now: float,
        origin: float,
        traces: Sequence[ProcessTrace],
        log: _Log,
        classify: Classify | None,
    ) -> None:
        self.now, self.origin, self.log, self.classify = now, origin, log, classify
        look = sample(supervisor)
        table = Table()
        table.note(look.when, look.seen, look.codes)
        lives = {life.pid: life for life in table.lives() if life.ended is None}
        self.parents = {pid: life.parent for pid, life in lives.items()}
        # After an exec the last trace counts; one that ended before the process began is of another one.
        self.traces = {
            trace.pid: trace
            for trace in sorted(traces, key=lambda trace: trace.last)
            if trace.pid in lives and trace.last >= lives[trace.pid].started - _SAME
        }
        self.pids, self.leader = list(self.parents), leader
        self.files = OpenFiles(self.pids, _names(lives, leader, self.traces), outside=supervisor)
        self.above = {pid: _above(pid, self.parents) for pid in self.pids}
        self.waits = {pid: wait_of(self.files, pid, self._below(pid)) for pid in self.pids}

    def _below(self, pid: int) -> list[int]:
        return [other for other in self.pids if pid in self.above[other]]

    def lines(self) -> list[str]:
        if not self.waits:
            return ["no process of the engine lives", self.log.line(None)]
        chosen = min(self.pids, key=self._order)
        lines = [self._what(chosen), *self._stack(chosen), self.log.line(chosen), *self._locks(chosen)]
        others = [pid for pid in self.pids if pid != chosen and not self._idle(pid)]
        others.sort(key=lambda pid: (len(self.above[pid]), pid))
        room = MOST_LINES - len(lines)
        shown = others if len(others) <= room else others[: room - 1]
        lines += [self._other(pid) for pid in shown]
        if len(others) > len(shown):
            lines.append(f"{len(others) - len(shown)} more processes wait")
        return lines

    def _order(self, pid: int) -> tuple[bool, int, int, int]:
        """The process on which the others wait comes first.

        Of those that wait for none of the tree it is the most telling one, of equals the one furthest from the leader.
        """
        wait = self.waits[pid]
        return bool(wait.on), wait.rank, -len(self.above[pid]), -pid

    def _idle(self, pid: int) -> bool:
        """Whether it only waits to be asked, or for word from those that started it."""
        wait = self.waits[pid]
        if pid == self.leader:
            return False
        return wait.rank == SERVES or (wait.rank == BLOCKED and not wait.on.isdisjoint(self.above[pid]))

    # -- lines

    def _what(self, pid: int) -> str:
        standing = self._standing(pid)
        line = f"{self._phase(standing)}: {self.files.who(pid)} {self.waits[pid].text}"
        if standing is None:
            return line
        length = self.now - standing.since
        if standing.silent > _AWAY:
            line += f"; its samples end at {standing.sample.when - self.origin:.1f} s ({standing.silent:.1f} s ago)"
        if length - standing.silent <= _AWAY:
            return line if standing.silent > _AWAY else f"{line}; its stack changed {length:.1f} s ago"
        return f"{line}; its stack is the same since {standing.since - self.origin:.1f} s (for {length:.1f} s)"

    def _phase(self, standing: _Standing | None) -> str:
        if standing is None or self.classify is None:
            return "phase unknown"
        phase, detail = self.classify(standing.sample)
        return f"{phase} ({detail})" if phase and detail else phase or "phase unknown"

    def _stack(self, pid: int) -> list[str]:
        standing = self._standing(pid)
        if standing is None:
            return [f"no stack of it is known: {self._why_not(pid)}"]
        lines = [f"its stack, innermost first: {_frames(standing.sample)}"]
        last = {item.thread: item for item in self.traces[pid].samples if item.thread}
        busy = [item for item in last.values() if item.stack and item.stack[-1].module not in _WAITING]
        if busy and _waits_for_threads(standing.sample):
            lines.append(f"the thread of it that moved last: {_frames(max(busy, key=lambda item: item.when))}")
        return lines

    def _why_not(self, pid: int) -> str:
        command = command_of(pid)
        if not command:
            return "it tells no command line"
        if not is_python(command) and pid not in self.traces:
            return f"it is not run by a Python interpreter ({(command_words(command) or ['?'])[0]})"
        return probe_prevented(command) or "the probe has told none"

    def _locks(self, pid: int) -> list[str]:
        """Locks that are in a circle, and those that a loop of filelock may be after, which shows in no wait."""
        lines, path = [], [pid]
        while (wait := self.waits.get(path[-1])) and wait.rank == LOCK and len(wait.on) == 1:
            path.append(next(iter(wait.on)))
            if path[-1] in path[:-1]:
                circle = path[path.index(path[-1]) :]
                lines.append(f"these wait for each other's locks: {' -> '.join(map(self.files.who, circle))}")
                break
        standing = self._standing(pid)
        if standing and any(frame.module.partition(".")[0] == "filelock" for frame in standing.sample.stack):
            held = self.files.held_lock_files()
            lines.append(f"it polls a lock of filelock; lock files held: {', '.join(held[:3]) or 'none that is seen'}")
        return lines

    def _other(self, pid: int) -> str:
        wait, standing = self.waits[pid], self._standing(pid)
        where = f"; it stands in {_frame(standing.sample.stack[-1], standing.sample.line)}" if standing else ""
        return f"{self.files.who(pid)} {wait.text}{where}"

    def _standing(self, pid: int) -> _Standing | None:
        trace = self.traces.get(pid)
        samples = [item for item in trace.samples if not item.thread and item.stack] if trace else []
        if trace is None or not samples:
            return None
        last = samples[-1]
        since = last.when
        for earlier in reversed(samples):
            if (earlier.stack, earlier.line) == (last.stack, last.line):
                since = earlier.when
            elif since - earlier.when > _AWAY:
                break
        return _Standing(last, since, max(0.0, self.now - trace.last))


def _names(lives: Mapping[int, Life], leader: int | None, traces: Mapping[int, ProcessTrace]) -> dict[int, str]:
    """The names that the processes have in the record too."""
    nodes = [
        Node(life.pid, life.parent, life.started, 0.0, [traces[life.pid]] if life.pid in traces else [], life)
        for life in sorted(lives.values(), key=lambda life: life.pid != leader)
    ]
    name_all(nodes)
    return {node.pid: node.name for node in nodes}


def _above(pid: int, parents: Mapping[int, int]) -> list[int]:
    """Its ancestors in the tree, the nearest one first."""
    found: list[int] = []
    while (pid := parents.get(pid, 0)) in parents and pid not in found:
        found.append(pid)
    return found


def _waits_for_threads(sample: Sample) -> bool:
    return sample.stack[-1].module in _WAITING or any(frame.module.startswith("asyncio") for frame in sample.stack[-3:])


def _frames(sample: Sample) -> str:
    """The innermost frames; those of the import system stand between all others at an import, and tell nothing."""
    outer = [frame for frame in sample.stack[:-1] if not frame.module.startswith(_IMPORT_SYSTEM)]
    inner = [_frame(sample.stack[-1], sample.line), *map(_frame, reversed(outer[1 - FRAMES :]))]
    return " < ".join(inner) + (" < ..." if len(outer) >= FRAMES else "")


def _frame(frame: Frame, line: int = 0) -> str:
    return f"{frame.module or frame.file}:{frame.function}{f' line {line}' if line else ''}"


def _split(line: str) -> tuple[float | None, str]:
    """``[+  12.345] text`` -> its offset, and the text."""
    found = re.match(r"\[\+ *(\d+\.\d+)\] ?(.*)", line)
    return (float(found[1]), found[2]) if found else (None, line)


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."
