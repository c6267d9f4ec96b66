"""Text in columns of a given width, whatever characters a log or a process name holds."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

from pytest_coldstart.process import printable


def one_line(text: str) -> str:
    """*text* on one line: runs of white space are a space, what no terminal should act on is escaped."""
    text = printable(" ".join(text.split()))
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def width_of(text: str) -> int:
    """How many columns of a terminal *text* takes."""
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def fit(text: str, width: int) -> str:
    """*text* on one line, cut to *width* columns; ``...`` says that it was cut."""
    text = one_line(text)
    if width_of(text) <= width:
        return text
    left = width - 3
    if left <= 0:
        return "." * max(0, width)
    kept = []
    for char in text:
        left -= _cells(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "..."


def pad(text: str, width: int, right: bool = False) -> str:
    """*text* cut or filled to exactly *width* columns."""
    text = fit(text, width)
    blank = " " * (width - width_of(text))
    return blank + text if right else text + blank


def wrapped(text: str, width: int, indent: str = "  ") -> list[str]:
    """*text* in lines of at most *width* columns, each indented, the later ones by two more."""
    room = max(20, width - len(indent) - 2)
    found = []
    for number, line in enumerate(textwrap.wrap(one_line(text), room, break_on_hyphens=False)):
        before = f"{indent}  " if number else indent
        found.append(before + fit(line, width - len(before)))  # wide characters take more than textwrap counts
    return found


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], width: int, numbers: Iterable[int] = ()) -> list[str]:
    """A header and *rows*; columns in *numbers* are flushed right, the last column is cut to what is left."""
    lines = [list(titles), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(width_of(line[index]) for line in lines) for index in range(len(titles))]
    widths = _narrowed(widths, width - 2 * (len(titles) - 1))
    right = set(numbers)
    return [
        "  ".join(pad(cell, widths[index], index in right) for index, cell in enumerate(line)).rstrip()
        for line in lines
    ]


def _narrowed(widths: list[int], room: int) -> list[int]:
    """*widths* within *room* together: always the widest one gives."""
    widths = list(widths)
    while sum(widths) > room and max(widths) > 4:
        widths[widths.index(max(widths))] -= 1
    return widths
