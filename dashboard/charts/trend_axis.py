"""The x axis of a trend: the time, or the commits in the order of their first run. Both can be zoomed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import altair as alt

from dashboard.charts.axes import iso
from dashboard.data.trend import Point
from pytest_coldstart.history.points import short
from pytest_coldstart.history.read import RunPoint

BY = ("time", "commit")

#: Two places on the axis.
Span = tuple[float, float]


class Axis(Protocol):
    """Where boots and runs stand. A place is a number; its word is what stands in the address."""

    def place(self, item: Point | RunPoint) -> float | None: ...
    def x(self, span: Span | None) -> alt.X: ...
    def word(self, place: float) -> str: ...
    def read(self, word: str) -> float | None: ...


@dataclass(frozen=True)
class Times:
    """Milliseconds since 1970, as a browser counts them."""

    def place(self, item: Point | RunPoint) -> float | None:
        return None if item.started_at is None else _milliseconds(item.started_at)

    def x(self, span: Span | None) -> alt.X:
        # As text: with numbers for a domain a brush knows no times.
        ends = [iso(datetime.fromtimestamp(place / 1000, UTC).replace(tzinfo=None)) for place in span or ()]
        scale = alt.Scale(type="utc", domain=ends, nice=False) if ends else alt.Scale(type="utc")
        return alt.X("at:T", title="start (UTC)", scale=scale, axis=alt.Axis(format=_format(span), labelOverlap=True))

    def word(self, place: float) -> str:
        return f"{datetime.fromtimestamp(place / 1000, UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"

    def read(self, word: str) -> float | None:
        try:
            found = datetime.fromisoformat(word)
            place = _milliseconds(found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found)
            self.word(place)
        except (ValueError, OverflowError):  # no time, or at an end of the calendar one of no year in UTC
            return None
        return place


@dataclass(frozen=True)
class Commits:
    """The number of the commit; one whose checkout was not clean stands apart, with a ``+``."""

    labels: tuple[str, ...]

    def place(self, item: Point | RunPoint) -> float | None:
        label = _label(item)
        return float(self.labels.index(label)) if label in self.labels else None

    def x(self, span: Span | None) -> alt.X:
        # Numbers with the commits' names, since names cannot be zoomed. JSON's strings are those of Vega's expressions.
        names = f"{json.dumps(self.labels)}[datum.value]"
        low, high = span or (0.0, len(self.labels) - 1.0)
        return alt.X(
            "at:Q",
            title="commit, in the order of its first run (+: the checkout was not clean)",
            scale=alt.Scale(domain=[low - 0.5, high + 0.5], nice=False, zero=False),
            axis=alt.Axis(labelExpr=names, values=_every(low, high), labelAngle=-40, labelOverlap=True, grid=False),
        )

    def word(self, place: float) -> str:
        return self.labels[min(len(self.labels) - 1, max(0, round(place)))]

    def read(self, word: str) -> float | None:
        return float(self.labels.index(word)) if word in self.labels else None


def axis(by: str, items: Iterable[Point | RunPoint]) -> Axis:
    """The axis for *items*, which are in the order of time."""
    if by == "time":
        return Times()
    return Commits(tuple(dict.fromkeys(_label(item) for item in items)))


def span(axis: Axis, begin: str, end: str) -> Span | None:
    """What the address zooms to; None where it does not, or names no two places of this axis."""
    first, last = axis.read(begin), axis.read(end)
    if first is None or last is None or first > last:
        return None
    return (first, last)


def within(place: float | None, span: Span | None) -> bool:
    return place is not None and (span is None or span[0] <= place <= span[1])


def reach(places: Sequence[float]) -> Span | None:
    """From the first to the last of *places*, with some room; None where they have no extent."""
    if not places or min(places) == max(places):
        return None
    room = (max(places) - min(places)) * 0.02
    return (min(places) - room, max(places) + room)


def _format(span: Span | None) -> str:
    """Times as they are told apart on the axis: to the minute, to the day or to the month."""
    days = (span[1] - span[0]) / 86_400_000 if span else 0.0
    return "%b %d %H:%M" if days < 4 else "%b %d" if days < 500 else "%b %Y"


def _label(item: Point | RunPoint) -> str:
    return f"{short(item.commit)}{'+' if item.dirty else ''}"


def _every(low: float, high: float, most: int = 30) -> list[int]:
    """Numbers of commits that are named: all of them, or every so many."""
    first, last = round(low), round(high)
    return list(range(first, last + 1, max(1, -(-(last - first + 1) // most))))


def _milliseconds(at: datetime) -> float:
    return at.replace(tzinfo=UTC).timestamp() * 1000
