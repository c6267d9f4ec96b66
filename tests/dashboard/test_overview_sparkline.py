"""The sparkline as a Vega-Lite spec."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

pytest.importorskip("altair", reason="charts need altair: pip install 'pytest-coldstart[dashboard]'")

import altair as alt

from dashboard.charts.sparkline import described, sparkline
from dashboard.data.overview import RunMedian
from pytest_coldstart.metrics import METRICS

COLD = METRICS["cold_start"]


def run(name: str, value: float | None, boots: int = 2, failed: int = 0, unmeasured: int = 0) -> RunMedian:
    return RunMedian(name, datetime(2026, 11, 2, 8), "0123456789abcdef", value, boots, failed, unmeasured)


RUNS = [run("1", 2.0), run("2", None, failed=2), run("3", 4.0, boots=3, failed=1), run("4", None, unmeasured=1)]


def layers(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [layer["data"]["values"] for layer in spec["layer"]]


def test_a_run_without_a_median_breaks_the_line_and_is_marked_at_the_foot() -> None:
    line, points, failed, unmeasured = layers(sparkline(RUNS, COLD))
    assert [row["value"] for row in line] == [2.0, None, 4.0, None]
    assert [row["n"] for row in points] == [0, 2]
    assert [(row["n"], row["cold_start"]) for row in failed] == [
        (1, "failed (2 of 2 failed)"),
        (2, "4.00 s (1 of 3 failed)"),
    ]
    assert [(row["n"], row["cold_start"]) for row in unmeasured] == [(3, "unmeasured (1 of 2 unmeasured)")]


def test_a_failed_run_looks_different_in_colour_and_in_shape() -> None:
    spec = sparkline(RUNS, COLD)
    marks = [layer["mark"] for layer in spec["layer"][1:]]
    assert len({mark["color"] for mark in marks}) == 3
    assert len({mark.get("shape", "circle") for mark in marks}) == 3


def test_the_axis_begins_at_zero_and_holds_every_point() -> None:
    low, high = sparkline(RUNS, COLD)["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert low == 0
    assert high > 4.0


@pytest.mark.parametrize(("bound", "drawn"), [(5.0, True), (3.0, True), (100.0, False), (None, False)])
def test_a_bound_is_drawn_where_the_values_come_near_it(bound: float | None, drawn: bool) -> None:
    spec = sparkline(RUNS, COLD, bound)
    assert ([{"value": bound}] in layers(spec)) == drawn


def test_the_chart_is_said_in_words() -> None:
    words = "cold_start, medians of the newest 4 runs; from 2.00 s to 4.00 s; last unmeasured (1 of 2 unmeasured); "
    words += "2 of 4 with a failed boot; 1 of 4 unmeasured; bound 10.00 s"
    assert described(RUNS, COLD, 10.0) == words
    assert sparkline(RUNS, COLD, 10.0)["description"] == words


@pytest.mark.parametrize("bound", [None, 5.0])
def test_the_spec_is_one_that_vega_lite_knows(bound: float | None) -> None:
    alt.Chart.from_dict(sparkline(RUNS, COLD, bound)).to_dict(validate=True)


@pytest.mark.parametrize("runs", [[run("1", 2.0)], [run("1", None, failed=2)], [run("1", 0.0)]])
def test_one_run_is_a_chart(runs: list[RunMedian]) -> None:
    assert sparkline(runs, COLD, 10.0)["description"].startswith("cold_start of one run")
