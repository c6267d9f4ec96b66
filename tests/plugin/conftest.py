"""Inner pytest runs, each with a store of its own, mostly on a stand-in engine that boots in a moment."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

SERVER = Path(__file__).with_name("server.py")
#: -S and -E: without site-packages the interpreter starts three times as fast.
COMMAND = [sys.executable, "-S", "-E", str(SERVER), "--port", "{port}"]

#: Three interpreters after each of some hundred boots would take half a minute; one is a reference all the same.
ONE_REFERENCE = """
import sys
if workload := sys.modules.get("pytest_coldstart.workload"):  # not in a run that boots nothing
    workload._IMPORTS = 1
"""

#: Stands at the top of every inner module: ENGINE, usual arguments of the marker, and a marker made of them.
HEADER = f"""{ONE_REFERENCE}
import dataclasses, os, time, pathlib, pytest
COMMAND = {COMMAND!r}
ENGINE = dict(engine="openai", command=COMMAND, rounds=1, requests=2, tier="restart")
fake = pytest.mark.coldstart(**ENGINE)
"""

#: No claim here is about speed, and the host may be busy: bounds that only a boot that failed can break.
WIDE = "coldstart_slo =\n    cold_start<=10min\n    warm_first_token<=10min\n"

#: The variable, inherited by every process that an inner run starts, that tells whose they are.
MINE = "COLDSTART_TESTS_OWN"


class Inner:
    """An inner project: its suite, its store, runs of pytest on it.

    Runs load no plugin but ours unless a test names one: what the test environment happens to
    have would triple the time they take to start.
    """

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.store = pytester.path / "store"
        self.owner = secrets.token_hex(8)

    def suite(self, body: str, name: str = "test_suite") -> Path:
        return self.pytester.makepyfile(**{name: HEADER + body})

    def ini(self, text: str) -> None:
        self.pytester.makeini("[pytest]\n" + text)

    def conftest(self, text: str) -> None:
        self.pytester.makeconftest(text)

    def arguments(self, *words: str) -> list[str]:
        return [
            "-p",
            "coldstart",
            "-p",
            "no:cacheprovider",
            "--coldstart",
            "--coldstart-store",
            str(self.store),
            *words,
        ]

    def run(self, *words: str) -> pytest.RunResult:
        """pytest --coldstart."""
        return self.pytester.runpytest_subprocess(*self.arguments(*words), timeout=120)

    def idle(self, *words: str) -> pytest.RunResult:
        """pytest, without --coldstart."""
        return self.pytester.runpytest_subprocess("-p", "coldstart", "-p", "no:cacheprovider", *words, timeout=120)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """pytest --coldstart, left running."""
        command = [sys.executable, "-m", "pytest", *self.arguments(*words)]
        return self.pytester.popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def cli(self, *words: str) -> pytest.RunResult:
        return self.pytester.run(sys.executable, "-m", "pytest_coldstart.cli", *words, timeout=120)

    @property
    def run_files(self) -> list[Path]:
        return sorted((self.store / "runs").glob("*.jsonl"))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(self.store / "coldstart.duckdb"), read_only=True) as con:
            return con.execute(sql).fetchall()

    def boots(self) -> int:
        """Measured boots in the store."""
        return int(self.query("SELECT count(*) FROM boot WHERE role = 'measured'")[0][0])

    def nothing_booted(self) -> bool:
        return not self.run_files and not (self.store / "coldstart.duckdb").exists()

    def alive(self) -> list[str]:
        """Command lines of living processes that an inner run of this test started."""
        return [line for line, _ in carriers(f"{MINE}={self.owner}")]

    def engines(self) -> list[str]:
        """As alive, of those that belong to a boot."""
        return [line for line, tagged in carriers(f"{MINE}={self.owner}") if tagged]


def carriers(word: str) -> list[tuple[str, bool]]:
    """Living processes with *word* in their environment: command line, and whether a boot's tag is there too."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word.encode() in environment and state not in "ZX":
            found.append((line, any(item.startswith(b"PYTEST_COLDSTART_BOOT=") for item in environment)))
    return found


def eventually(done: Callable[[], Any], seconds: float = 60.0) -> bool:
    """Poll *done* until it is true; False when the time ran out."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def text_of(result: pytest.RunResult) -> str:
    """Everything a run printed."""
    return "\n".join([*result.outlines, *result.errlines])


@pytest.fixture
def inner(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Inner:
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "FAKE_"))]:
        if name not in ("PYTEST_CURRENT_TEST", "PYTEST_DEBUG_TEMPROOT"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # Its own host lock: other sessions on this host would make every inner boot wait for theirs.
    folder = tmp_path_factory.getbasetemp() / "locks"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("TMPDIR", str(folder))
    made = Inner(pytester)
    monkeypatch.setenv(MINE, made.owner)
    made.ini(WIDE)
    return made
