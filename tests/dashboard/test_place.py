"""Which store is shown, and links that keep it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from dashboard.place import given, link, trend
from dashboard.source import Unusable
from pytest_coldstart.dashboard import app
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import boot, run


def test_the_argument_goes_before_the_environment_and_that_before_the_default(tmp_path: Path) -> None:
    environ = {"COLDSTART_STORE": str(tmp_path / "e")}

    def stores(*words: str) -> list[Home]:
        return list(given(words, environ).stores.values())

    assert stores("--store", str(tmp_path / "a")) == [Home.at(tmp_path / "a")]
    assert stores(f"--store={tmp_path}/x.duckdb") == [Home.at(tmp_path / "x.duckdb")]
    assert stores("-q", "--st", "b") == [Home.at(tmp_path / "e")]
    assert stores("--store", "a", "--store", "b") == [Home.at(Path("a")), Home.at(Path("b"))]
    assert list(given([], {"COLDSTART_STORE": ""}).stores.values()) == [Home.at(Path(".coldstart"))]


@pytest.mark.parametrize("words", [["--store"], ["--store="], ["--store", "~nobody-of-this-name"]])
def test_a_store_that_names_nothing_is_a_message(words: list[str]) -> None:
    with pytest.raises(Unusable, match="--store names no folder"):
        given(words, {})


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(Unusable, match="--demo: ignored explicit argument '1'"):
        given(["--demo=1"], {})


def test_the_other_options() -> None:
    assert (given([], {}).demo, given([], {}).acknowledge) == (False, False)
    assert given(["--demo"], {}).demo
    assert given(["--acknowledge"], {}).acknowledge


def test_links_are_quoted() -> None:
    assert trend("a&b", "cold_start") == "trend?series=a%26b&metric=cold_start"
    assert link("") == "."
    assert link("runs") == "runs"
    assert link("compare", of=("a", "b c")) == "compare?of=a&of=b+c"


@pytest.fixture
def two(tmp_path: Path) -> tuple[Home, Home]:
    """Two stores with a boot each, of two engines."""
    homes = Home.at(tmp_path / "one"), Home.at(tmp_path / "two")
    for home, engine in zip(homes, ("first-engine", "second-engine"), strict=True):
        home.prepare()
        run(home, "r-1", [boot("1", 1, 2.0, engine=engine)], [])
    return homes


def shown(page: AppTest) -> str:
    """Everything that the page says."""
    assert not page.exception
    return " ".join(str(item) for item in page.main)


def test_of_several_stores_the_address_names_one(two: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (str(home.root) for home in two)
    monkeypatch.setattr("sys.argv", ["app.py", "--store", first, "--store", second])
    page = AppTest.from_file(str(app()), default_timeout=120).run()
    assert page.query_params["store"] == first
    assert "first-engine" in shown(page)
    assert "second-engine" not in shown(page)
    page.selectbox(key="store").select(second).run()
    assert page.query_params["store"] == second
    assert "second-engine" in shown(page)
    again = AppTest.from_file(str(app()), default_timeout=120)
    again.query_params["store"] = second
    assert "second-engine" in shown(again.run())


def test_the_address_names_no_store_that_the_server_was_not_given(
    two: tuple[Home, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (str(home.root) for home in two)
    monkeypatch.setattr("sys.argv", ["app.py", "--store", first])
    page = AppTest.from_file(str(app()), default_timeout=120)
    page.query_params["store"] = second
    assert "second-engine" not in shown(page.run())
    assert "first-engine" in shown(page)
