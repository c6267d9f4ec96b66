"""What a boot used over its time, on the axis of its waterfall: one panel a quantity, one line a device or a direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import altair as alt

from dashboard.charts import axes, palette
from dashboard.charts.waterfall import Span, left, rules, selection, time
from pytest_coldstart import units
from pytest_coldstart.memory import GPU, Series

#: Points of a line that are drawn; of more, the largest of each stretch, so that no peak is lost.
POINTS = 600

Points = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Panel:
    """``lines``: name -> (second, value in ``unit``), None where nothing was read; ``limits``: name -> value.

    ``why`` says in place of lines that there are none.
    """

    title: str
    unit: str
    lines: Mapping[str, Points]
    limits: Mapping[str, float] | None = None
    why: str = ""


#: What is said of boots whose record has no samples.
NO_GPU = "unmeasured: no GPU was seen in this boot"
NO_SAMPLES = "unmeasured: no samples of the devices were taken"
NO_TREE = (
    "unmeasured: a record holds the process tree's use over time only where the first answer came, /proc could be read, and the "
    "version that made the boot kept it"
)


def panels(gpus: Sequence[GPU], usage: Series) -> list[Panel]:
    """GPU memory and how busy the GPUs were, then CPU, input and output, and resident memory of the process tree."""
    total = {f"GPU {gpu.index}, whole": float(gpu.total_bytes) for gpu in gpus if gpu.total_bytes}
    memory = _devices(gpus, "memory_used", 1.0)
    busy = _devices(gpus, "gpu_utilisation", 0.01)
    none = NO_SAMPLES if gpus else NO_GPU
    tree = Panel("resident memory of the tree", "B", _of(usage, "rss"), why="" if usage.times else NO_TREE)
    moved = {word: rate(_points(usage, name)) for name, word in (("read_bytes", "read"), ("written_bytes", "written"))}
    return [
        Panel("GPU memory in use", "B", memory, total if memory else None, "" if memory else none),
        *([Panel("GPU busy", "fraction", busy)] if busy else []),
        Panel(
            *("CPU of the tree, cores", "count"),
            {"cores": rate(_points(usage, "cpu_time"))} if "cpu_time" in usage.columns else {},
            why="" if "cpu_time" in usage.columns else NO_TREE,
        ),
        Panel(
            *("storage read and written by the tree", "B/s"),
            {name: points for name, points in moved.items() if points},
            why="" if any(moved.values()) else NO_TREE,
        ),
        tree,
    ]


def _devices(gpus: Sequence[GPU], column: str, scale: float) -> dict[str, Points]:
    return {
        f"GPU {gpu.index}": tuple((at, None if v is None else v * scale) for at, v in _points(gpu.series, column))
        for gpu in gpus
        if column in gpu.series.columns
    }


def _of(series: Series, column: str) -> dict[str, Points]:
    return {column: _points(series, column)} if column in series.columns else {}


def _points(series: Series, column: str) -> Points:
    return tuple(zip(series.times, series.columns.get(column, ()), strict=False))


def rate(points: Points) -> Points:
    """What a growing sum grew by each second, from one sample to the next, at the later one."""
    found: list[tuple[float, float | None]] = []
    for (before, old), (at, new) in pairwise(points):
        if at > before:
            found.append((at, None if old is None or new is None else max(0.0, (new - old) / (at - before))))
    return tuple(found)


def thinned(points: Points, most: int = POINTS) -> Points:
    """At most *most* of them: the largest of each stretch, at its own time; nothing where a stretch has none."""
    if len(points) <= most:
        return points
    step = -(-len(points) // most)
    groups = [points[index : index + step] for index in range(0, len(points), step)]
    return tuple(max(group, key=lambda point: -1.0 if point[1] is None else point[1]) for group in groups)


def captioned(given: Panel, span: Span) -> str:
    """``GPU memory in use (GB)``: the unit stands here, since a title of the axis would move its left edge."""
    return axes.titled(given.title, _unit(given, span)[0])


def _unit(given: Panel, span: Span) -> tuple[str, float]:
    values = [value for points in _inside(given, span).values() for _, value in points if value is not None]
    return axes.axis_unit(max([*values, *(given.limits or {}).values()], default=0.0), given.unit)


def _inside(given: Panel, span: Span) -> dict[str, Points]:
    return {
        name: thinned([point for point in points if span.begin <= point[0] <= span.end])
        for name, points in given.lines.items()
    }


def panel(given: Panel, instants: Mapping[str, float], span: Span) -> alt.LayerChart:
    """One quantity as lines on the time axis, in the unit of its caption."""
    inside, worth = _inside(given, span), _unit(given, span)[1]
    names = list(given.lines)
    rows = [
        {
            "begin": at,
            "value": None if value is None else value / worth,
            "line": name,
            "shown": units.show(value, given.unit),
        }
        | {"at": units.show(at, "s")}
        for name, points in inside.items()
        for at, value in points
    ]
    colours = alt.Scale(domain=names, range=palette.others(len(names)))
    y = alt.Y(
        "value:Q",
        title=None,
        axis=alt.Axis(tickCount=4, **left()),
        scale=alt.Scale(zero=True),
    )
    # One sample between two that could not be read is no line.
    few = alt.OverlayMarkDef(size=12) if len(rows) < 100 else False
    line = axes.chart(rows).mark_line(interpolate="step-after", strokeWidth=1.6, point=few)
    legend = alt.Legend(title=None, orient="bottom", columns=2, symbolLimit=0, rowPadding=0) if len(names) > 1 else None
    dash = alt.StrokeDash(
        "line:N", scale=alt.Scale(domain=names, range=[[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]]), legend=None
    )
    lines = line.encode(
        time(span),
        y,
        alt.Color("line:N", scale=colours, legend=legend),
        dash,
        tooltip=axes.tooltip("line", "shown", "at"),
    )
    limits = [
        {"value": value / worth, "limit": name, "shown": units.show(value, given.unit)}
        for name, value in _limits(given)
    ]
    rule = (
        axes.chart(limits)
        .mark_rule(strokeDash=[6, 4], color=palette.BOUND)
        .encode(y, tooltip=axes.tooltip("limit", "shown"))
    )
    layers = [*selection(span), lines, *([rule] if limits else []), *rules(instants, span)]
    return alt.LayerChart(layer=layers).properties(
        height=150 + (50 + 22 * -(-len(names) // 2) if legend else 0), description=described(given, span)
    )


def _limits(given: Panel) -> list[tuple[str, float]]:
    return list((given.limits or {}).items())


def described(given: Panel, span: Span) -> str:
    """The panel in words: the largest value of each line and when."""
    words = []
    for name, points in given.lines.items():
        known = [(value, at) for at, value in points if value is not None and span.begin <= at <= span.end]
        if known:
            most, at = max(known)
            words.append(f"{name} at most {units.show(most, given.unit)}, at {units.show(at, 's')}")
        else:
            words.append(f"{name} unmeasured")
    limits = [f"{name} {units.show(value, given.unit)}" for name, value in _limits(given)]
    axis = f"from {units.show(span.begin, 's')} to {units.show(span.end, 's')}"
    return f"{given.title} {axis}: {'; '.join([*words, *limits]) or given.why}."
