"""The page Compare as Streamlit runs it: on real boots of llama.cpp, on known values, and where there is nothing to compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

import duckdb
from streamlit.testing.v1 import AppTest

from pytest_coldstart.store.database import connect, migrate
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from tests.dashboard.test_compare import FAST, SLOW, B, stored, times
from tests.gate import made

COMPARE = "app_pages/compare.py"


def shown(page: AppTest, store: Path, monkeypatch: pytest.MonkeyPatch, **query: Any) -> AppTest:
    monkeypatch.setenv("COLDSTART_STORE", str(store))
    page.query_params.update(query)
    page.switch_page(COMPARE).run()
    assert not page.exception
    return page


def ask(store: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(store / "coldstart.duckdb"), read_only=True) as con:
        return con.execute(sql).fetchall()


def words(page: AppTest) -> str:
    parts = (page.text, page.markdown, page.caption, page.info, page.warning, page.error, page.code)
    return "\n".join(str(item.value) for part in parts for item in part)


def metrics(page: AppTest) -> dict[str, dict[str, str]]:
    rows = next(frame.value.to_dict("records") for frame in page.dataframe if "ratio" in frame.value)
    return {row["metric"]: row for row in rows}


@pytest.fixture
def two(home: Home) -> Home:
    return stored(home, {"r-1": times(1, FAST), "r-2": times(101, SLOW)}, r2={"git_commit": B, "kernel": "6.9.1"})


def test_two_real_boots_of_one_cell_stand_beside_each_other(
    page: AppTest, booted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ask(booted, "SELECT boot_id FROM boot WHERE tier = 'restart' AND role = 'measured' ORDER BY started_at")
    base, head = (row[0] for row in found)
    shown(page, booted, monkeypatch, base=base[:-2], head=head[:-2])
    assert [item.value for item in page.selectbox][:1] == ["boots"]
    values = dict(ask(booted, "SELECT boot_id, value FROM metric WHERE name = 'cold_start'"))
    assert metrics(page)["cold_start"]["ratio"] == f"x {values[head] / values[base]:.3g}"
    assert metrics(page)["cold_start"]["outcome"] == "inconclusive"
    text = words(page)
    assert f"base: boot {base}, 1 boot that counts" in text
    assert "not interleaved" in text
    assert "One boot on a side" in text
    assert "the changes add up" in text
    assert len(page.get("vega_lite_chart")) == 2


def test_without_an_address_the_newest_boot_is_compared_with_the_one_before(
    page: AppTest, booted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(page, booted, monkeypatch)
    assert page.query_params["kind"] in ("boots", ["boots"])
    assert page.query_params["base"] != page.query_params["head"]


def test_a_failed_boot_beside_one_that_did_not(page: AppTest, booted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((bad,),) = ask(booted, "SELECT boot_id FROM boot WHERE outcome = 'failed'")
    (good, *_) = ask(booted, "SELECT boot_id FROM boot WHERE tier = 'restart' AND role = 'measured' ORDER BY 1")
    shown(page, booted, monkeypatch, base=good[0], head=bad)
    text = words(page)
    assert "not judged" in text
    assert "tiers are never mixed" in text
    assert "every boot of the head failed" in text
    assert metrics(page)["cold_start"]["head"] == "failed"


def test_two_runs_have_the_outcome_and_the_command_of_the_gate(
    page: AppTest, two: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(page, two.root, monkeypatch, kind="runs", base="r-1", head="r-2")
    row = metrics(page)["cold_start"]
    assert (row["outcome"], row["moved"], row["n"], row["base"], row["head"]) == (
        *("regressed", "worse", "5 against 5"),
        *("2.20 s", "3.20 s"),
    )
    assert page.code[0].value == f"coldstart gate --base run:r-1 --head run:r-2 --store {two.root}"
    assert next(item.value for item in page.markdown) == "**regressed**"
    assert {"what": "kernel", "base": "6.8.0", "head": "6.9.1"} in [
        row for frame in page.dataframe for row in frame.value.to_dict("records")
    ]


def test_sides_can_be_swapped(page: AppTest, two: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    shown(page, two.root, monkeypatch, kind="runs", base="r-1", head="r-2")
    next(button for button in page.button if button.label == "Swap base and head").click().run()
    assert not page.exception
    assert metrics(page)["cold_start"]["outcome"] == "improved"
    assert page.query_params["base"] in ("r-2", ["r-2"])


def test_another_kind_has_sides_of_its_own(page: AppTest, two: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    shown(page, two.root, monkeypatch, kind="runs", base="r-1", head="r-2")
    page.selectbox[0].set_value("commits").run()
    assert not page.exception
    assert not page.error
    assert page.query_params["base"] in ("a" * 40, ["a" * 40])
    assert metrics(page)["cold_start"]["outcome"] == "regressed"


def test_several_cells_are_listed_and_one_is_chosen(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"cell_id": "long", "options": {"ctx": 1024}}
    runs = {
        "r-1": times(1, FAST) + times(51, FAST, **other),
        "r-2": times(101, FAST) + times(151, SLOW, **other),
    }
    stored(home, runs)
    shown(page, home.root, monkeypatch, kind="runs", base="r-1", head="r-2")
    assert {row["cell"]: row["outcome"] for row in page.dataframe[0].value.to_dict("records")} == {
        "llamacpp tiny-restart": "same",
        "llamacpp long": "regressed",
    }
    cell = next(box for box in page.selectbox if box.key == "cell")
    assert cell.value == made.boot(1, **other).cell_digest  # the worst first
    cell.set_value(made.boot(1).cell_digest).run()
    assert metrics(page)["cold_start"]["outcome"] == "same"


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        ("nope", "r-2", "the store has no run 'nope'"),
        ("r-", "r-2", "the ids of several begin with 'r-'"),
        ("r-1", "r-1", "nothing is compared with itself"),
    ],
)
def test_sides_that_cannot_be_compared_say_why(
    page: AppTest, two: Home, monkeypatch: pytest.MonkeyPatch, base: str, head: str, said: str
) -> None:
    shown(page, two.root, monkeypatch, kind="runs", base=base, head=head)
    assert said in "\n".join(item.value.replace("\\", "") for item in page.error)
    assert not page.dataframe


def test_nothing_in_common_says_what_differs_and_how_to_allow_it(
    page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(home, {"r-1": times(1, FAST), "r-2": times(101, SLOW)}, r2={"driver": "575.57"})
    shown(page, home.root, monkeypatch, kind="runs", base="r-1", head="r-2")
    assert "driver: 570.86.15 against 575.57" in words(page)
    link = next(item.value for item in page.markdown if "all the same" in item.value)
    assert link.endswith("(compare?kind=runs&base=r-1&head=r-2&allow=driver)")
    page.multiselect[0].set_value(["driver"]).run()
    assert metrics(page)["cold_start"]["outcome"] == "regressed"


def test_one_boot_is_no_comparison(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(home, {"r-1": times(1, (2.0,))})
    for kind in ("boots", "runs", "commits", "configs"):
        shown(page, home.root, monkeypatch, kind=kind)
        assert "nothing is compared with itself" in page.error[0].value
        page.query_params.clear()


def test_an_empty_store_says_what_to_run(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(home.database) as con:
        migrate(con)
    shown(page, home.root, monkeypatch)
    assert "The store holds no boots yet." in [item.value for item in page.text]


def test_markup_of_the_store_is_shown_as_text(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = "<b>x</b> [l](javascript:alert(1)) **y** :red[z] $q$"
    made.run(home, "r-1", times(1, FAST, cell_id=bad))
    made.run(home, "r-2", times(101, SLOW, cell_id=bad, options={"a](x)": bad}), kernel=bad)
    assert ingest(home).problems == []
    shown(page, home.root, monkeypatch, kind="runs", base="r-1", head="r-2")
    for part in (page.markdown, page.caption, page.info, page.warning, page.error):
        for item in part:
            assert "<b>" not in item.value
            assert "](javascript" not in item.value
            assert ":red[" not in item.value


def test_markup_of_the_address_is_shown_as_text(page: AppTest, two: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    shown(page, two.root, monkeypatch, kind="runs", base="<b>x</b> **y**", head="r-2", cell="<i>")
    assert page.error[0].value == r"base\: the store has no run '\<b\>x\<\/b\> \*\*y\*\*'\."
