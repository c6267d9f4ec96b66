"""The pages as Streamlit runs them, on a store that real boots of llama.cpp have made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pyarrow.ipc
import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from pytest_coldstart import units
from pytest_coldstart.dashboard import app
from pytest_coldstart.store.database import connect, migrate, migrations
from pytest_coldstart.store.home import Home

TREND = "app_pages/trend.py"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setattr("sys.argv", ["app.py"])
    return AppTest.from_file(str(app()), default_timeout=60)


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
    return page.dataframe[number].value.to_dict("records")


def trend(page: AppTest, **query: str) -> AppTest:
    page.query_params.update(query)
    page.switch_page(TREND).run()
    assert not page.exception
    return page


def drawn(page: AppTest) -> list[dict[str, Any]]:
    """The rows of every layer of the chart; Streamlit sends them beside the spec."""
    rows: list[dict[str, Any]] = []
    for part in page.get("vega_lite_chart")[0].proto.datasets:
        rows += pyarrow.ipc.open_stream(part.data.data).read_all().to_pylist()
    return rows


# -- overview


def test_the_overview_shows_each_series_and_hides_no_failed_boot(shown: AppTest, booted: Path) -> None:
    rows = {row["tier"]: row for row in table(shown)}
    assert set(rows) == {"restart", "scale_out"}
    value = ask(
        booted,
        "SELECT value FROM metric JOIN boot USING (boot_id) WHERE name = 'cold_start' AND role = 'measured' AND outcome = 'ok' ORDER BY started_at",
    )
    assert rows["restart"]["cold_start"] == units.show(value[-1][0], "s")
    assert (rows["restart"]["verdict"], rows["scale_out"]["verdict"]) == ("fail", "fail")
    (why,) = ask(booted, "SELECT failure_message FROM boot WHERE outcome = 'failed'")[0]
    assert rows["scale_out"]["cold_start"] == rows["scale_out"]["warm_first_token"] == f"failed: {why}"
    assert rows["scale_out"]["boots"] == "1 (1 failed)"
    boots = ask(booted, "SELECT count(*) FROM boot WHERE tier = 'restart'")[0][0]
    assert rows["restart"]["boots"] == str(boots)
    assert shown.text[0].value == "2 series: 2 fail"


def test_the_overview_lists_each_slo_with_its_value_or_the_reason(shown: AppTest, booted: Path) -> None:
    rows = [row for row in table(shown, 1) if "test_boot" in row["test"]]
    words = {row["SLO"]: (row["verdict"], row["rounds"], row["bound from"]) for row in rows}
    assert words["cold_start.max <= 600 s"] == ("pass", "2", "marker")
    assert words["warm_first_token.max <= 1 ms"] == ("fail", "2", "marker")
    assert words["fragmentation.max <= 5 %"] == ("n/a", "2", "default")
    reason = ask(booted, "SELECT DISTINCT reason FROM verdict WHERE verdict = 'n/a'")
    assert [(row["value"],) for row in rows if row["verdict"] == "n/a"] == reason


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


def test_a_link_leads_from_a_series_to_the_trend_of_what_is_broken(shown: AppTest, booted: Path) -> None:
    row = next(row for row in table(shown) if row["tier"] == "restart")
    (id,) = ask(booted, "SELECT DISTINCT series FROM boot WHERE tier = 'restart'")[0]
    assert row["trend"] == f"trend?series={id}&metric=warm_first_token"


# -- trend


def test_a_trend_has_every_boot_with_its_bound_in_the_right_unit(shown: AppTest, booted: Path) -> None:
    (id,) = ask(booted, "SELECT DISTINCT series FROM boot WHERE tier = 'restart'")[0]
    page = trend(shown, series=id, metric="warm_first_token")
    assert [item.value for item in page.selectbox] == [id, "warm_first_token"]
    stored = ask(
        booted,
        f"SELECT b.boot_id, m.value FROM boot b JOIN metric m USING (boot_id) WHERE series = '{id}' AND name = 'warm_first_token'",
    )
    rows = {row["boot"]: row["warm_first_token"] for row in table(page)}
    assert set(rows) == {boot for boot, _ in stored}
    for boot, value in stored:
        assert rows[boot] == units.show(value, "s") if value is not None else rows[boot].startswith("unmeasured: ")
    rows = drawn(page)
    assert {row["boot"] for row in rows if "boot" in row} == {boot for boot, _ in stored}
    assert "warm_first_token.max <= 1 ms (fail)" in [row.get("label") for row in rows]


def test_a_failed_boot_is_on_its_trend_with_the_engines_end(shown: AppTest, booted: Path) -> None:
    ((id, boot),) = ask(booted, "SELECT series, boot_id FROM boot WHERE outcome = 'failed'")
    page = trend(shown, series=id, metric="cold_start")
    (row,) = table(page)
    assert row["boot"] == boot
    assert row["cold_start"].startswith("failed: ")
    assert row["outcome"].startswith("failed (exit: ")
    assert [(one["state"], one["value"]) for one in drawn(page) if "boot" in one] == [("failed", row["cold_start"])]


def test_what_is_chosen_stands_in_the_address(shown: AppTest, booted: Path) -> None:
    page = trend(shown)
    first = page.selectbox[0].value
    assert page.query_params["series"] in (first, [first])
    page.selectbox[1].set_value("fragmentation").run()
    assert not page.exception
    assert page.query_params["metric"] in ("fragmentation", ["fragmentation"])
    assert {row["fragmentation"].split(":")[0] for row in table(page)} <= {"unmeasured", "failed"}


def test_a_link_that_no_longer_holds_says_so(shown: AppTest) -> None:
    page = trend(shown, series="gone", metric="nonsense")
    assert [item.value for item in page.warning] == [
        "The link asks for the series 'gone', which is not in this store.",
        "The link asks for the metric 'nonsense', which is not in this store.",
    ]
    assert page.selectbox[1].value == "cold_start"


# -- stores that cannot be shown


@pytest.mark.parametrize("where", ["overview", "trend"])
def test_no_store_is_a_message_on_each_page(
    page: AppTest, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSTART_STORE", str(tmp_path / "none"))
    page.run()
    if where == "trend":
        page.switch_page(TREND).run()
    assert not page.exception
    assert [item.value for item in page.text] == ["There is no store here.", str(tmp_path / "none")]
    assert page.code[0].value == f"pytest --coldstart --coldstart-store {tmp_path / 'none'}"


def test_an_empty_store_is_shown_once_it_has_boots(
    page: AppTest, booted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home.at(tmp_path / "store")
    home.prepare()
    with connect(home.database) as con:
        migrate(con)
    monkeypatch.setattr("sys.argv", ["app.py", "--store", str(home.root)])
    page.run()
    assert page.text[0].value == "The store holds no boots yet."
    home.database.write_bytes((booted / "coldstart.duckdb").read_bytes())
    page.button[0].click().run()
    assert not page.exception
    assert page.text[0].value == "2 series: 2 fail"


def test_a_newer_store_is_a_message(page: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home.at(tmp_path / "s.duckdb")
    with connect(home.database) as con:
        migrate(con)
        con.execute("INSERT INTO schema_version VALUES (?, now()::TIMESTAMP)", [max(migrations()) + 1]).fetchall()
    monkeypatch.setenv("COLDSTART_STORE", str(home.database))
    page.run()
    assert not page.exception
    assert "newer than" in page.text[0].value
    assert page.code[0].value.startswith("pip install --upgrade")
