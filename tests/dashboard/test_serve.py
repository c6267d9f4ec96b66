"""The command ``coldstart dashboard`` as a process, and what it says where it cannot serve."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from pytest_coldstart import dashboard
from pytest_coldstart.cli import main
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from tests.conftest import can_bind, carriers, eventually
from tests.store.samples import record, write


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


def test_the_command_serves_on_this_host_alone_and_leaves_nothing(home: Home, tmp_path: Path) -> None:
    pytest.importorskip("streamlit", reason="serving needs streamlit: pip install 'pytest-coldstart[dashboard]'")
    write(home, "main", record("b-1"))
    ingest(home)
    port, tag = free_port(), f"COLDSTART_TESTS_DASHBOARD={os.getpid()}"
    words = [sys.executable, "-m", "pytest_coldstart.cli", "dashboard", "--no-browser"]
    environ = {**os.environ, tag.partition("=")[0]: tag.partition("=")[2], "HOME": str(tmp_path)}
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen(
            [*words, "--store", str(home.root), "--port", str(port)],
            env=environ,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        assert eventually(lambda: healthy(port) or process.poll() is not None, 60)
        assert process.poll() is None, (tmp_path / "out").read_text()
        assert listening(port) == {"0100007F"}
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        assert f"COLDSTART_STORE={home.root}".encode() in environment
        line = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        assert line[line.index(b"--browser.gatherUsageStats") + 1] == b"false"
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in (tmp_path / "out").read_text()
    assert eventually(lambda: carriers(tag) == [])
    assert can_bind(port)


def listening(port: int) -> set[str]:
    """IPv4 and IPv6 addresses, in hexadecimal, on which this host listens at *port*; ::1 is left out."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            address, _, number = line.split()[1].rpartition(":")
            if int(number, 16) == port and line.split()[3] == "0A":
                found.add(address)
    return found - {"00000000000000000000000001000000"}


def test_without_streamlit_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "streamlit", None)
    monkeypatch.setattr(dashboard.importlib.util, "find_spec", lambda name: None if name == "streamlit" else object())
    assert main(["dashboard"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "coldstart: the dashboard needs streamlit; install: pip install 'pytest-coldstart[dashboard]'\n",
    )


def test_a_port_that_is_no_number_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "--port", "many"]) == 4
    assert "invalid int value: 'many'" in capsys.readouterr().err


def test_the_store_is_handed_on_as_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"COLDSTART_STORE": "elsewhere", "OTHER": "1"}
    assert dashboard.environment(Path("s"), given) == {"COLDSTART_STORE": str(tmp_path / "s"), "OTHER": "1"}
    assert dashboard.environment(Path("s/x.duckdb"), {}) == {"COLDSTART_STORE": str(tmp_path / "s" / "x.duckdb")}
    assert dashboard.environment(None, given)["COLDSTART_STORE"] == str(tmp_path / "elsewhere")
    assert dashboard.environment(None, {}) == {"COLDSTART_STORE": str(tmp_path / ".coldstart")}


def test_a_browser_is_opened_unless_it_is_not_wanted() -> None:
    script = Path("app.py")
    for browser, word in ((True, "false"), (False, "true")):
        words = dashboard.command(script, 8501, browser)
        assert words[words.index("--server.headless") + 1] == word
        assert words[words.index("--server.address") + 1] == "localhost"
