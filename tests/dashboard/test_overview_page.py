"""The overview as Streamlit runs it, on a store that real boots have made and on one that is an attack."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from pytest_coldstart import units
from pytest_coldstart.store.home import Home
from tests.dashboard import hostile
from tests.dashboard.conftest import boot, run


@pytest.fixture
def shown(page: AppTest, booted: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The overview of the store with real boots."""
    monkeypatch.setenv("COLDSTART_STORE", str(booted))
    page.run()
    assert not page.exception
    return page


def ask(store: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(store / "coldstart.duckdb"), read_only=True) as con:
        return con.execute(sql).fetchall()


def table(page: AppTest, number: int = 0) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = page.dataframe[number].value.to_dict("records")
    return rows


def words(page: AppTest) -> str:
    """The Markdown of the page without its escapes."""
    items = [*page.markdown, *page.caption, *page.error, *page.warning, *page.success]
    return re.sub(r"\\(.)", r"\1", "\n".join(item.value for item in items))


def links(page: AppTest) -> list[tuple[str, str, str]]:
    protos = [item.proto for item in page.get("page_link")]
    return [(item.label, item.page, item.query_string) for item in protos]


def test_the_answer_stands_at_the_top(shown: AppTest) -> None:
    assert [item.value.replace("\\", "") for item in shown.error] == ["2 of 2 series break an SLO."]


def test_each_series_has_a_row_and_no_failed_boot_is_hidden(shown: AppTest, booted: Path) -> None:
    rows = {row["tier"]: row for row in table(shown)}
    assert set(rows) == {"restart", "scale_out"}
    ((value, bound),) = ask(booted, "SELECT value, bound FROM verdict WHERE tier = 'restart' AND metric = 'cold_start'")
    assert bound == 600.0
    assert rows["restart"]["cold_start"] == f"{units.show(value, 's')}, pass"
    assert (rows["restart"]["verdict"], rows["scale_out"]["verdict"]) == ("fail", "fail")
    assert rows["scale_out"]["cold_start"] == "failed, fail"
    assert rows["scale_out"]["boots"] == "1 (1 failed)"
    ((boots,),) = ask(booted, "SELECT count(*) FROM boot WHERE tier = 'restart'")
    assert rows["restart"]["boots"] == str(boots)
    ((why,),) = ask(booted, "SELECT failure_message FROM boot WHERE outcome = 'failed'")
    # On a page white space is one blank; the engine's last line, where the message has one, holds more of it.
    assert f"Failed: {' '.join(why.split())[:80]}" in words(shown)


def test_a_tile_has_the_three_slos_with_value_bound_and_verdict(shown: AppTest, booted: Path) -> None:
    ((value,),) = ask(booted, "SELECT value FROM verdict WHERE tier = 'restart' AND metric = 'warm_first_token'")
    (tile,) = (item.value for item in shown.markdown if "warm" in item.value and "600 s" in item.value)
    lines = tile.replace("\\", "").split("\n")
    assert len(lines) == 3
    expected = [
        "cold_start",
        f"warm_first_token **{units.show(value, 's')}** (max <= 1 ms)",
        "fragmentation (max <= 5 %)",
    ]
    assert [begin in line for begin, line in zip(expected, lines, strict=True)] == [True] * 3
    assert [line.rpartition(": ")[2].rstrip() for line in lines] == ["pass]]", "fail]]", "n/a]]"]


def test_each_slo_is_listed_with_the_reason_where_it_has_no_value(shown: AppTest, booted: Path) -> None:
    rows = [row for row in table(shown, 1) if "test_boot" in row["test"]]
    found = {row["SLO"]: (row["verdict"], row["rounds"], row["bound from"]) for row in rows}
    assert found["cold_start.max <= 600 s"] == ("pass", "2", "marker")
    assert found["warm_first_token.max <= 1 ms"] == ("fail", "2", "marker")
    assert found["fragmentation.max <= 5 %"] == ("n/a", "2", "default")
    reasons = {row["reason"] for row in rows if row["verdict"] == "n/a"}
    assert reasons == {reason for (reason,) in ask(booted, "SELECT reason FROM verdict WHERE verdict = 'n/a'")}


def test_links_lead_to_the_trend_of_what_is_broken_and_to_the_newest_boot(shown: AppTest, booted: Path) -> None:
    ((id, newest),) = ask(
        booted, "SELECT series, arg_max(boot_id, started_at) FROM boot WHERE tier = 'restart' GROUP BY series"
    )
    assert ("Trend", "trend", f"series={id}&metric=warm_first_token") in links(shown)
    assert ("Newest boot", "boot", f"boot={newest}") in links(shown)
    (row,) = (row for row in table(shown) if row["tier"] == "restart")
    assert (row["trend"], row["newest boot"]) == (f"trend?series={id}&metric=warm_first_token", f"boot?boot={newest}")


def test_each_series_has_a_sparkline(shown: AppTest) -> None:
    assert len(shown.get("vega_lite_chart")) == 2


def test_filters_narrow_the_series(shown: AppTest) -> None:
    assert [item.label for item in shown.multiselect] == ["engine", "tier", "hardware class", "model"]
    shown.multiselect[1].set_value(["restart"]).run()
    assert [row["tier"] for row in table(shown)] == ["restart"]
    shown.multiselect[3].set_value(["cut.gguf"]).run()
    assert not shown.dataframe
    assert shown.info[0].value == "None of 2 series is left; clear a filter."


def test_a_link_can_hold_a_filter(page: AppTest, booted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSTART_STORE", str(booted))
    page.query_params["tier"] = ["scale_out"]
    page.run()
    assert not page.exception
    assert [row["tier"] for row in table(page)] == ["scale_out"]


def test_a_branch_can_be_chosen_and_stands_in_the_address(
    page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    run(home, "r-2", [boot("2", 2, 2.0, cell_digest="b")], [], git_branch="topic")
    monkeypatch.setenv("COLDSTART_STORE", str(home.root))
    page.query_params["branch"] = "topic"
    page.run()
    assert not page.exception
    assert [row["branch"] for row in table(page)] == ["topic"]
    assert "1 series have no run on this branch" in words(page)
    page.selectbox[0].set_value("every branch").run()
    assert {row["branch"] for row in table(page)} == {"topic", "main"}


def test_the_tiles_are_the_worst_series_and_the_table_has_all(
    page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(home, "r-1", [boot(str(n), n % 60, 2.0, cell_digest=f"c{n}") for n in range(26)], [])
    monkeypatch.setenv("COLDSTART_STORE", str(home.root))
    page.run()
    assert not page.exception
    assert len(page.get("vega_lite_chart")) == 24
    assert len(table(page)) == 26
    assert "The tiles are the 24 worst of 26 series" in words(page)


def test_an_attack_is_shown_as_text(page: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = hostile.store(tmp_path)
    monkeypatch.setenv("COLDSTART_STORE", str(made.root))
    page.run()
    assert not page.exception
    for item in [*page.markdown, *page.caption, *page.error]:
        assert not re.search(r"(?<!\\)(<script|<img|\]\(javascript|:red\[owned)", item.value)


def test_a_filter_that_is_not_here_any_more_is_named(
    page: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home.at(tmp_path / "store")
    home.prepare()
    run(home, "r-1", [boot("b-1", 0, 2.0)], [])
    monkeypatch.setenv("COLDSTART_STORE", str(home.root))
    page.query_params["engine"] = ["llamacpp", "<b>gone"]
    page.run()
    assert not page.exception
    assert "The link asks for the engine '<b>gone', which is not here and is left out." in words(page)
    assert page.multiselect[0].value == ["llamacpp"]
