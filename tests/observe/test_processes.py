"""The table of a tree's processes, of real ones; and what a command line says of the probe, asked of real interpreters."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from pytest_coldstart.observe.proc import TreeObserver
from pytest_coldstart.observe.processes import COMMAND_LENGTH, Seen, Table, command_words, is_python, probe_prevented
from pytest_coldstart.phases.trace import Life

SLEEP = "import time; print(flush=True); time.sleep(60)"
#: Writes a title over its arguments as setproctitle does, the name of the process too.
RETITLE = """
import ctypes, os, sys, time
print(flush=True); sys.stdin.readline()
title = b"VLLM::EngineCore"
libc = ctypes.CDLL(None)
assert libc.prctl(15, ctypes.c_char_p(title), 0, 0, 0) == 0
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
begin, end = int(fields[45]), int(fields[46])
ctypes.memmove(begin, title.ljust(end - begin, bytes(1)), end - begin)
print(flush=True); time.sleep(60)
"""


@contextmanager
def running(*argv: str, up: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has printed its first line, if *up*."""
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout
        if up:
            child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.communicate()


def python(code: str, *flags: str) -> list[str]:
    return [sys.executable, "-S", *flags, "-c", code]


def life_of(observer: TreeObserver, pid: int) -> Life:
    (found,) = (life for life in observer.lives() if life.pid == pid)
    return found


def test_process_is_noted_with_its_parent_command_start_and_end() -> None:
    observer = TreeObserver(os.getpid())
    before = time.monotonic()
    with running(*python(SLEEP)) as child:
        after = time.monotonic()
        observer.take()
        alive = life_of(observer, child.pid)
        child.terminate()
        # A zombie tells its exit code; it counts as gone.
        while child.pid in observer.take().names:
            time.sleep(0.01)
        gone = time.monotonic()
    ended = life_of(observer, child.pid)
    assert (alive.parent, alive.ended, alive.exit_code) == (os.getpid(), None, None)
    assert alive.command == shlex.join(python(SLEEP))
    assert before - 0.011 <= alive.started <= after  # a tick of 10 ms, cut off
    assert ended.exit_code == -15
    assert ended.ended is not None
    assert after <= ended.ended <= gone
    assert (ended.command, ended.started) == (alive.command, alive.started)


def test_supervisor_is_no_part_of_its_tree() -> None:
    observer = TreeObserver(os.getpid())
    observer.take()
    assert os.getpid() not in {life.pid for life in observer.lives()}


def test_orphan_keeps_its_first_parent() -> None:
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', {SLEEP!r}])\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    libc, adopts = ctypes.CDLL(None), 36  # PR_SET_CHILD_SUBREAPER
    assert libc.prctl(adopts, 1, 0, 0, 0) == 0
    try:
        with running(*python(code), up=False) as parent:
            assert parent.stdout
            orphan = int(parent.stdout.readline())
            observer = TreeObserver(os.getpid())
            observer.take()
            parent.kill()
            parent.wait()
            adopted = observer.take().seen[orphan]
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)
    finally:
        libc.prctl(adopts, 0, 0, 0, 0)
    life = life_of(observer, orphan)
    assert (adopted.parent, life.parent, life.ended) == (os.getpid(), parent.pid, None)


def test_title_names_a_process_and_its_command_stays_known() -> None:
    with running(*python(RETITLE, "-E")) as child:
        observer = TreeObserver(os.getpid())
        observer.take()
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        observer.take()
        observer.take()
        life = life_of(observer, child.pid)
    assert life.name == "VLLM::EngineCore"  # the kernel's name ends after 15 characters
    assert probe_prevented(life.command) == "started with -E, which ignores PYTHONPATH"


def test_exec_gives_a_process_its_new_command() -> None:
    code = "import os, sys; print(flush=True); sys.stdin.readline(); os.execvp('sleep', ['sleep', '60'])"
    with running(*python(code)) as child:
        observer = TreeObserver(os.getpid())
        observer.take()
        assert child.stdin
        child.stdin.write(b"\n")
        child.stdin.flush()
        deadline = time.monotonic() + 5
        while observer.take().names[child.pid] != "sleep":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.05)  # the name is the new one a moment before the command is
        observer.take()
        life = life_of(observer, child.pid)
    assert (life.name, life.command) == ("sleep", "sleep 60")


