"""Open files of a tree's processes, from /proc: what each is, who holds its other end, who has a lock on it."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

_STATES = (
    "? ESTABLISHED SYN_SENT SYN_RECV FIN_WAIT1 FIN_WAIT2 TIME_WAIT CLOSE CLOSE_WAIT LAST_ACK LISTEN CLOSING".split()
)
_UNIX_LISTENS = 0x10000

Address = tuple[str, int]


@dataclass(frozen=True)
class End:
    """What is behind one descriptor.

    ``on``: the processes of the tree at its other end. ``remote``: its peer is outside. ``serves``: others connect
    or have connected to it.
    """

    text: str
    on: frozenset[int] = frozenset()
    remote: bool = False
    serves: bool = False


@dataclass(frozen=True)
class _Socket:
    kind: str
    local: Address
    peer: Address
    state: str


class OpenFiles:
    """The open files of *pids* at this moment. What may not be read is left out; nothing here raises for it.

    *names* are better ones than the kernel's. *outside* is a process that is no part of the tree, its supervisor.
    """

    def __init__(self, pids: Iterable[int], names: Mapping[int, str] | None = None, outside: int | None = None) -> None:
        self.pids = [pid for pid in pids if pid != outside]
        self._names = dict(names or {})
        self._outside = outside
        known = [*self.pids, outside] if outside is not None else self.pids
        self._links = {pid: _links(pid) for pid in known}
        self._sockets: dict[str, dict[str, _Socket]] = {}

    # -- processes

    def who(self, pid: int) -> str:
        """``EngineCore (pid 12)``; what is not of the tree is said to be so."""
        if pid == self._outside:
            return f"this boot's supervisor (pid {pid})"
        name = self._names.get(pid) or text_of(f"/proc/{pid}/comm").strip()
        if not name:
            return f"pid {pid}, which is gone"
        return f"{name} (pid {pid})" if pid in self.pids else f"{name} (pid {pid}, not of this boot)"

    def all(self, pids: Iterable[int]) -> str:
        names = [self.who(pid) for pid in sorted(pids)]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

    def of_tree(self, pids: Iterable[int]) -> frozenset[int]:
        return frozenset(pid for pid in pids if pid in self.pids)

    # -- descriptors

    def name(self, pid: int, fd: int) -> str:
        return self._links.get(pid, {}).get(fd, f"descriptor {fd}")

    def end(self, pid: int, fd: int, writing: bool = False) -> End:
        link = self.name(pid, fd)
        if link.startswith("pipe:"):
            return self._pipe(pid, link, writing)
        if link.startswith("socket:"):
            return self._socket(pid, link.removeprefix("socket:[").rstrip("]"))
        if link == "anon_inode:[pidfd]":
            found = re.search(r"^Pid:\s*(\d+)", self._info(pid, fd), re.M)
            return End(f"the end of {self.who(int(found[1]))}", self.of_tree([int(found[1])])) if found else End(link)
        if link.startswith("anon_inode:"):
            return End(link.removeprefix("anon_inode:").strip("[]"))
        return End(link)

    def watched(self, pid: int, epoll: int) -> list[tuple[int, bool]]:
        """Descriptors that an epoll descriptor watches, and whether for writing alone."""
        found = re.findall(r"^tfd:\s*(\d+)\s+events:\s*([0-9a-f]+)", self._info(pid, epoll), re.M)
        return [(int(fd), int(events, 16) & 5 == 4) for fd, events in found]

    def _info(self, pid: int, fd: int) -> str:
        return text_of(f"/proc/{pid}/fdinfo/{fd}")

    def _pipe(self, pid: int, link: str, writing: bool) -> End:
        others = []
        for other, links in self._links.items():
            ends = [fd for fd, target in links.items() if target == link] if other != pid else []
            if any(self._opened_to_write(other, fd) != writing for fd in ends):
                others.append(other)
        if others:
            return End(f"a pipe whose other end {self.all(others)} holds", self.of_tree(others))
        return End(f"a pipe whose other end no other process of the tree holds ({link})")

    def _opened_to_write(self, pid: int, fd: int) -> bool:
        flags = re.search(r"^flags:\s*([0-7]+)", self._info(pid, fd), re.M)
        return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY

    def _socket(self, pid: int, inode: str) -> End:
        table = self._table(pid)
        found = table.get(inode)
        if found is None:
            return _unix(pid, inode)
        if found.state == "LISTEN":
            return End(f"a connection to {_shown(found.local)} (LISTEN)", serves=True)
        if any(other.state == "LISTEN" and other.local[1] == found.local[1] for other in table.values()):
            text, serves = f"{found.kind} from {_shown(found.peer)} ({found.state})", True
        else:
            text, serves = f"{found.kind} to {_shown(found.peer)} ({found.state})", False
        peers = {f"socket:[{key}]" for key, it in table.items() if (it.local, it.peer) == (found.peer, found.local)}
        on = [other for other in self.pids if other != pid and peers & set(self._links[other].values())]
        if on:
            return End(f"{text}, which {self.all(on)} has at its other end", frozenset(on))
        own = bool(peers & set(self._links.get(pid, {}).values()))
        return End(text, remote=not (serves or own) and found.peer[1] != 0, serves=serves)

    def _table(self, pid: int) -> dict[str, _Socket]:
        """Sockets of the process's network by inode."""
        try:
            network = os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            network = str(pid)
        if network not in self._sockets:
            found: dict[str, _Socket] = {}
            for kind in ("tcp", "tcp6", "udp", "udp6"):
                for line in text_of(f"/proc/{pid}/net/{kind}").splitlines()[1:]:
                    fields = line.split()
                    state = _STATES[int(fields[3], 16)] if kind.startswith("tcp") else "UDP"
                    found[fields[9]] = _Socket(kind[:3].upper(), _address(fields[1]), _address(fields[2]), state)
            self._sockets[network] = found
        return self._sockets[network]

    # -- locks

    @cached_property
    def _locks(self) -> list[tuple[str, bool, int, str]]:
        """Number, whether it waits, pid, and MAJOR:MINOR:INODE of every lock."""
        found = []
        for line in text_of("/proc/locks").splitlines():
            number, _, rest = line.partition(":")
            fields = rest.replace("->", " ").split()
            found.append((number, "->" in rest, int(fields[3]), fields[4]))
        return found

    def lock_holder(self, pid: int, fd: int) -> tuple[str, list[int]]:
        """Who has the lock that *pid* waits for: words to put after the file's name, and the processes."""
        numbers = {number for number, waits, waiter, _ in self._locks if waits and waiter == pid}
        owners = {owner for number, waits, owner, _ in self._locks if number in numbers and not waits}
        if not owners:
            try:
                inode = str(os.stat(f"/proc/{pid}/fd/{fd}").st_ino)
            except OSError:
                return "", []
            owners = {owner for _, waits, owner, file in self._locks if not waits and file.split(":")[2] == inode}
        if not owners:
            return "", []
        living = [owner for owner in sorted(owners) if _links(owner)]
        if living:
            return f", held by {self.all(living)}", living
        # The lock lives on in the descriptor, which a child of the one that took it has inherited.
        heirs = [other for other in self.pids if other != pid and self._holds(other, self.name(pid, fd))]
        return (f", held by {self.all(heirs)}" if heirs else ", held by a process that is not seen"), heirs

    def _holds(self, pid: int, path: str) -> bool:
        mine = [fd for fd, target in self._links[pid].items() if target == path]
        return any("\nlock:" in self._info(pid, fd) for fd in mine)

    def held_lock_files(self) -> list[str]:
        """Lock files (``*.lock``) in use on this machine and by whom: ``/x/y.lock by python (pid 12)``."""
        found = []
        for owner in sorted({owner for _, waits, owner, _ in self._locks if not waits and owner > 0}):
            for fd, path in (self._links.get(owner) or _links(owner)).items():
                ours = os.path.basename(path).startswith("pytest-coldstart-")
                if path.endswith(".lock") and not ours and "\nlock:" in self._info(owner, fd):
                    found.append(f"{path} by {self.who(owner)}")
        return list(dict.fromkeys(found))


def text_of(path: str) -> str:
    """A file of /proc; "" where it may not be read or is gone."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _links(pid: int) -> dict[int, str]:
    found: dict[int, str] = {}
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                found[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
    except OSError:
        pass
    return found


def _unix(pid: int, inode: str) -> End:
    for line in text_of(f"/proc/{pid}/net/unix").splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) > 6 and fields[6] == inode:
            path = fields[7] if len(fields) > 7 else ""
            serves = bool(int(fields[3], 16) & _UNIX_LISTENS)
            return End(f"a unix socket{' ' + path if path else ''}", serves=serves)
    return End("a socket")


def _address(text: str) -> Address:
    """``0100007F:1F90`` -> ("127.0.0.1", 8080); IPv4 in IPv6 counts as IPv4."""
    host, _, port = text.partition(":")
    data = b"".join(struct.pack("=I", int(host[at : at + 8], 16)) for at in range(0, len(host), 8))
    if len(data) == 16 and data.startswith(b"\0" * 10 + b"\xff\xff"):
        data = data[12:]
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data), int(port, 16)


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
