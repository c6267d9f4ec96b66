"""The dashboard as a process of its own, as a reader starts it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.conftest import can_bind, carriers, eventually

#: Seconds until a server must answer; the machine is shared.
START = 120


@dataclass(frozen=True)
class Server:
    """A dashboard that answers. ``home``: the folder that its process has for its own."""

    port: int
    home: Path

    def url(self, page: str = "", **query: str | Sequence[str]) -> str:
        words = urlencode(query, doseq=True)
        return f"http://localhost:{self.port}/{page if page != 'overview' else ''}{'?' + words if words else ''}"

    def printed(self) -> str:
        return (self.home / "out").read_text(errors="replace")


@contextmanager
def served(folder: Path, *words: str) -> Iterator[Server]:
    """``coldstart dashboard --no-browser`` with *words*, until it is left; then nothing of it lives."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    tag = f"COLDSTART_TESTS_E2E={os.getpid()}-{port}"
    # Pages are counted by the tests that run them in one process: here a browser waits for them, and counting takes twice the time.
    without = ("STREAMLIT_", "COLDSTART_", "COVERAGE_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    environ |= {"HOME": str(folder), tag.partition("=")[0]: tag.partition("=")[2]}
    command = [sys.executable, "-m", "pytest_coldstart.cli", "dashboard", "--no-browser", "--port", str(port), *words]
    server = Server(port, folder)
    with (folder / "out").open("w") as out:
        process = subprocess.Popen(
            command, env=environ, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        assert eventually(lambda: _healthy(port) or process.poll() is not None, START), server.printed()
        assert process.poll() is None, server.printed()
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert eventually(lambda: carriers(tag) == []), "a process of the server lives on"
    assert can_bind(port)


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=5) as answer:
            return bool(answer.read() == b"ok")
    except OSError:
        return False
