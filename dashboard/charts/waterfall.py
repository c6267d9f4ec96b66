"""Where a boot's time went: its critical path as one row, a lane for each process, instants as labelled rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from dashboard.charts import axes, palette
from pytest_coldstart import units
from pytest_coldstart.attribution import UNATTRIBUTED, Process
from pytest_coldstart.record import Phase
from pytest_coldstart.report.columns import fit, one_line

#: The first row: the path itself. Processes below it are named by the record, which never names one like this.
PATH = "critical path"
#: Pieces that are drawn, the longest; shorter ones would not be seen.
PIECES = 1000
#: Pixels of a lane, of the row of instants, and of what stands left of the time axis, the same for every chart on it.
_LANE, _LABELS, LEFT = 26, 136, 104
#: Pixels of the time axis itself, and columns of a legend: what stands below a chart is part of its height.
_BELOW, _COLUMNS = 88, 2
#: Instants nearer than this share of the axis are one rule.
_NEAR = 0.022


@dataclass(frozen=True)
class Span:
    """What the time axis shows, seconds from the start, and the part of it that is selected."""

    begin: float
    end: float
    selected: tuple[float, float] | None = None

    @property
    def length(self) -> float:
        return self.end - self.begin


def time(span: Span, title: str | None = None) -> alt.X:
    """The time axis, the same for all charts of a boot."""
    scale = alt.Scale(domain=[span.begin, span.end], nice=False)
    return alt.X("begin:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6, labelOverlap=True))


def left(**more: Any) -> dict[str, Any]:
    """What makes the left edges of charts below one another agree."""
    return {"minExtent": LEFT, "maxExtent": LEFT, "labelLimit": LEFT - 10, **more}


def waterfall(
    phases: Sequence[Phase], processes: Sequence[Process], instants: Mapping[str, float], span: Span
) -> alt.LayerChart:
    """*processes*: those that get a lane, in their order; what the path says of another one is in its first row alone."""
    kept = sorted(phases, key=lambda item: item.begin - item.end)[:PIECES]
    lanes = [PATH, *(lane(item) for item in processes)]
    rows = [row for item in kept for row in _pieces(item, {item.name for item in processes}, span)]
    lives = [_life(item, span) for item in processes]
    names = sorted({row["phase"] for row in rows}, key=_order)
    y = alt.Y(
        "lane:N",
        sort=lanes,
        title=None,
        scale=alt.Scale(domain=lanes, padding=0.18),
        axis=alt.Axis(**left(labelOverlap=False)),
    )
    colour = alt.Color(
        "phase:N",
        scale=alt.Scale(domain=names, range=[palette.phase(name) for name in names]),
        legend=alt.Legend(
            title=None,
            orient="bottom",
            columns=_COLUMNS,
            labelFontSize=11,
            rowPadding=0,
            symbolSize=60,
            symbolLimit=0,
            labelLimit=110,
        ),
    )
    shown = axes.tooltip("phase", "seconds", "share", "from", "to", "process", "source", "detail")
    bars = (
        axes.chart(rows)
        .mark_bar(stroke="white", strokeWidth=0.3)
        .encode(time(span), alt.X2("end"), y, colour, tooltip=shown)
    )
    # What nobody could explain is told by a pattern too, not by its colour alone.
    unknown = (
        axes.chart(row for row in rows if row["phase"] == UNATTRIBUTED)
        .mark_bar(fillOpacity=0, stroke="black", strokeWidth=1.2, strokeDash=[3, 2])
        .encode(time(span), alt.X2("end"), y, tooltip=shown)
    )
    thin = (
        axes.chart(lives)
        .mark_bar(color=palette.GREY, opacity=0.45, height=4)
        .encode(time(span), alt.X2("end"), y, tooltip=axes.tooltip("process", "pid", "from", "to"))
    )
    layers = [*selection(span), thin, bars, unknown, *rules(instants, span)]
    return alt.LayerChart(layer=layers).properties(
        height=_LANE * len(lanes) + _BELOW + 22 * -(-len(names) // _COLUMNS),
        description=described(phases, processes, instants, span),
    )


def lane(process: Process) -> str:
    """The name of a process's lane; names of a boot's processes are unique."""
    name = one_line(process.name) or f"pid {process.pid}"
    return f"{name} (process)" if name == PATH else name


def _pieces(item: Phase, own: set[str], span: Span) -> Iterable[dict[str, Any]]:
    """The bar of a piece in the path's row, and the same in its process's lane."""
    if item.end <= span.begin or item.begin >= span.end or not item.end > item.begin:
        return
    row = {
        "begin": max(item.begin, span.begin),
        "end": min(item.end, span.end),
        "phase": one_line(item.name),
        "seconds": units.show(item.end - item.begin, "s"),
        "share": f"{(item.end - item.begin) / span.length:.1%} of the axis",
        "from": units.show(item.begin, "s"),
        "to": units.show(item.end, "s"),
        "process": one_line(item.process) or "none",
        "source": one_line(item.source),
        "detail": fit(item.detail, 120) or "none",
    }
    yield {"lane": PATH, **row}
    if item.process in own:
        name = one_line(item.process)
        yield {"lane": f"{name} (process)" if name == PATH else name, **row}


def _life(item: Process, span: Span) -> dict[str, Any]:
    end = span.end if item.end is None else min(item.end, span.end)
    return {
        "lane": lane(item),
        "begin": min(max(item.start, span.begin), span.end),
        "end": max(end, span.begin),
        "process": one_line(item.name),
        "pid": str(item.pid),
        "from": units.show(item.start, "s"),
        "to": "not seen to end" if item.end is None else units.show(item.end, "s"),
    }


def _order(name: str) -> tuple[bool, int, str]:
    known = list(palette.PHASES)
    return (name not in known, known.index(name) if name in known else 0, name)


def selection(span: Span) -> list[alt.Chart]:
    """A band behind everything where a part is selected."""
    if span.selected is None:
        return []
    begin, end = span.selected
    row = {"begin": max(begin, span.begin), "end": min(end, span.end)}
    return [axes.chart([row]).mark_rect(color=palette.YELLOW, opacity=0.3).encode(time(span), alt.X2("end"))]


def rules(instants: Mapping[str, float], span: Span) -> list[alt.Chart]:
    """A dashed rule for each instant inside the axis; none where there is none."""
    rows = [{"begin": at, "instant": name, "at": said} for name, at, said in marks(instants, span)]
    if not rows:
        return []
    mark = axes.chart(rows).mark_rule(strokeDash=[4, 3], strokeWidth=1, color="#6B6B6B")
    return [mark.encode(time(span), tooltip=axes.tooltip("instant", "at"))]


def labels(instants: Mapping[str, float], span: Span) -> alt.LayerChart:
    """The names of the instants on the axis of the charts below."""
    rows = [
        {"begin": at, "instant": name, "at": said, "lane": "instants", "label": fit(f"{name} {said}", 22)}
        | {"near": (at - span.begin) / span.length < 0.05}
        for name, at, said in marks(instants, span)
    ]
    lane = alt.Y("lane:N", title=None, scale=alt.Scale(domain=["instants"]), axis=alt.Axis(**left()))
    x = time(span).axis(None)
    # Nothing is seen of the points: their row makes the left edge that of the other charts.
    edge = axes.chart([{"begin": span.begin, "lane": "instants"}]).mark_point(opacity=0).encode(x, lane)
    rule = axes.chart(rows).mark_rule(strokeDash=[4, 3], color="#6B6B6B")
    layers = [edge, rule.encode(x, tooltip=axes.tooltip("instant", "at"))]
    # Beside its rule on the left; at the left edge on the right, where there is room.
    words = [axes.chart(row for row in rows if row["near"] is near) for near in (False, True)]
    before = words[0].mark_text(angle=270, align="left", fontSize=11, baseline="bottom", dy=-2)
    behind = words[1].mark_text(angle=270, align="left", fontSize=11, baseline="top", dy=2)
    layers += [part.encode(x, y=alt.value(_LABELS - 4), text="label:N") for part in (before, behind)]
    return alt.LayerChart(layer=layers).properties(
        height=_LABELS, description=f"Instants of the boot: {_instants(instants, span) or 'none'}."
    )


def marks(instants: Mapping[str, float], span: Span) -> list[tuple[str, float, str]]:
    """(names, at, in words) of the instants inside the axis; those that cannot be told apart there are one."""
    found: list[tuple[list[str], float]] = []
    for name, at in sorted(instants.items(), key=lambda item: item[1]):
        if not span.begin <= at <= span.end:
            continue
        if found and at - found[-1][1] < _NEAR * span.length:
            found[-1][0].append(name)
        else:
            found.append(([name], at))
    return [(one_line(", ".join(names)), at, units.show(at, "s")) for names, at in found]


def _instants(instants: Mapping[str, float], span: Span) -> str:
    return ", ".join(f"{name} {said}" for name, _, said in marks(instants, span))


def described(phases: Sequence[Phase], processes: Sequence[Process], instants: Mapping[str, float], span: Span) -> str:
    """The chart in words: the phases of most seconds, the processes, the instants."""
    own: dict[str, float] = {}
    for item in phases:
        own[item.name] = own.get(item.name, 0.0) + item.end - item.begin
    longest = sorted(own.items(), key=lambda item: -item[1])[:6]
    words = ", ".join(f"{one_line(name)} {units.show(seconds, 's')}" for name, seconds in longest) or "none is known"
    lanes = ", ".join(lane(item) for item in processes[:12]) or "none"
    return (
        f"Waterfall of the boot from {units.show(span.begin, 's')} to {units.show(span.end, 's')}. Phases of the critical "
        f"path, the longest first: {words}. Processes: {lanes}. Instants: {_instants(instants, span) or 'none'}."
    )
