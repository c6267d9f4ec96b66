"""The requests of a boot in their order: time to first token and duration, by kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from dashboard.charts import axes, palette
from pytest_coldstart import units
from pytest_coldstart.derive import median
from pytest_coldstart.record import Request
from pytest_coldstart.report.columns import fit, one_line

#: Requests that are drawn: the first ones.
MOST = 2000

_KINDS = {
    "before": (palette.GREY, "diamond"),
    "first": (palette.VERMILION, "square"),
    "warmup": (palette.ORANGE, "triangle-up"),
    "warm": (palette.BLUE, "circle"),
    "shape": (palette.PURPLE, "cross"),
}
_OTHER = (palette.GREEN, "triangle-down")

#: The two quantities, each a chart of its own.
QUANTITIES = ("time to first token", "duration")


def requests(found: Sequence[Request], name: str) -> alt.LayerChart:
    """One point a request, over the time at which it was sent; *name*: one of QUANTITIES.

    A request without that quantity stands on the axis, marked.
    """
    kept = found[:MOST]
    kinds = list(dict.fromkeys(one_line(item.kind) for item in kept))
    return _quantity(kept, kinds, name).properties(description=described(found, name))


def captioned(found: Sequence[Request], name: str) -> str:
    """``time to first token (ms)``."""
    return axes.titled(name, _unit(found[:MOST], name)[0])


def _unit(found: Sequence[Request], name: str) -> tuple[str, float]:
    return axes.axis_unit(
        max((value for item in found if (value := measured(item, name)) is not None), default=0.0), "s"
    )


def _quantity(found: Sequence[Request], kinds: list[str], name: str) -> alt.LayerChart:
    worth = _unit(found, name)[1]
    rows = [_row(item, name, worth) for item in found]
    looks = [_KINDS.get(kind, _OTHER) for kind in kinds]
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=[look[1] for look in looks]))
    colour = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[look[0] for look in looks]))
    legend = alt.Legend(title=None, orient="bottom", columns=4)
    x = alt.X("sent:Q", title="sent, seconds from the start", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6))
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=True), axis=alt.Axis(minExtent=40, tickCount=4))
    shown = axes.tooltip("kind", "index", "time to first token", "duration", "at", "error")
    base = axes.chart(row for row in rows if row["value"] is not None).encode(
        x, y, shape.legend(legend), colour.legend(legend), tooltip=shown
    )
    wrong = axes.chart(row for row in rows if row["value"] is None).encode(x, y=alt.datum(0), tooltip=shown)
    points = base.mark_point(filled=True, size=55, opacity=0.85)
    crosses = wrong.mark_text(text="\u2715 none", fontSize=11, align="left")
    return alt.LayerChart(layer=[points, crosses]).properties(height=260)


def _row(item: Request, name: str, worth: float) -> dict[str, Any]:
    value = measured(item, name)
    return {
        "kind": one_line(item.kind),
        "index": str(item.index),
        "sent": item.sent,
        "at": units.show(item.sent, "s"),
        "value": None if value is None else value / worth,
        **{quantity: units.show(measured(item, quantity), "s") for quantity in QUANTITIES},
        "error": fit(item.error or "", 120) or "none",
    }


def measured(item: Request, name: str) -> float | None:
    """One of the quantities of a request, seconds."""
    if name == "duration":
        return None if item.done is None else item.done - item.sent
    return item.ttft


def described(found: Sequence[Request], name: str) -> str:
    """The chart in words: for each kind how many, the median and the largest, and how many have none."""
    words = []
    for kind in dict.fromkeys(item.kind for item in found):
        own = [measured(item, name) for item in found if item.kind == kind]
        known = [value for value in own if value is not None]
        times = (
            f"median {units.show(median(known), 's')}, at most {units.show(max(known), 's')}" if known else "unmeasured"
        )
        none = f", {len(own) - len(known)} without one" if known and len(known) < len(own) else ""
        words.append(f"{len(own)} {one_line(kind)}: {times}{none}")
    left = f" The first {MOST:,} of {len(found):,} are drawn." if len(found) > MOST else ""
    return f"{name.capitalize()} of the boot's requests by when they were sent. {'; '.join(words) or 'None'}.{left}"
