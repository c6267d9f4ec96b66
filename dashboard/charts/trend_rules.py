"""What stands across a trend: bounds, change points, and where the environment changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import altair as alt

from dashboard import text
from dashboard.charts.axes import chart, tooltip
from dashboard.charts.palette import BOUND, CHANGE, MOVED
from dashboard.charts.trend_axis import Axis, Span, within
from dashboard.data.changes import Changes
from dashboard.data.trend import RunBound
from pytest_coldstart import units
from pytest_coldstart.gate.comparison import Difference
from pytest_coldstart.history.points import Point as ChangePoint
from pytest_coldstart.history.points import short

#: How many moves of the environment are drawn, and how near to each other they are still labelled, as a part of the axis.
MOST_MOVES, _APART = 30, 0.06

#: What tells one machine of a fleet from another: a series that runs on several moves with every run.
_MACHINE = ("hostname",)

#: A place, and what changed there.
Move = tuple[float, Sequence[Difference]]


def bound_words(item: RunBound) -> str:
    """``cold_start.max <= 10.00 s (pass)``."""
    return f"{item.metric}.{item.stat} {item.op} {units.show(item.bound, item.unit)} ({item.verdict})"


def bounds(items: Iterable[RunBound], worth: float, y: alt.Y) -> list[alt.Chart]:
    """A rule a bound, with its words."""
    rows = [{"y": item.bound / worth, "label": bound_words(item), "from": item.bound_source} for item in items]
    base = chart(rows).encode(y=y, tooltip=tooltip("label", "from"))
    rule = base.mark_rule(color=BOUND, strokeDash=[6, 4], strokeWidth=1.5)
    label = base.mark_text(align="left", baseline="bottom", dx=4, dy=-2, fontSize=11)
    return [rule, label.encode(x=alt.value(0), text="label:N")]


def change_words(point: ChangePoint, unit: str) -> dict[str, str]:
    """A change point in words, by what they say. ``since``: when the first run after it started."""
    first, last = (short(commit) for commit in point.commits)
    one = point.acknowledged
    return {
        "since": text.moment(point.at),
        "commits": f"{first}..{last}{' (a checkout was not clean)' if point.dirty else ''}",
        "size": f"{point.size:+.1%}",
        "direction": "worse" if point.regression else "better",
        "confidence": f"{point.confidence:.1%}",
        "before": units.show(point.before, unit),
        "after": units.show(point.after, unit),
        "kind": "a slow drift, not one step" if point.kind == "drift" else "step",
        "environment": differences(point.environment) or "the same",
        "acknowledged": f"by {one.author} on {one.made_at[:10]}: {one.reason}" if one else "no",
    }


#: What a change point says when it is pointed at: keys of its row.
_HOVER = tuple("since commits size direction confidence before after kind environment acknowledged".split())


def change_rows(found: Changes, axis: Axis, span: Span | None, unit: str, y: float) -> list[dict[str, object]]:
    """The change points that are drawn: where, and in words."""
    rows: list[dict[str, object]] = []
    for point in found.history.points:
        low, at, high = (axis.place(found.history.runs[n]) for n in (point.low, point.index, point.high))
        if at is not None and within(at, span):
            words = change_words(point, unit)
            label = f"{words['size']}{' (acknowledged)' if point.acknowledged else ''}"
            rows.append({"at": at, "low": low, "high": high, "y": y, "label": label, **words})
    return rows


def change_points(rows: list[dict[str, object]], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """A rule a change point, dotted where it is acknowledged, and a bar from the first to the last run that may be the one."""
    ends = [{**row, "at": row[end]} for row in rows for end in ("low", "high")]
    dash = alt.condition("datum.acknowledged == 'no'", alt.value([1, 0]), alt.value([2, 3]))
    hover = tooltip(*_HOVER)
    bar = chart(ends).mark_line(color=CHANGE, strokeWidth=6, opacity=0.5)
    rule = chart(rows).mark_rule(color=CHANGE, strokeWidth=2)
    label = chart(rows).mark_text(align="right", baseline="middle", dx=-6, fontWeight="bold")
    return [
        bar.encode(x=x, y=y, detail="since:N", tooltip=hover),
        rule.encode(x=x, strokeDash=dash, tooltip=hover),
        label.encode(x=x, y=y, text="label:N", tooltip=hover),
    ]


def differences(items: Sequence[Difference], most: int = 20) -> str:
    """``driver 570 -> 580, vllm 0.25 -> 0.26, 3 more``."""
    said = [f"{one.what.removeprefix('versions.')} {one.base} -> {one.head}" for one in items[:most]]
    return ", ".join([*said, *([f"{len(items) - most} more"] if len(items) > most else [])])


def kept_moves(found: Changes, axis: Axis, span: Span | None) -> tuple[list[Move], int]:
    """The moves that are drawn, and how many others there are in *span*: of many the newest that are more than another
    machine."""
    inside: list[Move] = [
        (place, [one for one in move.differences if one.what not in _MACHINE] or move.differences)
        for run, move in found.moved
        if (place := axis.place(run)) is not None and within(place, span)
    ]
    telling = [item for item in inside if any(one.what not in _MACHINE for one in item[1])]
    kept = inside if len(inside) <= MOST_MOVES else telling[-MOST_MOVES:]
    return kept, len(inside) - len(kept)


def moves(kept: Sequence[Move], x: alt.X, width: float) -> list[alt.Chart]:
    """A thin rule where the environment changed, labelled by what changed unless another label is too near; *width* is that
    of the axis."""
    rows, last = [], float("-inf")
    for place, items in sorted(kept, key=lambda item: item[0]):
        near = place - last < width * _APART
        rows.append({"at": place, "label": "" if near else differences(items, 1), "changed": differences(items)})
        last = last if near else place
    base = chart(rows).encode(x=x, tooltip=tooltip("changed"))
    rule = base.mark_rule(color=MOVED, strokeWidth=1, strokeDash=[2, 2])
    label = base.mark_text(angle=270, align="left", baseline="bottom", dx=4, dy=-2, fontSize=10, limit=200)
    return [rule, label.encode(y=alt.value("height"), text="label:N")]
