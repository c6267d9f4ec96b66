"""The Pareto front: who dominates whom, who is left out, and the scatter."""

from __future__ import annotations

import pytest

pytest.importorskip("altair", reason="charts need altair: pip install 'pytest-coldstart[dashboard]'")

from dashboard.charts.pareto import pareto
from dashboard.data.matrix import Result
from dashboard.data.series import NEVER_COUNTED, Series
from dashboard.pareto_front import dominates, front, memory_metric

NAMES = ("cold_start", "warm_first_token", "peak_rss")


def series(*ids: str) -> list[Series]:
    return [Series(id, "e", id, id, "m", "restart", "t", "hw", "", "", 1, 0, 0, None, None, "r") for id in ids]


def results(**values: tuple[float, float, float]) -> dict[tuple[str, str], Result]:
    return {
        (id, name): Result(id, name, "r", "ok", value, boots=3)
        for id, three in values.items()
        for name, value in zip(NAMES, three, strict=True)
    }


def test_the_front_is_what_nothing_dominates() -> None:
    found = results(a=(1, 3, 5), b=(2, 2, 5), c=(2, 3, 5), d=(1, 3, 5), e=(9, 9, 1))
    placed, left = front(series("c", "e", "b", "a", "d"), found, "peak_rss")
    assert [(one.series, one.dominated) for one in placed] == [
        ("a", ()),
        ("d", ()),  # equal to a: neither is better
        ("b", ()),
        ("e", ()),
        ("c", ("b", "a", "d")),
    ]
    assert left == []


def test_dominance_needs_one_that_is_better() -> None:
    assert dominates((1, 1, 1), (1, 1, 2))
    assert not dominates((1, 1, 1), (1, 1, 1))
    assert not dominates((1, 2, 1), (2, 1, 2))


def test_what_failed_or_is_unmeasured_is_left_out_with_its_reason() -> None:
    found = results(a=(1, 1, 1), b=(1, 1, 1), c=(1, 1, 1))
    found["b", "cold_start"] = Result("b", "cold_start", "r", "ok", 1.0, boots=3, failed=1)
    found["c", "peak_rss"] = Result("c", "peak_rss", "r", "unmeasured", None, "needs /proc", 3)
    placed, left = front(series("a", "b", "c", "d"), found, "peak_rss")
    assert [one.series for one in placed] == ["a"]
    assert [(one.series, one.why) for one in left] == [
        ("b", "1 of 3 boots of the newest run failed"),
        ("c", "peak_rss is unmeasured: needs /proc"),
        ("d", NEVER_COUNTED),
    ]


def test_memory_is_the_gpus_where_as_many_have_it() -> None:
    found = results(a=(1, 1, 1), b=(1, 1, 1))
    assert memory_metric(series("a", "b"), found) == "peak_rss"
    found["a", "gpu_memory_ready"] = Result("a", "gpu_memory_ready", "r", "ok", 5.0)
    assert memory_metric(series("a", "b"), found) == "peak_rss"
    assert memory_metric(series("a"), found) == "gpu_memory_ready"
    assert memory_metric([], {}) == "gpu_memory_ready"


def test_the_front_has_another_shape_and_the_rows_are_in_the_axes_units() -> None:
    placed, _ = front(series("a", "b"), results(a=(70, 0.05, 2e9), b=(80, 0.06, 2e9)), "peak_rss")
    spec = pareto(placed, {"a": "vllm a", "b": "vllm b"}, "peak_rss").to_dict()
    marks = spec["layer"][0]["encoding"]
    assert marks["shape"]["scale"] == {"domain": ["on the front", "dominated"], "range": ["diamond", "circle"]}
    assert (marks["x"]["title"], marks["y"]["title"]) == ("cold_start (s)", "warm_first_token (ms)")
    rows = next(iter(spec["datasets"].values()))
    assert [(row["cold"], round(row["warm"]), row["kind"]) for row in rows] == [
        (70, 50, "on the front"),
        (80, 60, "dominated"),
    ]
    assert rows[0]["peak_rss"] == "2 GB"
    assert spec["description"].endswith("size for peak_rss; 1 on the Pareto front: vllm a")
