"""Facts of an engine that differ between its versions, as data: rows of "from this version on, this value"."""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, ...]


@dataclass(frozen=True)
class Since:
    """One fact: from *version* on, *value*."""

    version: Version
    value: str


def number(version: str | None) -> Version | None:
    """``0.25.1``, ``0.32.0+cpu`` or ``0.5.14.post1`` as three numbers; None where it is none."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version or "")
    return tuple(int(part) for part in match.groups(default="0")) if match else None


def held(rows: tuple[Since, ...], version: str | None) -> str:
    """The value that holds for *version*; an unknown version has the newest, one before all rows the oldest."""
    found = number(version)
    values = [row.value for row in rows if found is None or row.version <= found]
    return values[-1] if values else rows[0].value
