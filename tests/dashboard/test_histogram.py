"""Bins, and histograms and strips as Vega-Lite specs."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("altair", reason="charts need altair: pip install 'pytest-coldstart[dashboard]'")

import itertools

from dashboard import bins
from dashboard.charts.histogram import Row, histograms
from dashboard.charts.strip import MOST, Strip, strips, thinned


def rows_of(spec: dict[str, Any], layer: dict[str, Any]) -> list[dict[str, Any]]:
    data = layer["data"]
    found: list[dict[str, Any]] = spec["datasets"][data["name"]] if "name" in data else data["values"]
    return found


# -- bins


def test_bins_are_equally_wide_and_hold_every_value() -> None:
    values = [1.0, 1.5, 2.0, 5.0]
    limits = bins.edges(values, 4)
    assert limits == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert bins.counts(values, limits) == [2, 1, 0, 1]


def test_bins_of_values_that_differ_much_are_equally_wide_in_logarithms() -> None:
    limits = bins.edges([1.0, 100.0], 2)
    assert limits == pytest.approx([1.0, 10.0, 100.0])
    assert bins.counts([1.0, 9.0, 11.0, 100.0], limits) == [2, 2]
    assert not bins.logarithmic([1.0, 10.0])
    assert bins.logarithmic([1.0, 10.1])
    assert not bins.logarithmic([0.0, 100.0])


def test_one_value_has_a_bin_that_can_be_seen() -> None:
    assert bins.edges([2.0, 2.0], 1) == pytest.approx([1.9, 2.1])
    assert bins.edges([0.0], 1) == [0.0, 1.0]
    assert bins.edges([]) == []


def test_a_p99_needs_a_hundred_values() -> None:
    few, many = bins.summary([1.0, 2.0, 4.0]), bins.summary([float(n) for n in range(1, 101)])
    assert few
    assert many
    assert (few.high_name, few.high, few.p50, few.jitter, few.number) == ("max", 4.0, 2.0, 2.0, 3)
    assert (many.high_name, many.high, many.p50, many.jitter) == ("p99", 99.0, 50.5, 48.5)
    # values 1, 2, 4: mean 7/3, deviations -4/3, -1/3, 5/3; m2 = 14/9, m3 = 20/27
    assert few.skew == pytest.approx((20 / 27) / (14 / 9) ** 1.5)
    assert many.skew == pytest.approx(0.0)


def test_too_few_values() -> None:
    one = bins.summary([1.0])
    assert bins.summary([]) is None
    assert one
    assert (one.jitter, one.skew) == (None, None)


# -- histograms


def test_rows_share_bins_and_scale_and_have_rules_of_their_own() -> None:
    rows = [Row("vllm a", "vllm", [0.1, 0.1, 0.1, 0.3]), Row("sglang b", "sglang", [0.2, 0.5])]
    spec = histograms(rows, {"vllm": "#111111", "sglang": "#222222"}).to_dict()
    bars, *_, names = spec["layer"]
    found = rows_of(spec, bars)
    assert [(bar["series"], bar["requests"], bar["colour"]) for bar in found] == [
        ("vllm a", "3 of 4", "#111111"),
        ("vllm a", "1 of 4", "#111111"),
        ("sglang b", "1 of 2", "#222222"),
        ("sglang b", "1 of 2", "#222222"),
    ]
    heights = [round(bar["top"] - bar["y"], 3) for bar in found]
    assert heights == [0.5, 0.167, 0.333, 0.333]  # the share of the tallest, 3 of 4, is half a row
    assert bars["encoding"]["x"]["scale"]["domain"] == pytest.approx([100, 500])
    assert bars["encoding"]["x"]["title"] == "time to first token (ms)"
    labels = [
        row["label"] for layer in spec["layer"] if layer["mark"]["type"] == "rule" for row in rows_of(spec, layer)
    ]
    assert labels == ["p50 100 ms", "p50 350 ms", "max 300 ms", "max 500 ms"]
    assert [row["name"] for row in rows_of(spec, names)] == ["vllm a", "sglang b"]
    assert "vllm a: 4 requests, p50 100 ms, max 300 ms" in spec["description"]


def test_the_rules_differ_by_dash() -> None:
    spec = histograms([Row("a", "e", [0.1, 0.2])], {}).to_dict()
    assert [layer["mark"]["strokeDash"] for layer in spec["layer"] if layer["mark"]["type"] == "rule"] == [
        [1, 0],
        [4, 3],
    ]


# -- strips


def test_cold_and_warm_share_an_axis_that_is_logarithmic_where_they_differ_much() -> None:
    spec = strips([Strip("a", [0.1, 0.2], [3.0]), Strip("b", [], [4.0])]).to_dict()
    warm, cold, _ = spec["layer"]
    assert (warm["mark"]["type"], cold["mark"]["shape"]) == ("tick", "diamond")
    assert warm["encoding"]["x"]["scale"]["type"] == cold["encoding"]["x"]["scale"]["type"] == "log"
    assert [(row["series"], row["shown"]) for row in rows_of(spec, cold)] == [("a", "3.00 s"), ("b", "4.00 s")]
    assert spec["description"].endswith("a: cold p50 3.00 s of 1, warm p50 150 ms of 2; b: cold p50 4.00 s of 1")
    near = strips([Strip("a", [1.0], [2.0])]).to_dict()
    assert near["layer"][0]["encoding"]["x"]["scale"]["type"] == "linear"


def test_many_requests_are_thinned_evenly_over_their_ranks() -> None:
    values = [float(number) for number in range(1000, 0, -1)]
    found = thinned(values)
    assert len(found) == MOST
    assert (found[0], found[-1]) == (1.0, 1000.0)
    assert max(b - a for a, b in itertools.pairwise(found)) <= 6
    assert thinned([2.0, 1.0]) == [1.0, 2.0]
