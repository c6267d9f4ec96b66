"""From the probe's files to traces. A file may end anywhere: its process may have been killed while it wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pytest_coldstart.phases.trace import Frame, ProcessTrace, Sample
from pytest_coldstart.probe.answers import read_allocators
from pytest_coldstart.probe.lines import lines_of, plain

__all__ = ["FORMAT", "read_allocators", "read_file", "read_folder"]

#: The newest format of a probe's file that is known here.
FORMAT = 1


@dataclass
class _State:
    """What the lines read so far have defined."""

    frames: dict[int, Frame] = field(default_factory=dict)
    stacks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    known: dict[tuple[int, ...], tuple[Frame, ...]] = field(default_factory=dict)
    trace: ProcessTrace | None = None
    #: Of records that could not be written: how many, and the system's words.
    lost: int = 0
    why: str = ""


def read_folder(folder: Path) -> list[ProcessTrace]:
    """Every process that left a file in *folder*, the first started one first. A folder that is missing has none."""
    found = [read_file(path) for path in sorted(folder.glob("*.probe"))]
    return sorted((trace for trace in found if trace is not None), key=lambda trace: (trace.started, trace.pid))


def read_file(path: Path) -> ProcessTrace | None:
    """One process; None where the file's first line is missing or of a format that is not known.

    Lines that cannot be read are skipped. That they were is said in the trace's ``lost``, and so is what the probe
    itself says it could not write, or did not sample.
    """
    state, bad = _State(), 0
    lines = lines_of(path)
    if lines is None:
        return None
    torn = lines.pop()  # whole files end with a newline, so this is empty or cut short
    for raw in lines:
        if not raw:
            continue
        try:
            if raw.endswith(b"\0"):
                raise ValueError("cut short by a full disk")
            _take(state, raw.decode("utf-8", "replace").split("\t"))
        except (ValueError, IndexError, KeyError, OverflowError):
            bad += 1
    trace = state.trace
    if trace is None:
        return None
    bad += bool(torn)
    reasons = [trace.lost] if trace.lost else []
    if state.lost:
        reasons.append(f"{state.lost} of its records could not be written: {state.why}")
    elif bad:
        reasons.append(f"{bad} {'line' if bad == 1 else 'lines'} of its file could not be read")
    trace.lost = "; ".join(reasons)
    return trace


def _take(state: _State, fields: list[str]) -> None:
    """One line. :raises ValueError, IndexError, KeyError: it is no whole line of this format."""
    kind, trace = fields[0], state.trace
    if trace is None:
        if kind != "P" or int(fields[1]) > FORMAT:
            raise ValueError("no header")
        state.trace = ProcessTrace(
            pid=int(fields[3]),
            parent=int(fields[4]),
            started=_seconds(fields[5]),
            python=_seconds(fields[6]),
            mode=fields[2],
            last=_seconds(fields[6]),
            forked=fields[7] == "fork",
        )
        if fields[7] == "fork":
            # The interpreter came up in the parent: a fork has no start of its own to wait for.
            state.trace.python = state.trace.started
        elif fields[7] == "plugin":
            # It began in the middle of a life: when the interpreter was up is not known.
            state.trace.python = None
            state.trace.late = True
    elif kind == "S":
        _sample(state, trace, fields)
    elif kind == "F":
        if int(fields[1]) in state.frames:
            state.known.clear()  # its number has come to mean another frame
        state.frames[int(fields[1])] = Frame(plain(fields[2]), plain(fields[3]), plain(fields[4]))
    elif kind == "E":
        trace.last = _seconds(fields[1])
        state.stacks.pop(int(fields[2]), None)
        trace.samples.append(Sample(trace.last, int(fields[2]), ()))
    elif kind == "C":
        trace.last, trace.probe_cpu, trace.modules = _seconds(fields[1]), _seconds(fields[2]), int(fields[3])
    elif kind == "T":
        trace.stamps.setdefault(fields[1], _seconds(fields[2]))
    elif kind == "N":
        trace.names.append((_seconds(fields[1]), plain(fields[2])))
    elif kind == "V":
        trace.cache_paths[fields[1]] = plain(fields[2])
    elif kind == "A":
        trace.argv = tuple(map(plain, fields[1:]))
    elif kind == "L":
        _lost(state, trace, fields)
    elif kind == "X" and fields[2] != "done":
        trace.lost = f"it was sampled no more: {plain(fields[2])}"
    # Lines of a later format's kinds mean nothing here.


def _lost(state: _State, trace: ProcessTrace, fields: list[str]) -> None:
    """Records are missing. Whatever was defined is defined again; what other threads did meanwhile is not known."""
    since = _seconds(fields[1])
    state.lost, state.why = state.lost + int(fields[3]), plain(fields[4])
    for thread in state.stacks:
        if thread:
            trace.samples.append(Sample(since, thread, ()))
    state.stacks.clear()
    state.frames.clear()
    state.known.clear()


def _sample(state: _State, trace: ProcessTrace, fields: list[str]) -> None:
    """A stack is written as how many of the last one's frames it keeps, and those that follow."""
    when, thread, line, keep = _seconds(fields[1]), int(fields[2]), int(fields[3]), int(fields[4])
    last = state.stacks.get(thread, ())
    if not 0 <= keep <= len(last):
        state.stacks.pop(thread, None)
        raise ValueError("what it keeps was lost")
    numbers = last[:keep] + tuple(int(number) for number in fields[5].split(",") if number)
    # One object for equal stacks, which is also how they are told to be equal later.
    stack = state.known.get(numbers)
    if stack is None:
        stack = state.known[numbers] = tuple(state.frames[number] for number in numbers)
    importing = plain(fields[6])
    state.stacks[thread] = numbers
    trace.last = when
    trace.samples.append(Sample(when, thread, stack, line, importing))


def _seconds(text: str) -> float:
    return int(text) / 1e6
