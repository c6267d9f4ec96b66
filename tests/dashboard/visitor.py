"""A visitor without a browser: a session of the dashboard's server over its own socket, as Streamlit's page has one."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=5) as answer:
            return bool(answer.read() == b"ok")
    except OSError:
        return False


@contextmanager
def served(
    words: Sequence[str], out: Path, environ: Mapping[str, str], cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server started by *words*, which name its port last; its output goes to *out*."""
    with out.open("wb") as file:
        process = subprocess.Popen(
            words, env=dict(environ), cwd=cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    try:
        assert eventually(lambda: healthy(int(words[-1])) or process.poll() is not None, 90), out.read_text()
        assert process.poll() is None, out.read_text()
        yield process
    finally:
        process.kill()
        process.wait()


def command(port: int, *words: str) -> list[str]:
    """``coldstart dashboard`` on *port*, without a browser."""
    given = [sys.executable, "-m", "pytest_coldstart.cli", "dashboard", "--no-browser", *words]
    return [*given, "--port", str(port)]


class Visitor:
    """One session. ``said``: every message of the last run of the page as a whole, as text."""

    def __init__(self, port: int) -> None:
        sync = pytest.importorskip("websockets.sync.client", reason="needs websockets, which Streamlit brings along")
        address = f"ws://localhost:{port}/_stcore/stream"
        self._stack = ExitStack()
        self._con = self._stack.enter_context(sync.connect(address, subprotocols=["streamlit"], max_size=None))
        self._looks: tuple[float, str] | None = None
        self.said = self._heard = ""

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def open(self) -> str:
        """Run the page, and return what came until its script had ended."""
        self._send("")
        while self._next(120) != "script_finished":
            pass
        return self.said

    def follow(self, seconds: float, until: str) -> bool:
        """Look again as often as the page asks for, as a browser does; whether *until* came within *seconds*."""
        end = time.monotonic() + seconds
        while until not in self.said and time.monotonic() < end:
            assert self._looks is not None, "the page does not ask for looks"
            every, fragment = self._looks
            self._send(fragment)
            again = time.monotonic() + every
            while (left := again - time.monotonic()) > 0 and until not in self.said:
                with suppress(TimeoutError):
                    self._next(left)
        return until in self.said

    def _send(self, fragment: str) -> None:
        from streamlit.proto.BackMsg_pb2 import BackMsg

        message = BackMsg()
        message.rerun_script.fragment_id = fragment
        self._con.send(message.SerializeToString())

    def _next(self, patience: float) -> str:
        """Take one message; returns what it is.

        :raises TimeoutError: none came.
        """
        from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

        message: Any = ForwardMsg()
        message.ParseFromString(self._con.recv(timeout=patience))
        kind = str(message.WhichOneof("type"))
        if kind == "auto_rerun":
            self._looks = (message.auto_rerun.interval, message.auto_rerun.fragment_id)
        if kind == "new_session":
            self._heard = ""
        self._heard += str(message)
        if kind == "script_finished" and message.script_finished != message.FINISHED_FRAGMENT_RUN_SUCCESSFULLY:
            self.said = self._heard
        return kind
