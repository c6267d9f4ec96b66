"""The page Alerts, on a store of rows and on one that real boots have made."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from dashboard import text
from pytest_coldstart.alerts.file import RULES_FILE
from pytest_coldstart.dashboard import app
from pytest_coldstart.store.database import connect, migrate
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import boot, failed, run

RULES = """
version = 1

[[alert]]
name = "fast *enough*"
metric = "cold_start"
bound = "<= 10min"

[[alert]]
name = "boots fail"
failed = 1
severity = "critical"

[[alert]]
name = "nobody"
stale = "1d"
engine = "none"
severity = "info"
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setattr("sys.argv", ["app.py"])
    monkeypatch.chdir(tmp_path)
    return AppTest.from_file(str(app()), default_timeout=120)


def shown(page: AppTest, store: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("COLDSTART_STORE", str(store))
    page.run()
    page.switch_page("app_pages/alerts.py").run()
    assert not page.exception
    return page


def table(page: AppTest, number: int = 0) -> list[dict[str, str]]:
    return page.dataframe[number].value.to_dict("records")


def test_real_boots_against_rules(page: AppTest, booted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / RULES_FILE).write_text(RULES)
    shown(page, booted, monkeypatch)
    # A failed boot breaks a bound of its series, too.
    assert [(row["rule"], row["state"], row["series"]) for row in table(page)] == [
        ("boots fail", "fires", "1 of 2 fire"),
        ("fast *enough*", "fires", "1 of 2 fire"),
        ("nobody", "matches nothing", "none"),
    ]
    assert page.text[0].value == "2 of 3 rules fire, on 1 series; 1 matches nothing"
    with duckdb.connect(str(booted / "coldstart.duckdb"), read_only=True) as con:
        ((id, run_id, why),) = con.execute(
            "SELECT series, run_id, failure_message FROM boot WHERE outcome = 'failed'"
        ).fetchall()
    fails, slow = table(page, 1)
    assert (fails["value"], fails["bound"], fails["why"]) == ("1 of 1 failed", "< 1", why)
    assert (slow["value"], slow["bound"]) == ("failed", "<= 600 s")
    assert slow["trend"] == f"trend?series={id}&metric=cold_start"
    assert slow["since"].endswith(f"run {run_id}")
    assert page.caption[0].value == f"Rules: {text.plain(str(tmp_path / RULES_FILE))}"


def test_filters_stand_in_the_address(
    page: AppTest, booted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / RULES_FILE).write_text(RULES)
    shown(page, booted, monkeypatch)
    page.multiselect(key="severity").set_value(["info"]).run()
    assert [row["rule"] for row in table(page)] == ["nobody"]
    page.multiselect(key="state").set_value(["ok"]).run()
    assert not page.exception
    assert page.info[0].value == "None of 1 rules is left; clear a filter."
    page.query_params["severity"] = ["critical"]


def test_without_rules_it_says_where_to_put_some(
    page: AppTest, booted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(page, booted, monkeypatch)
    places, example = (one.value for one in page.code)
    assert places.splitlines()[0] == str(tmp_path / RULES_FILE)
    assert str(booted.parent / RULES_FILE) in places.splitlines()
    (tmp_path / RULES_FILE).write_text(example)
    page.run()
    assert not page.exception
    assert {row["rule"] for row in table(page)} == {"cold start over its SLO", "nightly has stopped"}


def test_mistakes_are_text_with_their_line(
    page: AppTest, booted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / RULES_FILE).write_text('version = 1\n[[alert]]\nname = "<b>*x*</b>"\nfailed = 0\nseverity = "big"\n')
    shown(page, booted, monkeypatch)
    assert page.error[0].value == "The file of rules has 2 mistakes, and nothing is watched."
    first, second = page.code[0].value.splitlines()
    assert first.startswith(f"{tmp_path / RULES_FILE}:4: alert '<b>*x*</b>': failed: 0")
    assert ":5: alert" in second
    assert not page.dataframe


def test_a_file_beside_the_store_is_found(
    page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(home, "r-1", [boot("b-1", 1, 2.0), failed("b-2", 2)], [])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (home.root / RULES_FILE).write_text(RULES)
    shown(page, home.root, monkeypatch)
    assert table(page)[0]["rule"] == "boots fail"


def test_changes_are_searched_for(page: AppTest, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ruptures", reason="changes need the extra gate")
    for n in range(20):
        value = (3.0 if n >= 12 else 2.0) + 0.004 * (n % 3)
        run(home, f"r-{n:02d}", [boot(f"b-{n:02d}", n, value)], [])
    (tmp_path / RULES_FILE).write_text(
        'version = 1\n[[alert]]\nname = "slower"\nmetric = "cold_start"\nchange = "worse 5%"\n'
    )
    shown(page, home.root, monkeypatch)
    (rule,), (row,) = table(page), table(page, 1)
    assert (rule["state"], row["value"][:4], row["bound"]) == ("fires", "+49.", "< 5 % worse")
    assert "run r-12" in row["since"]


def test_a_broken_acknowledgement_is_said(
    page: AppTest, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(home, "r-1", [boot("b-1", 1, 2.0)], [])
    (home.root / "acknowledgements.jsonl").write_text("oops\n")
    (tmp_path / RULES_FILE).write_text(RULES)
    shown(page, home.root, monkeypatch)
    assert "acknowledgements.jsonl:1: broken acknowledgement" in page.code[0].value


def test_hostile_names_are_text(page: AppTest, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "<script>alert(1)</script> **x** $y$ :red[z]"
    run(home, "r-1", [failed("b-1", 1, cell_id=hostile, engine=hostile)], [])
    (tmp_path / RULES_FILE).write_text(RULES)
    shown(page, home.root, monkeypatch)
    assert hostile in table(page, 1)[0]["series"]
    assert all("<script>" not in one.value for one in (*page.markdown, *page.caption, *page.title, *page.info))


def test_an_empty_store_says_what_to_run(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(home.database) as con:
        migrate(con)
    shown(page, home.root, monkeypatch)
    assert "pytest --coldstart" in page.code[0].value
