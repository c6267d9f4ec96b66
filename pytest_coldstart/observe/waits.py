"""What a process waits on, from /proc alone: a file lock, a peer, another process, a signal that stopped it.

Each part is optional: what may not be read, or is gone, is left out, and nothing raises. Only the main thread counts,
and what others block on where it waits for them.
"""

from __future__ import annotations

import os
import platform
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pytest_coldstart.observe.open_files import OpenFiles, text_of

#: How telling a wait is, the most telling first; what is waited for in the tree is apart (:attr:`Wait.on`).
STOPPED, LOCK, STUCK, REMOTE, RUNS, BLOCKED, SERVES = range(7)

_NUMBERS = {
    "x86_64": (
        "read 0 write 1 open 2 poll 7 pread 17 readv 19 writev 20 select 23 nanosleep 35 sendfile 40 connect 42 "
        "accept 43 sendto 44 recvfrom 45 sendmsg 46 recvmsg 47 wait4 61 fcntl 72 flock 73 fsync 74 fdatasync 75 ioctl 16 "
        "futex 202 clock_nanosleep 230 epoll_wait 232 waitid 247 openat 257 pselect6 270 ppoll 271 epoll_pwait 281 "
        "accept4 288 restart_syscall 219 epoll_pwait2 441"
    ),
    "aarch64": (
        "read 63 write 64 pread 67 readv 65 writev 66 sendfile 71 connect 203 accept 202 sendto 206 recvfrom 207 "
        "sendmsg 211 recvmsg 212 wait4 260 fcntl 25 flock 32 fsync 82 fdatasync 83 ioctl 29 futex 98 nanosleep 101 "
        "clock_nanosleep 115 epoll_pwait 22 waitid 95 openat 56 pselect6 72 ppoll 73 accept4 242 restart_syscall 128 "
        "epoll_pwait2 441"
    ),
}
_WORDS = _NUMBERS.get(platform.machine(), "").split()
_CALLS = {int(number): name for name, number in zip(_WORDS[::2], _WORDS[1::2], strict=True)}
_WRITES = {"write", "writev", "sendto", "sendmsg", "sendfile"}
_ON_FILE = _WRITES | {"read", "readv", "pread", "recvfrom", "recvmsg", "connect", "accept", "accept4", "ioctl"}
_ON_FILE |= {"fsync", "fdatasync"}
_LOCK_COMMANDS = (7, 38)  # F_SETLKW, F_OFD_SETLKW
_MOST_FILES = 64


@dataclass(frozen=True)
class Wait:
    """``text`` reads on after a process's name. ``on``: the processes of the tree that can end it."""

    rank: int
    text: str
    on: frozenset[int] = frozenset()


def wait_of(files: OpenFiles, pid: int, children: Iterable[int] = ()) -> Wait:
    """What *pid* waits on; *children* are its descendants."""
    own = _thread(files, pid, pid, children)
    if own.rank not in (BLOCKED, SERVES) or own.on:
        return own
    below = frozenset(children)
    others = []
    for tid in _threads(pid):
        other = _thread(files, pid, tid, children)
        # Of other threads, that one waits for a parent says nothing: many watch whether theirs still lives.
        if other.rank in (LOCK, STUCK, REMOTE) or other.on & below:
            others.append(replace(other, on=other.on & below if other.rank == BLOCKED else other.on))
    if not others:
        return own
    best = min(others, key=lambda wait: (bool(wait.on), wait.rank))
    return replace(best, text=f"{own.text}; another of its threads {best.text}")


def _threads(pid: int) -> list[int]:
    try:
        return [int(tid) for tid in os.listdir(f"/proc/{pid}/task") if int(tid) != pid]
    except OSError:
        return []


