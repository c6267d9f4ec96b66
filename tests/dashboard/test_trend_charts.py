"""The trend's charts as Vega-Lite specs: what stands where, without a page and without a store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("altair", reason="charts need altair: pip install 'pytest-coldstart[dashboard]'")

from dashboard.charts import trend_panels, trend_rules
from dashboard.charts.trend import Picture, described, picture, strip, trend
from dashboard.charts.trend_axis import Commits, Span, Times, axis, span
from dashboard.charts.trend_line import Level, levels
from dashboard.charts.trend_scale import far, scaled, ticks
from dashboard.data.changes import Changes
from dashboard.data.series import Reading, Series
from dashboard.data.trend import Point, RunBound
from pytest_coldstart import units
from pytest_coldstart.gate.comparison import Difference
from pytest_coldstart.history.acknowledge import Acknowledgement, Place
from pytest_coldstart.history.points import History, Moved
from pytest_coldstart.history.points import Point as ChangePoint
from pytest_coldstart.history.read import RunPoint
from pytest_coldstart.history.read import Series as Named
from pytest_coldstart.metrics import METRICS

COLD = METRICS["cold_start"]
START = datetime(2026, 11, 2, 8)
#: START in milliseconds since 1970.
MS = 1793606400000.0


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
        "gate": "",
        "reading": Reading(value, None if value is not None else "not seen"),
        "source": "client",
    }
    return Point(boot_id=name, run_id=run, started_at=START + timedelta(minutes=minute), **{**fields, **changes})


def failed(name: str, minute: int) -> Point:
    return point(name, minute, None, outcome="failed", reading=Reading(None, "out of memory", failed=True))


def ran(n: int, *values: float, commit: str = "c0", unmeasured: int = 0, **environment: str) -> RunPoint:
    where = dict(environment)
    return RunPoint(
        f"r-{n}", START + timedelta(minutes=n), tuple(sorted(values)), unmeasured, commit, "main", False, where
    )


def bound(value: float, **changes: Any) -> RunBound:
    fields: dict[str, Any] = {"metric": "cold_start", "stat": "max", "op": "<=", "unit": "s", "value": 1.0}
    return RunBound(bound=value, **{**fields, "verdict": "pass", "bound_source": "marker", **changes})


def change(index: int, runs: list[RunPoint], **more: Any) -> ChangePoint:
    before, after = runs[index - 1], runs[index]
    fields: dict[str, Any] = {
        "low": index,
        "high": index,
        "size": 0.5,
        "confidence": 0.999,
        "before": 2.0,
        "after": 3.0,
    }
    fields |= {"kind": "step", "regression": True, "commits": (before.commit, after.commit)}
    return ChangePoint(index=index, at=after.started_at, place=Place.of(before, after), **{**fields, **more})


def changed(
    runs: Sequence[RunPoint] = (), *points: ChangePoint, moved: Sequence[tuple[int, Difference]] = ()
) -> Changes:
    named = Named("s", "cell", "test", "e", "m", "t", 1, 0)
    moves = tuple((runs[n], Moved(n, (one,))) for n, one in moved)
    return Changes(History(named, "cold_start", "s", "lower", tuple(runs), points), moves)


def what(
    points: list[Point], bounds: Sequence[RunBound] = (), found: Changes | None = None, zoom: Span | None = None
) -> Picture:
    runs = list(found.history.runs) if found else []
    return picture(COLD, Times(), zoom, points, levels(runs, Times(), False), bounds, found or changed())


NAMES = ("moves", "moves' labels", "bounds", "bounds' labels", "ranges", "changes", "changes' labels", "line", "boots")


def rows_of(spec: dict[str, Any], data: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spec["datasets"][data["name"]] if "name" in data else data["values"]
    return found


def layers(drawn: Picture) -> dict[str, list[dict[str, Any]]]:
    spec = trend(drawn).to_dict()
    return {name: rows_of(spec, layer["data"]) for name, layer in zip(NAMES, spec["layer"], strict=True)}


def layer(drawn: Picture, name: str) -> dict[str, Any]:
    found: dict[str, Any] = trend(drawn).to_dict()["layer"][NAMES.index(name)]
    return found


# -- boots


def test_every_boot_is_a_point_and_one_without_a_value_stands_above_the_axis() -> None:
    boots = [point("1", 1, 2.0), failed("2", 2), point("3", 3, None), point("4", 4, 3.0, role="prime")]
    rows = {row["boot"]: row for row in layers(what(boots))["boots"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "1": "ok",
        "2": "failed",
        "3": "unmeasured",
        "4": "prime",
    }
    assert (rows["1"]["y"], rows["4"]["y"]) == (2.0, 3.0)
    assert rows["3"]["y"] > rows["2"]["y"] > 3.0
    assert (rows["2"]["value"], rows["3"]["value"]) == ("failed: out of memory", "unmeasured: not seen")
    ticks = layer(what(boots), "boots")["encoding"]["y"]["axis"]
    assert [rows["2"]["y"], rows["3"]["y"]] == ticks["values"][-2:]
    assert "'failed'" in ticks["labelExpr"]
    assert "'unmeasured'" in ticks["labelExpr"]


def test_a_boot_is_read_aloud_with_its_words_and_not_with_its_place() -> None:
    (row,) = layers(what([point("3", 3, None)]))["boots"]
    assert row["words"] == "boot 3, unmeasured: not seen, 2026-11-02 08:03:00 UTC"
    assert layer(what([point("3", 3, None)]), "boots")["encoding"]["description"]["field"] == "words"


def test_a_failed_boot_looks_different_in_colour_and_in_shape() -> None:
    encoding = layer(what([point("1", 1, 2.0), failed("2", 2)]), "boots")["encoding"]
    for channel in ("color", "shape"):
        assert encoding[channel]["scale"]["domain"] == ["ok", "failed", "unmeasured", "error", "prime"]
        assert len(set(encoding[channel]["scale"]["range"])) == 5
        assert encoding[channel]["legend"]["values"] == ["ok", "failed"]


def test_no_usual_boot_covers_another() -> None:
    boots = [point("1", 1, 2.0, outcome="error"), point("2", 2, 2.0), point("3", 3, 2.0, role="prime")]
    assert [row["boot"] for row in layers(what(boots))["boots"]] == ["2", "1", "3"]


def test_hover_names_run_boot_commit_and_gate() -> None:
    drawn = what([point("1", 1, 2.0, gate="head")])
    hover = [item["field"] for item in layer(drawn, "boots")["encoding"]["tooltip"]]
    assert hover == ["value", "started", "id", "run", "round", "commit", "gate", "test"]
    (row,) = layers(drawn)["boots"]
    assert [row[name] for name in hover] == [
        *("2.00 s", "2026-11-02 08:01:00 UTC", "1", "r-1", "1 (measured, ok)", "0123456789 (main)", "head"),
        "test_a.py::test_boot",
    ]


def test_a_boot_can_be_chosen_by_its_id() -> None:
    spec = trend(what([point("1", 1, 2.0)])).to_dict()
    (param,) = spec["params"]
    assert (param["name"], param["select"]["type"], param["select"]["fields"]) == ("chosen", "point", ["boot"])


def test_times_are_utc() -> None:
    drawn = what([point("1", 0, 2.0), point("2", 1, 2.0)])
    scale = layer(drawn, "boots")["encoding"]["x"]["scale"]
    assert scale["type"] == "utc"
    assert scale["domain"] == ["2026-11-02T07:59:58.800Z", "2026-11-02T08:01:01.200Z"]
    assert layers(drawn)["boots"][0]["at"] == MS


def test_the_axis_is_scaled_to_its_unit() -> None:
    metric = METRICS["warm_first_token"]
    bounds = [bound(0.5, metric="warm_first_token")]
    found = layers(picture(metric, Times(), None, [point("1", 1, 0.25)], [], bounds, changed()))
    assert (found["boots"][0]["y"], found["bounds"][0]["y"], found["boots"][0]["value"]) == (250.0, 500.0, "250 ms")


@pytest.mark.parametrize("family", units.FAMILIES)
def test_a_metric_of_every_unit_can_be_drawn_whether_measured_or_not(family: str) -> None:
    metric = next(metric for metric in METRICS.values() if metric.unit == family)
    boots = [failed("1", 1), point("2", 2, 0.0), point("3", 3, 12345.678), point("4", 4, None), point("5", 5, -1.0)]
    drawn = trend(picture(metric, Times(), None, boots, [], [], changed())).to_dict()
    assert drawn["description"].startswith(f"{metric.name} of 5 boots (3 ok, 1 failed, 1 unmeasured)")


def test_nothing_at_all_is_an_empty_chart() -> None:
    assert set(map(len, layers(what([])).values())) == {0}


def test_the_zoom_leaves_out_what_lies_beside_it() -> None:
    runs = [ran(n, 2.0) for n in range(6)]
    boots = [point(str(n), n, 2.0) for n in range(6)]
    found = changed(runs, change(1, runs), change(4, runs), moved=[(1, Difference("driver", "1", "2"))])
    drawn = what(boots, found=found, zoom=(MS + 2.5 * 60000, MS + 4.5 * 60000))
    rows = layers(drawn)
    assert [row["boot"] for row in rows["boots"]] == ["3", "4"]
    assert len(rows["line"]) == 2
    assert [row["at"] for row in rows["changes"]] == [MS + 4 * 60000]
    assert rows["moves"] == []


# -- medians


@pytest.mark.parametrize(
    ("run", "median", "failures"),
    [
        (ran(1, 4.0, 2.0, 3.0), 3.0, 0),
        (ran(1, 2.0, 4.0), 3.0, 0),
        (ran(1, 2.0, 3.0, math.inf), None, 1),
        (ran(1, unmeasured=2), None, 0),
        (ran(1, 2.0, unmeasured=1), 2.0, 0),
    ],
    ids=["odd", "even", "a boot failed", "nothing measured", "one of two measured"],
)
def test_a_run_with_a_failed_boot_or_without_a_value_breaks_the_line(
    run: RunPoint, median: float | None, failures: int
) -> None:
    (level,) = levels([run], Times(), join=False)
    assert (level.median, level.failed) == (median, failures)
    assert layers(what([], found=changed([run])))["line"][0]["y"] == median


def test_runs_of_one_commit_are_one_median_on_the_axis_of_commits() -> None:
    runs = [ran(0, 1.0, commit="a"), ran(1, 5.0, commit="b"), ran(2, 2.0, 3.0, commit="a"), ran(3, 4.0, commit="c")]
    x = axis("commit", runs)
    assert x == Commits(("a", "b", "c"))
    found = levels(runs, x, join=True)
    assert [(level.place, level.median, len(level.runs)) for level in found] == [
        (0.0, 2.0, 2),
        (1.0, 5.0, 1),
        (2.0, 4.0, 1),
    ]


def test_the_line_says_how_many_boots_it_is_of() -> None:
    (row,) = layers(what([], found=changed([ran(1, 2.0, math.inf, unmeasured=1)])))["line"]
    assert (row["median"], row["boots"], row["run"], row["commit"]) == (
        "none",
        "3 (1 failed, 1 unmeasured)",
        "r-1",
        "c0 (main)",
    )


# -- the x axis


def test_a_checkout_that_was_not_clean_stands_apart_from_its_commit() -> None:
    x = axis("commit", [point("1", 1, 2.0), point("2", 2, 2.0, dirty=True), point("3", 3, 2.0, commit=None)])
    assert x == Commits(("0123456789", "0123456789+", "no commit"))


def test_commits_are_text_in_the_axis_whatever_they_are() -> None:
    x = axis("commit", [point("1", 1, 2.0, commit="'];alert(1)//")])
    assert x.x(None).to_dict()["axis"]["labelExpr"] == '["\'];alert(1"][datum.value]'


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [
        ("2026-11-02T08:00:00Z", "2026-11-02T08:01:00Z", (MS, MS + 60000)),
        ("2026-11-02T09:00:00+01:00", "2026-11-02T08:01", (MS, MS + 60000)),
        ("2026-11-02T08:01:00Z", "2026-11-02T08:00:00Z", None),
        ("", "", None),
        ("soon", "2026-11-02", None),
        ("2026-11-02", "", None),
        ("0001-01-01T00:00:00+05:00", "2026-11-02", None),
        ("2026-11-02", "9999-12-31T23:59:59.999999", None),
    ],
)
def test_the_address_zooms_to_times(begin: str, end: str, found: Span | None) -> None:
    assert span(Times(), begin, end) == found


def test_a_place_and_its_word_are_the_same() -> None:
    assert Times().word(MS) == "2026-11-02T08:00:00Z"
    assert Times().read(Times().word(MS)) == MS
    commits = Commits(("a", "b", "c"))
    assert span(commits, "b", "c") == (1.0, 2.0)
    assert span(commits, "b", "gone") is None
    assert [commits.word(place) for place in (-0.4, 0.6, 9.0)] == ["a", "b", "c"]


# -- the y axis


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (0.0, 3.0, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]),
        (0.0, 0.07, [0.0, 0.02, 0.04, 0.06]),
        (-1.0, 1.0, [-1.0, -0.5, 0.0, 0.5, 1.0]),
        (0.0, 1e9, [0.0, 2e8, 4e8, 6e8, 8e8, 1e9]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, found: list[float]) -> None:
    assert ticks(low, high) == found


def test_a_bound_far_above_all_boots_does_not_squeeze_them() -> None:
    assert far(600.0, [2.0])
    assert not far(6.0, [2.0])
    assert not far(600.0, [])
    assert scaled(COLD, [2.0], [600.0], []).top < 3
    drawn = what([point("1", 1, 2.0)], [bound(600.0), bound(3.0)])
    assert [row["y"] for row in layers(drawn)["bounds"]] == [3.0]
    assert "bound cold_start.max <= 600 s (pass)" in described(drawn)


# -- rules


def test_bounds_are_rules_with_their_unit_and_verdict() -> None:
    found = layers(what([point("1", 1, 2.0)], [bound(4.0), bound(2.5, stat="p50", verdict="fail")]))
    assert [(row["y"], row["label"]) for row in found["bounds"]] == [
        (4.0, "cold_start.max <= 4.00 s (pass)"),
        (2.5, "cold_start.p50 <= 2.50 s (fail)"),
    ]
    assert found["bounds' labels"] == found["bounds"]


def test_a_change_point_has_its_size_commits_confidence_and_who_acknowledged_it() -> None:
    runs = [ran(n, 2.0, commit=f"{n}" * 12) for n in range(5)]
    one = Acknowledgement(
        "id", "s", "cell", "cold_start", "r-2", Place.of(runs[1], runs[2]), 0.5, "known", "me", "2026-12-01T00:00"
    )
    moved = (Difference("driver", "570", "580"),)
    points = [
        change(2, runs, low=1, high=3, environment=moved),
        change(4, runs, size=-0.2, regression=False, acknowledged=one),
    ]
    drawn = what([point(str(n), n, 2.0) for n in range(5)], found=changed(runs, *points))
    first, second = layers(drawn)["changes"]
    assert (first["at"], first["label"], first["commits"]) == (MS + 120000, "+50.0%", "1111111111..2222222222")
    assert (first["confidence"], first["direction"], first["acknowledged"]) == ("99.9%", "worse", "no")
    assert (first["before"], first["after"], first["environment"]) == ("2.00 s", "3.00 s", "driver 570 -> 580")
    assert (second["label"], second["direction"]) == ("-20.0% (acknowledged)", "better")
    assert second["acknowledged"] == "by me on 2026-12-01: known"
    assert [row["at"] for row in layers(drawn)["ranges"]][:2] == [MS + 60000, MS + 180000]
    assert (
        "change point +50.0% at 2026-11-02 08:02:00 UTC, commits 1111111111..2222222222, confidence 99.9%"
        in described(drawn)
    )


def test_a_move_of_the_environment_says_what_changed() -> None:
    runs = [ran(n, 2.0) for n in range(3)]
    boots = [point(str(n), n, 2.0) for n in range(3)]
    found = changed(runs, moved=[(1, Difference("versions.vllm", "0.25", "0.26"))])
    (row,) = layers(what(boots, found=found))["moves"]
    assert (row["at"], row["label"], row["changed"]) == (MS + 60000, "vllm 0.25 -> 0.26", "vllm 0.25 -> 0.26")


def test_many_moves_are_thinned_out_other_machines_first() -> None:
    runs = [ran(n, 2.0) for n in range(61)]
    host, driver = Difference("hostname", "a", "b"), Difference("driver", "1", "2")
    found = changed(runs, moved=[(n, driver if n % 20 == 0 else host) for n in range(1, 61)])
    kept, more = trend_rules.kept_moves(found, Times(), None)
    assert [place for place, _ in kept] == [MS + n * 60000 for n in (20, 40, 60)]
    assert more == 57
    few = changed(runs, moved=[(1, host), (2, driver)])
    assert len(trend_rules.kept_moves(few, Times(), None)[0]) == 2
    many = changed(runs, moved=[(n, driver) for n in range(1, 61)])
    assert len(trend_rules.kept_moves(many, Times(), None)[0]) == trend_rules.MOST_MOVES


def test_labels_of_moves_do_not_cover_each_other() -> None:
    runs = [ran(n, 2.0) for n in range(101)]
    boots = [point(str(n), n, 2.0) for n in range(101)]
    found = changed(runs, moved=[(n, Difference("driver", "1", "2")) for n in (10, 11, 12, 50)])
    assert [bool(row["label"]) for row in layers(what(boots, found=found))["moves"]] == [True, False, False, True]


# -- the strip, and small multiples


def test_the_strip_has_every_median_and_shows_what_is_zoomed_to() -> None:
    runs = [ran(0, 1.0), ran(1, math.inf), ran(2, 3.0)]
    drawn = strip(what([], found=changed(runs)), (MS, MS + 60000)).to_dict()
    assert [row["y"] for row in rows_of(drawn, drawn["data"])] == [1.0, None, 3.0]
    (param,) = drawn["params"]
    assert (param["name"], param["select"]["encodings"], param["value"]) == ("brush", ["x"], {"x": [MS, MS + 60000]})
    assert "value" not in strip(what([], found=changed(runs)), None).to_dict()["params"][0]


def series(id: str, engine: str, gpu: str = "H200") -> Series:
    return Series(id, engine, id, id, "m", "restart", "t", "hw", gpu, "main", 1, 0, 0, START, START, "r")


def test_panels_share_their_axes_and_hold_every_series_once() -> None:
    everything = [series("1", "vllm"), series("2", "sglang"), series("3", "vllm", "")]
    runs = {"1": [ran(0, 1.0), ran(1, 2.0)], "2": [ran(0, 8.0)], "3": []}
    found = trend_panels.panels(everything, runs, "engine", COLD, Times())
    assert [(panel.name, [item.id for item in panel.series]) for panel in found] == [
        ("sglang", ["2"]),
        ("vllm", ["1", "3"]),
    ]
    specs = [panel.chart.to_dict() for panel in found]
    assert specs[0]["encoding"]["y"]["scale"] == specs[1]["encoding"]["y"]["scale"]
    assert specs[0]["encoding"]["x"]["scale"] == specs[1]["encoding"]["x"]["scale"]
    assert [(row["series"], row["y"]) for row in rows_of(specs[1], specs[1]["data"])] == [("1", 1.0), ("1", 2.0)]
    assert "newest median 2.00 s" in specs[1]["description"]
    assert "newest median none" in specs[1]["description"]
    by_gpu = trend_panels.panels(everything, runs, "gpu", COLD, Times())
    assert [panel.name for panel in by_gpu] == ["H200", "no GPU"]


def test_a_level_is_plain_data() -> None:
    assert levels([ran(1, 2.0)], Times(), join=False) == [Level(MS + 60000, 2.0, (ran(1, 2.0),), 1, 0, 0)]


def test_of_very_many_boots_the_line_is_above_them() -> None:
    boots = [point(str(n), n, 2.0) for n in range(301)]
    marks = [one["mark"]["type"] for one in trend(what(boots)).to_dict()["layer"]]
    assert marks[-2:] == ["point", "line"]
    assert [one["mark"]["type"] for one in trend(what(boots[:300])).to_dict()["layer"]][-2:] == ["line", "point"]
