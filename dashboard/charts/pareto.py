"""The Pareto front of cold start, warm first token and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from dashboard.charts import palette
from dashboard.charts.axes import axis_unit, chart, titled, tooltip
from dashboard.pareto_front import TIMES, Candidate
from pytest_coldstart import units
from pytest_coldstart.metrics import METRICS

FRONT, OTHER = "on the front", "dominated"


def pareto(candidates: Sequence[Candidate], names: Mapping[str, str], memory: str) -> alt.LayerChart:
    """Cold start against warm first token, the size of a mark for memory; the front has another shape and colour, and a line."""
    axes = [
        axis_unit(max((one.values[place] for one in candidates), default=1.0), METRICS[name].unit)
        for place, name in enumerate(TIMES)
    ]
    rows = [_row(one, number, names, memory, axes) for number, one in enumerate(candidates, 1)]
    x, y = (
        alt.X("cold:Q", title=titled(TIMES[0], axes[0][0]), scale=alt.Scale(zero=True)),
        alt.Y("warm:Q", title=titled(TIMES[1], axes[1][0]), scale=alt.Scale(zero=True)),
    )
    kinds = [FRONT, OTHER]
    legend = alt.Legend(title=None, orient="top")
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=["diamond", "circle"]), legend=legend)
    colour = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[palette.GREEN, palette.GREY]), legend=legend)
    size = alt.Size("memory:Q", legend=None, scale=alt.Scale(zero=True, range=[20, 420]))
    told = tooltip("config", *TIMES, memory, "kind")
    marks = chart(rows).mark_point(filled=True, opacity=0.85).encode(x=x, y=y, shape=shape, color=colour, size=size)
    numbers = chart(rows).mark_text(dy=-18, fontWeight="bold").encode(x=x, y=y, text="number:N")
    return alt.LayerChart(
        layer=[marks.encode(tooltip=told), numbers], height=380, description=described(candidates, names, memory)
    )


def described(candidates: Sequence[Candidate], names: Mapping[str, str], memory: str) -> str:
    best = [names[one.series] for one in candidates if one.best]
    return (
        f"Scatter of {len(candidates)} configs: {TIMES[0]} across, {TIMES[1]} up, size for {memory}; "
        f"{len(best)} on the Pareto front: {', '.join(best[:8]) or 'none'}"
    )


def _row(
    one: Candidate, number: int, names: Mapping[str, str], memory: str, axes: Sequence[tuple[str, float]]
) -> dict[str, Any]:
    cold, warm, size = one.values
    shown = zip((*TIMES, memory), one.values, strict=True)
    return {
        "number": str(number),
        "config": names[one.series],
        "cold": cold / axes[0][1],
        "warm": warm / axes[1][1],
        "memory": size,
        "kind": FRONT if one.best else OTHER,
        **{name: units.show(value, METRICS[name].unit) for name, value in shown},
    }
