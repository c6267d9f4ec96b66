"""How far each metric moved: head over base, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from dashboard.charts import palette
from dashboard.charts.axes import chart, tooltip
from dashboard.compare_rows import BETTER, NOT_JUDGED, UNCLEAR, WORSE, Row, moved
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.report.gate_words import value_words

#: Metrics that the chart shows at most, those that moved most.
MOST = 30
#: Pixels of a metric, and of legend and axis.
_ROW, _AROUND = 20, 90
#: The least factor either way that the axis spans, so that noise does not fill it.
_LEAST = 1.1

KINDS = {
    WORSE: (palette.VERMILION, "triangle-right"),
    BETTER: (palette.BLUE, "diamond"),
    UNCLEAR: (palette.GREY, "circle"),
}


def drawn(rows: Sequence[Row]) -> list[Row]:
    """The rows that the chart shows: with a finite ratio, those that moved most; what the gate judges always."""
    known = [row for row in rows if row.ratio is not None and row.ratio > 0]
    judged = [row for row in known if row.outcome != NOT_JUDGED]
    rest = [row for row in known if row.outcome == NOT_JUDGED]
    return sorted([*judged, *rest[: max(0, MOST - len(judged))]], key=lambda row: -moved(row))


def ratios(rows: Sequence[Row]) -> alt.LayerChart:
    """A point for each of :func:`drawn` on a logarithmic axis with its interval; what moved most is on top. A rule stands at 1."""
    shown = drawn(rows)
    low, high = _domain(shown)
    data = [_point(row, low, high) for row in shown]
    names = [row.metric for row in shown]
    y = alt.Y("metric:N", sort=names, title=None, axis=alt.Axis(labelLimit=160, labelOverlap=False))
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    axis = alt.Axis(values=_ticks(low, high), format=".3~g", labelOverlap="greedy")
    x = alt.X("ratio:Q", title="head over base", scale=scale, axis=axis)
    kinds = list(KINDS)
    legend = alt.Legend(title=None, orient="top")
    colours = alt.Scale(domain=kinds, range=[KINDS[kind][0] for kind in kinds])
    shapes = alt.Scale(domain=kinds, range=[KINDS[kind][1] for kind in kinds])
    colour = alt.Color("points:N", scale=colours, legend=legend)
    shape = alt.Shape("points:N", scale=shapes, legend=legend)
    told = tooltip("metric", "base", "head", "change", "interval", "outcome", "points")
    bounded = [row for row in data if row["low"] is not None]
    layers = [
        chart([{"one": 1}]).mark_rule(color=palette.GREY, strokeDash=[4, 3]).encode(x=alt.X("one:Q", scale=scale)),
        *([chart(bounded).mark_rule(strokeWidth=2).encode(y=y, x=alt.X("low:Q", scale=scale), x2="high:Q", color=colour)] if bounded else ()),
        chart(data).mark_point(filled=True, size=90, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=told),
    ]  # fmt: skip
    return alt.LayerChart(layer=layers, height=_ROW * max(1, len(shown)) + _AROUND, description=described(rows))


def described(rows: Sequence[Row]) -> str:
    """What the chart shows, in words."""
    shown = drawn(rows)
    words = f"Ratios of head over base of {len(shown)} metrics on a logarithmic axis, with intervals and a rule at 1"
    counts = [f"{sum(row.points == kind for row in shown)} {kind}" for kind in KINDS]
    most = [f"{row.metric} {row.ratio:.3g} ({row.points})" for row in shown[:5]]
    return f"{words}: {', '.join(counts)}; moved most: {', '.join(most) or 'none'}"


def _domain(rows: Sequence[Row]) -> tuple[float, float]:
    """Both ways alike around 1. An interval without an end reaches the edge."""
    known = [value for row in rows for value in (row.ratio, row.low, row.high) if value is not None and value > 0]
    factor = max([_LEAST, *(max(value, 1 / value) for value in known)]) * 1.05
    return 1 / factor, factor


def _ticks(low: float, high: float) -> list[float]:
    for steps in ([1.05, 1.1], [1.1, 1.25, 1.5], [1.5, 2, 3, 5], [2, 5, 10, 20, 50], [10, 100, 1000, 10**4, 10**6]):
        if high <= steps[-1] * 1.4:
            return [value for step in (1, *steps) for value in {step, 1 / step} if low <= value <= high]
    return [low, 1.0, high]


def _point(row: Row, low: float, high: float) -> dict[str, Any]:
    unit = METRICS[row.metric].unit
    bounded = row.low is not None or row.high is not None
    return {
        "metric": row.metric,
        "ratio": row.ratio,
        "low": (max(low, row.low) if row.low is not None else low) if bounded else None,
        "high": (row.high if row.high is not None else high) if bounded else None,
        "points": row.points,
        "base": value_words(row.base, unit),
        "head": value_words(row.head, unit),
        "change": f"x {row.ratio:.3g}",
        "interval": interval_words(row),
        "outcome": row.outcome,
    }


def interval_words(row: Row) -> str:
    """``0.95 to 1.21``; ``?`` for an end that so few boots cannot bound; ``-`` where there is none."""
    if row.low is None and row.high is None:
        return "-"
    low, high = ("?" if value is None else f"{value:.3g}" for value in (row.low, row.high))
    return f"{low} to {high}"
