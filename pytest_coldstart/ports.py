"""A TCP port for one boot, and who is behind it."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

from pytest_coldstart.locks import HostLock

HOST = "127.0.0.1"
_TCP_LISTEN = "0A"


class PortTaken(RuntimeError):
    """The port is in use; the message names the owner where it can be told."""


class Port:
    """A port that no other boot of this tool and no other listener has.

    Chosen below the range from which the kernel takes ports for outgoing connections, so that
    none of those can slip in between the probe and the engine's bind; held among the processes
    of this tool by a lock until :meth:`release`.
    """

    def __init__(self, number: int | None = None) -> None:
        self.lock: HostLock
        if number is not None:
            self.number = number
            self.lock = HostLock(f"port-{number}")
            if not self.lock.try_acquire():
                raise PortTaken(f"port {number} is held by another boot of pytest-coldstart")
            if not is_free(number):
                self.lock.remove()
                raise PortTaken(f"port {number} is already in use by {owner(number) or 'an unknown process'}")
            return
        low, high = 20000, max(20100, _ephemeral_begin())
        for _ in range(500):
            candidate = random.SystemRandom().randrange(low, high)
            lock = HostLock(f"port-{candidate}")
            if not lock.try_acquire():
                continue
            if is_free(candidate):
                self.number, self.lock = candidate, lock
                return
            lock.remove()
        raise PortTaken(f"no free port found between {low} and {high}")

    def release(self) -> None:
        self.lock.remove()


def _ephemeral_begin() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 32768


def is_free(number: int) -> bool:
    """Whether the port can be bound on loopback and on all interfaces, as engines bind either."""
    for host in (HOST, "0.0.0.0"):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, number))
            except OSError:
                return False
    return True


def listening_inodes(number: int) -> set[str]:
    """Socket inodes that listen on the port, from /proc/net/tcp and tcp6."""
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == number:
                found.add(fields[9])
    return found


def listeners(number: int, pids: list[int]) -> list[int]:
    """Those of *pids* that hold a listening socket of the port."""
    wanted = {f"socket:[{inode}]" for inode in listening_inodes(number)}
    return [pid for pid in pids if wanted & _open_files(pid)]


def owner(number: int) -> str | None:
    """``name (pid 12)`` of a process that listens on the port, where it can be seen."""
    everyone = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()] if os.path.isdir("/proc") else []
    for pid in listeners(number, everyone):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            name = "?"
        return f"{name} (pid {pid})"
    return None


def _open_files(pid: int) -> set[str]:
    found: set[str] = set()
    try:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            found.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    except OSError:
        pass
    return found
