"""The process between pytest and one engine: launches it, drains its output, ends its tree.

Run as a script (``python -I supervisor.py``) with the standard library alone. It is a
session leader and a subreaper, so every descendant of the engine, however it daemonises,
becomes a child of this process before it can be lost. The pipe on its standard input is its
lease on life: when that closes (pytest ended, was killed, or said stop) the whole tree goes.

Standard input: one JSON line of configuration, then the words ``launch``, ``dump``, ``stop``.
Standard output: one JSON object a line; ``t`` is CLOCK_MONOTONIC in nanoseconds, which all
processes of a host share. Events: hello, started, not_started, log, exited, stopped.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import time
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
F_SETPIPE_SZ = 1031
LINE_LIMIT = 64 * 1024
TAIL_LIMIT = 64 * 1024
#: How often a change of the log is told to pytest, seconds.
LOG_EVERY = 0.25


def now() -> int:
    return time.monotonic_ns()


def prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False


class Log:
    """The engine's output in a file, each line behind its offset from the start.

    At most *limit* bytes are kept, then only the last lines, so that endless output can
    neither block the engine nor fill the disk.
    """

    def __init__(self, path: str, limit: int) -> None:
        self.file = open(path, "wb", buffering=0)  # noqa: SIM115 - open for the boot's life
        self.limit = limit
        self.start = now()
        self.total = 0
        self.written = 0
        self.last = b""
        self.tail = b""
        self.partial = b""

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        text = self.partial + data
        lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self.partial = lines.pop()
        if len(self.partial) > LINE_LIMIT:
            lines.append(self.partial)
            self.partial = b""
        stamp = b"[+%9.3f] " % ((now() - self.start) / 1e9)
        block = b"".join(stamp + line + b"\n" for line in lines if line)
        if block:
            self.last = next(line for line in reversed(lines) if line)[:400]
            self._write(block)

    def _write(self, block: bytes) -> None:
        """Whole lines to the file as far as the limit goes; of what is over it the end is kept."""
        room = max(0, self.limit - self.written)
        fits = len(block) if len(block) <= room else block.rfind(b"\n", 0, room) + 1
        if fits:
            try:
                self.file.write(block[:fits])
            except OSError:
                self.limit = 0  # a full disk must not end the boot; the tail is kept
            self.written += fits
        if fits < len(block):
            self.limit = 0
            self.tail = (self.tail + block[fits:])[-TAIL_LIMIT:]

    def close(self) -> None:
        if self.partial:
            self.feed(b"\n")
            self.total -= 1  # ours, not the engine's
        if self.tail:
            try:
                self.file.write(b"[output over the limit was left out here]\n" + self.tail)
            except OSError:
                pass
        self.file.close()


def stat_fields(pid: int) -> tuple[int, str, str] | None:
    """(parent, state, name) of a process, or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return int(fields[1]), fields[0], name


