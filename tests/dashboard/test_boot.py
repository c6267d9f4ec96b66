"""Finding a boot, and reading it with all that is beside it."""

from __future__ import annotations

import duckdb
import pytest

from dashboard.data import boot as data
from dashboard.source import opened
from pytest_coldstart.store.boots import load
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import boot, failed, run
from tests.store.samples import HEADER, PASS


@pytest.fixture
def filled(home: Home) -> Home:
    """Two runs of one cell: a priming boot, a measured one and a failed one; then one more that went well."""
    prime = boot("20261102T080000-aaaa", 0, 3.0, role="prime")
    run(home, "r-1", [prime, boot("20261102T080100-bbbb", 1, 2.0), failed("20261102T080200-cccc", 2)], [PASS])
    run(home, "r-2", [boot("20261102T080300-dddd", 3, 2.5)], [], started_at="2026-11-02T09:03:00+01:00")
    return home


def test_the_newest_measured_boot_is_the_first_to_be_shown(filled: Home) -> None:
    run(filled, "r-3", [boot("20261102T090000-eeee", 9, 1.0, role="prime")], [])
    with opened(filled) as con:
        assert data.newest(con) == "20261102T080300-dddd"


def test_a_store_of_priming_boots_alone_shows_one_of_them(home: Home) -> None:
    run(home, "r-1", [boot("b-1", 1, 1.0, role="prime"), boot("b-2", 2, 1.0, role="prime")], [])
    with opened(home) as con:
        assert data.newest(con) == "b-2"


@pytest.mark.parametrize(
    ("word", "id"),
    [
        ("20261102T080100-bbbb", "20261102T080100-bbbb"),
        ("20261102T0803", "20261102T080300-dddd"),
        ("last-failed", "20261102T080200-cccc"),
    ],
)
def test_a_boot_is_named_as_the_command_line_names_it(filled: Home, word: str, id: str) -> None:
    with opened(filled) as con:
        assert data.named(con, word) == data.Found(id)


@pytest.mark.parametrize("word", ["20261102", "gone", "'; DROP TABLE boot; --"])
def test_a_word_that_names_none_or_several_is_told_with_the_newest(filled: Home, word: str) -> None:
    with opened(filled) as con:
        found = data.named(con, word)
    assert found.boot_id == ""
    assert repr(word) in found.problem
    assert "20261102T080300-dddd" in found.problem


def test_a_boot_comes_whole_with_host_verdicts_and_neighbours(filled: Home) -> None:
    with opened(filled) as con:
        whole = data.whole(con, "20261102T080200-cccc")
        assert isinstance(whole, data.Whole)
        assert whole.record == load(con, "20261102T080200-cccc")
    assert whole.record.failed
    assert (whole.previous, whole.next) == ("20261102T080100-bbbb", "20261102T080300-dddd")
    assert whole.host["git_commit"] == HEADER["git_commit"]
    assert whole.command == ("pytest", "-q")
    assert whole.verdicts == (PASS,)


def test_the_boots_at_the_ends_of_a_series_have_one_neighbour_and_priming_ones_are_none(filled: Home) -> None:
    with opened(filled) as con:
        first, last = data.whole(con, "20261102T080100-bbbb"), data.whole(con, "20261102T080300-dddd")
    assert isinstance(first, data.Whole)
    assert isinstance(last, data.Whole)
    assert (first.previous, first.next) == (None, "20261102T080200-cccc")
    assert (last.previous, last.next) == ("20261102T080200-cccc", None)


def test_a_boot_that_is_gone_or_cannot_be_read_is_a_sentence(filled: Home) -> None:
    with duckdb.connect(str(filled.database)) as con:
        con.execute("UPDATE boot SET usage = '[1]' WHERE boot_id = '20261102T080100-bbbb'").fetchall()
    with opened(filled) as con:
        assert data.whole(con, "gone") == "the store has no boot 'gone'"
        found = data.whole(con, "20261102T080100-bbbb")
    assert isinstance(found, str)
    assert found.startswith("the boot 20261102T080100-bbbb cannot be read: ")


def test_the_picker_lists_the_newest_runs_and_their_boots_in_words(filled: Home) -> None:
    with opened(filled) as con:
        runs, boots = data.runs(con), data.of_run(con, "r-1")
        assert [item.id for item in runs] == ["r-2", "r-1"]
        assert runs[0].words == "2026-11-02 08:03 UTC 0123abc r-2"
        assert [item.words for item in boots] == [
            "llamacpp llamacpp-tiny-restart, round 1: failed, 20261102T080200-cccc",
            "llamacpp llamacpp-tiny-restart, round 1: ok, 20261102T080100-bbbb",
            "llamacpp llamacpp-tiny-restart, prime: ok, 20261102T080000-aaaa",
        ]
        assert data.run_of(con, "20261102T080300-dddd") == "r-2"
        assert data.run_of(con, "20261102T080300-gone") == ""
        assert data.first_of(con, "r-1") == "20261102T080200-cccc"
        assert data.first_of(con, "r-2") == "20261102T080300-dddd"
        assert data.first_of(con, "gone") is None


def test_the_picker_lists_no_more_than_it_says_and_what_is_shown_besides(
    filled: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "RUNS", 1)
    monkeypatch.setattr(data, "OF_A_RUN", 1)
    with opened(filled) as con:
        assert [item.id for item in data.runs(con)] == ["r-2"]
        assert [item.id for item in data.runs(con, "r-1")] == ["r-2", "r-1"]
        assert [item.id for item in data.of_run(con, "r-1")] == ["20261102T080200-cccc"]
        shown = data.of_run(con, "r-1", "20261102T080000-aaaa")
    assert [item.id for item in shown] == ["20261102T080200-cccc", "20261102T080000-aaaa"]
