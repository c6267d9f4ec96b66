"""A page follows the store: new boots appear by themselves, and a run that writes does not take the page away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from pytest_coldstart.dashboard import app
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import boot, run
from tests.dashboard.visitor import Visitor, command, free_port, served
from tests.store.test_database import held

WRITING = "A run is writing: what was read before is shown until it has ended."


def said(page: AppTest) -> str:
    """Everything on the page, its captions in full."""
    assert not page.exception
    return " ".join([*(str(item) for item in page.main), *(item.value for item in page.caption)])


def test_a_held_store_shows_what_was_read_before_and_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "r-1", [boot("1", 1, 2.0, engine="first-engine")], [])
    monkeypatch.setattr("sys.argv", ["app.py", "--store", str(home.root)])
    page = AppTest.from_file(str(app()), default_timeout=120).run()
    assert "first-engine" in said(page)
    assert WRITING not in said(page)
    more = boot("2", 2, 2.0, run_id="r-2", engine="second-engine", cell_digest="c0ffee000002")
    run(home, "r-2", [more], [])
    with held(home.database, 120):
        page.run()
        assert WRITING in said(page)
        assert "first-engine" in said(page)
        assert "second-engine" not in said(page)
    page.run()
    assert WRITING not in said(page)
    assert "second-engine" in said(page)


def test_a_held_store_that_was_never_read_is_a_message(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    monkeypatch.setattr("sys.argv", ["app.py", "--store", str(home.root)])
    with held(home.database, 120) as pid:
        page = AppTest.from_file(str(app()), default_timeout=120).run()
        assert not page.exception
        assert f"PID {pid}" in page.text[0].value
    page.button[0].click().run()
    assert not page.exception
    assert not page.error or "There is nothing to show." not in page.error[0].value


def test_a_new_run_appears_by_itself(home: Home, tmp_path: Path) -> None:
    run(home, "r-1", [boot("1", 1, 2.0, engine="first-engine")], [])
    port, out = free_port(), tmp_path / "out"
    words = command(port, "--store", str(home.root))
    with served(words, out, {**os.environ, "HOME": str(tmp_path)}, tmp_path), Visitor(port) as visitor:
        visitor.open()
        assert "first-engine" in visitor.said
        assert not visitor.follow(3, "second-engine")
        more = boot("2", 2, 2.0, run_id="r-2", engine="second-engine", cell_digest="c0ffee000002")
        run(home, "r-2", [more], [])
        assert visitor.follow(60, "second-engine")
    assert "Traceback" not in out.read_text()


def test_after_a_run_let_the_store_go_the_page_shows_what_is_new(home: Home, tmp_path: Path) -> None:
    run(home, "r-1", [boot("1", 1, 2.0, engine="first-engine")], [])
    port, out = free_port(), tmp_path / "out"
    words = command(port, "--store", str(home.root))
    with served(words, out, {**os.environ, "HOME": str(tmp_path)}, tmp_path), Visitor(port) as visitor:
        visitor.open()
        more = boot("2", 2, 2.0, run_id="r-2", engine="second-engine", cell_digest="c0ffee000002")
        run(home, "r-2", [more], [])
        with held(home.database, 120):
            assert visitor.follow(60, WRITING)
            assert "second-engine" not in visitor.said
        assert visitor.follow(60, "second-engine")
        assert WRITING not in visitor.said
    assert "Traceback" not in out.read_text()
