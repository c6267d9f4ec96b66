"""The store homes of a gate's sides: own caches for each, merged into the user's store at the end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_coldstart.gate.checkout import hold
from pytest_coldstart.store.errors import StoreError, why
from pytest_coldstart.store.home import CHOOSE, Home

#: Below the user's store: a folder for each gate, and in it one for each side.
FOLDER = "gates"


@contextmanager
def side_homes(home: Home, gate: str, names: Sequence[str]) -> Iterator[tuple[dict[str, Home], int]]:
    """A home for each side, and the descriptor of a lock on both. At the end their run files are the user's, their caches are gone, their logs stay.

    What a killed gate left is merged too. No two sides share a cache: two builds of an engine would fill it for each other.

    :raises StoreError: the user's store cannot be written.
    """
    home.prepare()
    folder = home.root / FOLDER / gate
    try:
        folder.mkdir(parents=True)
        lock = hold(folder)
    except OSError as error:
        raise StoreError(f"the store cannot be written: {folder}: {why(error)}; {CHOOSE}") from error
    if lock is None:
        raise StoreError(f"the store cannot be written: another process holds {folder}")
    try:
        yield {name: Home.at(folder / name) for name in names}, lock
    finally:
        os.close(lock)
        merge(home)


def merge(home: Home) -> None:
    """Take the run files of every gate that has ended into *home* and its database.

    :raises StoreError: the database cannot be written; the run files are in the store, and the next ingest takes them.
    """
    from pytest_coldstart.store.ingest import ingest

    moved: list[Path] = []
    for folder in sorted((home.root / FOLDER).glob("*")):
        held = hold(folder) if folder.is_dir() else None
        if held is None:
            continue  # still running, or its last child still ends its boot
        for side in folder.iterdir():
            moved += _move(side, home.runs)
            _clean(side)
        with suppress(OSError):
            folder.rmdir()
        os.close(held)
    if moved:
        problems = ingest(home, moved).problems
        if problems:
            raise StoreError("; ".join(problems))


def _move(side: Path, runs: Path) -> list[Path]:
    moved = []
    for file in sorted((side / "runs").glob("*.jsonl")):
        target = runs / file.name
        if not target.exists():  # ids hold a time and a process: never
            file.rename(target)
            moved.append(target)
    return moved


def _clean(side: Path) -> None:
    """Remove what is of no use any more; logs stay where the records say they are."""
    for path in side.iterdir() if side.is_dir() else ():
        if path.name == "logs":
            with suppress(OSError):
                path.rmdir()  # where it is empty
        elif path.name == "runs":
            with suppress(OSError):
                path.rmdir()
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with suppress(OSError):
        side.rmdir()
