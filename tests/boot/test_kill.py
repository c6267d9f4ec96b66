"""A process that boots engines is killed at any moment: nothing of the engine survives it."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_coldstart.locks import lock_path
from pytest_coldstart.ports import Port
from tests.conftest import can_bind, carriers, eventually

pytestmark = pytest.mark.timeout(120)

SCRIPT = Path(__file__).with_name("one_boot.py")
#: The engine's tree needs a second or two to be swept; the host may be slow.
PATIENCE = 30.0


@dataclass
class Booting:
    """A script in the middle of a boot; everything it starts carries *mark* in its environment."""

    process: subprocess.Popen[str]
    port: int
    mark: str

    def assert_nothing_left(self) -> None:
        assert eventually(lambda: carriers(self.mark) == [], PATIENCE), [
            Path(f"/proc/{pid}/cmdline").read_bytes() for pid in carriers(self.mark)
        ]
        assert can_bind(self.port)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[str], Booting]]:
    """Starts a script and waits until its boot begins."""
    made: list[Booting] = []

    def start(fault: str) -> Booting:
        home = tmp_path / str(len(made))
        home.mkdir()
        port = Port()
        port.release()
        mark = f"COLDSTART_TEST_MARK={secrets.token_hex(8)}"
        name, _, value = mark.partition("=")
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(home), str(port.number), fault],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, name: value},
            start_new_session=True,
        )
        made.append(Booting(process, port.number, mark))
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        return made[-1]

    yield start
    for booting in made:
        booting.process.kill()
        booting.process.communicate()
        lock_path(f"port-{booting.port}").unlink(missing_ok=True)  # a killed holder cannot remove its file


@pytest.mark.parametrize("fault", ["none", "forks_escaping_child"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_nothing_survives_at_any_moment_of_the_boot(
    begin: Callable[[str], Booting], number: signal.Signals, fault: str
) -> None:
    """Four scripts at a time, each killed at a moment of its own in the second after its begin."""
    source = random.Random(f"{number}{fault}")
    killed = []
    for index in range(4):
        booting = begin(fault)
        time.sleep(index * 0.25 + source.random() * 0.25)
        booting.process.send_signal(number)
        killed.append(booting)
    for booting in killed:
        booting.process.wait(PATIENCE)
        assert booting.process.returncode != 0 or number == signal.SIGINT
        booting.assert_nothing_left()


def test_undisturbed_the_script_ends_well(begin: Callable[[str], Booting]) -> None:
    """Else the tests above would pass on a script that boots nothing."""
    booting = begin("none")
    assert eventually(lambda: len(carriers(booting.mark)) == 3), "the script, the supervisor and the engine"
    assert booting.process.communicate(timeout=60)[0] == "ok\n"
    booting.assert_nothing_left()


def test_second_interrupt_during_the_sweep(begin: Callable[[str], Booting]) -> None:
    """An impatient person must not be able to leave an engine behind."""
    booting = begin("forks_escaping_child")
    assert eventually(lambda: len(carriers(booting.mark)) == 4)
    for _ in range(2):
        booting.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    booting.process.wait(PATIENCE)
    booting.assert_nothing_left()


def test_death_of_the_supervisor_and_then_the_script(begin: Callable[[str], Booting]) -> None:
    """The script sees the loss, sweeps by the tag and ends with an error."""
    booting = begin("forks_escaping_child")
    assert eventually(lambda: len(carriers(booting.mark)) == 4)
    children = Path(f"/proc/{booting.process.pid}/task/{booting.process.pid}/children").read_text().split()
    assert len(children) == 1
    os.kill(int(children[0]), signal.SIGKILL)
    assert booting.process.wait(PATIENCE) == 1
    booting.assert_nothing_left()
