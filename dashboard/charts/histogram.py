"""Histograms of first tokens: a row a series over shared bins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from dashboard import bins
from dashboard.charts import palette
from dashboard.charts.axes import axis_unit, chart, titled
from pytest_coldstart import units

#: Heights of a row and of the axis below all, pixels.
_ROW, _AXIS = 96, 60
#: Shares of a row: its tallest bar, the rules, and where its name stands below the row's top.
_BAR, _RULE, _NAME = 0.5, 0.56, 0.12
#: The labels of the median's rule and of the other one stand in lines of their own, so that they never overlap.
_LABELS = {"p50": 0.72, "high": 0.6}

TITLE = "time to first token"


@dataclass(frozen=True)
class Row:
    """What one row shows: seconds to the first token of one series."""

    name: str
    engine: str
    values: Sequence[float]


def histograms(rows: Sequence[Row], colours: Mapping[str, str]) -> alt.LayerChart:
    """All rows over the same bins and to the same scale, with rules at the median and at p99 or maximum; *colours*: by engine."""
    limits = bins.edges([value for row in rows for value in row.values])
    unit, worth = axis_unit(max(limits, default=1.0), "s")
    x = across(limits, unit, worth)
    counted = [[count / len(row.values) for count in bins.counts(row.values, limits)] for row in rows]
    tallest = max((share for shares in counted for share in shares), default=1.0)
    bars = [
        {**bar, "colour": colours.get(row.engine, palette.BLUE)}
        for number, (row, shares) in enumerate(zip(rows, counted, strict=True))
        for bar in _bars(number, row, [share / tallest * _BAR for share in shares], limits, worth)
    ]
    rules = [rule for number, row in enumerate(rows) for rule in _rules(number, row, worth)]
    return alt.LayerChart(
        layer=[
            _drawn(bars, x, len(rows)),
            *(layer for kind in _LABELS for layer in _ruled([r for r in rules if r["kind"] == kind], x, len(rows))),
            named([row.name for row in rows], _NAME),
        ],
        height=_ROW * len(rows) + _AXIS,
        description=described(rows),
    )


def described(rows: Sequence[Row]) -> str:
    words = []
    for row in rows:
        if found := bins.summary(row.values):
            p50, high = units.show(found.p50, "s"), units.show(found.high, "s")
            words.append(f"{row.name}: {found.number} requests, p50 {p50}, {found.high_name} {high}")
    return f"Histograms of the {TITLE} of warm requests, one row a series. {'; '.join(words)}"


def across(limits: Sequence[float], unit: str, worth: float) -> alt.X:
    """The axis of times, as wide as the bins; logarithmic where they are."""
    kind: Any = "log" if bins.logarithmic(limits) else "linear"
    domain = [limits[0] / worth, limits[-1] / worth] if limits else [0, 1]
    scale = alt.Scale(type=kind, domain=domain, nice=False)
    return alt.X(
        "at:Q", title=titled(TITLE, unit), scale=scale, axis=alt.Axis(format="~g", tickCount=6, labelFlush=True)
    )


def down(field: str, rows: int) -> alt.Y:
    """The place in a row: row 0 is from 0 down to -1, row 1 from -1 to -2."""
    return alt.Y(f"{field}:Q", axis=None, scale=alt.Scale(domain=[-max(1, rows), 0], nice=False))


def named(names: Sequence[str], below: float) -> alt.Chart:
    """The name of each row in the plot, over its marks: beside it, a long one would leave a narrow screen no room."""
    placed = [{"y": -number - below, "name": name} for number, name in enumerate(names)]
    marked = chart(placed).mark_text(align="left", dx=4, fontWeight="bold", limit=alt.ExprRef("width - 8"))
    words: alt.Chart = marked.encode(x=alt.value(0), y=down("y", len(names)), text="name:N")
    return words


def _bars(
    number: int, row: Row, heights: Sequence[float], limits: Sequence[float], worth: float
) -> Iterable[dict[str, Any]]:
    counts = bins.counts(row.values, limits)
    for index, count in enumerate(counts):
        if count:
            low, high = limits[index], limits[index + 1]
            yield {
                "at": low / worth,
                "to": high / worth,
                "y": -number - 1,
                "top": -number - 1 + heights[index],
                "series": row.name,
                "requests": f"{count} of {len(row.values)}",
                "between": f"{units.show(low, 's')} and {units.show(high, 's')}",
            }


def _drawn(bars: list[dict[str, Any]], x: alt.X, rows: int) -> alt.Chart:
    told = [alt.Tooltip(f"{field}:N") for field in ("series", "requests", "between")]
    colour = alt.Color("colour:N", scale=None, legend=None)
    place = {"x": x, "x2": "to:Q", "y": down("y", rows), "y2": "top:Q"}
    drawn: alt.Chart = chart(bars).mark_rect().encode(**place, color=colour, tooltip=told)
    return drawn


def _rules(number: int, row: Row, worth: float) -> Iterable[dict[str, Any]]:
    if found := bins.summary(row.values):
        for kind, word, value in (("p50", "p50", found.p50), ("high", found.high_name, found.high)):
            yield {
                "kind": kind,
                "at": value / worth,
                "y": -number - 1,
                "top": -number - 1 + (_LABELS[kind] if kind == "p50" else _RULE),
                "words": -number - 1 + _LABELS[kind],
                "label": f"{word} {units.show(value, 's')}",
                "series": row.name,
            }


def _ruled(rules: list[dict[str, Any]], x: alt.X, rows: int) -> list[alt.Chart]:
    """Solid for the median, dashed for the other one, whose label ends at its rule."""
    if not rules:
        return []
    median = rules[0]["kind"] == "p50"
    ink = palette.PURPLE  # no engine of a usual store has it
    told = [alt.Tooltip("series:N"), alt.Tooltip("label:N")]
    rule = chart(rules).mark_rule(color=ink, strokeWidth=2, strokeDash=[1, 0] if median else [4, 3])
    label = chart(rules).mark_text(fontSize=11, align="left" if median else "right", dx=4 if median else -4)
    return [
        rule.encode(x=x, y=down("y", rows), y2="top:Q", tooltip=told),
        label.encode(x=x, y=down("words", rows), text="label:N"),
    ]
