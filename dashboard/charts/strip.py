"""First requests beside warm ones: a strip a series, all on one axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from dashboard import bins
from dashboard.charts import palette
from dashboard.charts.axes import axis_unit, chart
from dashboard.charts.histogram import TITLE, across, down, named
from pytest_coldstart import units

#: Heights of a strip and of the axis and the legend, pixels.
_STRIP, _AXIS = 60, 96
#: Requests of a series and kind that are drawn, at most.
MOST = 200


@dataclass(frozen=True)
class Strip:
    """What one strip shows: seconds to the first token of one series' requests."""

    name: str
    warm: Sequence[float]
    cold: Sequence[float]


def strips(rows: Sequence[Strip]) -> alt.LayerChart:
    """Warm requests as ticks, cold ones as diamonds; the axis is logarithmic where they differ by more than ten times."""
    every = [value for row in rows for value in (*row.warm, *row.cold)]
    limits = [limit * factor for limit, factor in zip(bins.edges(every, 1), (0.95, 1.05), strict=False)]
    unit, worth = axis_unit(max(limits, default=1.0), "s")
    x = across(limits, unit, worth)
    marks = [mark for number, row in enumerate(rows) for mark in _marks(number, row, worth)]
    return alt.LayerChart(
        layer=[*_kinds(marks, x, len(rows)), named([row.name for row in rows], 0.24)],
        height=_STRIP * len(rows) + _AXIS,
        description=described(rows),
    )


def described(rows: Sequence[Strip]) -> str:
    words = []
    for row in rows:
        found = (("cold", bins.summary(row.cold)), ("warm", bins.summary(row.warm)))
        parts = [f"{kind} p50 {units.show(one.p50, 's')} of {one.number}" for kind, one in found if one]
        words.append(f"{row.name}: {', '.join(parts) or 'no request'}")
    return f"{TITLE.capitalize()} of first (cold) requests beside warm ones. {'; '.join(words)}"


def _kinds(marks: Sequence[dict[str, Any]], x: alt.X, rows: int) -> list[alt.Chart]:
    scale = alt.Scale(domain=["cold", "warm"], range=[palette.VERMILION, palette.BLUE])
    colour = alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, orient="top", symbolType="square"))
    told = [alt.Tooltip(f"{field}:N") for field in ("series", "kind", "shown")]
    warm, cold = (chart([mark for mark in marks if mark["kind"] == kind]) for kind in ("warm", "cold"))
    return [
        drawn.encode(x=x, y=down("y", rows), color=colour, tooltip=told)
        for drawn in (
            warm.mark_tick(thickness=1.5, size=16, opacity=0.5),
            cold.mark_point(shape="diamond", filled=True, size=110, opacity=0.9),
        )
    ]


def _marks(number: int, row: Strip, worth: float) -> Iterable[dict[str, Any]]:
    for kind, values in (("warm", row.warm), ("cold", row.cold)):
        for value in thinned(values):
            place = {"at": value / worth, "y": -number - 0.66, "kind": kind}
            yield {**place, "series": row.name, "shown": units.show(value, "s")}


def thinned(values: Sequence[float], most: int = MOST) -> list[float]:
    """At most *most* of *values*, evenly over their ranks, with the smallest and the largest."""
    ordered = sorted(values)
    if len(ordered) <= most:
        return ordered
    return [ordered[round(index * (len(ordered) - 1) / (most - 1))] for index in range(most)]
