"""What is asked of the process, its interpreter and its host."""

from __future__ import annotations

import os
import sys
import time

# Bound now: engines may patch these modules later.
_open, _read, _close, _stat, _now = os.open, os.read, os.close, os.stat, time.monotonic

#: Modules that make further interpreters.
INTERPRETERS = ("_interpreters", "_xxsubinterpreters")


def exists(path: str) -> bool:
    try:
        _stat(path)
    except OSError:
        return False
    return True


def read(path: str, most: int) -> str:
    """The beginning of a small file. :raises OSError: it cannot be read."""
    file = _open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read(file, most).decode("utf-8", "replace")
    finally:
        _close(file)


def peek(thing: object, name: str) -> object:
    """An attribute as it lies there, None if there is none: asking for it may load a lazy module."""
    try:
        return object.__getattribute__(thing, "__dict__").get(name)
    except AttributeError:
        return None


def started() -> float:
    """The monotonic second at which this process began, to 10 ms; now where /proc does not tell."""
    try:
        ticks = int(read("/proc/self/stat", 4096).rpartition(")")[2].split()[19])
        # The kernel counts it from its boot, sleeps included; the monotonic clock leaves those out.
        slept = time.clock_gettime(time.CLOCK_BOOTTIME) - _now()
        return ticks / os.sysconf("SC_CLK_TCK") - slept
    except Exception:
        return _now()


def threads() -> int:
    """Threads of this process as the kernel counts them."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def is_main() -> bool:
    """Whether this is the process's main interpreter. A thread of ours in another one would crash its end."""
    if threads() == 1:
        return True  # where there are others, the main one's probe is a thread
    had = [name for name in INTERPRETERS if name in sys.modules]
    try:
        try:
            import _interpreters as interpreters  # type: ignore[import-not-found]
        except ImportError:
            import _xxsubinterpreters as interpreters  # type: ignore[import-not-found]
        return bool(interpreters.get_current() == interpreters.get_main())
    except Exception:
        return True
    finally:
        for name in INTERPRETERS:
            if name not in had:
                sys.modules.pop(name, None)
