"""What of a file is in the page cache: measured on real files, and never claimed where it cannot be told."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart import residency

pytestmark = pytest.mark.timeout(60)

MIB = 1 << 20
#: Pages around what was read that the kernel may bring along.
TOLERANCE = MIB


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """64 MiB on a local disk, evicted."""
    path = tmp_path / "weights"
    with path.open("wb") as out:
        for _ in range(64):
            out.write(os.urandom(MIB))
    if residency.filesystem(path) not in residency.LOCAL:
        pytest.skip(f"the temporary folder is on {residency.filesystem(path)}, no local disk")
    residency.evict([path])
    return path


def read_part(path: Path, begin: int, length: int) -> None:
    """Read a part and no more: RANDOM switches the kernel's read-ahead off."""
    with path.open("rb", buffering=0) as source:
        os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for offset in range(begin, begin + length, MIB):
            os.pread(source.fileno(), MIB, offset)


@pytest.fixture
def shm_file() -> Iterator[Path]:
    path = Path(f"/dev/shm/coldstart-residency-{os.getpid()}")
    path.write_bytes(b"x" * 8192)
    yield path
    path.unlink()


@pytest.fixture
def mapper() -> Iterator[Callable[[Path], int]]:
    """Starts a process that maps a file and reads every page of it; returns its pid."""
    code = (
        "import mmap, sys\nfile = open(sys.argv[1], 'rb')\n"
        "view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\nsum(view[::4096])\n"
        "print('mapped', flush=True)\nsys.stdin.read()\n"
    )
    made: list[subprocess.Popen[bytes]] = []

    def start(path: Path) -> int:
        words = [sys.executable, "-S", "-c", code, str(path)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        made.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"mapped\n"
        return process.pid

    yield start
    for process in made:
        process.kill()
        process.communicate()


class TestResidentBytes:
    def test_evicted_file_has_none(self, file: Path) -> None:
        assert residency.resident_bytes(file) == 0

    def test_file_read_in_part_has_that_part(self, file: Path) -> None:
        read_part(file, 0, 16 * MIB)
        assert abs(residency.resident_bytes(file) - 16 * MIB) <= TOLERANCE
        read_part(file, 40 * MIB, 8 * MIB)
        assert abs(residency.resident_bytes(file) - 24 * MIB) <= 2 * TOLERANCE

    def test_file_read_whole_has_all_and_no_more_than_its_size(self, file: Path) -> None:
        with file.open("ab") as out:
            out.write(b"a few more")
        residency.evict([file])
        residency.make_resident([file])
        assert residency.resident_bytes(file) == 64 * MIB + len("a few more")

    def test_dirty_pages_are_written_and_evicted(self, file: Path) -> None:
        file.write_bytes(b"dirty" * 1000)
        assert residency.resident_bytes(file) == 5000
        residency.evict([file])
        assert residency.resident_bytes(file) == 0
        assert file.read_bytes() == b"dirty" * 1000

    def test_empty_file(self, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        assert residency.resident_bytes(tmp_path / "empty") == 0

    def test_measuring_makes_nothing_resident(self, file: Path) -> None:
        for _ in range(3):
            residency.read([file], True, {})
        assert residency.resident_bytes(file) == 0


class TestMappedBy:
    def test_process_that_maps_the_file_is_found_and_no_other(
        self, file: Path, tmp_path: Path, mapper: Callable[[Path], int]
    ) -> None:
        other = tmp_path / "other"
        other.write_bytes(b"x")
        assert residency.mapped_by([file, other]) == {}
        pid = mapper(file)
        assert residency.mapped_by([file, other]) == {file: [pid]}

    def test_mapped_pages_survive_an_eviction_and_the_reason_names_the_process(
        self, file: Path, mapper: Callable[[Path], int]
    ) -> None:
        pid = mapper(file)
        residency.evict([file])
        assert residency.resident_bytes(file) > 60 * MIB
        (state,) = residency.read([file], True, residency.mapped_by([file]))
        assert state.status == "cannot_evict"
        assert f"(pid {pid})" in state.reason

    def test_our_own_mapping_counts(self, file: Path) -> None:
        with file.open("rb") as source, mmap.mmap(source.fileno(), 0, prot=mmap.PROT_READ):
            assert residency.mapped_by([file]) == {file: [os.getpid()]}
        assert residency.mapped_by([file]) == {}


class TestWhatCannotBeTold:
    def test_memory_file_system_is_named_and_cannot_be_evicted(self, shm_file: Path) -> None:
        assert residency.filesystem(shm_file) == "tmpfs"
        assert residency.resident_bytes(shm_file) == 8192
        assert "tmpfs" in residency.cannot_evict(shm_file, {})
        (state,) = residency.read([shm_file], True, {})
        assert (state.status, state.filesystem, state.resident_bytes) == ("cannot_evict", "tmpfs", 8192)

    def test_file_system_that_is_not_a_disk_is_not_told(self) -> None:
        path = Path("/proc/version")
        assert residency.filesystem(path) == "proc"
        assert "proc" in residency.can_tell(path)

    def test_file_of_another_user_is_not_told(self) -> None:
        """mincore reports all of an evicted file to a user who neither owns nor may write it."""
        if os.geteuid() != 0:
            pytest.skip("needs root to become another user")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights"
            path.write_bytes(os.urandom(4 * MIB))
            if residency.filesystem(path) not in residency.LOCAL:
                pytest.skip("the temporary folder is on no local disk")
            os.chmod(folder, 0o755)
            path.chmod(0o644)
            residency.evict([path])
            assert residency.resident_bytes(path) == 0
            assert residency.can_tell(path) == ""
            seen = as_nobody(lambda: [residency.can_tell(path), residency.resident_bytes(path), states(path)])
            assert "neither own nor may write" in seen[0]
            assert seen[1] == 4 * MIB, "the premise: the kernel reports every page as resident"
            assert seen[2] == [["cannot_tell", None]]
            path.chmod(0o666)
            assert as_nobody(lambda: [residency.can_tell(path), residency.resident_bytes(path)]) == ["", 0]


def states(path: Path) -> list[list[Any]]:
    return [[state.status, state.resident_bytes] for state in residency.read([path], True, {})]


def as_nobody(look: Callable[[], Any]) -> Any:
    """What *look* returns in a child process of the user 65534."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child runs no other thread's code
        pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os.write(write_end, json.dumps(look()).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return json.loads(text)
