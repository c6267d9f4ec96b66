"""/dev/shm before and after a boot: what appeared and stayed is leaked memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_coldstart.supervisor import shared_memory

ROOT = Path("/dev/shm")


@dataclass(frozen=True)
class SharedMemory:
    """Our user's files in /dev/shm at one moment; ``known`` is false where there is no such folder."""

    files: dict[str, int]
    known: bool

    @classmethod
    def now(cls) -> SharedMemory:
        if not ROOT.is_dir():
            return cls({}, False)
        files: dict[str, int] = {}
        for entry in os.scandir(ROOT):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if status.st_uid == os.geteuid() and entry.is_file(follow_symlinks=False):
                files[entry.path] = status.st_size
        return cls(files, True)

    def left(self, removed: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """What appeared since: *removed* (the tree still held it when it died) and what lies there now.

        The latter is reported and not removed, since its maker cannot be proved. What a living process
        has open or mapped is its own: the tree of this boot is gone.
        """
        after = SharedMemory.now().files
        new = [(name, size) for name, size in after.items() if name not in self.files]
        if new:
            in_use = shared_memory([int(entry) for entry in os.listdir("/proc") if entry.isdigit()])
            new = [(name, size) for name, size in new if name not in in_use]
        return [*removed, *new]
