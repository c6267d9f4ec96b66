"""Locks and ports among processes: one holder at a time, and none after its death."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_coldstart.locks import HostLock, lock_path
from pytest_coldstart.ports import Port, PortTaken, is_free, listeners, owner
from tests.conftest import eventually

pytestmark = pytest.mark.timeout(60)

Script = Callable[..., subprocess.Popen[str]]

HOLD = """
import sys
from pytest_coldstart.locks import HostLock
lock = HostLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""

#: Takes the lock again and again; inside, a file that nobody else may have made meanwhile.
CONTEND = """
import os, sys
from pytest_coldstart.locks import HostLock
for _ in range(60):
    lock = HostLock(sys.argv[1])
    lock.acquire()
    os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))
    os.unlink(sys.argv[2])
    lock.remove()
print("done", flush=True)
"""

TAKE = """
import sys
from pytest_coldstart.ports import Port
sys.stdin.readline()
ports = [Port() for _ in range(int(sys.argv[1]))]
print(*(port.number for port in ports), flush=True)
sys.stdin.readline()
for port in ports:
    port.release()
"""

RACE = """
import sys
from pytest_coldstart.ports import Port, PortTaken
print("here", flush=True)
sys.stdin.readline()
try:
    port = Port(int(sys.argv[1]))
    print("won", flush=True)
except PortTaken:
    print("lost", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def script() -> Iterator[Script]:
    """Starts small processes that speak through pipes."""
    made: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        made.append(process)
        return process

    yield start
    for process in made:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


@pytest.fixture
def name() -> Iterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    yield name
    lock_path(name).unlink(missing_ok=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


class TestHostLock:
    def test_one_process_at_a_time(self, script: Script, name: str) -> None:
        other = script(HOLD, name)
        assert line(other) == "held"
        lock = HostLock(name)
        assert not lock.try_acquire()
        assert not lock.held
        other.communicate()
        with lock:
            assert lock.held
            assert not HostLock(name).try_acquire()
        assert not lock.held

    def test_lock_of_a_killed_holder_is_free(self, script: Script, name: str) -> None:
        other = script(HOLD, name)
        assert line(other) == "held"
        lock = HostLock(name)
        assert not lock.try_acquire()
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert lock.try_acquire()
        lock.release()

    def test_waiting_is_told_and_its_time_returned(self, script: Script, name: str) -> None:
        other = script(HOLD, name)
        assert line(other) == "held"
        told: list[float] = []

        def waiting(seconds: float) -> None:
            told.append(seconds)
            assert other.stdin is not None
            other.stdin.close()

        lock = HostLock(name)
        waited = lock.acquire(waiting)
        lock.release()
        assert told
        assert 1 <= told[0] <= waited

    def test_removal_under_contention_never_admits_two(self, script: Script, name: str, tmp_path: Path) -> None:
        """A lock file that its holder removes must not be locked by one who opened it before."""
        processes = [script(CONTEND, name, str(tmp_path / "inside")) for _ in range(4)]
        assert [line(process) for process in processes] == ["done"] * 4
        assert not lock_path(name).exists()

    def test_lock_of_another_users_file(self, name: str) -> None:
        """Sticky directories refuse O_CREAT on a file that another user made."""
        if os.geteuid() != 0:
            pytest.skip("needs root to make a file of another user")
        path = lock_path(name)
        path.touch(0o644)
        os.chown(path, 65534, 65534)
        lock = HostLock(name)
        assert lock.try_acquire()
        lock.release()


class TestPort:
    def test_ports_of_many_processes_differ(self, script: Script) -> None:
        processes = [script(TAKE, "25") for _ in range(5)]
        for process in processes:
            tell(process)
        numbers = [int(word) for process in processes for word in line(process).split()]
        assert len(numbers) == 125
        assert len(set(numbers)) == 125
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        assert all(20000 <= number < max(20100, low) for number in numbers)
        for process in processes:
            process.communicate("go\n")
        assert not [number for number in numbers if lock_path(f"port-{number}").exists()]

    def test_of_many_who_want_one_port_one_gets_it(self, script: Script) -> None:
        port = Port()
        port.release()
        processes = [script(RACE, str(port.number)) for _ in range(5)]
        assert [line(process) for process in processes] == ["here"] * 5
        for process in processes:
            tell(process)
        assert sorted(line(process) for process in processes) == ["lost"] * 4 + ["won"]
        lock_path(f"port-{port.number}").unlink(missing_ok=True)

    def test_port_of_a_killed_holder_can_be_taken(self, script: Script) -> None:
        other = script(TAKE, "1")
        tell(other)
        number = int(line(other))
        with pytest.raises(PortTaken, match=f"port {number} is held by another boot"):
            Port(number)
        other.kill()
        other.wait()
        port = Port(number)
        port.release()
        assert not lock_path(f"port-{number}").exists()

    @pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
    def test_listener_on_any_interface_is_found_and_named(self, host: str) -> None:
        with socket.socket() as listener:
            listener.bind((host, 0))
            listener.listen()
            number = listener.getsockname()[1]
            assert not is_free(number)
            assert listeners(number, [os.getpid(), 1]) == [os.getpid()]
            assert (owner(number) or "").endswith(f" (pid {os.getpid()})")
            with pytest.raises(PortTaken, match=rf"port {number} is already in use by .* \(pid {os.getpid()}\)"):
                Port(number)
            assert not lock_path(f"port-{number}").exists() or HostLock(f"port-{number}").try_acquire()
        assert eventually(lambda: is_free(number))
        assert owner(number) is None
        lock_path(f"port-{number}").unlink(missing_ok=True)

    def test_port_whose_connections_are_in_time_wait_is_free(self) -> None:
        """An engine that was just stopped must not block the next boot for a minute."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            number = listener.getsockname()[1]
            with socket.create_connection(("127.0.0.1", number)) as client:
                server, _ = listener.accept()
                server.close()  # the side that closes first keeps TIME_WAIT
                assert client.recv(1) == b""
        assert is_free(number)
