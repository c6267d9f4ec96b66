"""The page cache, file by file: what is resident, what can be evicted, and what cannot be told.

``mincore`` tells the truth only to a caller that owns or may write the file (for others it
reports every page as resident), and only where file pages live in the kernel's page cache:
tmpfs keeps its only copy there, ZFS, NFS and FUSE keep copies elsewhere.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_coldstart.record import FileResidency

#: Local file systems whose file pages are in the kernel's page cache and can be evicted.
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "overlay"})
#: File systems whose pages have no other home than memory.
MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"})

_PROT_READ = 1
_MAP_SHARED = 1
_WINDOW = 1 << 30  # mincore over a window of 1 GiB needs a vector of 256 KiB


def filesystem(path: Path) -> str:
    """The type of the file system that holds *path*, from /proc/self/mountinfo; ``?`` if unknown."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    best = "?"
    try:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            if left.split()[2] == number:
                best = right.split()[0]
    except OSError:
        return "?"
    if best == "?":  # btrfs subvolumes have device numbers of their own
        best = _longest_mount(path)
    return best


def _longest_mount(path: Path) -> str:
    found, kind = "", "?"
    target = str(path.resolve())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount = left.split()[4].replace("\\040", " ")
        if (target == mount or target.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(found):
            found, kind = mount, right.split()[0]
    return kind


def resident_bytes(path: Path) -> int:
    """Bytes of the file in the page cache, by mincore on a mapping of our own."""
    size = path.stat().st_size
    if size == 0:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    pages = 0
    fd = os.open(path, os.O_RDONLY)
    try:
        for offset in range(0, size, _WINDOW):
            length = min(_WINDOW, size - offset)
            address = libc.mmap(None, length, _PROT_READ, _MAP_SHARED, fd, offset)
            if address in (None, ctypes.c_void_p(-1).value):
                raise OSError(ctypes.get_errno(), "mmap failed", str(path))
            vector = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
            try:
                if libc.mincore(address, length, vector) != 0:
                    raise OSError(ctypes.get_errno(), "mincore failed", str(path))
            finally:
                libc.munmap(address, length)
            pages += len(vector.raw) - vector.raw.translate(_LOW_BIT).count(0)
    finally:
        os.close(fd)
    return min(pages * mmap.PAGESIZE, size)


#: Only the lowest bit of each byte of the vector has a meaning.
_LOW_BIT = bytes(value & 1 for value in range(256))


def mapped_by(paths: Sequence[Path]) -> dict[Path, list[int]]:
    """Living processes that map any of *paths*: their mapped pages cannot be evicted."""
    wanted = {(status.st_dev, status.st_ino): path for path in paths for status in [path.stat()]}
    names = {str(path): path for path in paths}
    found: dict[Path, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        for path in _mapped(Path("/proc") / entry / "maps", wanted, names):
            found.setdefault(path, []).append(int(entry))
    return found


def _mapped(maps: Path, wanted: dict[tuple[int, int], Path], names: dict[str, Path]) -> set[Path]:
    found: set[Path] = set()
    try:
        with maps.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.split(maxsplit=5)
                if len(fields) < 6:
                    continue
                major, _, minor = fields[3].partition(":")
                device = os.makedev(int(major, 16), int(minor, 16))
                path = wanted.get((device, int(fields[4]))) or names.get(fields[5].rstrip("\n"))
                if path:
                    found.add(path)
    except (OSError, ValueError):
        pass
    return found


def can_tell(path: Path) -> str:
    """Why residency of *path* cannot be told, or an empty string where it can."""
    kind = filesystem(path)
    if kind in MEMORY:
        return ""
    if kind not in LOCAL:
        return f"file system {kind}: its cache is not the kernel's page cache"
    if path.stat().st_uid != os.geteuid() and not os.access(path, os.W_OK):
        return "you neither own nor may write it, so the kernel reports every page as resident"
    return ""


def cannot_evict(path: Path, mapped: dict[Path, list[int]]) -> str:
    """Why the pages of *path* cannot be evicted, or an empty string where they can."""
    kind = filesystem(path)
    if kind in MEMORY:
        return f"file system {kind}: memory is the only home of its pages"
    if path in mapped:
        return f"mapped by living processes: {', '.join(_name(pid) for pid in mapped[path][:3])}"
    return ""


def _name(pid: int) -> str:
    try:
        return f"{Path(f'/proc/{pid}/comm').read_text().strip()} (pid {pid})"
    except OSError:
        return f"pid {pid}"


def evict(paths: Iterable[Path]) -> None:
    """Write dirty pages of each file, then drop its pages from the page cache."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def make_resident(paths: Iterable[Path]) -> None:
    """Read each file that is not whole in the page cache; again where pages were reclaimed meanwhile."""
    for path in paths:
        for _ in range(3):
            if can_tell(path) == "" and resident_bytes(path) == path.stat().st_size:
                break
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 22):
                    pass


def read(paths: Sequence[Path], for_eviction: bool, mapped: dict[Path, list[int]]) -> tuple[FileResidency, ...]:
    """The state of each file now. With *for_eviction*, files that cannot be evicted say so."""
    result: list[FileResidency] = []
    for path in paths:
        kind = filesystem(path)
        size = path.stat().st_size
        untold = can_tell(path)
        stuck = cannot_evict(path, mapped) if for_eviction else ""
        if untold:
            result.append(FileResidency(str(path), size, None, kind, "cannot_tell", untold))
        else:
            status = "cannot_evict" if stuck else "proved"
            result.append(FileResidency(str(path), size, resident_bytes(path), kind, status, stuck))
    return tuple(result)
