"""Boots of the fake engine, and the check that nothing of a boot is left behind."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.boot import Boot
from pytest_coldstart.cell import Cell, Container
from pytest_coldstart.engines import EngineRegistry
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord
from pytest_coldstart.warmup import create

# A shell starts background jobs with SIGINT ignored, and every child would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FAKE = Path(__file__).with_name("fake_engine.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Try what failed once more, and say so in the summary: a shared machine starves a process for seconds now and then.

    Here and not in the configuration file, which holds for ``pytest --coldstart`` too: no boot is ever tried again.
    """
    if config.pluginmanager.hasplugin("rerunfailures"):
        for item in items:
            # A browser, its server and the store's writer together ask most of such a machine.
            item.add_marker(pytest.mark.flaky(reruns=2 if "e2e" in item.path.parts else 1))


def fake_command(fault: str = "none", *arguments: str) -> tuple[str, ...]:
    """The command of a fake engine with one fault."""
    return (sys.executable, "-S", str(FAKE), "--port", "{port}", "--fault", fault, *arguments)


def eventually(done: Callable[[], Any], seconds: float = 10.0) -> bool:
    """Poll *done* until it is true; False when the time ran out."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def carriers(word: str) -> list[int]:
    """Living processes with *word* somewhere in their environment, found without the code under test."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if word.encode() in environment and state not in "ZX":
            found.append(int(entry.name))
    return found


def can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("coldstart-")]


def assert_nothing_left(boot: Boot) -> None:
    """No process with the boot's tag, no supervisor, no thread, and the port can be bound."""
    assert carriers(f"PYTEST_COLDSTART_BOOT={boot.boot_id}") == []
    if boot.tree is not None:
        assert not Path(f"/proc/{boot.tree.supervisor_pid}").exists(), "the supervisor lives"
    if boot.port is not None:
        assert can_bind(boot.port.number), "the port is still taken"
        assert not boot.port.lock.held
    assert eventually(lambda: not our_threads()), f"threads live on: {our_threads()}"


@pytest.fixture(scope="session", autouse=True)
def coverage_of_children() -> dict[str, str]:
    """What has a child report its coverage. It is taken away: to start, each would load coverage, ten times a bare start."""
    return {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("COVERAGE_PROCESS_")}


@pytest.fixture
def covered_children(coverage_of_children: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Children report their coverage: for tests of code that runs in no other process."""
    for name, value in coverage_of_children.items():
        monkeypatch.setenv(name, value)


MakePlan = Callable[..., Plan]


def plans_in(home: Path) -> MakePlan:
    """Builds a plan for the fake engine with short times; keyword arguments are the plan's fields."""
    (home / "logs").mkdir()
    engine = EngineRegistry().get("openai")

    def make(
        fault: str = "none",
        *arguments: str,
        command: tuple[str, ...] = (),
        options: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        tier: str = "restart",
        warmup: Any = "none",
        container: Container | None = None,
        **fields: Any,
    ) -> Plan:
        command = command or fake_command(fault, *arguments)
        strategy = create(warmup)
        cell = Cell(
            engine="openai",
            model="fake",
            tier=tier,
            options=options or {},
            env=env or {},
            command=command,
            warmup=strategy.spec(),
            container=container,
        )
        engine.check(cell)
        settings: dict[str, Any] = {
            "requests": 2,
            "boot_timeout": 60.0,
            "hang_timeout": 60.0,
            "cwd": home,
            "caches": home / "caches",
            "logs": home / "logs",
            "keep_logs": "all",
        }
        return Plan(cell, "cell", "nodeid", engine, engine.model(cell), strategy, **{**settings, **fields})

    return make


@pytest.fixture
def make_plan(tmp_path: Path) -> MakePlan:
    return plans_in(tmp_path)


@contextmanager
def ended_boots() -> Iterator[Callable[[Plan], Boot]]:
    """Makes boots whose trees are killed at the end, whatever became of the test."""
    made: list[Boot] = []

    def make(plan: Plan) -> Boot:
        boot = Boot(plan)
        made.append(boot)
        return boot

    try:
        yield make
    finally:
        for boot in made:
            if boot.tree is not None and boot.tree.ended is None:
                boot.tree.kill()


@pytest.fixture
def boots() -> Iterator[Callable[[Plan], Boot]]:
    with ended_boots() as make:
        yield make


@pytest.fixture
def booted(make_plan: MakePlan, boots: Callable[[Plan], Boot]) -> Callable[..., BootRecord]:
    """Boots the fake engine to its end, checks that nothing is left of it and returns the record."""

    def run(*arguments: str, **fields: Any) -> BootRecord:
        boot = boots(make_plan(*arguments, **fields))
        boot.run()
        record = boot.stop()
        assert boot.stop() is record
        assert_nothing_left(boot)
        return record

    return run
