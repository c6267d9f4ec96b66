"""The chart of ratios as data."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.charts.ratios import MOST, drawn, interval_words, ratios
from dashboard.compare_rows import BETTER, NOT_JUDGED, UNCLEAR, WORSE, Row
from pytest_coldstart.gate.comparison import Summary
from pytest_coldstart.metrics import METRICS

TWO, THREE = Summary((2.0,), median=2.0), Summary((3.0,), median=3.0)


def row(metric: str, ratio: float | None, low: float | None = None, high: float | None = None, **more: Any) -> Row:
    return Row(metric, TWO, THREE, more.pop("outcome", NOT_JUDGED), ratio=ratio, low=low, high=high, **more)


ROWS = [
    row("cold_start", 1.5, 1.2, 1.9, points=WORSE, outcome="regressed"),
    row("peak_rss", 0.25, 0.2, 0.5, points=BETTER),
    row("ready", 1.1, 0.9, None),
    row("listen", 1.0),
    row("major_faults", None, why="values of zero have no ratio"),
]


def layers(rows: list[Row]) -> list[list[dict[str, Any]]]:
    spec = ratios(rows).to_dict()
    return [spec["datasets"][layer["data"]["name"]] for layer in spec["layer"]]


def test_what_moved_most_either_way_is_on_top_and_what_has_no_ratio_is_not_drawn() -> None:
    assert [item.metric for item in drawn(ROWS)] == ["peak_rss", "cold_start", "ready", "listen"]
    spec = ratios(ROWS).to_dict()
    assert spec["layer"][2]["encoding"]["y"]["sort"] == ["peak_rss", "cold_start", "ready", "listen"]


def test_a_point_has_its_interval_and_says_its_outcome_and_which_way_in_words_and_shape() -> None:
    rule, intervals, points = layers(ROWS)
    assert rule == [{"one": 1}]
    assert [(item["metric"], item["low"], item["high"]) for item in intervals[:2]] == [
        ("peak_rss", 0.2, 0.5),
        ("cold_start", 1.2, 1.9),
    ]
    assert points[1] == {
        "metric": "cold_start",
        "ratio": 1.5,
        "low": 1.2,
        "high": 1.9,
        "points": WORSE,
        "base": "2.00 s",
        "head": "3.00 s",
        "change": "x 1.5",
        "interval": "1.2 to 1.9",
        "outcome": "regressed",
    }
    shape = ratios(ROWS).to_dict()["layer"][2]["encoding"]["shape"]["scale"]
    assert shape["domain"] == [WORSE, BETTER, UNCLEAR]
    assert len(set(shape["range"])) == 3


def test_an_end_without_bound_reaches_the_edge_and_no_interval_is_none() -> None:
    _, intervals, points = layers(ROWS)
    edge = ratios(ROWS).to_dict()["layer"][2]["encoding"]["x"]["scale"]["domain"]
    assert (intervals[2]["low"], intervals[2]["high"]) == (0.9, edge[1])
    assert points[3]["low"] is None
    assert [interval_words(item) for item in ROWS] == ["1.2 to 1.9", "0.2 to 0.5", "0.9 to ?", "-", "-"]


def test_the_axis_is_logarithmic_and_alike_both_ways() -> None:
    scale = ratios(ROWS).to_dict()["layer"][2]["encoding"]["x"]["scale"]
    assert scale["type"] == "log"
    assert scale["domain"][0] == pytest.approx(1 / scale["domain"][1])
    assert scale["domain"][1] >= 5


def test_without_intervals_there_is_no_empty_layer() -> None:
    assert len(ratios([row("cold_start", 1.5)]).to_dict()["layer"]) == 2


def test_of_many_those_that_moved_most_are_drawn_and_what_is_judged_always() -> None:
    names = list(METRICS)
    many = [row(name, 2.0 + number) for number, name in enumerate(names[: MOST + 20])][::-1]
    many.append(row("phase.imports", 1.0, outcome="same"))
    shown = drawn(many)
    assert len(shown) == MOST
    assert shown[-1].metric == "phase.imports"
    assert shown[0].metric == names[MOST + 19]


def test_the_description_says_what_the_chart_shows() -> None:
    assert ratios(ROWS).to_dict()["description"] == (
        "Ratios of head over base of 4 metrics on a logarithmic axis, with intervals and a rule at 1: 1 worse, 1 better, 2 not "
        "clear; moved most: peak_rss 0.25 (better), cold_start 1.5 (worse), ready 1.1 (not clear), listen 1 (not clear)"
    )
