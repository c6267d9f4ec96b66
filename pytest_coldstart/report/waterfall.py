"""A boot's critical path as bars of text, one below the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pytest_coldstart import units
from pytest_coldstart.attribution import UNATTRIBUTED
from pytest_coldstart.record import Phase
from pytest_coldstart.report.columns import fit, pad, width_of

#: More rows than this do not fit a screen; the smallest ones are folded first.
_MOST = 24
#: A row below both is folded into a neighbour: seconds, share of the path.
_SMALL_SECONDS, _SMALL_SHARE = 0.1, 0.01
#: Compiling children that follow each other are many, and one row.
_COMPILERS = "compilers"
#: Columns of the seconds and of the share, and what a column of text may take.
_SECONDS, _SHARE, _WORDS = 8, 6, 16


@dataclass(frozen=True)
class Track:
    """A quantity over time, to be drawn below the path: (second, value) of each sample, and the value of ten tenths."""

    name: str
    samples: tuple[tuple[float, float], ...]
    most: float
    words: str = ""

    def drawn(self, begin: float, total: float, width: int) -> str:
        """One column for each stretch of time: its largest value in tenths, ``.`` where it has no sample."""
        tenths: dict[int, int] = {}
        for at, value in self.samples:
            column = math.floor((at - begin) / total * width)
            tenths[column] = max(tenths.get(column, 0), min(9, int(10 * value / self.most)))
        return "".join(str(tenths.get(column, ".")) for column in range(width))


@dataclass
class Row:
    """Stretches of the path that follow each other. ``parts``: (phase, process) -> seconds; the largest names the row."""

    begin: float
    end: float
    parts: dict[tuple[str, str], float] = field(default_factory=dict)
    #: (phase, process, detail) -> seconds.
    details: dict[tuple[str, str, str], float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def main(self) -> tuple[str, str]:
        return max(self.parts, key=lambda key: self.parts[key])

    def take(self, other: Row) -> None:
        """Fold a neighbour into this row."""
        self.begin, self.end = min(self.begin, other.begin), max(self.end, other.end)
        for key, seconds in other.parts.items():
            self.parts[key] = self.parts.get(key, 0.0) + seconds
        for detail, seconds in other.details.items():
            self.details[detail] = self.details.get(detail, 0.0) + seconds

    def words(self) -> str:
        """The longest details of the phase that names the row, and how much of it is others'."""
        name, process = self.main
        own = {key[2]: seconds for key, seconds in self.details.items() if key[:2] == (name, process) and key[2]}
        words = sorted(own, key=lambda detail: -own[detail])[:3]
        others = self.seconds - self.parts[self.main]
        if others > 5e-4:
            words.append(f"and others ({units.show(others, 's')})" if words else f"others: {units.show(others, 's')}")
        return ", ".join(words)


def waterfall(phases: Sequence[Phase], width: int = 100, tracks: Sequence[Track] = ()) -> list[str]:
    """A title and at most 24 rows, in order of time: phase, bar, seconds, share, process, detail. Then one a track.

    Stretches of one phase and process that follow each other are one row. Small ones are folded into a
    neighbour, which then says so. ``?`` draws what is unattributed. Empty without a path.
    """
    rows = stretches(phases)
    if not rows:
        return []
    begin, total = rows[0].begin, rows[-1].end - rows[0].begin
    process = min(_WORDS, width // 6, max(7, *(width_of(row.main[1]) for row in rows)))
    name = max(5, *(width_of(row.main[0]) for row in rows), *(width_of(track.name) for track in tracks))
    room = width - name - process - _SECONDS - _SHARE - 5
    words = [row.words() for row in rows]
    detail = min(max(6, *map(width_of, words)), max(room - 24, room // 2))
    bar = max(8, min(40, room - detail))
    scale = f"0{pad(units.show(total, 's'), bar - 1, right=True)}"
    titles = (
        pad("phase", name),
        scale,
        "seconds".rjust(_SECONDS),
        "share".rjust(_SHARE),
        pad("process", process),
        fit("detail", detail),
    )
    lines = [" ".join(titles).rstrip()]
    for row, text in zip(rows, words, strict=True):
        cells = (
            pad(row.main[0], name),
            _bar(row, begin, total, bar),
            units.show(row.seconds, "s").rjust(_SECONDS),
            f"{row.seconds / total:.1%}".rjust(_SHARE),
            pad(row.main[1], process),
            fit(text, detail),
        )
        lines.append(" ".join(cells).rstrip())
    for track in tracks:
        shown = fit(track.words, width - name - bar - 2)
        lines.append(f"{pad(track.name, name)} {track.drawn(begin, total, bar)} {shown}".rstrip())
    return lines


def stretches(phases: Iterable[Phase]) -> list[Row]:
    """The path as :func:`waterfall` draws it: at most 24 stretches, in order of time."""
    return _folded(_merged(phases))


def _bar(row: Row, begin: float, total: float, width: int) -> str:
    left = min(width - 1, int((row.begin - begin) / total * width))
    right = max(left + 1, min(width, round((row.end - begin) / total * width)))
    mark = "?" if row.main[0] == UNATTRIBUTED else "#"
    return f"{'.' * left}{mark * (right - left)}".ljust(width, ".")


def _merged(phases: Iterable[Phase]) -> list[Row]:
    rows: list[Row] = []
    for item in sorted(phases, key=lambda item: item.begin):
        seconds = item.end - item.begin
        if not seconds > 0:
            continue
        key = (item.name, _COMPILERS if item.name == "compile" and item.source == "proc" else item.process)
        row = Row(item.begin, item.end, {key: seconds}, {(*key, item.detail): seconds})
        if rows and rows[-1].main == row.main:
            rows[-1].take(row)
        else:
            rows.append(row)
    return rows


def _folded(rows: list[Row]) -> list[Row]:
    """*rows* without the small ones, and at most as many as fit: the shortest goes first, into its longer neighbour."""
    if not rows:
        return rows
    total = rows[-1].end - rows[0].begin
    while len(rows) > 1:
        at = min(range(len(rows)), key=lambda index: rows[index].seconds)
        small = rows[at].seconds < min(_SMALL_SECONDS, _SMALL_SHARE * total)
        if not small and len(rows) <= _MOST:
            break
        around = [index for index in (at - 1, at + 1) if 0 <= index < len(rows)]
        into = max(around, key=lambda index: rows[index].seconds)
        rows[into].take(rows.pop(at))
        _join(rows, min(into, at))
    return rows


def _join(rows: list[Row], at: int) -> None:
    """Make one of the row at *at* and neighbours that have come to be of the same phase and process."""
    while at + 1 < len(rows) and rows[at].main == rows[at + 1].main:
        rows[at].take(rows.pop(at + 1))
    while at > 0 and rows[at - 1].main == rows[at].main:
        rows[at - 1].take(rows.pop(at))
        at -= 1
