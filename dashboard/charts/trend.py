"""A metric of one series over time or commits: boots, medians, bounds, change points and changes of the environment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from dashboard import text
from dashboard.charts import trend_rules
from dashboard.charts.axes import many, tooltip
from dashboard.charts.palette import MEDIAN, STATES
from dashboard.charts.trend_axis import Axis, Span, reach, within
from dashboard.charts.trend_line import Level, line
from dashboard.charts.trend_scale import far, scaled
from dashboard.data.changes import Changes
from dashboard.data.trend import Point, RunBound
from pytest_coldstart import units
from pytest_coldstart.metrics import Metric

#: The name of the selection that a click on a boot makes, and of the one that a brush over the overview makes.
CHOSEN, BRUSH = "chosen", "brush"

#: From so many boots on they are drawn small and below the line.
_CROWD = 300

#: The band in which change points are named.
_CHANGE = "change"


@dataclass(frozen=True)
class Picture:
    """What a trend is drawn from. ``span``: the part of the axis that is shown, None for all of it; ``points`` and ``levels`` are
    those in it."""

    metric: Metric
    axis: Axis
    span: Span | None
    points: Sequence[Point]
    levels: Sequence[Level]
    bounds: Sequence[RunBound]
    changes: Changes

    @property
    def values(self) -> list[float]:
        """What must have room on the y axis: boots and medians."""
        measured = [item.reading.value for item in self.points if item.reading.value is not None]
        return [*measured, *(level.median for level in self.levels if level.median is not None)]


def picture(
    metric: Metric,
    axis: Axis,
    span: Span | None,
    points: Iterable[Point],
    levels: Iterable[Level],
    bounds: Sequence[RunBound],
    changes: Changes,
) -> Picture:
    """What of all these lies in *span*."""
    inside = [item for item in points if within(axis.place(item), span)]
    return Picture(metric, axis, span, inside, [one for one in levels if within(one.place, span)], bounds, changes)


def trend(what: Picture) -> alt.LayerChart:
    """Every boot a point, which can be chosen; those without a value in bands above the axis."""
    metric, places = what.metric, [what.axis.place(item) or 0.0 for item in what.points]
    span = what.span or reach(places)
    near = [item for item in what.bounds if not far(item.bound, what.values)]
    missing = [band for band in ("failed", "unmeasured") if any(_band(item) == band for item in what.points)]
    # The band's place is not known before the scale is, and the scale not before its bands.
    changed = bool(trend_rules.change_rows(what.changes, what.axis, what.span, metric.unit, 0.0))
    scale = scaled(metric, what.values, [item.bound for item in near], [*missing, *([_CHANGE] if changed else [])])
    x, y = what.axis.x(span), scale.y()
    rows = trend_rules.change_rows(what.changes, what.axis, what.span, metric.unit, scale.bands.get(_CHANGE, 0.0))
    kept, _ = trend_rules.kept_moves(what.changes, what.axis, what.span)
    # A click must reach a boot and not the line above it; of very many boots the line would not be seen below them.
    last = [line(what.levels, metric.unit, scale.worth, x, y), _boots(what, scale.worth, scale.bands, x, y)]
    return alt.LayerChart(
        layer=[
            *trend_rules.moves(kept, x, span[1] - span[0] if span else 1.0),
            *trend_rules.bounds(near, scale.worth, y),
            *trend_rules.change_points(rows, x, y),
            *(reversed(last) if len(what.points) > _CROWD else last),
        ],
        height=440,
        description=described(what),
    )


def strip(what: Picture, brushed: Span | None) -> alt.Chart:
    """The medians of all of the axis, small: a brush over them chooses what :func:`trend` shows."""
    span = reach([level.place for level in what.levels])
    rows = [{"at": level.place, "y": level.median} for level in what.levels]
    mark = many(rows).mark_line(color=MEDIAN, point=alt.OverlayMarkDef(size=14, color=MEDIAN))
    found: alt.Chart = mark.encode(
        x=what.axis.x(span).title(None), y=alt.Y("y:Q", title=None, axis=None, scale=alt.Scale(zero=False))
    ).add_params(
        alt.selection_interval(name=BRUSH, encodings=["x"], value={"x": list(brushed)})
        if brushed
        else alt.selection_interval(name=BRUSH, encodings=["x"])
    )
    return found.properties(
        height=120,
        description=f"Overview: all medians of {what.metric.name}. A brush over it zooms the chart above, as the fields from and to do.",
    )


def described(what: Picture) -> str:
    """The chart in words."""
    metric, counts = what.metric, {state: sum(item.state == state for item in what.points) for state in STATES}
    states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    known = [level.median for level in what.levels if level.median is not None]
    words = [f"{metric.name} of {len(what.points)} boots" + (f" ({states})" if states else "")]
    if what.points:
        words.append(f"from {text.moment(what.points[0].started_at)} to {text.moment(what.points[-1].started_at)}")
    if known:
        words.append(
            f"medians from {units.show(min(known), metric.unit)} to {units.show(max(known), metric.unit)}, "
            f"the newest {units.show(known[-1], metric.unit)}"
        )
    words += [f"bound {trend_rules.bound_words(item)}" for item in what.bounds]
    for row in trend_rules.change_rows(what.changes, what.axis, what.span, metric.unit, 0.0):
        words.append(
            f"change point {row['label']} at {row['since']}, commits {row['commits']}, confidence {row['confidence']}"
        )
    return "; ".join(words)


def _band(item: Point) -> str | None:
    """The band of a boot that has no place on the axis."""
    if item.reading.value is not None:
        return None
    return "failed" if item.reading.failed else "unmeasured"


#: What a boot says when it is pointed at: keys of its row, in this order.
HOVER = ("value", "started", "id", "run", "round", "commit", "gate", "test")


def _boot(item: Point, what: Picture, worth: float, bands: dict[str, float]) -> dict[str, Any]:
    value, band = item.reading.value, _band(item)
    said, started = text.reading(item.reading, what.metric), text.moment(item.started_at)
    return {
        "at": what.axis.place(item),
        "y": bands[band] if band else (value or 0.0) / worth,
        "state": item.state,
        "value": said,
        "started": started,
        "words": f"boot {item.boot_id}, {said}, {started}",
        "boot": item.boot_id,
        "id": item.boot_id,
        "run": item.run_id,
        "round": f"{item.round} ({item.role}, {item.outcome})",
        "commit": text.commit(item.commit, item.branch, item.dirty),
        "gate": item.gate or "no",
        "test": item.nodeid,
    }


def _boots(what: Picture, worth: float, bands: dict[str, float], x: alt.X, y: alt.Y) -> alt.Chart:
    names = list(STATES)
    colours, shapes = (list(part) for part in zip(*STATES.values(), strict=True))
    # The usual ones first, so that none of them covers another. All in one layer: a selection belongs to one.
    ordered = sorted(what.points, key=lambda item: item.state != "ok")
    rows = [_boot(item, what, worth, bands) for item in ordered]
    few = len(rows) <= _CROWD
    marks = many(rows).mark_point(size=60 if few else 22, filled=True, opacity=0.75 if few else 0.5, cursor="pointer")
    legend = alt.Legend(
        orient="bottom", columns=3, values=[name for name in names if any(row["state"] == name for row in rows)]
    )
    found: alt.Chart = marks.encode(
        x=x,
        y=y,
        color=alt.Color("state:N", title="boot", scale=alt.Scale(domain=names, range=colours), legend=legend),
        shape=alt.Shape("state:N", title="boot", scale=alt.Scale(domain=names, range=shapes), legend=legend),
        tooltip=tooltip(*HOVER),
        # Else it would be read aloud with the height of its band for a value.
        description="words:N",
    ).add_params(alt.selection_point(name=CHOSEN, fields=["boot"], on="click", empty=False))
    return found
