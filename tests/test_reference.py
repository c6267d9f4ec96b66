"""The references of a load: real reads of real files, and the reason where there is no device to copy to."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_coldstart import residency
from pytest_coldstart.reference import References, copy_speed, link_speed, plain_read, read_speed

pytestmark = pytest.mark.timeout(60)

MIB = 1 << 20


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A small file and a large one, not a multiple of the reader's buffer; both on a local disk."""
    sizes = {"small": 3 * MIB + 5, "large": 33 * MIB + 7}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(os.urandom(size))
    paths = [tmp_path / name for name in sizes]
    if residency.filesystem(tmp_path) not in residency.LOCAL:
        pytest.skip(f"the temporary folder is on {residency.filesystem(tmp_path)}, no local disk")
    return paths


def own_io() -> dict[str, int]:
    """The kernel's counters of this process: rchar, what reads gave; read_bytes, what came from storage."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def test_an_evicted_read_takes_every_byte_from_storage_and_none_of_them_twice(files: list[Path]) -> None:
    size = sum(path.stat().st_size for path in files)
    before = own_io()
    speed, reason = read_speed(files, evict=True)
    after = own_io()
    assert reason == ""
    assert speed is not None
    assert speed > 0
    assert size <= after["read_bytes"] - before["read_bytes"] < size + 8 * MIB
    assert size <= after["rchar"] - before["rchar"] < size + 8 * MIB
    assert [residency.resident_bytes(path) for path in files] == [path.stat().st_size for path in files]


def test_a_resident_read_takes_nothing_from_storage(files: list[Path]) -> None:
    residency.make_resident(files)
    before = own_io()
    speed, reason = read_speed(files, evict=False)
    assert reason == ""
    assert speed is not None
    assert speed > 0
    assert own_io()["read_bytes"] - before["read_bytes"] < MIB


def test_a_plain_read_counts_the_bytes_of_all_files(files: list[Path]) -> None:
    count, seconds = plain_read(files, 1 << 40, 60)
    assert count == 36 * MIB + 12
    assert seconds > 0


@pytest.mark.parametrize("most", [1, 5 * MIB, 35 * MIB + 1])
def test_a_plain_read_ends_at_its_most_bytes(files: list[Path], most: int) -> None:
    assert plain_read(files, most, 60)[0] == most


def test_a_plain_read_ends_when_its_time_is_up(files: list[Path]) -> None:
    assert plain_read(files, 1 << 40, 0)[0] == 0


def test_the_largest_file_is_read_first(files: list[Path]) -> None:
    small, large = files
    assert read_speed(files, evict=True, most_bytes=large.stat().st_size)[1] == ""
    assert residency.resident_bytes(large) == large.stat().st_size
    assert residency.resident_bytes(small) == 0


def test_files_that_memory_alone_holds_give_no_read_from_the_disk() -> None:
    path = Path(f"/dev/shm/coldstart-reference-{os.getpid()}")
    path.write_bytes(bytes(MIB))
    try:
        speed, reason = read_speed([path], evict=True)
    finally:
        path.unlink()
    assert speed is None
    assert "memory is the only home of its pages" in reason


@pytest.mark.parametrize("names", [[], ["nowhere"]])
def test_no_files_are_a_reason(names: list[str], tmp_path: Path) -> None:
    speed, reason = read_speed([tmp_path / name for name in names], evict=False)
    assert speed is None
    assert ("No such file" if names else "no weight files") in reason


def test_a_session_reads_the_same_files_once(files: list[Path]) -> None:
    session = References()
    first = session.read_speed(files, True)
    residency.evict(files)
    assert session.read_speed(files, True) == first
    assert sum(map(residency.resident_bytes, files)) == 0  # nothing was read again
    session.read_speed(files, False)
    assert sum(map(residency.resident_bytes, files)) == 36 * MIB + 12


def test_a_device_that_is_not_there_is_a_reason_and_no_traceback() -> None:
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    found = copy_speed(uuid)
    reason = found.reason
    assert (found.speed, found.context_bytes) == (None, None)
    assert reason.startswith("no copy to the device: ")
    words = [sys.executable, "-m", "pytest_coldstart.observe.copy_speed", uuid]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr, json.loads(done.stdout)) == (1, "", {"reason": reason})


def test_without_a_driver_the_reason_names_its_library() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert "libcuda.so.1" in copy_speed("GPU-0").reason
    else:
        pytest.skip("this machine has a CUDA driver")


@pytest.mark.parametrize(
    ("gen", "width", "gigabytes"),
    # One way, as the tables of the specification's versions are usually printed, rounded to three digits.
    [(1, 1, 0.250), (2, 4, 2.000), (3, 16, 15.754), (4, 8, 15.754), (5, 16, 63.015), (6, 16, 121.0)],
)
def test_the_link_by_generation_and_width(gen: int, width: int, gigabytes: float) -> None:
    assert link_speed(gen, width) == pytest.approx(gigabytes * 1e9, rel=1e-4)


@pytest.mark.parametrize(("gen", "width"), [(None, 16), (5, None), (5, 0), (9, 16)])
def test_a_link_that_is_not_known_has_no_speed(gen: int | None, width: int | None) -> None:
    assert link_speed(gen, width) is None
