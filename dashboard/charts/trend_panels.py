"""Small multiples: the run medians of many series, a panel each value of one dimension, with one y axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from dashboard import text
from dashboard.charts.axes import many, tooltip
from dashboard.charts.palette import others
from dashboard.charts.trend_axis import Axis, reach
from dashboard.charts.trend_line import HOVER, Level, levels, row
from dashboard.charts.trend_scale import Scale, scaled
from dashboard.data.series import Series
from pytest_coldstart.history.read import RunPoint
from pytest_coldstart.metrics import Metric

#: What panels can be made by.
FACETS: dict[str, Callable[[Series], str]] = {
    "engine": lambda item: item.engine,
    "model": lambda item: item.model,
    "tier": lambda item: item.tier,
    "gpu": lambda item: item.gpu or "no GPU",
}


@dataclass(frozen=True)
class Panel:
    """One of the small multiples and its series."""

    name: str
    series: tuple[Series, ...]
    chart: alt.Chart


def panels(
    series: Sequence[Series], runs: Mapping[str, Sequence[RunPoint]], facet: str, metric: Metric, axis: Axis
) -> list[Panel]:
    """The panels in the order of their names, all with the same axes."""
    found = {item.id: levels(runs.get(item.id, ()), axis, join=False) for item in series}
    everything = [level for one in found.values() for level in one]
    scale = scaled(metric, [level.median for level in everything if level.median is not None], [], [])
    x = axis.x(reach([level.place for level in everything]))
    groups: dict[str, list[Series]] = {}
    for item in series:
        groups.setdefault(FACETS[facet](item), []).append(item)
    return [
        Panel(name, tuple(group), _panel(name, group, found, metric, scale, x))
        for name, group in sorted(groups.items())
    ]


def _panel(
    name: str, group: Sequence[Series], found: Mapping[str, Sequence[Level]], metric: Metric, scale: Scale, x: alt.X
) -> alt.Chart:
    rows = [
        {**row(level, metric.unit, scale.worth), "series": item.id, "name": text.name(item)}
        for item in group
        for level in found[item.id]
    ]
    colours = alt.Scale(domain=[item.id for item in group], range=others(len(group)))
    mark = many(rows).mark_line(strokeWidth=1.5, point=alt.OverlayMarkDef(size=25, cursor="pointer"))
    made: alt.Chart = mark.encode(
        x=x,
        y=scale.y(),
        color=alt.Color("series:N", scale=colours, legend=None),
        detail="series:N",
        tooltip=tooltip("name", *HOVER),
    ).properties(height=200, description=_described(name, group, rows, metric))
    return made


def _described(name: str, group: Sequence[Series], rows: Sequence[Mapping[str, object]], metric: Metric) -> str:
    last = {str(one["series"]): str(one["median"]) for one in rows}
    words = [f"{text.name(item)}: newest median {last.get(item.id, 'none')}" for item in group]
    return f"{metric.name} over time, {name}, {len(group)} series. {'; '.join(words)}"
