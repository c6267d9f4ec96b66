"""What a process is called, and why nothing is known of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from pytest_coldstart.observe.processes import command_words, is_python, probe_prevented
from pytest_coldstart.phases.tree import Node

#: Names that multiprocessing gives by itself and that say nothing.
_DEFAULT = re.compile(r"MainProcess|(Spawn|Fork|ForkServer)?(Pool|PoolWorker|Process)-\d+(:\d+)*")
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*(-\w+)?")
#: Options of CPython that take a value of their own.
_WITH_VALUE = ("-W", "-X")


def says_nothing(name: str) -> bool:
    """Whether the name is one that multiprocessing gives by itself, so that two of them need have nothing in common."""
    return bool(_DEFAULT.fullmatch(name))


def name_all(nodes: Sequence[Node]) -> None:
    """Give each process a short name that no other one has. The first is the leader."""
    seen: dict[str, int] = {}
    for node in nodes:
        name = _given(node) or ("server" if node is nodes[0] else _titled(node) or _by_command(node))
        seen[name] = seen.get(name, 0) + 1
        node.name = name if seen[name] == 1 else f"{name} {seen[name]}"


def _given(node: Node) -> str:
    names = [name for trace in node.traces for _, name in trace.names if name and not says_nothing(name)]
    return names[-1] if names else ""


def _titled(node: Node) -> str:
    """The name that a process gave itself where others see it: not that of what it runs."""
    name = node.life.name if node.life else ""
    return name if "::" in name and not _INTERPRETER.fullmatch(name) else ""


def _by_command(node: Node) -> str:
    argv: Sequence[str] = node.traces[-1].argv if node.traces else ()
    if not argv:
        argv = command_words(node.life.command) if node.life else ()
    names = [name for trace in node.traces for _, name in trace.names if name]
    return _script(argv) or (names[-1] if names else "") or (node.life.name if node.life else "") or "python"


def _script(argv: Sequence[str]) -> str:
    """The module or script that a command runs, "" if it cannot be told."""
    if not argv:
        return ""
    if not _INTERPRETER.fullmatch(PurePath(argv[0]).name):
        return PurePath(argv[0]).name
    rest = iter(argv[1:])
    for word in rest:
        if word == "-m":
            return next(rest, "")
        if word == "-c":
            code = " ".join(rest)
            found = re.search(r"multiprocessing\.(resource_tracker|forkserver)", code)
            return found.group(1) if found else ""
        if word in _WITH_VALUE:
            next(rest, "")
        elif not word.startswith("-"):
            return PurePath(word).name
    return ""


def why_missing(node: Node, known: bool, origin: float, mode: str) -> str:
    """Why the probe told nothing or less than it should of a process, "" if it told all.

    *known*: a rule says what the process is without a probe. *mode*: of the probe.
    """
    if node.traces:
        last = node.traces[-1]
        if last.lost:
            return last.lost
        if mode == "full" and not any(trace.samples for trace in node.traces):
            return "its probe took no samples" if node.end - node.begin > 0.5 else ""
        silent = node.end - last.last if mode == "full" else 0.0
        return f"its probe fell silent at {last.last - origin:.1f} s" if silent > 1.0 else ""
    if known or node.end - node.begin <= 0.5:
        return ""
    command = node.life.command if node.life else ""
    if command and not is_python(command):
        # Of a shell or a wrapper what it started says all.
        return "" if node.children else "not Python"
    return probe_prevented(command) or "the probe was not loaded, and why is unknown"
