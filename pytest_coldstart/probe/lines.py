"""The lines of a probe's file, and what is escaped in them."""

from __future__ import annotations

import stat
from pathlib import Path

#: Bytes of one file that are read: more than a probe writes.
LARGEST = 64 << 20


def lines_of(path: Path) -> list[bytes] | None:
    """A file's lines, the last one cut short or empty; None where it is no file that can be read."""
    try:
        # A named pipe would be waited for, and what an engine put there in a file's place may have no end.
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
        with path.open("rb") as file:
            return file.read(LARGEST).split(b"\n")
    except OSError:
        return None


def plain(text: str) -> str:
    """Undo what the probe escaped."""
    if "\\" not in text:
        return text
    out, escaped = [], False
    for c in text:
        if escaped:
            out.append({"t": "\t", "n": "\n", "r": "\r", "0": "\0"}.get(c, c))
        elif c != "\\":
            out.append(c)
        escaped = c == "\\" and not escaped
    return "".join(out)