def test_secret_is_masked_before_a_command_is_cut() -> None:
    secret = "hush" * 200

    def mask(words: Iterable[str]) -> tuple[str, ...]:
        return tuple("***" if word == secret else word for word in words)

    with running(*python(SLEEP), "x" * 100, secret, "--after") as child:
        observer = TreeObserver(os.getpid(), mask=mask)
        observer.take()
        command = life_of(observer, child.pid).command
    assert command.endswith("'***' --after")
    assert len(command) <= COMMAND_LENGTH


def test_pid_that_is_used_again_is_another_process() -> None:
    table = Table()
    table.note(10.0, {7: Seen("ninja", 1, 500)}, {})
    table.note(11.0, {7: Seen("cc1plus", 1, 600)}, {})
    table.note(12.0, {}, {})
    first, second = table.lives()
    assert (first.name, first.ended) == ("ninja", 10.5)
    assert (second.name, second.ended) == ("cc1plus", 11.5)
    assert second.started - first.started == pytest.approx(100 / os.sysconf("SC_CLK_TCK"))


def test_process_that_one_sample_missed_lives_on() -> None:
    table = Table()
    for when, seen in ((1.0, True), (2.0, False), (3.0, True)):
        table.note(when, {7: Seen("worker", 1, 50)} if seen else {}, {})
    (life,) = table.lives()
    assert life.ended is None
    table.note(4.0, {7: Seen("worker", 1, 50, zombie=True)}, {7: 3})
    table.note(5.0, {7: Seen("worker", 1, 50, zombie=True)}, {7: 3})
    (life,) = table.lives()
    assert (life.ended, life.exit_code) == (3.5, 3)


FLAGS = [
    "-I", "-E", "-S", "-Is", "-IS", "-sI", "-bBS", "-s", "-u", "-P", "-OO", "-Xutf8 -I", "-X utf8 -S", "-XI", "-X I",
    "-W ignore -E", "-WE", "-W error::ImportWarning -S", "-uWignore -I", "-uX faulthandler -E", "-BX dev",
    "--check-hash-based-pycs never -I", "--check-hash-based-pycs default",
]  # fmt: skip


@pytest.mark.parametrize("flags", FLAGS)
def test_flags_are_read_as_the_interpreter_reads_them(flags: str) -> None:
    code = "import sys; print(sys.flags.isolated, sys.flags.ignore_environment, sys.flags.no_site)"
    argv = [sys.executable, *flags.split(), "-c", code, "-I", "-S"]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    isolated, ignores, no_site = (word != "0" for word in told)
    said = probe_prevented(shlex.join(argv))
    assert said.startswith("started with -I,") == isolated
    assert said.startswith("started with -E,") == (ignores and not isolated)
    assert said.startswith("started with -S:") == (no_site and not ignores)
    assert (said == "") == (not isolated and not ignores and not no_site)


@pytest.mark.parametrize(
    ("flags", "script"),
    [("-u", "s.py -I"), ("-B", "-- s.py -S"), ("-I", "s.py"), ("", "-ms -I"), ("-uE", "-m s"), ("-", ""), ("", "- -I")],
)
def test_flags_end_where_the_program_begins(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch, flags: str, script: str
) -> None:
    code = "import sys; print(sys.flags.isolated, sys.flags.ignore_environment, sys.flags.no_site)"
    monkeypatch.chdir(tmp_path)
    with open("s.py", "w") as file:
        file.write(code)
    argv = [sys.executable, *flags.split(), *script.split()]
    told = subprocess.run(argv, input=code, capture_output=True, text=True, check=True).stdout.split()
    assert bool(probe_prevented(shlex.join(argv))) == (told != ["0", "0", "0"])


def test_only_python_has_flags_of_python() -> None:
    assert probe_prevented("/usr/bin/ninja -I -S") == ""
    assert probe_prevented("") == ""
    for word in ("python", "/usr/bin/python3", "python3.12", "python3.13t", "python3-dbg", "/opt/pypy3.11", "pypy3"):
        assert is_python(f"{word} -m x")
        assert probe_prevented(f"{word} -I -m x")
    for word in ("pythonize", "ipython", "VLLM::EngineCore", "bash", "python-config.sh"):
        assert not is_python(f"{word} -m x")


def test_command_that_was_cut_in_its_code_is_read_up_to_there() -> None:
    whole = shlex.join(["/opt/my env/python", "-IS", "-c", "print('it is a long program')"])
    assert command_words(whole[:-5]) == ["/opt/my env/python", "-IS", "-c"]
    assert probe_prevented(whole[:-5]) == "started with -I, which ignores PYTHONPATH"
