"""A series at a glance: the medians of its last runs.

A page has dozens of these, and altair takes some 40 ms to make and check one; so they are written as Vega-Lite itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard import text
from dashboard.charts import palette
from dashboard.data.overview import RunMedian
from pytest_coldstart import units
from pytest_coldstart.metrics import Metric

#: A Vega-Lite chart.
Spec = dict[str, Any]

HEIGHT = 56
#: A bound is drawn where the values come as near to it as this share: far off it would press them flat.
_NEAR = 0.5


def sparkline(runs: Sequence[RunMedian], metric: Metric, bound: float | None = None) -> Spec:
    """One point a run, joined in their order; a run without a value breaks the line. One with a failed boot, and one that is
    unmeasured, has a mark at the foot."""
    rows = [_row(number, run, metric) for number, run in enumerate(runs)]
    known = [row for row in rows if row["value"] is not None]
    top = max((row["value"] for row in known), default=1.0) or 1.0
    shown = bound if bound is not None and top >= _NEAR * bound else None
    x = {"field": "n", "type": "quantitative", "axis": None, "scale": {"domain": [-0.5, max(len(runs), 2) - 0.5]}}
    scale = {"domain": [0.0, max(top, shown or 0.0) * 1.08], "nice": False}
    y = {"field": "value", "type": "quantitative", "axis": None, "scale": scale}
    hover = [{"field": name, "type": "nominal"} for name in (metric.name, "started", "commit", "run")]
    path = [{"n": row["n"], "value": row["value"]} for row in rows]
    layers = [
        _layer(path, {"type": "line", "color": palette.MEDIAN, "strokeWidth": 1.5}, {"x": x, "y": y}),
        _layer(
            known,
            {"type": "circle", "color": palette.MEDIAN, "size": 28, "opacity": 1},
            {"x": x, "y": y, "tooltip": hover},
        ),
    ]
    for state in ("failed", "unmeasured"):
        colour, shape = palette.STATES[state]
        mark = {"type": "point", "color": colour, "shape": shape, "size": 44, "filled": True, "opacity": 1}
        marked = [row for row in rows if row["state"] == state]
        layers.append(_layer(marked, mark, {"x": x, "y": {"value": HEIGHT - 6}, "tooltip": hover}))
    if shown is not None:
        rule = {"type": "rule", "color": palette.BOUND, "strokeDash": [5, 3]}
        layers.insert(0, _layer([{"value": shown}], rule, {"y": y}))
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": described(runs, metric, bound),
        "height": HEIGHT,
        "padding": {"left": 2, "right": 2, "top": 2, "bottom": 2},
        "config": {"view": {"stroke": None}},
        "layer": layers,
    }


def _layer(rows: Sequence[Mapping[str, Any]], mark: Spec, encoding: Spec) -> Spec:
    return {"data": {"values": list(rows)}, "mark": mark, "encoding": encoding}


def described(runs: Sequence[RunMedian], metric: Metric, bound: float | None = None) -> str:
    """The chart in words."""
    values = [run.value for run in runs if run.value is not None]
    words = [
        f"{metric.name}, medians of the newest {len(runs)} runs" if len(runs) != 1 else f"{metric.name} of one run"
    ]
    if values:
        low, high = (units.show(value, metric.unit) for value in (min(values), max(values)))
        words.append(f"from {low} to {high}" if low != high else low)
        words.append(f"last {text_of(runs[-1], metric)}")
    gone = sum(run.failed > 0 for run in runs)
    words += [f"{gone} of {len(runs)} with a failed boot"] if gone else []
    silent = sum(_state(run) == "unmeasured" for run in runs)
    words += [f"{silent} of {len(runs)} unmeasured"] if silent else []
    words += [f"bound {units.show(bound, metric.unit)}"] if bound is not None else []
    return "; ".join(words)


def _state(run: RunMedian) -> str:
    """``failed`` where a boot of the run did, whether there is a median or not."""
    return "failed" if run.failed else "ok" if run.value is not None else "unmeasured"


def text_of(run: RunMedian, metric: Metric) -> str:
    """``2.31 s (1 of 5 failed)``."""
    notes = [
        f"{count} of {run.boots} {word}"
        for count, word in ((run.failed, "failed"), (run.unmeasured, "unmeasured"))
        if count
    ]
    value = units.show(run.value, metric.unit) if run.value is not None else _state(run)
    return f"{value} ({', '.join(notes)})" if notes else value


def _row(number: int, run: RunMedian, metric: Metric) -> dict[str, Any]:
    return {
        "n": number,
        "value": run.value,
        "state": _state(run),
        metric.name: text_of(run, metric),
        "started": text.moment(run.at),
        "commit": text.commit(run.commit),
        "run": run.run_id,
    }
