"""Questions are asked once for each state of the store's file, and an older answer is shown while it is held."""

from __future__ import annotations

import threading

import duckdb
import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

import streamlit as st

from dashboard import ask as module
from dashboard.ask import ask, stamp
from dashboard.source import Held, Unusable
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import boot, run
from tests.store.test_database import held

ASKED: list[str] = []


def count(con: duckdb.DuckDBPyConnection, table: str = "boot") -> int:
    ASKED.append(table)
    return int(con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> None:
    ASKED.clear()
    st.cache_resource.clear()
    st.session_state["held"] = False


@pytest.fixture
def filled(home: Home) -> Home:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    return home


def test_a_question_is_asked_again_once_the_store_has_changed(filled: Home) -> None:
    before = stamp(filled)
    assert [ask(filled, count), ask(filled, count)] == [1, 1]
    assert ASKED == ["boot"]
    run(filled, "r-2", [boot("2", 2, 2.0, run_id="r-2")], [])
    assert stamp(filled) != before
    assert ask(filled, count) == 2
    assert ASKED == ["boot", "boot"]


def test_other_arguments_are_another_question(filled: Home) -> None:
    assert [ask(filled, count, "boot"), ask(filled, count, "run"), ask(filled, count, table="cache")] == [1, 1, 2]
    assert ask(filled, count, table="cache") == 2
    assert ASKED == ["boot", "run", "cache"]


def test_other_stores_have_other_answers(filled: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Home.at(tmp_path_factory.mktemp("other"))
    other.prepare()
    run(other, "r-1", [boot("1", 1, 2.0), boot("2", 2, 2.0)], [])
    assert [ask(filled, count), ask(other, count), ask(filled, count)] == [1, 2, 1]


def test_while_the_store_is_held_the_older_answer_is_given_and_noted(filled: Home) -> None:
    assert ask(filled, count) == 1
    run(filled, "r-2", [boot("2", 2, 2.0, run_id="r-2")], [])
    with held(filled.database, 60):
        assert ask(filled, count) == 1
        assert st.session_state["held"]
        with pytest.raises(Held, match=r"PID \d+"):  # never answered before: there is nothing to show
            ask(filled, count, "run")
    st.session_state["held"] = False
    assert ask(filled, count) == 2
    assert not st.session_state["held"]


def test_a_store_that_is_gone_is_no_answer_from_memory(filled: Home) -> None:
    assert ask(filled, count) == 1
    filled.database.unlink()
    with pytest.raises(Unusable):
        ask(filled, count)


def test_memory_is_bounded(filled: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 2)
    for table in ("boot", "run", "cache", "boot"):
        ask(filled, count, table)
    assert ASKED == ["boot", "run", "cache", "boot"]


def test_many_sessions_ask_at_once_and_the_store_is_free_afterwards(filled: Home) -> None:
    found: list[int] = []

    def work(number: int) -> None:
        found.extend(ask(filled, count, table) for table in ("boot", "metric", "cache") for _ in range(number))

    threads = [threading.Thread(target=work, args=(5,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 * 15
    run(filled, "r-2", [boot("2", 2, 2.0, run_id="r-2")], [])  # nobody holds it: the ingest's writer gets it
    assert ask(filled, count) == 2