def descendants(root: int) -> dict[int, str]:
    """Living descendants of *root* (zombies left out): pid -> name."""
    parents: dict[int, tuple[int, str, str]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            found = stat_fields(int(entry))
            if found:
                parents[int(entry)] = found
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in parents.items():
        children.setdefault(parent, []).append(pid)
    result: dict[int, str] = {}
    todo = list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        todo.extend(children.get(pid, ()))
        if parents[pid][1] not in "ZX":
            result[pid] = parents[pid][2]
    return result


def tagged(tag: bytes) -> dict[int, str]:
    """Processes anywhere on the host that carry *tag* in their environment."""
    result: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if tag not in file.read().split(b"\0"):
                    continue
        except OSError:
            continue
        found = stat_fields(int(entry))
        if found and found[1] not in "ZX":
            result[int(entry)] = found[2]
    return result


def shared_memory(pids: list[int]) -> set[str]:
    """Files in /dev/shm that these processes have open or mapped.

    By inode: glibc makes a semaphore under another name and links it, so its maker maps a name that is gone.
    """
    inodes: set[int] = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
                inodes.update(int(line.split(None, 5)[4]) for line in file if "/dev/shm/" in line)
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                link = f"/proc/{pid}/fd/{descriptor}"
                if os.readlink(link).startswith("/dev/shm/"):
                    inodes.add(os.stat(link).st_ino)
        except OSError:
            continue
    return {path for path, inode in _shared_memory_inodes().items() if inode in inodes}


def shared_memory_files() -> set[str]:
    return set(_shared_memory_inodes())


def _shared_memory_inodes() -> dict[str, int]:
    try:
        return {entry.path: entry.inode() for entry in os.scandir("/dev/shm")}
    except OSError:
        return {}


class Supervisor:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.pid = os.getpid()
        self.tag = config["tag"].encode()
        for descriptor in config["hold"]:  # locks: ours until we end, never the engine's
            os.set_inheritable(descriptor, False)
        self.log = Log(config["log"], config["log_limit"])
        self.leader = 0
        self.exit_status: int | None = None
        self.words = b""
        self.pipe = -1
        self.stopping = False
        self.leaked: dict[int, str] = {}
        self.shm: set[str] = set()
        self.shm_before: set[str] = set()
        self.forced = False
        self.log_told = (0, 0)

    # -- talking to pytest

    def tell(self, event: str, **fields: Any) -> None:
        """Send one event; a reader that is gone or full must not stop the sweep."""
        line = (json.dumps({"event": event, **fields}) + "\n").encode()
        deadline = now() + int(10e9)
        while line:
            try:
                line = line[os.write(1, line) :]
            except BlockingIOError:
                if event == "log" or now() > deadline:
                    return
                select.select([], [1], [], 0.2)
            except OSError:
                return

    def tell_log(self) -> None:
        if self.log.total != self.log_told[0] and now() - self.log_told[1] > LOG_EVERY * 1e9:
            self.log_told = (self.log.total, now())
            self.tell("log", bytes=self.log.total, last=self.log.last.decode("utf-8", "replace"))

    # -- launching

    def launch(self) -> None:
        self.shm_before = shared_memory_files()
        output_read, output_write = os.pipe()
        try:
            fcntl.fcntl(output_write, F_SETPIPE_SZ, 1 << 20)
        except OSError:
            pass
        os.set_blocking(output_read, False)
        told_read, told_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._exec(output_write, told_write)
        os.close(output_write)
        os.close(told_write)
        with os.fdopen(told_read, "rb") as told:
            message = told.read()
        start, _, failure = message.partition(b" ")
        self.pipe = output_read
        self.leader = pid
        self.log.start = int(start or now())
        if failure:
            os.waitpid(pid, 0)
            self.leader = 0
            self.tell("not_started", t=self.log.start, errno=int(failure))
        else:
            self.tell("started", t=self.log.start, pid=pid)

    def _exec(self, output: int, told: int) -> NoReturn:
        """In the child: become the engine. The start is stamped just before the exec."""
        config = self.config
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self.pid:
                os._exit(127)  # the supervisor died before the line above
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(config["cwd"])
            os.write(told, b"%d" % now())
            os.execvpe(config["argv"][0], config["argv"], config["env"])
        except OSError as error:
            os.write(told, b" %d" % (error.errno or errno.EIO))
        except BaseException:  # a NUL byte in a word, say: the child must never run on as a second supervisor
            os.write(told, b" %d" % errno.EINVAL)
        os._exit(127)

    # -- watching

    def run(self) -> None:
        parent = os.pidfd_open(self.config["parent"]) if hasattr(os, "pidfd_open") else -1
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.tell("hello", t=now(), pid=os.getpid())
        while not self.stopping:
            watched = [0, wake_read, *([parent] if parent >= 0 else []), *([self.pipe] if self.pipe >= 0 else [])]
            ready = select.select(watched, [], [], LOG_EVERY)[0]
            if wake_read in ready:
                os.read(wake_read, 4096)
                self.reap()
            if self.pipe in ready:
                self.drain()
            if parent in ready:
                self.stopping = True
            if 0 in ready:
                self.listen()
            self.tell_log()
        self.end()

    def listen(self) -> None:
        data = os.read(0, 4096)
        if not data:
            self.stopping = True
        self.words += data
        *words, self.words = self.words.split(b"\n")
        for word in words:
            if word == b"launch":
                self.launch()
            elif word == b"dump":
                self.dump()
            elif word == b"stop":
                self.stopping = True

    def drain(self) -> None:
        """Read what the engine wrote; bounded, so that endless output cannot starve the rest."""
        for _ in range(16):
            try:
                data = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                os.close(self.pipe)
                self.pipe = -1
                return
            self.log.feed(data)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.leader and self.exit_status is None:
                self.exit_status = os.waitstatus_to_exitcode(status)
                self.tell("exited", t=now(), code=self.exit_status)

    def dump(self) -> None:
        """Make Python processes write their stacks to the log: faulthandler answers SIGABRT."""
        living = descendants(os.getpid())
        self.shm |= shared_memory(list(living)) - self.shm_before  # those that die of it can tell nothing later
        for pid in living:
            try:
                executable = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            except OSError:
                continue
            if executable.startswith(("python", "pypy")):
                signal_process(pid, signal.SIGABRT)

    # -- ending

    def end(self) -> None:
        begin = now()
        living = descendants(os.getpid())
        self.shm |= shared_memory(list(living)) - self.shm_before
        if self.leader and self.exit_status is None:
            signal_process(self.leader, signal.SIGTERM)
        self.stop_container()
        if self.leader and not self.wait_until(lambda: self.exit_status is not None, self.config["grace"]):
            self.forced = True
        self.wait_until(lambda: not descendants(self.pid), self.config["leftover_grace"])
        self.leaked = {pid: name for pid, name in self.living().items() if pid != self.leader}
        if self.living():
            self.sweep()
        done = now()
        # One that died after the last reap() is no longer living and has still to tell its exit code.
        self.wait_until(lambda: not self.leader or self.exit_status is not None, 1.0)
        while self.pipe >= 0 and select.select([self.pipe], [], [], 0)[0]:
            self.drain()
        self.log.close()
        self.tell(
            "stopped",
            t=done,
            begin=begin,
            forced=self.forced,
            code=self.exit_status,
            leaked=[f"{name} (pid {pid})" for pid, name in sorted(self.leaked.items())],
            shm=self.remove_shared_memory(),
            log_bytes=self.log.total,
        )
        for path in self.config["unlink"]:  # a killed pytest could not
            try:
                os.unlink(path)
            except OSError:
                pass

    def living(self) -> dict[int, str]:
        return {**descendants(os.getpid()), **tagged(self.tag)}

    def wait_until(self, done: Any, seconds: float) -> bool:
        """Wait for *done* while draining and reaping; False when the time ran out."""
        deadline = now() + int(seconds * 1e9)
        while True:
            self.reap()
            if done():
                return True
            if now() > deadline:
                return False
            if self.pipe >= 0:
                if select.select([self.pipe], [], [], 0.005)[0]:
                    self.drain()
            else:
                time.sleep(0.005)

    def sweep(self) -> None:
        """SIGTERM to all that is left, a moment, then SIGKILL until nothing of the tree lives."""
        for pid in self.living():
            signal_process(pid, signal.SIGTERM)
        deadline = now() + int(30 * 1e9)
        if self.wait_until(lambda: not self.living(), self.config["kill_grace"]):
            return
        self.forced = True
        while now() < deadline:
            for pid in self.living():
                signal_process(pid, signal.SIGKILL)
            if self.wait_until(lambda: not self.living(), 0.2):
                return

    def stop_container(self) -> None:
        if self.config.get("stop_argv") and self.leader:
            try:
                done = subprocess.run(
                    self.config["stop_argv"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
                )
                self.forced = self.forced or done.returncode != 0
            except (OSError, subprocess.TimeoutExpired):
                self.forced = True

    def remove_shared_memory(self) -> list[list[Any]]:
        """Unlink what the dead tree made and still had in /dev/shm; returns [path, bytes] of each.

        What was there before the launch, or what a process outside the tree holds too, is not ours.
        """
        left: list[list[Any]] = []
        others = shared_memory([int(entry) for entry in os.listdir("/proc") if entry.isdigit()]) if self.shm else set()
        for path in sorted(self.shm - others):
            try:
                size = os.stat(path).st_size
                os.unlink(path)
            except OSError:
                continue
            left.append([path, size])
        return left


def signal_process(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return
        line += byte
    os.set_blocking(1, False)
    Supervisor(json.loads(line)).run()


if __name__ == "__main__":
    main()
