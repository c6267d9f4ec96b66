"""What was told of already: a file in the store, so that each alert is told once when it begins and once when it ends."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_coldstart.alerts.finding import Evaluated, Finding
from pytest_coldstart.alerts.rules import Rule
from pytest_coldstart.store.errors import StoreError, why

#: In the store's folder.
FILE_NAME = "alerts.json"

#: Version of the file; a later one is refused.
VERSION = 1

#: Seconds that one process waits for another that tells at the moment.
PATIENCE = 120.0


@dataclass(frozen=True)
class Alert:
    """One rule that fires on one series, in plain data. ``message``: the rule's own; times are ISO 8601, UTC."""

    rule: str
    series: str
    severity: str
    state: str
    name: str
    test: str
    condition: str
    metric: str
    value: str
    bound: str
    reason: str
    run: str
    since: str
    since_at: str
    message: str

    @property
    def key(self) -> tuple[str, str]:
        """What makes it the same alert as one that was told of."""
        return self.rule, self.series

    @classmethod
    def of(cls, rule: Rule, one: Finding) -> Alert:
        return cls(
            *(rule.name, one.series.id, rule.severity, one.state, one.series.name, one.series.nodeid, rule.what),
            *(one.metric, one.value, one.bound, one.reason, one.run_id or "", one.since or "", iso(one.since_at)),
            rule.message,
        )


@dataclass(frozen=True)
class News:
    """What has to be told: alerts that fire and were not told of, and those told of that fire no more."""

    firing: tuple[Alert, ...] = ()
    resolved: tuple[Alert, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.firing or self.resolved)


def iso(at: datetime | None) -> str:
    return at.isoformat(timespec="seconds") + "+00:00" if at else ""


def alerts(found: Iterable[Evaluated]) -> tuple[Alert, ...]:
    """All that fire."""
    return tuple(Alert.of(one.rule, finding) for one in found for finding in one.firing)


def news(told: Sequence[Alert], firing: Sequence[Alert]) -> News:
    """What is new in *firing* beside what was *told*. A rule that is no longer in the file fires no more."""
    known, now = {one.key for one in told}, {one.key for one in firing}
    return News(tuple(one for one in firing if one.key not in known), tuple(one for one in told if one.key not in now))


def after(told: Sequence[Alert], said: News) -> tuple[Alert, ...]:
    """What was told of once *said* is told as well."""
    gone = {one.key for one in said.resolved}
    return (*(one for one in told if one.key not in gone), *said.firing)


def read(path: Path) -> tuple[Alert, ...]:
    """What was told of, as the file says; nothing where there is none.

    :raises StoreError: it cannot be read, is broken, or of a later version.
    """
    try:
        data = json.loads(path.read_bytes())
        if data["version"] > VERSION:
            raise StoreError(f"{path} has version {data['version']}, newer than {VERSION}; upgrade pytest-coldstart")
        return tuple(_alert(item) for item in data["told"])
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StoreError(f"could not read {path}: {why(error)}") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StoreError(
            f"{path} is broken; remove it, and all that fires is told again, or name another with --state"
        ) from None


def _alert(item: dict[str, Any]) -> Alert:
    found = {field.name: item.get(field.name, "") for field in fields(Alert)}
    if not found["rule"] or not all(isinstance(word, str) for word in found.values()):
        raise ValueError(item)
    return Alert(**found)


def write(path: Path, told: Sequence[Alert]) -> None:
    """Replace the file: at any moment it is the old one or the new one, whole.

    :raises StoreError: it could not be written.
    """
    data = json.dumps({"version": VERSION, "told": [asdict(one) for one in told]}, indent=1) + "\n"
    part = ""
    try:
        fd, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, 0o644)
            file.write(data)
            file.flush()
            os.fsync(fd)
        Path(part).replace(path)
    except OSError as error:
        if part:
            Path(part).unlink(missing_ok=True)
        raise StoreError(f"could not write {path}: {why(error)}") from error


@contextmanager
def alone(path: Path, patience: float = PATIENCE) -> Iterator[None]:
    """No other process tells by the file *path* meanwhile. The kernel drops the lock when its holder dies.

    :raises StoreError: another one held it all the time, or the folder cannot be written.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"could not write {lock}: {why(error)}; name another place with --state") from error
    try:
        _wait(fd, lock, patience)
        yield
    finally:
        os.close(fd)


def _wait(fd: int, lock: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreError(f"another `coldstart alerts` holds {lock}, still after {patience:g} s") from None
            time.sleep(0.05)
        except OSError as error:
            raise StoreError(f"could not lock {lock}: {why(error)}; name another place with --state") from error
