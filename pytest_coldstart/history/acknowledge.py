"""Acknowledgements: who has looked at one change point and why it may stay. Lines that are only ever appended."""

from __future__ import annotations

import getpass
import hashlib
import json
import math
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pytest_coldstart.history.read import RunPoint
from pytest_coldstart.store.errors import StoreError, why
from pytest_coldstart.store.runfile import encode

#: In the store's folder.
FILE_NAME = "acknowledgements.jsonl"

#: Version of a line; those of a later one are named and left alone.
VERSION = 1


@dataclass(frozen=True)
class Place:
    """Where in time: the last run before and the first run after, their commits, and when they started (ISO 8601, UTC)."""

    runs: tuple[str, str]
    commits: tuple[str | None, str | None] = (None, None)
    times: tuple[str | None, str | None] = (None, None)

    @classmethod
    def of(cls, before: RunPoint, after: RunPoint) -> Place:
        return cls(
            (before.run_id, after.run_id),
            (before.commit, after.commit),
            (_iso(before.started_at), _iso(after.started_at)),
        )

    @classmethod
    def from_dict(cls, item: dict[str, Any]) -> Place:
        """:raises KeyError, TypeError, ValueError: *item* is no such place."""
        pairs = {}
        for name in ("runs", "commits", "times"):
            first, last = item[name]
            pairs[name] = (first, last)
        return cls(**pairs)


@dataclass(frozen=True)
class Acknowledgement:
    """One change point of one series and metric may stay. ``run``: the first one after it. ``size``: of the change, a fraction;
    None where there was no change point yet. ``source``: file and line that it was read from."""

    id: str
    series: str
    cell_id: str
    metric: str
    run: str
    place: Place
    size: float | None
    reason: str
    author: str
    made_at: str
    source: str = ""


@dataclass
class Acknowledgements:
    """``given``: those that hold. ``withdrawn``: those that do not any more. ``problems``: lines that could not be read, as
    ``file:line: why``; they stay in the file."""

    given: list[Acknowledgement] = field(default_factory=list)
    withdrawn: list[Acknowledgement] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Located(Protocol):
    """A change point, as far as matching looks at it."""

    @property
    def index(self) -> int: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...
    @property
    def size(self) -> float: ...


def make(
    series: str, cell_id: str, metric: str, run: str, place: Place, size: float | None, reason: str, author: str
) -> Acknowledgement:
    """A new acknowledgement, made now, of the change between the two runs of *place* whose first run after is *run*.

    :raises ValueError: there is no reason or no author.
    """
    for name, text in (("a reason", reason), ("an author", author)):
        if not text.strip():
            raise ValueError(f"an acknowledgement needs {name}")
    made_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    digest = hashlib.sha256("\n".join((series, metric, run, author, reason, made_at)).encode("utf-8", "replace"))
    return Acknowledgement(
        digest.hexdigest()[:8],
        series,
        cell_id,
        metric,
        run,
        place,
        size,
        reason.strip(),
        author.strip(),
        made_at,
    )


def append(path: Path, one: Acknowledgement) -> None:
    """Append *one* to the file, which is made where there is none.

    :raises StoreError: it could not be written.
    """
    line = {"kind": "acknowledge", "version": VERSION, **asdict(one)}
    del line["source"]
    _append(path, line)


def withdraw(path: Path, id: str, author: str) -> None:
    """Append that the acknowledgement *id* of the file does not hold any more.

    :raises StoreError: it could not be written.
    """
    made_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    _append(path, {"kind": "withdraw", "version": VERSION, "id": id, "author": author, "made_at": made_at})


