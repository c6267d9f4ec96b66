"""Charts as Vega-Lite specs: what stands where, without a page and without a store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

pytest.importorskip("altair", reason="charts need altair: pip install 'pytest-coldstart[dashboard]'")

from dashboard import charts
from dashboard.data import Point, Reading, RunVerdict
from pytest_coldstart import units
from pytest_coldstart.metrics import METRICS

COLD = METRICS["cold_start"]


def point(name: str, minute: int, value: float | None, run: str = "r-1", **changes: Any) -> Point:
    fields: dict[str, Any] = {
        "nodeid": "test_a.py::test_boot",
        "role": "measured",
        "round": 1,
        "outcome": "ok",
        "failure": None,
        "commit": "0123456789abcdef",
        "dirty": False,
        "branch": "main",
        "versions": {"b": "2", "a": "1"},
        "reading": Reading(value, None if value is not None else "not seen"),
        "source": "client",
    }
    return Point(boot_id=name, run_id=run, started_at=datetime(2026, 11, 2, 8, minute), **{**fields, **changes})


def failed(name: str, minute: int, run: str = "r-1") -> Point:
    return point(name, minute, None, run, outcome="failed", reading=Reading(None, "out of memory", failed=True))


def bound(value: float, **changes: Any) -> RunVerdict:
    fields: dict[str, Any] = {
        "nodeid": "n",
        "metric": "cold_start",
        "stat": "max",
        "op": "<=",
        "unit": "s",
        "value": 1.0,
        "rounds": 2,
        "verdict": "pass",
        "bound_source": "marker",
        "reason": None,
    }
    return RunVerdict(bound=value, **{**fields, **changes})


def layers(points: list[Point], bounds: list[RunVerdict], metric: Any = COLD) -> dict[str, list[dict[str, Any]]]:
    """The rows of each layer: rules, their labels, medians, boots, then a pair for each row above the plot."""
    spec = charts.trend(points, bounds, metric).to_dict()
    names = ("rules", "labels", "line", "boots", "failed", "failed label", "unmeasured", "unmeasured label")
    return {
        name: spec["datasets"][layer["data"]["name"]] if "name" in layer["data"] else layer["data"]["values"]
        for name, layer in zip(names, spec["layer"], strict=True)
    }


def test_every_boot_is_a_point_and_one_without_a_value_has_no_place_on_the_axis() -> None:
    boots = [point("1", 1, 2.0), failed("2", 2), point("3", 3, None), point("4", 4, 3.0, role="prime")]
    found = layers(boots, [])
    assert [(row["boot"], row["y"], row["state"]) for row in found["boots"]] == [("1", 2.0, "ok"), ("4", 3.0, "prime")]
    assert [(row["boot"], row["value"]) for row in found["failed"]] == [("2", "failed: out of memory")]
    assert [(row["boot"], row["value"]) for row in found["unmeasured"]] == [("3", "unmeasured: not seen")]
    assert (found["failed label"], found["unmeasured label"]) == ([{"label": "failed"}], [{"label": "unmeasured"}])
    spec = charts.trend(boots, [], COLD).to_dict()
    assert [layer["encoding"]["y"] for layer in spec["layer"][4:]] == [{"value": -12}] * 2 + [{"value": -30}] * 2


def test_a_failed_boot_looks_different_in_colour_and_in_shape() -> None:
    spec = charts.trend([point("1", 1, 2.0), failed("2", 2)], [], COLD).to_dict()
    for layer in (spec["layer"][3], spec["layer"][4]):
        for channel in ("color", "shape"):
            scale = layer["encoding"][channel]["scale"]
            assert scale["domain"] == ["ok", "failed", "unmeasured", "error", "prime"]
            assert len(set(scale["range"])) == 5


def test_no_usual_boot_covers_another() -> None:
    boots = [point("1", 1, 2.0, outcome="error"), point("2", 2, 2.0), point("3", 3, 2.0, role="prime")]
    assert [row["boot"] for row in layers(boots, [])["boots"]] == ["2", "1", "3"]


def test_hover_names_run_boot_commit_and_versions() -> None:
    spec = charts.trend([point("1", 1, 2.0)], [], COLD).to_dict()
    hover = [item["field"] for item in spec["layer"][3]["encoding"]["tooltip"]]
    assert hover == ["value", "started", "boot", "run", "round", "commit", "versions", "test"]
    (row,) = layers([point("1", 1, 2.0)], [])["boots"]
    assert [row[name] for name in hover] == [
        *("2.00 s", "2026-11-02 08:01:00 UTC", "1", "r-1", "1 (measured, ok)", "0123456789 (main)", "a 1, b 2"),
        "test_a.py::test_boot",
    ]


def test_times_are_told_to_be_utc() -> None:
    spec = charts.trend([point("1", 1, 2.0)], [], COLD).to_dict()
    assert spec["layer"][3]["encoding"]["x"]["scale"] == {"type": "utc"}
    assert layers([point("1", 1, 2.0)], [])["boots"][0]["at"] == "2026-11-02T08:01:00.000Z"


def test_the_line_joins_the_medians_of_runs_over_the_boots_that_count() -> None:
    boots = [
        *(point("1", 1, 4.0), point("2", 2, 2.0), point("3", 3, 3.0), point("4", 4, 99.0, role="prime")),
        *(point("5", 10, 5.0, "r-2"), point("6", 12, 7.0, "r-2"), point("7", 13, 99.0, "r-2", outcome="error")),
    ]
    found = charts.medians(boots, COLD)
    assert [(row["run"], row["median"], row["boots"]) for row in found] == [("r-1", 3.0, 3), ("r-2", 6.0, 2)]
    assert found[1]["at"] == datetime(2026, 11, 2, 8, 11)
    assert [row["median"] for row in layers(boots, [])["line"]] == ["3.00 s", "6.00 s"]


@pytest.mark.parametrize(
    ("boots", "median"),
    [
        ([point("1", 1, 2.0), failed("2", 2), point("3", 3, 4.0)], 4.0),  # 2, 4, infinity
        ([point("1", 1, 2.0), failed("2", 2)], None),
        ([failed("1", 1)], None),
        ([point("1", 1, 2.0), point("2", 2, None), point("3", 3, 2.0)], None),
    ],
    ids=["one of three failed", "one of two failed", "all failed", "one unmeasured"],
)
def test_a_failed_boot_is_infinite_in_a_median_and_an_unmeasured_one_leaves_none(
    boots: list[Point], median: float | None
) -> None:
    assert [row["median"] for row in charts.medians(boots, COLD)] == [median]
    assert layers(boots, [])["line"][0]["y"] == median


@pytest.mark.parametrize(("better", "worst"), [("load_throughput", 2.0), ("cold_start", 4.0)])
def test_a_failed_boot_is_the_worst_of_a_metric_of_either_direction(better: str, worst: float) -> None:
    boots = [point("1", 1, 2.0), failed("2", 2), point("3", 3, 4.0)]
    assert charts.medians(boots, METRICS[better])[0]["median"] == worst


def test_bounds_of_this_metric_are_rules_with_their_unit() -> None:
    bounds = [bound(10.0), bound(2.5, stat="p50", verdict="fail"), bound(0.5, metric="warm_first_token")]
    found = layers([point("1", 1, 2.0)], bounds)
    assert [(row["y"], row["label"]) for row in found["rules"]] == [
        (10.0, "cold_start.max <= 10.00 s (pass)"),
        (2.5, "cold_start.p50 <= 2.50 s (fail)"),
    ]
    assert found["labels"] == found["rules"]


@pytest.mark.parametrize(
    ("largest", "family", "unit"),
    [
        (2.5, "s", ("s", 1.0)),
        (0.25, "s", ("ms", 1e-3)),
        (5e-5, "s", ("us", 1e-6)),
        (0.0, "s", ("ms", 1e-3)),
        (3e8, "B", ("MB", 1e6)),
        (3e9, "B/s", ("GB/s", 1e9)),
        (300.0, "B/s", ("B/s", 1.0)),
        (3e4, "B/s", ("B/s", 1.0)),
        (0.5, "fraction", ("%", 0.01)),
        (3.0, "count", ("", 1.0)),
    ],
)
def test_an_axis_has_the_unit_that_numbers_are_printed_in(largest: float, family: str, unit: tuple[str, float]) -> None:
    assert charts.axis_unit(largest, family) == unit


def test_the_axis_is_scaled_to_its_unit() -> None:
    metric = METRICS["warm_first_token"]
    found = layers([point("1", 1, 0.25)], [bound(0.5, metric="warm_first_token")], metric)
    assert (found["boots"][0]["y"], found["rules"][0]["y"], found["boots"][0]["value"]) == (250.0, 500.0, "250 ms")
    spec = charts.trend([point("1", 1, 0.25)], [], metric).to_dict()
    assert spec["layer"][3]["encoding"]["y"]["title"] == "warm_first_token (ms)"


@pytest.mark.parametrize("family", units.FAMILIES)
def test_a_metric_of_every_unit_can_be_drawn_whether_measured_or_not(family: str) -> None:
    metric = next(metric for metric in METRICS.values() if metric.unit == family)
    boots = [failed("1", 1), point("2", 2, 0.0), point("3", 3, 12345.678), point("4", 4, None)]
    assert charts.trend(boots, [], metric).to_dict()["description"].startswith(metric.name)


def test_a_series_without_a_boot_is_an_empty_chart() -> None:
    assert set(map(len, layers([], []).values())) == {0}
