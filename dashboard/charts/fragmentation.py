"""Ratios of fragmentation: at each point of a boot, and by what they depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from dashboard.charts import palette
from dashboard.charts.axes import chart
from dashboard.fragmentation_rows import BURST, PARTS, PLACES
from dashboard.matrix_rows import ordered
from pytest_coldstart import units

#: Heights of a line of a series and of axis and legend, pixels.
_LINE, _AXIS = 20, 96
_LOOKS = {
    "allocator": (palette.BLUE, "circle"),
    "KV": (palette.ORANGE, "square"),
    "combined": (palette.PURPLE, "diamond"),
}
_TITLE = "ratio (%)"
#: The parts of one place stand side by side.
_APART = alt.XOffset("part:N", sort=list(PARTS))


@dataclass(frozen=True)
class Row:
    """One series: its name, engine and settings, and its measured ratios by place and part."""

    name: str
    engine: str
    block: str
    share: str
    values: Mapping[tuple[str, str], float]


def points(rows: Sequence[Row], bounds: Sequence[float]) -> alt.LayerChart:
    """A block of lines a series, one for each place; the parts differ by shape, the bounds are rules."""
    marks = [mark for number, row in enumerate(rows) for mark in _marks(number, row)]
    lines = [f"{number:03d}|{place}" for number in range(len(rows)) for place in ("", *PLACES)]
    names = [{"line": f"{number:03d}|", "name": row.name} for number, row in enumerate(rows)]
    axis = alt.Axis(title=None, labelExpr="split(datum.value, '|')[1]", grid=True, ticks=False, domain=False)
    y = alt.Y("line:N", sort=lines, scale=alt.Scale(domain=lines), axis=axis)
    x = alt.X("percent:Q", title=_TITLE, scale=alt.Scale(zero=True), axis=alt.Axis(format="~g", tickCount=6))
    words = chart(names).mark_text(align="left", dx=4, fontWeight="bold", limit=alt.ExprRef("width - 8"))
    return alt.LayerChart(
        layer=[
            _rules(bounds, x=alt.X("percent:Q")),
            *(one.encode(x=x, y=y, tooltip=_told("series", "at", "part", "ratio")) for one in _parted(marks)),
            words.encode(x=alt.value(0), y=y, text="name:N"),
        ],
        height=_LINE * len(lines) + _AXIS,
        description=f"Fragmentation at {', '.join(PLACES)}. {described(rows, bounds)}",
    )


def by(rows: Sequence[Row], what: str, bounds: Sequence[float]) -> alt.LayerChart:
    """What is judged, against *what*: ``block`` or ``share``; each value of it an engine has is a place across."""
    marks = [
        {
            "place": f"{row.engine} {getattr(row, what)}",
            "part": part,
            "percent": value * 100,
            "ratio": units.show(value, "fraction"),
            "series": row.name,
        }
        for row in rows
        for part in PARTS
        if (value := row.values.get((BURST, part))) is not None
    ]
    title = {"block": "tokens in one block of the KV cache", "share": "share of memory"}[what]
    axis = alt.Axis(labelAngle=-30, labelLimit=130)
    places = alt.X("place:N", sort=ordered(str(mark["place"]) for mark in marks), title=title, axis=axis)
    y = alt.Y("percent:Q", title=_TITLE, scale=alt.Scale(zero=True))
    told = _told("series", "part", "ratio")
    drawn = [one.encode(x=places, y=y, xOffset=_APART, tooltip=told) for one in _parted(marks)]
    return alt.LayerChart(
        layer=[_rules(bounds, y=alt.Y("percent:Q")), *drawn],
        height=340,
        description=f"Fragmentation over the burst by {title}. {described(rows, bounds)}",
    )


def described(rows: Sequence[Row], bounds: Sequence[float]) -> str:
    words = [f"{row.name}: {parts}" for row in rows if (parts := ", ".join(_judged(row)))]
    limits = ", ".join(units.show(bound, "fraction") for bound in bounds)
    return f"SLO at {limits}. Over the burst: {'; '.join(words) or 'nothing measured'}"


def _judged(row: Row) -> Iterable[str]:
    for part in PARTS:
        if (value := row.values.get((BURST, part))) is not None:
            yield f"{part} {units.show(value, 'fraction')}"


def _marks(number: int, row: Row) -> Iterable[dict[str, Any]]:
    for (place, part), value in row.values.items():
        yield {
            "line": f"{number:03d}|{place}",
            "at": place,
            "part": part,
            "percent": value * 100,
            "ratio": units.show(value, "fraction"),
            "series": row.name,
        }


def _parted(marks: Sequence[dict[str, Any]]) -> list[alt.Chart]:
    """The parts filled, and what they make together around the one that it is of."""
    legend = alt.Legend(title=None, orient="top")
    colours, shapes = ([look[index] for look in _LOOKS.values()] for index in (0, 1))
    colour = alt.Color("part:N", scale=alt.Scale(domain=list(_LOOKS), range=colours), legend=legend)
    shape = alt.Shape("part:N", scale=alt.Scale(domain=list(_LOOKS), range=shapes), legend=legend)
    whole = chart([mark for mark in marks if mark["part"] == "combined"])
    parts = chart([mark for mark in marks if mark["part"] != "combined"])
    drawn = (parts.mark_point(filled=True, size=80), whole.mark_point(filled=False, size=200, strokeWidth=2))
    return [one.encode(color=colour, shape=shape) for one in drawn]


def _rules(bounds: Sequence[float], **place: Any) -> alt.Chart:
    rows = [{"percent": bound * 100, "SLO": f"<= {units.show(bound, 'fraction')}"} for bound in bounds]
    rule = chart(rows).mark_rule(color=palette.BOUND, strokeDash=[6, 4], strokeWidth=2)
    rules: alt.Chart = rule.encode(**place, tooltip=_told("SLO"))
    return rules


def _told(*fields: str) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{field}:N") for field in fields]
