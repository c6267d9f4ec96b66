"""The waterfall of a difference: from the base's start to the head's, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from dashboard.charts import palette
from dashboard.charts.axes import axis_unit, chart, titled, tooltip
from dashboard.phase_steps import REST, TOTAL, Step
from pytest_coldstart import units
from pytest_coldstart.report.gate_words import signed

#: Pixels of a bar, and of legend and axis.
_ROW, _AROUND = 26, 110
#: Where the bars of the changes take less than this share of the axis from zero, the axis begins later.
_SMALL = 0.4

WHOLE, LONGER, SHORTER, LEFT = "cold_start", "longer", "shorter", "left over"
KINDS = {WHOLE: palette.GREY, LONGER: palette.VERMILION, SHORTER: palette.BLUE, LEFT: palette.YELLOW}


def difference(steps: Sequence[Step]) -> alt.LayerChart:
    """A bar a step, from the top down; each begins where the one above ends. Words say how much, and colours which way."""
    suffix, worth = axis_unit(max(max(step.begin, step.end) for step in steps), "s")
    start = begins(steps)
    low, high = start / worth, max(max(step.begin, step.end) for step in steps) / worth
    room = (high - low) * 0.22
    rows = [{"place": place, **_bar(step, low, worth)} for place, step in enumerate(steps)]
    cut = f", begins at {low:.3g}" if low else ""
    scale = alt.Scale(domain=[low, high + room], nice=False, zero=False)
    y = alt.Y(
        "place:O", title=None, axis=alt.Axis(labelExpr=_names(steps), labelLimit=150, labelOverlap=False, ticks=False)
    )
    x = alt.X(
        "from:Q",
        title=f"{titled('seconds from the start' if suffix == 's' else 'from the start', suffix)}{cut}",
        scale=scale,
    )
    kinds = list(KINDS)
    colours = alt.Scale(domain=kinds, range=list(KINDS.values()))
    colour = alt.Color("kind:N", scale=colours, legend=alt.Legend(title=None, orient="top", columns=2))
    told = tooltip("step", "change", "base", "head")
    bars = chart(rows).mark_bar(height=16).encode(x=x, x2="to:Q", y=y, color=colour, tooltip=told)
    words = (
        chart(rows)
        .mark_text(align="left", dx=5, fontWeight="bold")
        .encode(x=alt.X("right:Q", scale=scale), y=y, text="change:N")
    )
    return alt.LayerChart(layer=[bars, words], height=_ROW * len(rows) + _AROUND, description=described(steps))


def begins(steps: Sequence[Step]) -> float:
    """Where the axis begins, seconds: at zero, unless the changes would be too small to see there."""
    edges = [edge for step in steps if step.kind != TOTAL for edge in (step.begin, step.end)]
    edges += [step.end for step in steps if step.kind == TOTAL]
    low, high = min(edges), max(edges)
    return max(0.0, low - (high - low)) if high > 0 and (high - low) / high < _SMALL and high > low else 0.0


def described(steps: Sequence[Step]) -> str:
    """What the chart shows, in words."""
    first, *middle, last = steps
    moved = [f"{step.name} {signed(step.change)}" for step in middle]
    return (
        f"Waterfall from the base's cold_start, {units.show(first.end, 's')}, to the head's, {units.show(last.end, 's')}: "
        f"{', '.join(moved) or 'no phase changed'}"
    )


def _names(steps: Sequence[Step]) -> str:
    """Names are ours, so that they can stand in an expression; places are numbers, since base and head may not be phases' names."""
    return f"{[step.name for step in steps]!r}[datum.value]"


def _bar(step: Step, low: float, worth: float) -> dict[str, Any]:
    begin, end = max(step.begin / worth, low), step.end / worth
    whole = step.kind == TOTAL
    return {
        "step": step.name,
        "from": min(begin, end),
        "to": max(begin, end),
        "right": max(begin, end),
        "kind": WHOLE if whole else LEFT if step.kind == REST else LONGER if step.change > 0 else SHORTER,
        "change": units.show(step.end, "s") if whole else signed(step.change),
        "base": "-" if step.base is None else units.show(step.base, "s"),
        "head": "-" if step.head is None else units.show(step.head, "s"),
    }
