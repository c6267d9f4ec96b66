"""pytest's side of one supervised process tree: launch, watch, stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Every process of a boot carries this variable; its value is the boot's id.
TAG = "PYTEST_COLDSTART_BOOT"

_SUPERVISOR = Path(__file__).with_name("supervisor.py")


@dataclass(frozen=True)
class Launch:
    """What to run. ``stop_argv`` ends a container that signals to its client do not reach."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    boot_id: str
    stop_argv: tuple[str, ...] = ()
    #: Lock files of this boot alone, which the supervisor removes when the tree is gone.
    unlink: tuple[Path, ...] = ()
    grace: float = 10.0
    leftover_grace: float = 1.0
    kill_grace: float = 2.0
    log_limit: int = 32 << 20


@dataclass(frozen=True)
class Ended:
    """How the tree ended. Times are CLOCK_MONOTONIC seconds."""

    begin: float
    end: float
    forced: bool
    code: int | None
    leaked: tuple[str, ...]
    shm: tuple[tuple[str, int], ...]
    log_bytes: int


class SupervisorLost(RuntimeError):
    """The supervisor died or does not answer: a fault of this tool or of the host."""


class Tree:
    """One engine's process tree under its supervisor.

    ``start_time`` is the monotonic second of the engine's exec, None before it.
    """

    def __init__(self, launch: Launch, hold: Sequence[int] = ()) -> None:
        """*hold*: descriptors of file locks that the supervisor keeps until the tree is gone, so
        that nobody gets the host or the port while a killed pytest's engine is still dying."""
        self.launch = launch
        self._held = list(hold)
        self.start_time: float | None = None
        self.pid: int | None = None
        self.exec_errno: int | None = None
        self.exit_code: int | None = None
        self.log_bytes = 0
        self.last_line = ""
        self.ended: Ended | None = None
        self._changed = threading.Condition()
        self._hello = False
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", str(_SUPERVISOR)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=self._held,
        )
        self._reader = threading.Thread(target=self._read, name="coldstart-supervisor", daemon=True)
        self._reader.start()
        self._send(json.dumps(self._config()))
        if not self._wait(lambda: self._hello, 30):
            self.kill()
            raise SupervisorLost("the supervisor process did not come up")

    def _config(self) -> dict[str, Any]:
        launch = self.launch
        return {
            "argv": list(launch.argv),
            "env": {**launch.env, TAG: launch.boot_id},
            "cwd": str(launch.cwd),
            "log": str(launch.log),
            "log_limit": launch.log_limit,
            "tag": f"{TAG}={launch.boot_id}",
            "parent": os.getpid(),
            "grace": launch.grace,
            "leftover_grace": launch.leftover_grace,
            "kill_grace": launch.kill_grace,
            "stop_argv": list(launch.stop_argv),
            "hold": self._held,
            "unlink": [str(path) for path in self.launch.unlink],
        }

    @property
    def lost(self) -> bool:
        """Whether the supervisor ended without having reported the end of the tree."""
        return self.ended is None and not self._reader.is_alive()

    @property
    def supervisor_pid(self) -> int:
        return self._supervisor.pid

    def start(self) -> None:
        """Exec the engine; returns once the exec has happened or failed (``exec_errno``)."""
        self._send("launch")
        if not self._wait(lambda: self.start_time is not None, 30):
            raise SupervisorLost("the supervisor did not launch the engine")

    def dump_stacks(self, seconds: float = 1.0) -> None:
        """Ask Python engines for the stacks of all threads; they end by it and write to the log."""
        self._send("dump")
        time.sleep(seconds)

    def stop(self) -> Ended:
        """End the whole tree; returns when nothing of it lives.

        :raises SupervisorLost: the supervisor died; the tree was killed by its tag instead.
        """
        if self.ended is None:
            self._send("stop")
            launch = self.launch
            patience = launch.grace + launch.leftover_grace + launch.kill_grace + 60 + 30
            self._wait(lambda: self.ended is not None, patience)
        if self.ended is None:
            self.kill()
            raise SupervisorLost("the supervisor did not report the end of the tree")
        self._close()
        return self.ended

    def kill(self) -> None:
        """Last resort: end the supervisor and everything that carries this boot's tag."""
        self._supervisor.kill()
        self._close()
        kill_tagged(f"{TAG}={self.launch.boot_id}")

    def _close(self) -> None:
        if self._supervisor.stdin and not self._supervisor.stdin.closed:
            try:
                self._supervisor.stdin.close()
            except OSError:
                pass
        try:
            self._supervisor.wait(10)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        self._reader.join(5)
        if self._supervisor.stdout:
            self._supervisor.stdout.close()

    def _send(self, word: str) -> None:
        stdin = self._supervisor.stdin
        assert stdin is not None
        try:
            stdin.write(word.encode() + b"\n")
            stdin.flush()
        except (OSError, ValueError) as error:
            if word not in ("stop", "dump"):
                raise SupervisorLost(f"the supervisor is gone ({error})") from error

    def _wait(self, done: Any, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        with self._changed:
            while not done():
                left = deadline - time.monotonic()
                if left <= 0 or (not self._reader.is_alive() and not done()):
                    return bool(done())
                self._changed.wait(min(left, 0.5))
        return True

    def _read(self) -> None:
        stdout = self._supervisor.stdout
        assert stdout is not None
        for line in stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a line cut short by a full pipe
            with self._changed:
                self._note(event)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _note(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "hello":
            self._hello = True
        elif kind == "started":
            self.pid = event["pid"]
            self.start_time = event["t"] / 1e9
        elif kind == "not_started":
            self.exec_errno = event["errno"]
            self.start_time = event["t"] / 1e9
        elif kind == "log":
            self.log_bytes, self.last_line = event["bytes"], printable(event["last"])
        elif kind == "exited":
            self.exit_code = event["code"]
        elif kind == "stopped":
            self.log_bytes = event["log_bytes"]
            self.exit_code = event["code"]
            self.ended = Ended(
                begin=event["begin"] / 1e9,
                end=event["t"] / 1e9,
                forced=event["forced"],
                code=event["code"],
                leaked=tuple(event["leaked"]),
                shm=tuple((path, size) for path, size in event["shm"]),
                log_bytes=event["log_bytes"],
            )


def kill_tagged(tag: str) -> list[int]:
    """SIGKILL every process whose environment holds *tag* (``NAME=value``); returns their pids."""
    from pytest_coldstart.supervisor import tagged

    killed: list[int] = []
    for _ in range(20):
        found = list(tagged(tag.encode()))
        if not found:
            break
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
            killed.append(pid)
        time.sleep(0.05)
    return killed


def read_log_tail(path: Path, lines: int = 30, width: int | None = 500) -> str:
    """The last lines of an engine's log, *width* characters each; invalid UTF-8 is shown as replacement characters."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            text = printable(file.read().decode("utf-8", "replace"))
    except OSError:
        return ""
    return "\n".join(line[:width] for line in text.splitlines()[-lines:])


def printable(text: str) -> str:
    """*text* with control characters but newline and tab escaped: an engine's output is no terminal command."""
    return "".join(c if c in "\n\t" or (c >= " " and not "\x7f" <= c <= "\x9f") else f"\\x{ord(c):02x}" for c in text)


def exit_words(code: int) -> str:
    """``exit code 1`` or ``signal SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


__all__ = ["TAG", "Ended", "Launch", "SupervisorLost", "Tree", "exit_words", "kill_tagged", "read_log_tail"]
