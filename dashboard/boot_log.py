"""The engine's log of a boot: lines with their offsets from the start, from the file where it was kept, else from the record."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from pytest_coldstart import units
from pytest_coldstart.process import printable
from pytest_coldstart.record import BootRecord
from pytest_coldstart.store.home import Home

#: Bytes of a file's beginning and of its end that are read; columns of a line that are shown.
HEAD, TAIL, WIDTH = 1 << 20, 1 << 20, 500
#: Lines that a page shows at once.
LINES = 400

#: What the supervisor writes before each line.
_OFFSET = re.compile(r"\[\+ *(\d{1,9}\.\d{1,6})\] ?")


@dataclass(frozen=True)
class Line:
    """``at``: seconds from the start; of a line without an offset, that of the line before it."""

    text: str
    at: float | None = None


@dataclass(frozen=True)
class Log:
    """``lines`` in their order. ``about``: where they are from and what of them is left out."""

    lines: tuple[Line, ...] = ()
    about: tuple[str, ...] = ()

    @property
    def timed(self) -> bool:
        return any(line.at is not None for line in self.lines)


def read(home: Home, record: BootRecord) -> Log:
    """The log of *record*. Of the disk nothing is read but regular files in the logs folder of *home*."""
    why = "the log was not kept; run with --coldstart-keep-logs=all"
    if record.log_path:
        found = _file(home, Path(record.log_path))
        if isinstance(found, Log):
            return found
        why = found
    tail = record.failure.log_tail if record.failure else ""
    if tail:
        return Log(_lines(tail), (f"the last lines, as the record holds them ({why})",))
    return Log(about=(f"unmeasured: {why}" if not record.log_path else why,))


def _file(home: Home, path: Path) -> Log | str:
    """The lines of the file, or why they are not read."""
    try:
        # What a link leads to is what counts; and the path is the store's word alone, which anybody may have written.
        real, logs = path.resolve(strict=True), home.logs.resolve(strict=True)
        if not real.is_relative_to(logs):
            return f"the log {path} lies outside the store's folder {home.logs}, and is not read"
        with os.fdopen(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return f"the log {path} is no file"
            head = file.read(HEAD + TAIL)
            rest = about.st_size - len(head)
            if rest > 0:
                file.seek(-TAIL, os.SEEK_END)
                tail = file.read(TAIL)
                head = head[:HEAD]
    except (OSError, ValueError, RuntimeError):  # gone, a NUL in the path, links in a circle
        return f"the log {path} is no longer there"
    if rest <= 0:
        return Log(_lines(_text(head)), (f"{path}, whole",))
    left = units.show(about.st_size - HEAD - TAIL, "B")
    words = f"[{left} in the middle of the file are left out here]"
    # A line that was cut has no offset, or half of a text: it goes.
    lines = (
        *_lines(_text(head).rpartition("\n")[0]),
        Line(words),
        *_lines(_text(tail).partition("\n")[2]),
    )
    shown = f"the first and the last {units.show(HEAD, 'B')} of {units.show(about.st_size, 'B')}"
    return Log(lines, (f"{path}: {shown}",))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _lines(text: str) -> tuple[Line, ...]:
    found: list[Line] = []
    at: float | None = None
    for raw in text.split("\n"):
        offset = _OFFSET.match(raw)
        at = float(offset[1]) if offset else at
        words = printable(raw[offset.end() :] if offset else raw).rstrip()
        if words or offset:
            found.append(Line(words if len(words) <= WIDTH else f"{words[:WIDTH]}... ({len(words)} characters)", at))
    return tuple(found)


def between(log: Log, begin: float, end: float) -> tuple[Line, ...]:
    """The lines that came in an interval, whose ends belong to it: an offset is as old as the line is late."""
    return tuple(line for line in log.lines if line.at is not None and begin - 0.0005 <= line.at <= end + 0.0005)


def shown(lines: tuple[Line, ...]) -> str:
    """Lines one below the other, each behind its offset."""
    return "\n".join(f"{'' if line.at is None else f'{line.at:9.3f}':>9}  {line.text}" for line in lines)


def cut(lines: tuple[Line, ...]) -> tuple[tuple[Line, ...], str]:
    """The first and last of them, as many as a page shows, and in words what is left out."""
    if len(lines) <= LINES:
        return lines, ""
    half = LINES // 2
    left = len(lines) - 2 * half
    return (*lines[:half], Line(f"[{left} lines are left out here]"), *lines[-half:]), (
        f"{left} of {len(lines)} lines are left out in the middle: select a phase, or a part of the log."
    )
