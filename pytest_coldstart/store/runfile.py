"""A run file: the JSON lines that one process of one run leaves behind, immutable once closed."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_coldstart.record import RECORD_VERSION, BootRecord
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.errors import StoreError, StoreNewer, why
from pytest_coldstart.store.home import CHOOSE, Home

try:
    import fcntl
except ImportError:  # pragma: no cover - not on this platform: boots there are refused anyway
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class CellVerdict:
    """A verdict with the cell and the test it belongs to."""

    cell_digest: str
    cell_id: str
    tier: str
    nodeid: str
    verdict: Verdict


@dataclass
class RunData:
    """What a run file holds. ``header`` and ``end`` are its first and last line, empty when missing.

    ``closed``: the run ended in good order. ``cut``: the last line is incomplete, since its writer
    died or is still writing. ``size``: the bytes that were read. ``lines``: boots that were not parsed.
    """

    header: dict[str, Any] = field(default_factory=dict)
    boots: list[BootRecord] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    verdicts: list[CellVerdict] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    closed: bool = False
    cut: bool = False
    size: int = 0


class RunFile:
    """Appends lines to ``runs/<run_id>.<worker>.jsonl``; a session without boots leaves no file.

    *header* describes the run and its host. The keys that have a column of their own are those of
    the table ``run``: started_at (ISO 8601), hostname, cpu, cores, memory_bytes, kernel, gpu, driver,
    hardware_class, git_commit, git_dirty, git_branch, ci, versions and command; others are kept together.
    *durable*: whether each boot is waited for until it is on the disk, for results that can be had but once.
    """

    def __init__(self, home: Home, run_id: str, worker: str, header: Mapping[str, Any], durable: bool = True) -> None:
        self.path = home.runs / f"{run_id}.{worker}.jsonl"
        self._first = {**header, "kind": "run", "version": RECORD_VERSION, "run_id": run_id, "worker": worker}
        self._durable = durable
        self._fd: int | None = None
        self._size = 0
        self._closed = False

    def boot(self, record: BootRecord) -> None:
        """Append *record* and wait until it is on the disk.

        :raises StoreError: it could not be written.
        """
        # As to_dict, without its copies, which take longer than all the rest.
        self._append({"kind": "boot", **vars(record)}, sync=True)

    def verdict(self, cell_digest: str, cell_id: str, tier: str, nodeid: str, verdict: Verdict) -> None:
        """Append one verdict.

        :raises StoreError: it could not be written.
        """
        owner = {"cell_digest": cell_digest, "cell_id": cell_id, "tier": tier, "nodeid": nodeid}
        self._append({"kind": "verdict", **owner, **verdict.to_dict()})

    def close(self, exit_status: int | None = None, **more: Any) -> None:
        """Append the end and make the file read-only; without a file there is nothing to do.

        :raises StoreError: the end could not be written. What was written before is kept.
        """
        if self._fd is None:
            self._closed = True
            return
        try:
            self._append({**more, "kind": "end", "exit_status": exit_status}, sync=True)
            os.fchmod(self._fd, 0o444)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            os.close(self._fd)
            self._fd = None
            self._closed = True

    def _append(self, line: Mapping[str, Any], sync: bool = False) -> None:
        if self._closed:
            raise StoreError(f"{self.path} is closed; nothing more can be written to it")
        try:
            if self._fd is None:
                self._fd = self._create()
            self._write(self._fd, encode(line))
            if sync and self._durable:
                os.fsync(self._fd)
        except OSError as error:
            raise self._failed(error) from error

    def _create(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            with suppress(OSError):  # not every file system has locks
                fcntl.flock(fd, fcntl.LOCK_SH)
            self._write(fd, encode(self._first))
            if self._durable:
                _sync_folder(self.path.parent)
        except OSError:
            os.close(fd)
            self.path.unlink(missing_ok=True)
            self._size = 0
            raise
        return fd

    def _write(self, fd: int, data: bytes) -> None:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
        except OSError:
            # The next line would be glued to half of this one, and both would be lost.
            os.ftruncate(fd, self._size)
            raise
        self._size += len(data)

    def _failed(self, error: OSError) -> StoreError:
        return StoreError(f"could not write {self.path}: {why(error)}; {CHOOSE}")


def encode(line: Mapping[str, Any]) -> bytes:
    """One JSON line, data classes as objects. Numbers that JSON has not become null, what is no text becomes '?'."""
    try:
        text = json.dumps(line, ensure_ascii=False, allow_nan=False, default=_plain, separators=(",", ":"))
    except ValueError:
        text = json.dumps(finite(line), ensure_ascii=False, default=str, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def _plain(value: Any) -> Any:
    return vars(value) if dataclasses.is_dataclass(value) else str(value)


def finite(value: Any) -> Any:
    """*value* as JSON can hold it: infinities and NaN become None, tuples lists, data classes dicts."""
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _sync_folder(folder: Path) -> None:
    """A new file's name is on the disk only once its folder is."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_held(path: Path) -> bool:
    """Whether a process of this host has the run file open to write to it."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # gone, or no locks here
    return False


def is_ended(path: Path) -> bool:
    """Whether the run file has its end, after which nothing is written to it."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
        return bool(json.loads(lines[-1])["kind"] == "end")
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False


