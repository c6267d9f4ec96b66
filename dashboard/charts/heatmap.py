"""The heat map of the config matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from dashboard.charts import palette
from dashboard.charts.axes import chart
from dashboard.matrix_rows import BROKEN, UNMEASURED, Square, label, ordered
from pytest_coldstart import units
from pytest_coldstart.metrics import Metric

#: The encodings that every layer shares.
_Place = dict[str, Any]

#: Heights of a row of squares, and of the axis below all, pixels.
_ROW, _AXIS = 70, 96
#: Values that differ by more than this are coloured on a logarithmic scale.
_WIDE = 20.0
#: From this share of the scale on, white words are legible and black ones are not.
_DARK = 0.74

#: Lines of a square's words, and where they stand.
_LINES = (("shown", -19), ("mark", -3), ("faults", 10), ("several", 23))

#: What a square has room for on a narrow screen.
_MARKS = {BROKEN: "\u2717 SLO broken", UNMEASURED: "? SLO"}

_INK, _LIGHT_INK = "#000000", "#FFFFFF"
_FAILED = "#FBE3D6"
_STRIPES = ("#F2F2F2", "#D4D4D4", 12)


def heatmap(
    squares: Sequence[Square],
    axes: tuple[str, str],
    metric: Metric,
    scale: Sequence[Square] = (),
    tier: str = "",
    link: Callable[[Square], str] | None = None,
) -> alt.LayerChart:
    """A square for each place on *axes* that holds a series; colours span the values of *scale*, so that maps compare.

    Darker is worse. An SLO that is broken has a red border and a word; what has no value has words and stripes.
    """
    known = [item.value for item in scale or squares if item.value is not None]
    rows = [_row(item, known, metric, link) for item in squares]
    columns = ordered(item.x for item in squares)
    lines = ordered(item.y for item in squares)
    place: _Place = {
        "x": alt.X("x:N", sort=columns, title=label(axes[0]), axis=alt.Axis(labelAngle=-30, labelLimit=110)),
        "y": alt.Y("y:N", sort=lines, title=label(axes[1]), axis=alt.Axis(labelLimit=100)),
        "href": alt.Href("link:N"),
        "tooltip": _tooltip(axes, metric),
    }
    known_rows = [row for row in rows if row["value"] is not None]
    layers = [
        *([_square(known_rows, place).encode(color=_coloured(known, metric))] if known_rows else ()),
        *_states(rows, place),
        *_borders(rows, place),
        *(layer for field, dy in _LINES for layer in _words(rows, place, field, dy)),
    ]
    return alt.LayerChart(
        layer=layers,
        height=_ROW * len(lines) + _AXIS,
        description=described(squares, axes, metric, tier, len(columns) * len(lines)),
    )


def _tooltip(axes: tuple[str, str], metric: Metric) -> list[alt.Tooltip]:
    titles = {"x": label(axes[0]), "y": label(axes[1]), "shown": metric.name, "slo": "SLO", "note": "note"}
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]


def described(squares: Sequence[Square], axes: tuple[str, str], metric: Metric, tier: str, places: int) -> str:
    """What the map shows, in words."""
    where = f" at tier {tier}" if tier else ""
    head = f"Heat map of {metric.name}, {label(axes[1])} against {label(axes[0])}{where}: {len(squares)} squares"
    counts = [
        (sum(item.mark == BROKEN for item in squares), "with a broken SLO"),
        (sum(item.state == "failed" for item in squares), "failed"),
        (sum(item.state == "unmeasured" for item in squares), "unmeasured"),
        (places - len(squares), "empty"),
    ]
    words = [f"{count} {word}" for count, word in counts if count]
    known = [item for item in squares if item.value is not None]
    if known:
        pick = max if metric.better == "lower" else min
        worst = pick(known, key=lambda item: item.value or 0.0)
        words.append(f"the worst value is {worst.shown} at {worst.x}, {worst.y}")
    return ", ".join([head, *words])


def _row(item: Square, known: Sequence[float], metric: Metric, link: Callable[[Square], str] | None) -> dict[str, Any]:
    white = item.value is not None and _share(item.value, known, metric) > _DARK
    return {
        "x": item.x,
        "y": item.y,
        "state": item.state,
        "value": item.value,
        "shown": item.shown,
        "mark": _MARKS.get(item.mark, ""),
        "faults": f"{item.failed} of {item.boots} failed" if item.failed else "",
        "several": f"worst of {item.number}" if item.number > 1 else "",
        "ink": _LIGHT_INK if white else _INK,
        "link": link(item) if link else "",
        "slo": item.mark or "not broken",
        "note": "; ".join(item.notes) or "-",
    }


def _wide(known: Sequence[float]) -> bool:
    return bool(known) and min(known) > 0 and max(known) / min(known) > _WIDE


def _share(value: float, known: Sequence[float], metric: Metric) -> float:
    """How far up the colours *value* stands, 0 to 1."""
    least, most = min(known), max(known)
    if least == most:
        return 0.0
    share = math.log(value / least) / math.log(most / least) if _wide(known) else (value - least) / (most - least)
    return share if metric.better == "lower" else 1 - share


def _coloured(known: Sequence[float], metric: Metric) -> alt.Color:
    least, most = (min(known), max(known)) if known else (0.0, 1.0)
    domain = [least, most if most > least else least + 1]
    kind: Any = "log" if _wide(known) else "linear"
    scale = alt.Scale(scheme="blues", type=kind, domain=domain, nice=False, reverse=metric.better == "higher")
    return alt.Color("value:Q", scale=scale, legend=None)


def _square(rows: list[dict[str, Any]], place: _Place, **look: Any) -> alt.Chart:
    marked = chart(rows).mark_rect(**{"stroke": "#FFFFFF", "strokeWidth": 2, "cursor": "pointer", **look})
    square: alt.Chart = marked.encode(**place)
    return square


def _states(rows: list[dict[str, Any]], place: _Place) -> list[alt.Chart]:
    """Squares without a value. An empty layer would keep a browser from drawing any."""
    looks = {"failed": _FAILED, "unmeasured": _stripes()}
    found = {state: [row for row in rows if row["state"] == state] for state in looks}
    return [_square(found[state], place, fill=looks[state]) for state in looks if found[state]]


def _borders(rows: list[dict[str, Any]], place: _Place) -> list[alt.Chart]:
    """Red, and dashed where an SLO is unmeasured."""
    look: dict[str, Any] = {"fillOpacity": 0, "stroke": palette.BOUND, "strokeWidth": 3}
    broken = [row for row in rows if row["slo"] == BROKEN]
    silent = [row for row in rows if row["slo"] == UNMEASURED]
    parts = ((broken, [1, 0]), (silent, [4, 3]))
    return [_square(part, place, **look, strokeDash=dash) for part, dash in parts if part]


def _words(rows: list[dict[str, Any]], place: _Place, field: str, dy: int) -> list[alt.Chart]:
    """A layer for each ink, since a scale of None beside that of the colours keeps a browser from drawing any."""
    look: dict[str, Any] = {"fontSize": 13, "fontWeight": "bold"} if field == "shown" else {"fontSize": 10}
    found = {ink: [row for row in rows if row["ink"] == ink and row[field]] for ink in (_INK, _LIGHT_INK)}
    return [
        chart(part).mark_text(dy=dy, color=ink, cursor="pointer", **look).encode(**place, text=f"{field}:N")
        for ink, part in found.items()
        if part
    ]


def _stripes() -> dict[str, Any]:
    """Diagonal stripes: a gradient with hard edges."""
    light, dark, number = _STRIPES
    stops: list[dict[str, Any]] = []
    for index in range(number):
        colour = light if index % 2 else dark
        stops += [{"offset": index / number, "color": colour}, {"offset": (index + 1) / number, "color": colour}]
    return {"gradient": "linear", "x1": 0, "y1": 0, "x2": 1, "y2": 1, "stops": stops}


def legend(squares: Sequence[Square], metric: Metric) -> str:
    """The colours in words, for a caption: from where to where they go."""
    known = [item.value for item in squares if item.value is not None]
    if not known:
        return ""
    best, worst = sorted((min(known), max(known)), reverse=metric.better == "higher")
    scale = ", on a logarithmic scale" if _wide(known) else ""
    return f"Pale is {units.show(best, metric.unit)}, dark is {units.show(worst, metric.unit)}{scale}."
