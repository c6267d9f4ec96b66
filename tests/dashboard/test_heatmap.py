"""The heat map as a Vega-Lite spec."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("altair", reason="charts need altair: pip install 'pytest-coldstart[dashboard]'")

from dashboard.charts import palette
from dashboard.charts.heatmap import heatmap, legend
from dashboard.matrix_rows import Square
from pytest_coldstart.metrics import METRICS

COLD = METRICS["cold_start"]
AXES = ("engine", "option.block_size")
SQUARES = [
    Square("vllm", "16", "", "a", "ok", 2.0, "2.00 s", "", 1, 3),
    Square("vllm", "128", "", "b", "ok", 90.0, "90.00 s", "SLO broken", 2, 3, 1, ("1 of 3 boots failed",)),
    Square("sglang", "16", "", "c", "failed", None, "failed", "SLO broken", 1, 2, 2, ("exited with 1",)),
    Square("tgi", "16", "", "d", "unmeasured", None, "unmeasured", "SLO unmeasured", 1, 1),
]


def drawn(squares: list[Square], metric: Any = COLD, **more: Any) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each layer with its rows."""
    spec = heatmap(squares, AXES, metric, **more).to_dict()
    sets = spec.get("datasets", {})
    return [
        (layer, sets[layer["data"]["name"]] if "name" in layer["data"] else layer["data"]["values"])
        for layer in spec["layer"]
    ]


def test_each_state_has_a_look_of_its_own() -> None:
    filled, failed, unmeasured, broken, open_, *_ = drawn(SQUARES)
    assert [row["shown"] for row in filled[1]] == ["2.00 s", "90.00 s"]
    assert filled[0]["encoding"]["color"]["scale"]["type"] == "log"
    assert [row["shown"] for row in failed[1]] == ["failed"]
    assert failed[0]["mark"]["fill"].startswith("#")
    assert [row["shown"] for row in unmeasured[1]] == ["unmeasured"]
    assert unmeasured[0]["mark"]["fill"]["gradient"] == "linear"
    assert [(row["x"], row["y"]) for row in broken[1]] == [("vllm", "128"), ("sglang", "16")]
    assert broken[0]["mark"]["stroke"] == palette.BOUND
    assert [row["x"] for row in open_[1]] == ["tgi"]
    assert open_[0]["mark"]["strokeDash"] == [4, 3]


def test_what_is_said_is_said_in_words_too() -> None:
    words = [
        row[layer["encoding"]["text"]["field"]]
        for layer, rows in drawn(SQUARES)
        for row in rows
        if "text" in layer["encoding"]
    ]
    assert sorted(words) == sorted(
        [
            *("2.00 s", "90.00 s", "failed", "unmeasured", "\u2717 SLO broken", "\u2717 SLO broken", "? SLO"),
            *("1 of 3 failed", "2 of 2 failed", "worst of 2"),
        ]
    )


def test_words_are_legible_on_their_square() -> None:
    inks = {
        row["shown"]: layer["mark"]["color"]
        for layer, rows in drawn(SQUARES)
        for row in rows
        if layer["mark"]["type"] == "text"
    }
    assert inks["90.00 s"] == "#FFFFFF"
    assert inks["2.00 s"] == inks["failed"] == inks["unmeasured"] == "#000000"


def test_values_are_in_the_order_of_their_axes_and_lead_to_the_trend() -> None:
    layer, rows = drawn(SQUARES, link=lambda item: f"trend?series={item.series}")[0]
    assert layer["encoding"]["y"]["sort"] == ["16", "128"]
    assert layer["encoding"]["y"]["title"] == "option block_size"
    assert [row["link"] for row in rows] == ["trend?series=a", "trend?series=b"]


def test_the_description_counts() -> None:
    spec = heatmap(SQUARES, AXES, COLD, tier="restart").to_dict()
    assert spec["description"] == (
        "Heat map of cold_start, option block_size against engine at tier restart: 4 squares, 2 with a broken SLO, 1 failed, "
        "1 unmeasured, 2 empty, the worst value is 90.00 s at vllm, 128"
    )


def test_maps_share_the_colours_of_all_squares() -> None:
    assert drawn(SQUARES[:1], scale=SQUARES)[0][0]["encoding"]["color"]["scale"]["domain"] == [2.0, 90.0]
    assert drawn(SQUARES[:1])[0][0]["encoding"]["color"]["scale"]["domain"] == [2.0, 3.0]


def test_dark_is_worse_where_higher_is_better() -> None:
    speed = METRICS["load_speed"]
    squares = [Square(word, "1", "", word, "ok", value, word, "") for word, value in (("a", 2e9), ("b", 1e9))]
    assert drawn(squares, speed)[0][0]["encoding"]["color"]["scale"]["reverse"] is True
    assert legend(squares, speed) == "Pale is 2 GB/s, dark is 1 GB/s."
    assert legend(SQUARES, COLD) == "Pale is 2.00 s, dark is 90.00 s, on a logarithmic scale."
    assert legend(SQUARES[2:], COLD) == ""


def test_no_values_at_all() -> None:
    layers = drawn(SQUARES[2:])
    assert all(rows for _, rows in layers)
    assert "color" not in layers[0][0]["encoding"]
