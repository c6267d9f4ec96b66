"""The command ``coldstart dashboard`` as a process, and what it says where it cannot serve."""

from __future__ import annotations

import os
import signal
import sys
import tomllib
from pathlib import Path

import pytest

from pytest_coldstart import dashboard
from pytest_coldstart.cli import main
from pytest_coldstart.dashboard import Shown
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from tests.conftest import can_bind, carriers, eventually
from tests.dashboard.visitor import ROOT, Visitor, command, free_port, served
from tests.store.samples import record, write

NEEDS = "serving needs streamlit: pip install 'pytest-coldstart[dashboard]'"


def environ(tmp_path: Path) -> tuple[dict[str, str], str]:
    """The environment of a server, and a word by which its processes are found."""
    name, value = "COLDSTART_TESTS_DASHBOARD", str(os.getpid())
    own = {name: value, "HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    return {**os.environ, **own}, f"{name}={value}"


def test_the_command_serves_on_this_host_alone_and_leaves_nothing(home: Home, tmp_path: Path) -> None:
    pytest.importorskip("streamlit", reason=NEEDS)
    write(home, "main", record("b-1"))
    ingest(home)
    given, tag = environ(tmp_path)
    port, out = free_port(), tmp_path / "out"
    with served(command(port, "--store", str(home.root)), out, given, tmp_path) as process:
        assert listening(port) == {"0100007F"}
        line = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        assert line[line.index(b"--browser.gatherUsageStats") + 1] == b"false"
        assert line[line.index(b"--") + 1 : -1] == [b"--store", str(home.root).encode()]
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert "Traceback" not in out.read_text()
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


@pytest.mark.parametrize("plain", [False, True], ids=["coldstart dashboard", "streamlit run"])
def test_the_demo_is_labelled_and_leaves_nothing(tmp_path: Path, plain: bool) -> None:
    pytest.importorskip("streamlit", reason=NEEDS)
    given, tag = environ(tmp_path)
    port, out = free_port(), tmp_path / "out"
    script = str(ROOT / "dashboard" / "app.py")
    options = ["--server.headless", "true", "--server.address", "localhost", "--server.port", str(port)]
    streamlit = [sys.executable, "-m", "streamlit", "run", script, *options]
    words = [*streamlit, "--", "--demo", str(port)] if plain else command(port, "--demo")
    with served(words, out, given, tmp_path) as process:
        with Visitor(port) as visitor:
            said = visitor.open()
        assert "Demo data: every boot on this page is made up." in said
        assert len(list((tmp_path / "tmp").glob("coldstart-demo-*"))) == 1
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert "Traceback" not in out.read_text()
    assert eventually(lambda: carriers(tag) == [])
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / ".coldstart").exists()


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


def test_stores_are_handed_on_as_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Shown([Path("s"), Path("s/x.duckdb")]).arguments() == [
        *("--store", str(tmp_path / "s")),
        *("--store", str(tmp_path / "s" / "x.duckdb")),
    ]
    assert Shown(demo=True, acknowledge=True).arguments() == ["--demo", "--acknowledge"]
    assert Shown().arguments() == []


def test_a_user_that_does_not_exist_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("streamlit", reason=NEEDS)
    assert main(["dashboard", "--store", "~nobody-of-this-name/store"]) == 1
    assert "~nobody-of-this-name" in capsys.readouterr().err


def test_a_browser_is_opened_unless_it_is_not_wanted() -> None:
    for browser, word in ((True, "false"), (False, "true")):
        words = dashboard.command(Path("app.py"), Shown(), 8501, browser)
        assert words[words.index("--server.headless") + 1] == word
        assert words[words.index("--server.address") + 1] == "localhost"


def test_the_command_says_what_the_file_beside_the_pages_says() -> None:
    script = dashboard.app()
    assert script is not None
    said = dict(flat(tomllib.loads((script.parent / ".streamlit" / "config.toml").read_text())))
    assert {name: said[name] for name in dashboard.OPTIONS} == dict(dashboard.OPTIONS)


def flat(found: dict[str, object], before: str = "") -> list[tuple[str, str]]:
    pairs = []
    for name, value in found.items():
        if isinstance(value, dict):
            pairs += flat(value, f"{before}{name}.")
        else:
            pairs.append((f"{before}{name}", str(value).lower() if isinstance(value, bool) else str(value)))
    return pairs
