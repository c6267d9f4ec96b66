"""What a cache root holds, before and after a boot."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from pytest_coldstart.record import Inventory

EMPTY = Inventory(0, 0, hashlib.sha256().hexdigest()[:16])

#: path relative to the root -> (size, mtime in ns)
Listing = dict[str, tuple[int, int]]


def listing(root: Path) -> Listing:
    """Every file below *root*; a root that does not exist is empty."""
    found: Listing = {}
    pending = [(str(root), "")]
    while pending:
        folder, prefix = pending.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append((entry.path, name + "/"))
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # a temporary file that its writer has renamed meanwhile
            found[name] = (status.st_size, status.st_mtime_ns)
    return found


def summarise(files: Listing) -> Inventory:
    """Counts and a digest over path, size and mtime.

    Content is not read: a cache of gigabytes would land in the page cache and warm the boot.
    """
    digest = hashlib.sha256()
    for name in sorted(files):
        size, mtime = files[name]
        digest.update(f"{name}\0{size}\0{mtime}\n".encode("utf-8", "surrogateescape"))
    return Inventory(len(files), sum(size for size, _ in files.values()), digest.hexdigest()[:16])


def changed(before: Listing, after: Listing) -> list[str]:
    """Files that are new or were written again, by name."""
    return sorted(name for name, state in after.items() if before.get(name) != state)
