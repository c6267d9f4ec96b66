"""The table of an engine's processes as seen from outside: who started whom, when, by what command, how it ended."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pytest_coldstart.phases.trace import Life

#: Characters of a command line that are kept, and bytes of it that are read.
COMMAND_LENGTH, _READ = 300, 4096
#: A command is looked at so often when it is new.
_LOOKS = 2
#: The kernel cuts a process's name here.
_COMM_LENGTH = 15
_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PYTHON = re.compile(r"(?:python|pypy|graalpy)[\d.]*[a-z]{0,2}(?:-\w+)?(?:\.exe)?")

Mask = Callable[[Iterable[str]], tuple[str, ...]]


class Seen(NamedTuple):
    """What a sample of the tree saw of one process. ``ticks``: its start, in clock ticks since the machine's."""

    name: str
    parent: int
    ticks: int
    zombie: bool = False


@dataclass
class _Row:
    pid: int
    parent: int
    ticks: int
    name: str
    last_alive: float
    command: str = ""
    title: str = ""
    executable: str = ""
    #: At how many of the next samples its command is read.
    looks: int = _LOOKS
    gone: float | None = None
    exit_code: int | None = None


class Table:
    """Every process that a sample saw. Those that came and went between two samples are not in it.

    A command line is read when its process is first seen and when its name changed, both times at the next sample too:
    the first look may have fallen between fork and exec, or amid an exec. *mask* takes secrets out of a command's words before it is cut.
    """

    def __init__(self, mask: Mask = tuple) -> None:
        self._mask = mask
        self._rows: dict[tuple[int, int], _Row] = {}
        self._living: dict[int, _Row] = {}
        # Suspended time is in the clock that start times are of, and not in the one that offsets are of.
        boottime = time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
        self._offset = boottime - time.monotonic()

    def note(self, when: float, seen: Mapping[int, Seen], codes: Mapping[int, int]) -> None:
        """Take in one sample: *seen* without the supervisor, exit codes of zombies in *codes*."""
        living = self._living
        for pid, now in seen.items():
            row = living.get(pid)
            if row is None or row.ticks != now.ticks:
                row = self._rows.setdefault((pid, now.ticks), _Row(pid, now.parent, now.ticks, now.name, when))
            if now.zombie:
                if row.gone is None:
                    row.gone, row.exit_code = when, codes.get(pid)
                    living.pop(pid, None)
                continue
            row.last_alive, row.gone = when, None  # a sample can miss a process whose parent ended meanwhile
            previous = living.get(pid, row)
            if previous is not row:
                previous.gone = when
            living[pid] = row
            if row.name != now.name:
                row.looks = _LOOKS
            if row.looks:
                self._look(row, now.name)
        for pid, row in list(living.items()):
            if row.last_alive != when:
                row.gone = when
                del living[pid]

    def _look(self, row: _Row, name: str) -> None:
        row.looks -= 1
        words, executable = _words(row.pid), _executable(row.pid)
        if words:
            renamed = name != row.name or row.title
            if renamed and len(words) == 1 and executable == row.executable != "":
                # No exec: it wrote a title over its arguments, and those that it was started with are known already.
                row.title = self._mask(words)[0]
            else:
                row.command, row.title = shlex.join(self._mask(words))[:COMMAND_LENGTH], ""
            row.executable = executable
        row.name = name

    def lives(self) -> tuple[Life, ...]:
        """Every process, the first started one first.

        ``parent`` is the first one seen. ``name`` is the last one seen, whole where the title of the process begins
        with it. ``ended`` is in the middle between the last sample that saw it run and the first that did not, and
        for a zombie likewise; None while it runs. ``exit_code`` is known of those that were seen as zombies.
        """
        rows = sorted(self._rows.values(), key=lambda row: (row.ticks, row.pid))
        return tuple(self._life(row) for row in rows)

    def _life(self, row: _Row) -> Life:
        started = row.ticks / _TICK - self._offset
        ended = None if row.gone is None else max(started, (row.last_alive + row.gone) / 2)
        title = row.title.partition(" ")[0]
        name = title if len(row.name) == _COMM_LENGTH and title.startswith(row.name) else row.name
        return Life(row.pid, row.parent, name, row.command, started, ended, row.exit_code)


def _words(pid: int) -> list[str]:
    """The words of a command line, its first bytes alone; none of a zombie or of one that is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            data = file.read(_READ)
    except OSError:
        return []
    words = data.rstrip(b"\0").decode("utf-8", "replace").split("\0")
    if len(data) == _READ and len(words) > 1:
        words.pop()  # cut short: half a secret would not be known as one
    return words if any(words) else []


def _executable(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def command_of(pid: int) -> str:
    """The command line of a living process, its words as a shell reads them; "" of a zombie or of one that is gone."""
    return shlex.join(_words(pid))[:COMMAND_LENGTH]


def is_python(command: str) -> bool:
    """Whether *command* (words as a shell reads them) runs a Python interpreter, by its name."""
    return _runs_python(command_words(command))


def _runs_python(words: list[str]) -> bool:
    return bool(words) and bool(_PYTHON.fullmatch(os.path.basename(words[0])))


def probe_prevented(command: str) -> str:
    """Why the probe cannot be in the Python process that *command* starts; "" where nothing of it prevents that.

    >>> probe_prevented("/usr/bin/python3 -Is -m vllm.entrypoints.cli.main")
    'started with -I, which ignores PYTHONPATH'
    >>> probe_prevented("python -m module -I")
    ''
    """
    words = command_words(command)
    if not _runs_python(words):
        return ""
    flags = _flags(words[1:])
    for flag in "IE":
        if flag in flags:
            return f"started with -{flag}, which ignores PYTHONPATH"
    return "started with -S: without site, sitecustomize is not run" if "S" in flags else ""


def _flags(words: list[str]) -> str:
    """The letters of CPython's options in *words*, read as it does: up to -c, -m, a script, or what it does not know."""
    found, todo = "", iter(words)
    for word in todo:
        if word == "--check-hash-based-pycs":
            next(todo, "")
            continue
        if not word.startswith("-") or word in ("-", "--") or word.startswith("--"):
            break
        for place, letter in enumerate(word[1:], 2):
            found += letter
            if letter in "cm":
                return found
            if letter in "WX":  # what follows is its argument, in this word or in the next one
                if place == len(word):
                    next(todo, "")
                break
    return found


def command_words(command: str) -> list[str]:
    """Words of a :attr:`Life.command`, which may have been cut inside a quoted one: that one is left out."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        pass  # the last word's closing quote was cut off
    return words