def _thread(files: OpenFiles, pid: int, tid: int, children: Iterable[int]) -> Wait:
    path = f"/proc/{pid}/task/{tid}"
    state = text_of(f"{path}/stat").rpartition(")")[2].split()[:1]
    if state in (["T"], ["t"]):
        tracer = re.search(r"TracerPid:\s*([1-9]\d*)", text_of(f"{path}/status"))
        by = f"its debugger, {files.who(int(tracer[1]))}" if tracer else "a signal such as SIGSTOP"
        return Wait(STOPPED, f"is stopped by {by} (state {state[0]})")
    channel = text_of(f"{path}/wchan").strip("\0\n ")
    where = f" in the kernel's {channel}" if channel not in ("", "0") else ""
    fields = text_of(f"{path}/syscall").split()
    if state == ["R"] or fields[:1] == ["running"]:
        return Wait(RUNS, "runs")
    if len(fields) < 7:
        found = Wait(BLOCKED, f"waits{where} (state {state[0]})" if state else "is gone")
    else:
        call = _CALLS.get(int(fields[0]), f"system call {fields[0]}")
        found = _call(files, pid, call, [int(field, 16) for field in fields[1:7]], children, where)
    if state == ["D"] and found.rank != LOCK:
        return replace(found, rank=STUCK, text=f"{found.text}, uninterruptible{where}")
    return found


def _call(files: OpenFiles, pid: int, call: str, args: list[int], children: Iterable[int], where: str) -> Wait:
    fd = struct.unpack("=i", struct.pack("=I", args[0] & 0xFFFFFFFF))[0]
    if call == "flock" or (call == "fcntl" and args[1] in _LOCK_COMMANDS):
        held, holder = files.lock_holder(pid, fd)
        return Wait(LOCK, f"waits in {call} on {files.name(pid, fd)}{held}", files.of_tree(holder))
    if call in _ON_FILE:
        end = files.end(pid, fd, writing=call in _WRITES)
        rank = SERVES if call.startswith("accept") or end.serves else REMOTE if end.remote else BLOCKED
        return Wait(rank, f"waits in {call} on {end.text}", end.on)
    if call in ("poll", "ppoll"):
        return _many(files, pid, call, _polled(pid, args[0], args[1]))
    if call in ("select", "pselect6"):
        return _many(files, pid, call, _selected(pid, args[0], args[1:3]))
    if call.startswith("epoll"):
        return _many(files, pid, call, files.watched(pid, fd))
    if call in ("wait4", "waitid"):
        number = args[1] if call == "waitid" else fd
        exact = fd == 1 if call == "waitid" else fd > 0
        on = files.of_tree([number] if exact else children)
        return Wait(BLOCKED, f"waits for the end of {files.all(on) if exact else 'a child'} ({call})", on)
    if call.endswith("nanosleep"):
        return Wait(BLOCKED, f"sleeps ({call})")
    if call in ("open", "openat"):
        name = _memory(pid, args[call == "openat"], 256).partition(b"\0")[0].decode("utf-8", "replace")
        return Wait(BLOCKED, f"waits to open {name or 'a file'}")
    if call == "futex":
        return Wait(BLOCKED, "waits for a lock or a thread of its own (futex)")
    return Wait(BLOCKED, f"waits in {call}{where}")


def _many(files: OpenFiles, pid: int, call: str, numbers: list[tuple[int, bool]]) -> Wait:
    """A wait for the first of several files: (descriptor, whether it is waited for to write)."""
    ends = [files.end(pid, fd, writing) for fd, writing in numbers[:_MOST_FILES]]
    telling = [end for end in ends if end.on or end.remote or end.serves]
    shown = [end.text for end in telling or ends]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    text = f"waits in {call} on {', '.join(dict.fromkeys(shown[:3]))}{more}" if shown else f"waits in {call}"
    rank = SERVES if any(end.serves for end in ends) else REMOTE if any(end.remote for end in ends) else BLOCKED
    return Wait(rank, text, frozenset().union(*(end.on for end in ends)))


def _polled(pid: int, address: int, count: int) -> list[tuple[int, bool]]:
    data = _memory(pid, address, 8 * min(count, _MOST_FILES))
    entries = struct.iter_unpack("=ihh", data[: len(data) // 8 * 8])
    return [(fd, events & 5 == 4) for fd, events, _ in entries if fd >= 0]  # POLLIN 1, POLLOUT 4


def _selected(pid: int, count: int, addresses: list[int]) -> list[tuple[int, bool]]:
    size, found = (min(count, 1024) + 7) // 8, []
    for writing, address in enumerate(addresses):
        bits = int.from_bytes(_memory(pid, address, size), "little") if address else 0
        found += [(fd, bool(writing)) for fd in range(min(count, 1024)) if bits >> fd & 1]
    return found


def _memory(pid: int, address: int, size: int) -> bytes:
    """Bytes of a process's memory: the arguments of the system call in which it waits."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            file.seek(address)
            return file.read(size)
    except (OSError, ValueError, OverflowError):
        return b""
