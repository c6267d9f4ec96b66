"""File locks that the kernel drops when their holder dies, shared by every user of the host."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar

try:
    import fcntl
except ImportError:  # pragma: no cover - not on this platform: boots there are refused anyway
    fcntl = None  # type: ignore[assignment]


def lock_path(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"pytest-coldstart-{name}.lock"


class HostLock:
    """One exclusive lock by name over the whole host.

    The file is opened without O_CREAT first: sticky directories refuse O_CREAT on a file
    that another user made (fs.protected_regular), and flock needs no right to write.
    """

    _held: ClassVar[set[str]] = set()

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = lock_path(name)
        self._fd = -1

    @classmethod
    def held_here(cls, name: str) -> bool:
        """Whether this process holds the lock: waiting for it would never end."""
        return name in cls._held

    def acquire(self, waiting: Callable[[float], None] | None = None) -> float:
        """Wait for the lock; returns the seconds waited. *waiting* is called about once a second."""
        begin = time.monotonic()
        told = begin
        while not self.try_acquire():
            now = time.monotonic()
            if waiting and now - told >= 1:
                told = now
                waiting(now - begin)
            time.sleep(0.02)
        return time.monotonic() - begin

    def try_acquire(self) -> bool:
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        if not self._same_file(fd):  # its last holder removed the file between our open and flock
            os.close(fd)
            return False
        self._fd = fd
        self._held.add(self.name)
        return True

    def _same_file(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            fd = os.open(self.path, os.O_RDONLY | os.O_CREAT, 0o644)
            with suppress(OSError):
                os.fchmod(fd, 0o644)  # whatever the umask says, other users must be able to wait for it
            return fd

    @property
    def held(self) -> bool:
        return self._fd >= 0

    def fileno(self) -> int:
        """The descriptor: a process that inherits it holds the lock too."""
        return self._fd

    def remove(self) -> None:
        """Release the lock and remove its file, for names that are used once."""
        if self._fd >= 0 and self._same_file(self._fd):
            self.path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1
            self._held.discard(self.name)

    def __enter__(self) -> HostLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
