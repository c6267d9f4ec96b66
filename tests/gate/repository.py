"""Small real git repositories, with a suite that boots the stand-in engine."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.plugin.conftest import MINE, ONE_REFERENCE, SERVER

#: Two cells of an engine that lies beside the suite; its command holds the path of the checkout.
SUITE = f"""{ONE_REFERENCE}
import pathlib, pytest
FOLDER = pathlib.Path(__file__).parent
COMMAND = [{sys.executable!r}, "-S", "-E", str(FOLDER / "server.py"), "--port", "{{port}}"]
ENGINE = dict(engine="openai", command=COMMAND, requests=1, tier="restart")

@pytest.mark.coldstart(**ENGINE)
def test_one(cold_boot): ...

@pytest.mark.coldstart(**ENGINE, env={{"ANOTHER": "1"}})
def test_two(cold_boot): ...

def test_that_boots_nothing():
    raise AssertionError
"""


def git(folder: Path, *words: str) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout.strip()


def make(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def commit(top: Path, files: Mapping[str, str], message: str) -> str:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    git(top, "add", "-A")
    git(top, "commit", "-q", "--allow-empty", "-m", message)
    return git(top, "rev-parse", "HEAD")


def server(delay: float = 0.0) -> str:
    """The stand-in engine; it sleeps *delay* seconds before it listens."""
    return SERVER.read_text().replace('os.environ.get("FAKE_DELAY", 0)', repr(delay))


def alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Children have a host lock and worktrees of their own in *folder*, are found by the mark in their environment, and
    load no plugin that happens to be installed: they start in a third of the time."""
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv(MINE, secrets.token_hex(8))
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