def _append(path: Path, line: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(fd).st_size
            cut = size > 0 and os.pread(fd, 1, size - 1) != b"\n"  # else this line would be glued to half of another
            data = (b"\n" if cut else b"") + encode(line)
            if os.write(fd, data) != len(data):
                raise OSError(0, "only a part of the line could be written")
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreError(f"could not write {path}: {why(error)}") from error


def read(*paths: Path) -> Acknowledgements:
    """What the files hold together; one that does not exist holds nothing. Broken lines are named, all others count.

    :raises StoreError: a file cannot be read.
    """
    found: dict[str, Acknowledgement] = {}
    gone: set[str] = set()
    problems: list[str] = []
    for path in paths:
        try:
            lines = path.read_bytes().split(b"\n") if path.exists() else []
        except OSError as error:
            raise StoreError(f"could not read {path}: {why(error)}") from error
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    _take(line, f"{path}:{number}", found, gone)
                except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
                    said = f"no {error}" if isinstance(error, KeyError) else str(error)
                    problems.append(f"{path}:{number}: broken acknowledgement: {said}")
    everything = list(found.values())
    return Acknowledgements(
        [one for one in everything if one.id not in gone], [one for one in everything if one.id in gone], problems
    )


def _take(line: bytes, source: str, found: dict[str, Acknowledgement], gone: set[str]) -> None:
    item = json.loads(line)
    if not isinstance(item, dict):
        raise TypeError("not a JSON object")
    if item["version"] > VERSION:
        raise ValueError(f"version {item['version']} is newer than {VERSION}; upgrade pytest-coldstart")
    if item["kind"] == "withdraw":
        gone.add(str(item["id"]))
    elif item["kind"] == "acknowledge":
        texts = {
            name: item[name] for name in ("id", "series", "cell_id", "metric", "run", "reason", "author", "made_at")
        }
        wrong = [name for name, text in texts.items() if not isinstance(text, str)]
        if wrong:
            raise TypeError(f"{wrong[0]} is no text")
        size = None if item["size"] is None else float(item["size"])
        if size is not None and not math.isfinite(size):
            raise ValueError(f"size is {size}")
        found[texts["id"]] = Acknowledgement(**texts, place=Place.from_dict(item["place"]), size=size, source=source)
    else:
        raise ValueError(f"kind {item['kind']!r} is neither acknowledge nor withdraw")


def matched(
    given: Iterable[Acknowledgement], points: Sequence[Located], runs: Sequence[RunPoint]
) -> tuple[dict[int, Acknowledgement], tuple[Acknowledgement, ...]]:
    """For each change point that is acknowledged, by its number, the acknowledgement; and those that match none.

    One matches where its run may be the first one after the change, or where the change still lies between its two
    runs: a few more boots may move a change point by a run. The change must go the same way.
    """
    found: dict[int, Acknowledgement] = {}
    stray = []
    for one in given:
        first, last = (_index(one, n, runs) for n in (0, 1))
        meant = next((n for n, run in enumerate(runs) if run.run_id == one.run), last)
        near = [
            n
            for n, point in enumerate(points)
            if (meant is not None and point.low <= meant <= point.high)
            or (first is not None and last is not None and first < point.index <= last)
        ]
        near = [n for n in near if one.size is None or (one.size > 0) == (points[n].size > 0)]
        if near:
            found[min(near, key=lambda n: abs(points[n].index - (meant or 0)))] = one
        else:
            stray.append(one)
    return found, tuple(stray)


def _index(one: Acknowledgement, end: int, runs: Sequence[RunPoint]) -> int | None:
    """The run that is meant: by its id; in a store without it by its commit, else the first one since its time."""
    run, commit, time = one.place.runs[end], one.place.commits[end], one.place.times[end]
    for n, candidate in enumerate(runs):
        if candidate.run_id == run:
            return n
    for n, candidate in enumerate(runs):
        if commit and candidate.commit == commit:
            return n
    return next((n for n, candidate in enumerate(runs) if time and (_iso(candidate.started_at) or "") >= time), None)


def default_author() -> str:
    """git's ``user.name``, else the name of the user who runs this; empty where neither is known."""
    try:
        done = subprocess.run(
            ["git", "config", "user.name"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        name = done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        name = ""
    try:
        return name or getpass.getuser()
    except (OSError, KeyError):  # no such user: a container's bare number
        return ""


def _iso(at: datetime | None) -> str | None:
    return at.replace(tzinfo=UTC).isoformat(timespec="milliseconds") if at else None
