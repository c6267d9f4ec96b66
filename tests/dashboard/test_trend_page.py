"""The trend as Streamlit runs it: on boots of llama.cpp, on made-up runs, and on what a hostile store holds."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pyarrow.ipc
import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from pytest_coldstart import units
from pytest_coldstart.cli import main
from pytest_coldstart.dashboard import app
from pytest_coldstart.history.acknowledge import FILE_NAME, read
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import boot, failed, run

Opens = Callable[..., AppTest]


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Opens:
    """Opens the trend of a store with the choices of an address."""

    def opened(store: Path, *words: str, **query: str) -> AppTest:
        monkeypatch.setattr("sys.argv", ["app.py", "--store", str(store), *words])
        page = AppTest.from_file(str(app()), default_timeout=120)
        page.run()
        page.query_params.update(query)
        page.switch_page("app_pages/trend.py").run()
        assert not page.exception
        return page

    return opened


def asked(store: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(store / "coldstart.duckdb"), read_only=True) as con:
        return con.execute(sql).fetchall()


def table(page: AppTest, number: int = -1) -> list[dict[str, str]]:
    """The boots stand last, change points before them."""
    found: list[dict[str, str]] = page.dataframe[number].value.to_dict("records")
    return found


def drawn(page: AppTest) -> list[dict[str, Any]]:
    """The rows of every layer of the first chart; Streamlit sends them beside the spec."""
    rows: list[dict[str, Any]] = []
    for part in page.get("vega_lite_chart")[0].proto.datasets:
        rows += pyarrow.ipc.open_stream(part.data.data).read_all().to_pylist()
    return rows


def spec(page: AppTest, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.get("vega_lite_chart")[number].proto.spec)
    return found


def said(page: AppTest) -> str:
    """Captions without what keeps Markdown from being read."""
    return " ".join(item.value for item in page.caption).replace("\\", "")


def in_address(page: AppTest, key: str) -> str:
    found = page.query_params[key]
    return found if isinstance(found, str) else found[0]


# -- real boots


def test_every_boot_is_drawn_with_its_bound_in_the_right_unit(booted: Path, opens: Opens) -> None:
    ((id,),) = asked(booted, "SELECT DISTINCT series FROM boot WHERE tier = 'restart'")
    page = opens(booted, series=id, metric="warm_first_token")
    assert (page.selectbox(key="series").value, page.selectbox(key="metric").value) == (id, "warm_first_token")
    stored = asked(
        booted,
        f"SELECT b.boot_id, m.value FROM boot b JOIN metric m USING (boot_id) WHERE series = '{id}' AND name = 'warm_first_token'",
    )
    rows = {row["boot"]: row for row in table(page)}
    assert set(rows) == {name for name, _ in stored} == {row["boot"] for row in drawn(page) if "boot" in row}
    for name, value in stored:
        shown = rows[name]["warm_first_token"]
        assert shown == units.show(value, "s") if value is not None else shown.startswith("unmeasured: ")
        assert rows[name]["open"] == f"boot?boot={name}"
    # Boots take far longer than the bound of 1 ms, which is on the axis then.
    assert "warm_first_token.max <= 1 ms (fail)" in [row.get("label") for row in drawn(page)]
    assert spec(page)["description"].startswith(f"warm_first_token of {len(stored)} boots")


def test_a_bound_that_no_boot_comes_near_is_said(booted: Path, opens: Opens) -> None:
    ((id,),) = asked(booted, "SELECT DISTINCT series FROM boot WHERE tier = 'restart'")
    page = opens(booted, series=id, metric="cold_start")
    assert "Above the axis: cold_start.max <= 600 s (pass)." in said(page)


def test_a_failed_boot_is_drawn_with_the_engines_end(booted: Path, opens: Opens) -> None:
    ((id, name),) = asked(booted, "SELECT series, boot_id FROM boot WHERE outcome = 'failed'")
    page = opens(booted, series=id, metric="cold_start")
    (row,) = table(page)
    assert row["boot"] == name
    assert row["cold_start"].startswith("failed: ")
    assert row["outcome"].startswith("failed (exit: ")
    assert [(one["state"], one["value"]) for one in drawn(page) if "boot" in one] == [("failed", row["cold_start"])]


def test_what_is_chosen_stands_in_the_address(booted: Path, opens: Opens) -> None:
    page = opens(booted)
    for key, value in {"metric": "ready", "by": "commit", "newest": "100", "facet": "tier"}.items():
        page.selectbox(key=key).set_value(value).run()
        assert not page.exception
        assert in_address(page, key) == value
    assert len(page.get("vega_lite_chart")) == 2
    assert {row["tier"] for row in table(page)} == {"restart", "scale_out"}


def test_a_metric_that_no_boot_has_is_marked(booted: Path, opens: Opens) -> None:
    page = opens(booted)
    options = page.selectbox(key="metric").options
    assert "cold_start" in options
    assert "allocator_fragmentation (no value in the newest 500 boots)" in options
    page.selectbox(key="metric").set_value("allocator_fragmentation").run()
    assert not page.exception
    assert {row["allocator_fragmentation"].split(":")[0] for row in table(page)} <= {"unmeasured", "failed"}


def test_a_link_that_no_longer_holds_says_so(booted: Path, opens: Opens) -> None:
    page = opens(booted, series="gone", metric="nonsense")
    warned = [item.value.replace("\\", "") for item in page.warning]
    assert warned == [
        "The link asks for the metric 'nonsense', which is not in this store.",
        "The link asks for the series 'gone', which is not in this store.",
    ]
    assert page.selectbox(key="metric").value == "cold_start"


def test_a_filter_leads_to_a_series_that_is_left(booted: Path, opens: Opens) -> None:
    series = dict(asked(booted, "SELECT DISTINCT tier, series FROM boot"))
    page = opens(booted, series=series["restart"])
    page.multiselect(key="tier").set_value(["scale_out"]).run()
    assert not page.exception
    assert not page.warning
    assert page.selectbox(key="series").value == series["scale_out"]
    page.multiselect(key="model").set_value(["cut.gguf"]).run()
    page.multiselect(key="tier").set_value(["restart"]).run()
    assert not page.exception
    assert page.info[0].value == "None of 2 series is left; clear a filter."


# -- made-up runs


@pytest.fixture
def changed(home: Home) -> Path:
    """2 s, and 3 s from the tenth run on, with another driver; the last run fails, the one before is of a gate."""
    pytest.importorskip("ruptures", reason="change points need the extra gate")
    for n in range(20):
        head = {"git_commit": f"{n:040d}", "git_dirty": False, "driver": "570" if n < 10 else "580"}
        run(home, f"r-{n:02d}", [boot(f"b-{n:02d}", n, (2.0 if n < 10 else 3.0) + 0.002 * (n % 3))], [], **head)
    run(home, "r-20", [boot("b-20", 20, 9.0)], [], gate={"gate": "g", "side": "head"}, git_branch="feature")
    run(home, "r-21", [failed("b-21", 21)], [])
    return home.root


def test_a_change_point_is_drawn_and_listed_with_the_command_that_acknowledges_it(changed: Path, opens: Opens) -> None:
    page = opens(changed)
    (row,) = table(page, 0)
    assert row["commits"] == "0000000000..0000000000"
    assert (row["since"], row["size"], row["direction"]) == ("2026-11-02 08:10:00 UTC", "+50.0%", "worse")
    assert (row["environment"], row["acknowledged"]) == ("driver 570 -> 580", "no")
    assert "+50.0%" in [one.get("label") for one in drawn(page)]
    assert "driver 570 -> 580" in [one.get("label") for one in drawn(page)]
    words = shlex.split(page.code[0].value)
    assert words[:2] == ["coldstart", "ack"]
    assert main(words[1:]) == 0
    page.run()
    (row,) = table(page, 0)
    assert row["acknowledged"].endswith(": WHY IT MAY STAY")
    assert not page.code
    assert "+50.0% (acknowledged)" in [one.get("label") for one in drawn(page)]


def test_boots_of_gates_are_left_out_and_that_is_said(changed: Path, opens: Opens) -> None:
    page = opens(changed)
    assert "b-20" not in [row["boot"] for row in table(page)]
    assert "boots of coldstart gate: 1" in said(page)
    page.toggle(key="gates").set_value(True).run()
    assert [row["gate"] for row in table(page) if row["boot"] == "b-20"] == ["head"]
    assert "Left out" not in said(page)
    assert page.dataframe[0].value["size"].tolist() == ["+50.0%"]  # the search is the same


def test_a_failed_run_breaks_the_line(changed: Path, opens: Opens) -> None:
    rows = {row["run"]: row["y"] for row in drawn(opens(changed)) if "median" in row}
    assert rows["r-19"] == pytest.approx(3.002)
    assert rows["r-21"] is None


def test_the_cap_is_said_where_it_bites(home: Home, opens: Opens) -> None:
    run(home, "r-1", [boot(f"{n:03d}", n // 10, 2.0) for n in range(102)], [])
    page = opens(home.root, newest="100")
    assert len(table(page)) == 100
    assert "The newest 100 of 102 boots are shown." in said(page)


def test_the_zoom_stands_in_the_address(changed: Path, opens: Opens) -> None:
    page = opens(changed, **{"from": "2026-11-02T08:03Z", "to": "2026-11-02T08:05Z"})
    assert [row["boot"] for row in table(page)] == ["b-05", "b-04", "b-03"]
    assert (page.text_input(key="from").value, page.text_input(key="to").value) == (
        "2026-11-02T08:03Z",
        "2026-11-02T08:05Z",
    )
    page.text_input(key="to").set_value("whenever").run()
    assert "Not zoomed" in said(page)
    assert in_address(page, "to") == "whenever"
    page.text_input(key="from").set_value("")
    page.text_input(key="to").set_value("").run()
    assert len(table(page)) == 21
    assert not {"from", "to"} & set(page.query_params)


def test_a_branch_without_a_boot_to_show_says_what_to_do(changed: Path, opens: Opens) -> None:
    page = opens(changed, branch="feature")
    assert page.info[0].value == "No boot of this series is left; choose another branch, or show the boots of gates."
    page.toggle(key="gates").set_value(True).run()
    assert [row["boot"] for row in table(page)] == ["b-20"]


# -- acknowledging


def everything(store: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


def test_without_the_flag_nothing_can_be_written(changed: Path, opens: Opens) -> None:
    before = everything(changed)
    page = opens(changed)
    assert [button.label for button in page.button] == []
    assert [item.label for item in page.text_input] == ["from", "to"]
    page.selectbox(key="by").set_value("commit").run()
    page.toggle(key="gates").set_value(True).run()
    assert everything(changed) == before


def test_a_form_that_was_drawn_before_writes_nothing_without_the_flag(
    changed: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opens(changed, "--acknowledge")
    before = everything(changed)
    reason, author = page.text_input[2:]
    reason.set_value("known")
    author.set_value("me")
    monkeypatch.setattr("sys.argv", ["app.py", "--store", str(changed)])
    page.button[0].click().run()
    assert not page.exception
    assert everything(changed) == before


def test_with_the_flag_a_change_point_can_be_acknowledged_and_nothing_else_is_written(
    changed: Path, opens: Opens
) -> None:
    page = opens(changed, "--acknowledge")
    before = everything(changed)
    assert page.button[0].label == "Acknowledge"
    page.button[0].click().run()
    assert page.error[0].value == "an acknowledgement needs a reason"
    reason, author = page.text_input[2:]
    reason.set_value("a new driver, and <b>not</b> ours")
    author.set_value("me")
    page.button[0].click().run()
    assert not page.exception
    after = everything(changed)
    path = changed / FILE_NAME
    assert after.pop(str(path))
    assert after == before
    (one,) = read(path).given
    assert (one.metric, one.run, one.reason, one.author) == (
        "cold_start",
        "r-10",
        "a new driver, and <b>not</b> ours",
        "me",
    )
    assert one.place.runs == ("r-09", "r-10")
    assert table(page, 0)[0]["acknowledged"].startswith("by me on ")
    assert not page.button


def test_a_store_that_cannot_be_written_is_said(changed: Path, opens: Opens) -> None:
    (changed / FILE_NAME).mkdir()
    page = opens(changed, "--acknowledge")
    assert any("could not read" in item.value for item in page.text)
    reason, author = page.text_input[2:]
    reason.set_value("known")
    author.set_value("me")
    page.button[0].click().run()
    assert not page.exception
    assert "could not write" in page.error[0].value.replace("\\", "")


# -- what a store may hold


def test_an_empty_store_says_what_to_run(home: Home, opens: Opens) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    with duckdb.connect(str(home.database)) as con:
        con.execute("DELETE FROM boot").fetchall()
    page = opens(home.root)
    assert page.text[0].value == "The store holds no boots yet."


def test_markup_of_the_store_is_text(home: Home, opens: Opens) -> None:
    evil = "<img src=x onerror=alert(1)> [x](javascript:alert(1)) **b** :red[r]"
    run(
        home,
        "r-1",
        [boot("1", 1, 2.0, cell_id=evil, engine=evil, model={"name": evil, "bytes": 1}, nodeid=evil)],
        [],
        git_branch=evil,
        git_commit="'];alert(1)",
        gpu=evil,
    )
    for query in ({}, {"by": "commit"}, {"facet": "engine"}):
        page = opens(home.root, **query)
        marked = [item.value for item in [*page.markdown, *page.caption, *page.warning, *page.info]]
        assert not [item for item in marked if "<img" in item.replace("\\<", "")]
        assert page.get("vega_lite_chart")