#: More bytes than the line of an end has.
_TAIL = 64 << 10
#: How :class:`RunFile` begins the line of a boot.
_BOOT = b'{"kind":"boot",'


def read_run(path: Path, parse: bool = True) -> RunData:
    """Read a run file, finished or not. Without *parse*, boots stay lines, and what is broken inside one is not found.

    :raises StoreNewer: its records are of a later version than ours.
    :raises StoreError: it cannot be read, or a line other than a cut last one is broken.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"could not read {path}: {why(error)}") from error
    data = RunData(size=len(content))
    lines = content.split(b"\n")
    rest = lines.pop()  # empty, unless the last line has no newline
    for number, line in enumerate(lines, 1):
        if not parse and number > 1 and line.startswith(_BOOT):
            data.lines.append(_text(line, f"{path}:{number}"))
        else:
            _take(data, _parse(line, f"{path}:{number}"), f"{path}:{number}")
    if rest:
        place = f"{path}:{len(lines) + 1}"
        try:
            last = _parse(rest, place)
        except StoreError:
            data.cut = True
        else:
            _take(data, last, place)
    return data


def _text(line: bytes, place: str) -> str:
    try:
        return line.decode()
    except ValueError as error:
        raise StoreError(f"{place}: broken line: {error}") from error


def _parse(line: bytes, place: str) -> dict[str, Any]:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{place}: broken line: {error}") from error
    if not isinstance(item, dict):
        raise StoreError(f"{place}: broken line: not a JSON object")
    return item


def _take(data: RunData, item: dict[str, Any], place: str) -> None:
    kind = item.pop("kind", None)
    if not data.header and kind != "run":
        raise StoreError(f"{place}: not a run file: its first line does not describe a run")
    try:
        if kind == "run":
            data.header = _header(item, place)
        elif kind == "boot":
            data.boots.append(BootRecord.from_dict(item))
        elif kind == "verdict":
            data.verdicts.append(_verdict(item))
        elif kind == "end":
            data.end, data.closed = item, True
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{place}: broken {kind} line: {type(error).__name__}: {error}") from error


def _header(item: dict[str, Any], place: str) -> dict[str, Any]:
    version = int(item["version"])
    if version > RECORD_VERSION:
        raise StoreNewer(
            f"{place}: record version {version} is newer than {RECORD_VERSION}, the newest this version of "
            "pytest-coldstart reads; upgrade it"
        )
    if not item.get("run_id"):
        raise ValueError("no run_id")
    return item


def _verdict(item: dict[str, Any]) -> CellVerdict:
    owner = {name: item[name] for name in ("cell_digest", "cell_id", "tier", "nodeid")}
    known = {name: item[name] for name in Verdict.__dataclass_fields__ if name in item}
    return CellVerdict(**owner, verdict=Verdict.from_dict(known))
