"""What this machine can do with a model's weights: a plain read of their files, a copy to the device, the PCIe link.

They are references for :mod:`pytest_coldstart.load`: how fast an engine could load, beside how fast it did.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_coldstart import residency
from pytest_coldstart.coldness import EVICTED_AT_MOST


@dataclass(frozen=True)
class Copy:
    """A copy to a device: bytes a second, the reason where there is none, and bytes that a bare CUDA context takes there."""

    speed: float | None = None
    reason: str = ""
    context_bytes: int | None = None


#: Bytes a second, and the reason where there is no number; one of both is empty.
Speed = tuple[float | None, str]

#: A read that nobody has timed.
UNTIMED: Speed = (None, "no plain read was timed")

_BUFFER = 4 << 20
_COPY_TIMEOUT = 60.0

#: Generation of PCIe -> transfers a second on one lane, and the share of the bits that carry data.
_LINKS = {
    1: (2.5e9, 8 / 10),
    2: (5e9, 8 / 10),
    3: (8e9, 128 / 130),
    4: (16e9, 128 / 130),
    5: (32e9, 128 / 130),
    6: (64e9, 242 / 256),
}


class References:
    """The speeds of one session, each measured once: of the same files in the same state, of the same device."""

    def __init__(self) -> None:
        self._reads: dict[tuple[tuple[Path, ...], bool], Speed] = {}
        self._copies: dict[str, Copy] = {}

    def read_speed(self, files: Sequence[Path], evict: bool) -> Speed:
        """As the function :func:`read_speed`; it, too, must not be called between ``Coldness.prepare`` and the start."""
        key = (tuple(files), evict)
        if key not in self._reads:
            self._reads[key] = read_speed(files, evict)
        return self._reads[key]

    def copy(self, uuid: str) -> Copy:
        """As the function :func:`copy_speed`."""
        if uuid not in self._copies:
            self._copies[uuid] = copy_speed(uuid)
        return self._copies[uuid]


def read_speed(files: Sequence[Path], evict: bool, most_bytes: int = 2 << 30, most_seconds: float = 10.0) -> Speed:
    """Bytes a second of one plain, sequential read of *files*, the largest first; at most *most_bytes* of them.

    With *evict* they are evicted right before, and checked; else they are read once before, so that they are resident.
    It leaves them resident as far as it read them: call it before ``Coldness.prepare``, which brings them into the
    state of their tier.
    """
    try:
        files = sorted((path.resolve(strict=True) for path in files), key=lambda path: (-path.stat().st_size, path))
        if not sum(path.stat().st_size for path in files):
            return None, "no weight files are known"
        if evict:
            if problem := _evicted(files):
                return None, problem
        else:
            most_bytes = plain_read(files, most_bytes, most_seconds)[0]
        count, seconds = plain_read(files, most_bytes, most_seconds)
    except OSError as error:
        return None, f"the weight files cannot be read: {error}"
    return count / seconds, ""


def _evicted(files: Sequence[Path]) -> str:
    """Evict the files; why that failed or cannot be told, or an empty string."""
    mapped = residency.mapped_by(files)
    for path in files:
        if problem := residency.can_tell(path) or residency.cannot_evict(path, mapped):
            return f"no read from the disk: {path}: {problem}"
    residency.evict(files)
    left, size = sum(map(residency.resident_bytes, files)), sum(path.stat().st_size for path in files)
    if left > EVICTED_AT_MOST * size:
        return f"no read from the disk: {left / size:.1%} of the weights stayed in the page cache"
    return ""


def plain_read(files: Sequence[Path], most_bytes: int, most_seconds: float) -> tuple[int, float]:
    """Read *files* one after the other through one buffer of 4 MiB; bytes that were read, and the seconds it took.

    It ends at *most_bytes* or after *most_seconds*, whichever is first.
    """
    view = memoryview(bytearray(_BUFFER))
    count, begin = 0, time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while count < most_bytes and time.perf_counter() - begin < most_seconds:
                got = file.readinto(view[: min(_BUFFER, most_bytes - count)])
                if not got:
                    break
                count += got
    return count, time.perf_counter() - begin


def copy_speed(uuid: str) -> Copy:
    """Bytes a second from pinned host memory to the device of this UUID, the best of eight copies of 256 MiB.

    A child process copies, so that its CUDA context and its memory are gone when this returns.
    """
    command = [sys.executable, "-m", "pytest_coldstart.observe.copy_speed", uuid]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COPY_TIMEOUT, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return Copy(reason=f"the copy to {uuid} did not end within {_COPY_TIMEOUT:.0f} s")
    except OSError as error:
        return Copy(reason=f"the copy to {uuid} could not be started: {error}")
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
        if "best" not in answer:
            return Copy(reason=str(answer["reason"]))
        return Copy(float(answer["best"]), "", answer.get("context"))
    except (IndexError, ValueError, KeyError, TypeError):
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return Copy(reason=f"the copy to {uuid} failed: {last[0]}")


def link_speed(gen: int | None, width: int | None) -> float | None:
    """Bytes a second that a PCIe link carries at most, one way, by its generation and its number of lanes.

    By the PCI Express Base Specification: 2.5, 5, 8, 16, 32 and 64 GT/s a lane; of ten bits eight are data up to
    generation 2 (8b/10b), of 130 bits 128 up to generation 5 (128b/130b), and of a flit of 256 bytes 242 carry packets
    from generation 6 on. The headers of the packets take some more of it.
    """
    if gen not in _LINKS or not width:
        return None
    rate, share = _LINKS[gen]
    return rate * share * width / 8
