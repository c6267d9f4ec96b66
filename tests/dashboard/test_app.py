"""Stores that cannot be shown, on every page: a message and the command that mends it, and never a page that breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from dashboard.frame import PAGES
from pytest_coldstart.store.database import connect, migrate, migrations
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import boot, run


@pytest.fixture
def none(home: Home) -> Home:
    """A store with a schema and without a boot."""
    with connect(home.database) as con:
        migrate(con)
    return home


def opened(page: AppTest, where: str) -> AppTest:
    page.run()
    if where != "overview":
        page.switch_page(f"app_pages/{where}.py").run()
    assert not page.exception
    return page


@pytest.mark.parametrize("where", PAGES)
def test_no_store_is_a_message_on_each_page(
    page: AppTest, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSTART_STORE", str(tmp_path / "none"))
    opened(page, where)
    assert [item.value for item in page.text] == ["There is no store here.", str(tmp_path / "none")]
    assert page.code[0].value == f"pytest --coldstart --coldstart-store {tmp_path / 'none'}"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("where", PAGES)
def test_an_empty_store_says_what_to_run_on_each_page(
    page: AppTest, where: str, none: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSTART_STORE", str(none.root))
    opened(page, where)
    assert page.text[0].value == "The store holds no boots yet."
    assert page.code[0].value == f"pytest --coldstart --coldstart-store {none.root}"


@pytest.mark.parametrize("where", PAGES)
def test_a_broken_store_is_a_message_on_each_page(
    page: AppTest, where: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.database.write_bytes(b"nothing that DuckDB could read" * 1000)
    monkeypatch.setenv("COLDSTART_STORE", str(home.root))
    opened(page, where)
    assert [item.value for item in page.error] == ["There is nothing to show."]
    assert page.text[1].value == str(home.database)


def test_an_empty_store_is_shown_once_it_has_boots(page: AppTest, none: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["app.py", "--store", str(none.root)])
    opened(page, "overview")
    assert page.text[0].value == "The store holds no boots yet."
    run(none, "r-1", [boot("1", 1, 2.0)], [])
    page.button[0].click().run()
    assert not page.exception
    assert [item.value for item in page.title] == ["Overview"]


def test_a_newer_store_is_a_message(page: AppTest, none: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(none.database) as con:
        con.execute("INSERT INTO schema_version VALUES (?, now()::TIMESTAMP)", [max(migrations()) + 1]).fetchall()
    monkeypatch.setenv("COLDSTART_STORE", str(none.database))
    opened(page, "overview")
    assert "newer than" in page.text[0].value
    assert page.code[0].value.startswith("pip install --upgrade")
