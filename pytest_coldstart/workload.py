"""Reference workloads: small fixed work, timed after each boot, so that boots of different moments and machines compare.

Never before a boot: what they read would be warm for it. They leave the weight files resident, as the boot itself did;
the next boot's preparation brings them into its tier's state. The modules that they import are those of the interpreter
that runs pytest, and most of them it has imported itself.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_coldstart.derive import median
from pytest_coldstart.record import Value
from pytest_coldstart.reference import plain_read

IMPORT, READ, COPY, TIME = "reference_import", "reference_read", "reference_copy", "reference_time"

#: Pure Python for the most part, and in every version since 3.11. Another set would be another reference.
MODULES = ("argparse", "json")

NOT_TIMED = "no reference workload was timed"
PARALLEL = "boots run in parallel, and another one would slow a reference down"

_IMPORTS, _IMPORT_TIMEOUT = 3, 10.0
_READS, _READ_BYTES, _READ_SECONDS = 3, 64 << 20, 0.05


def timed(files: Sequence[Path]) -> dict[str, Value]:
    """The workloads that need no device: importing modules, s, and reading *files*, the weights, B/s. About 0.2 s of CPU."""
    return {IMPORT: import_time(), READ: resident_read(files)}


def untimed(reason: str) -> dict[str, Value]:
    return dict.fromkeys((IMPORT, READ, COPY, TIME), Value(None, None, reason))


def import_time() -> Value:
    """Seconds that a new interpreter takes to start, import :data:`MODULES` and end, the median of three.

    The source names the interpreter's version: two versions take different times for the same work.
    """
    command = [sys.executable, "-I", "-S", "-c", f"import {', '.join(MODULES)}"]
    times = []
    for _ in range(_IMPORTS):
        begin = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, timeout=_IMPORT_TIMEOUT, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return Value(None, None, f"the imports did not end within {_IMPORT_TIMEOUT:.0f} s")
        except (OSError, ValueError) as error:
            return Value(None, None, f"{sys.executable or 'the interpreter'} could not be started: {error}")
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            return Value(None, None, f"the imports failed: {last[0]}")
        times.append(time.perf_counter() - begin)
    return Value(median(times), f"python {platform.python_version()}")


def resident_read(files: Sequence[Path]) -> Value:
    """Bytes a second of a plain, sequential read of resident *files*, the largest first, the median of up to three.

    A first read makes them resident, and decides how much is read: up to 64 MiB, and what 0.05 s allow.
    """
    try:
        files = sorted((path.resolve(strict=True) for path in files), key=lambda path: (-path.stat().st_size, path))
        count, _ = plain_read(files, _READ_BYTES, _READ_SECONDS)
        if not count:
            return Value(None, None, "no weight files are known")
        speeds: list[float] = []
        begin = time.perf_counter()
        while len(speeds) < _READS and (not speeds or time.perf_counter() - begin < _READ_SECONDS):
            got, seconds = plain_read(files, count, _IMPORT_TIMEOUT)
            speeds.append(got / seconds)
    except OSError as error:
        return Value(None, None, f"the weight files cannot be read: {error}")
    return Value(median(speeds), "client")


def of(references: Mapping[str, Value], name: str) -> Value:
    """The value of one workload, or why there is none."""
    return references.get(name, Value(None, None, NOT_TIMED))
