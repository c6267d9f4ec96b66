"""Plain data -> chart. No page and no SQL in here, so that charts are tested without either."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import altair as alt

from dashboard import text
from dashboard.data import Point, RunVerdict
from pytest_coldstart import units
from pytest_coldstart.metrics import Metric, median

#: Kinds of points, each with a colour and, for those who cannot tell colours, a shape.
STATES = {
    "ok": ("#1f77b4", "circle"),
    "failed": ("#d62728", "cross"),
    "unmeasured": ("#7f7f7f", "diamond"),
    "error": ("#ff7f0e", "triangle-up"),
    "prime": ("#17becf", "square"),
}
#: Boots without a value stand above the plot, in rows of their own: no place on the axis is theirs.
_ROW = {"failed": -12, "unmeasured": -30}
_BOUND, _MEDIAN = "#d62728", "#2ca02c"


def trend(points: Sequence[Point], verdicts: Iterable[RunVerdict], metric: Metric) -> alt.LayerChart:
    """Every boot a point, the median of each run a line, each bound of *verdicts* on *metric* a rule."""
    bounds = [item for item in verdicts if item.metric == metric.name]
    runs = medians(points, metric)
    largest = max((abs(value) for value in _values(points, bounds)), default=0.0)
    unit, scale = axis_unit(largest, metric.unit)
    title = f"{metric.name} ({unit})" if unit else metric.name
    return alt.LayerChart(
        layer=[
            *_rules(bounds, scale),
            _line(runs, metric, scale),
            _boots([item for item in points if item.reading.value is not None], metric, scale, title),
            *(layer for row in _ROW for layer in _row(points, row, metric)),
        ],
        height=360,
        padding={"top": 48, "left": 5, "right": 5, "bottom": 5},
        description=f"{title} of {len(points)} boots over time",
    )


def medians(points: Sequence[Point], metric: Metric) -> list[dict[str, Any]]:
    """The median of each run over the boots that count, at the middle of its boots.

    As in an SLO: a failed boot takes part as infinitely bad, and a run in which a boot is unmeasured
    has none. Both are None here, which breaks the line.
    """
    found = []
    worst = math.inf if metric.better == "lower" else -math.inf
    ordered = sorted((item for item in points if item.counted), key=lambda item: item.run_id)
    for run_id, group in groupby(ordered, key=lambda item: item.run_id):
        boots = list(group)
        first, last = min(item.started_at for item in boots), max(item.started_at for item in boots)
        found.append(
            {"run": run_id, "at": first + (last - first) / 2, "median": _median(boots, worst), "boots": len(boots)}
        )
    return sorted(found, key=lambda row: row["at"])


def _median(boots: Sequence[Point], worst: float) -> float | None:
    values = [worst if item.reading.failed else item.reading.value for item in boots]
    known = [value for value in values if value is not None]
    middle = median(known) if known and len(known) == len(values) else math.inf
    return middle if math.isfinite(middle) else None


def axis_unit(largest: float, family: str) -> tuple[str, float]:
    """The unit of an axis up to *largest*, and its worth in the stored unit: the one that numbers are printed in.

    Where nobody may write a bound in that unit, as in KB/s, it is the stored one.
    """
    units_of = units.FAMILIES[family]
    suffix = units.show(largest, family).partition(" ")[2]
    return (suffix, units_of[suffix]) if suffix in units_of else (family, 1.0)


def _values(points: Iterable[Point], bounds: Iterable[RunVerdict]) -> list[float]:
    measured = [item.reading.value for item in points if item.reading.value is not None]
    return measured + [item.bound for item in bounds]


def _chart(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=rows))


def _time() -> alt.X:
    return alt.X("at:T", title="start of the boot (UTC)", scale=alt.Scale(type="utc"))


def _iso(at: datetime) -> str:
    """Times of the store are UTC without a zone; a browser would take that for its own zone."""
    return f"{at.isoformat(timespec='milliseconds')}Z"


def _states() -> tuple[alt.Color, alt.Shape]:
    names = list(STATES)
    colours, shapes = zip(*STATES.values(), strict=True)
    return (
        alt.Color("state:N", title="boot", scale=alt.Scale(domain=names, range=list(colours))),
        alt.Shape("state:N", title="boot", scale=alt.Scale(domain=names, range=list(shapes))),
    )


#: What a boot says when it is pointed at: keys of its row, in this order.
_HOVER = ("value", "started", "boot", "run", "round", "commit", "versions", "test")


def _boot(item: Point, metric: Metric, scale: float) -> dict[str, Any]:
    value = item.reading.value
    return {
        "at": _iso(item.started_at),
        "y": None if value is None else value / scale,
        "state": item.state,
        "value": text.reading(item.reading, metric),
        "started": text.moment(item.started_at),
        "boot": item.boot_id,
        "run": item.run_id,
        "round": f"{item.round} ({item.role}, {item.outcome})",
        "commit": text.commit(item),
        "versions": text.versions(item.versions),
        "test": item.nodeid,
    }


def _tooltip() -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{name}:N") for name in _HOVER]


def _boots(points: Iterable[Point], metric: Metric, scale: float, title: str) -> alt.Chart:
    colour, shape = _states()
    # The usual ones first, so that none of them covers another.
    rows = [_boot(item, metric, scale) for item in sorted(points, key=lambda item: item.state != "ok")]
    marks = _chart(rows).mark_point(size=70, filled=True, opacity=0.8)
    chart: alt.Chart = marks.encode(
        x=_time(), y=alt.Y("y:Q", title=title), color=colour, shape=shape, tooltip=_tooltip()
    )
    return chart


def _row(points: Iterable[Point], row: str, metric: Metric) -> list[alt.Chart]:
    """The boots without a value, above the plot, and the name of their row."""
    missing = [item for item in points if item.reading.value is None and item.reading.failed == (row == "failed")]
    colour, shape = _states()
    marks = _chart([_boot(item, metric, 1.0) for item in missing]).mark_point(size=110, filled=True)
    label = _chart([{"label": row}] if missing else []).mark_text(align="right", dx=-8, color=STATES[row][0])
    return [
        marks.encode(x=_time(), y=alt.value(_ROW[row]), color=colour, shape=shape, tooltip=_tooltip()),
        label.encode(x=alt.value(0), y=alt.value(_ROW[row]), text="label:N"),
    ]


def _line(runs: Iterable[dict[str, Any]], metric: Metric, scale: float) -> alt.Chart:
    rows = [
        {
            "at": _iso(run["at"]),
            "y": None if run["median"] is None else run["median"] / scale,
            "run": run["run"],
            "median": units.show(run["median"], metric.unit),
            "boots": run["boots"],
        }
        for run in runs
    ]
    overlay = alt.OverlayMarkDef(shape="stroke", size=200, color=_MEDIAN)
    mark = _chart(rows).mark_line(color=_MEDIAN, point=overlay)
    chart: alt.Chart = mark.encode(x=_time(), y=alt.Y("y:Q"), tooltip=["run:N", "median:N", "boots:Q"])
    return chart


def _rules(bounds: Iterable[RunVerdict], scale: float) -> list[alt.Chart]:
    rows = [
        {"y": item.bound / scale, "label": f"{text.bound(item)} ({item.verdict})", "from": item.bound_source}
        for item in bounds
    ]
    base = _chart(rows).encode(y=alt.Y("y:Q"), tooltip=["label:N", "from:N"])
    rule = base.mark_rule(color=_BOUND, strokeDash=[6, 4])
    label = base.mark_text(color=_BOUND, align="left", baseline="bottom", dx=4, dy=-2)
    return [rule, label.encode(x=alt.value(0), text="label:N")]
