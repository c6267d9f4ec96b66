"""Which boots a side of a comparison stands for, and what is said where it stands for none."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dashboard.data import sides
from dashboard.data.sides import BOOTS, COMMITS, CONFIGS, KINDS, RUNS, Chosen, Listed, chosen, listed, usual
from dashboard.source import opened
from pytest_coldstart.record import BootRecord
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from tests.gate import made

A, B, C = "a" * 40, "b" * 40, "c" * 40


def ran(home: Home, run_id: str, minute: int, boots: list[BootRecord], **header: Any) -> None:
    made.run(home, run_id, boots, **{"started_at": f"2026-11-02T09:{minute:02d}:00.000+00:00", **header})


@pytest.fixture
def home(home: Home) -> Home:
    """Runs r-1 and r-2 at commit A, r-3 at B with changed files, a gate's run g-1 at B, and r-4 at B."""
    prime = dataclasses.replace(made.boot(2), role="prime")
    odd = dataclasses.replace(made.boot(3), outcome="error")
    ran(home, "r-1", 0, [made.boot(1), prime, odd, made.boot(4, None)])
    ran(home, "r-2", 1, [made.boot(60)])
    ran(home, "r-3", 2, [made.boot(120, options={"ctx": 1024})], git_commit=B, git_dirty=True)
    ran(home, "g-1", 3, [made.boot(180)], git_commit=B, gate={"gate": "g", "side": "head", "block": 0, "position": 1})
    ran(home, "r-4", 4, [made.boot(240)], git_commit=B)
    assert ingest(home).problems == []
    return home


def ask(home: Home, *arguments: Any, **more: Any) -> Chosen:
    with opened(home) as con:
        return chosen(con, *arguments, **more)


def short(side: Chosen) -> tuple[list[int], tuple[str, ...], str]:
    return [int(id[-8:], 16) for id in side.boots], side.notes, side.problem


def test_a_run_has_its_boots_that_count_and_a_failed_one_counts(home: Home) -> None:
    side = ask(home, RUNS, "base", "r-1")
    assert short(side) == ([4, 1], (), "")
    assert (side.id, side.text, side.runs, side.counted) == ("r-1", "run:r-1", ("r-1",), 2)


def test_a_commit_has_its_runs_without_those_of_changed_files_and_gates(home: Home) -> None:
    side = ask(home, COMMITS, "base", "aaa")
    assert (side.id, side.text, side.runs) == (A, f"git:{A}", ("r-2", "r-1"))
    assert short(side) == ([60, 4, 1], (), "")
    assert short(ask(home, COMMITS, "head", B)) == (
        [240],
        ("1 run with changed files left out", "1 run of gates left out"),
        "",
    )
    assert short(ask(home, COMMITS, "head", B, gates=True)) == ([240, 180], ("1 run with changed files left out",), "")


def test_a_config_has_its_newest_runs(home: Home) -> None:
    with opened(home) as con:
        (series,) = (
            row[0] for row in con.execute("SELECT DISTINCT series FROM boot WHERE boot_id LIKE '%-00000001'").fetchall()
        )
    side = ask(home, CONFIGS, "base", series)
    assert (short(side), side.runs, side.text) == (([240], (), ""), ("r-4",), f"series {series}")
    assert short(ask(home, CONFIGS, "base", series, depth=2))[0] == [240, 60]
    assert short(ask(home, CONFIGS, "base", series, depth=9))[0] == [240, 60, 4, 1]


@pytest.mark.parametrize(
    ("kind", "word", "problem"),
    [
        (RUNS, "", "no run is chosen"),
        (RUNS, "x", "the store has no run 'x'"),
        (RUNS, "r-", "the ids of several begin with 'r-': r-1, r-2, r-3, r-4"),
        (COMMITS, "d", "the store has no commit 'd'"),
        (CONFIGS, "zz", "the store has no series 'zz'"),
        (BOOTS, "20261102T090002", "boot 20261102T090002-00000002 is a priming boot, which enters no comparison"),
        (
            BOOTS,
            "20261102T090003",
            "boot 20261102T090003-00000003 says nothing of its cell: its evidence contradicts its tier",
        ),
    ],
)
def test_a_side_without_boots_says_why(home: Home, kind: str, word: str, problem: str) -> None:
    side = ask(home, kind, "head", word)
    assert (side.boots, side.problem) == ((), problem)


def test_runs_and_commits_of_which_nothing_counts_say_so(home: Home) -> None:
    ran(home, "p-1", 5, [dataclasses.replace(made.boot(300), role="prime")])
    ran(home, "d-1", 6, [made.boot(360)], git_commit=C, git_dirty=True)
    assert ingest(home).problems == []
    assert ask(home, RUNS, "base", "p-1").problem.startswith("run p-1 has no boot that counts")
    dirty = ask(home, COMMITS, "base", "c")
    assert dirty.problem == f"commit {C} has no run that counts: 1 run with changed files left out"


def test_a_whole_id_is_meant_where_others_begin_with_it(home: Home) -> None:
    ran(home, "r-11", 5, [made.boot(300)])
    assert ingest(home).problems == []
    assert ask(home, RUNS, "base", "r-1").id == "r-1"


def test_a_side_is_capped_to_the_newest_boots_and_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "MOST", 2)
    side = ask(home, COMMITS, "base", A)
    assert short(side) == ([60, 4], ("the newest 2 of 3 boots are compared",), "")
    assert side.counted == 3


def test_pickers_list_the_newest_first_with_what_tells_them_apart(home: Home) -> None:
    with opened(home) as con:
        found = {kind: listed(con, kind) for kind in KINDS}
    assert [item.id for item in found[RUNS]] == ["r-4", "g-1", "r-3", "r-2", "r-1"]
    assert found[RUNS][1] == Listed("g-1", "2026-11-02 09:03:00 UTC | bbbbbbbbbb (main) | 1 boot | of a gate | g-1")
    assert found[RUNS][4].words == "2026-11-02 09:00:00 UTC | aaaaaaaaaa (main) | 2 boots | r-1"
    assert [item.id for item in found[COMMITS]] == [B, A]
    assert found[COMMITS][1].words == "2026-11-02 09:01:00 UTC | aaaaaaaaaa (main) | 2 runs"
    assert [int(item.id[-8:], 16) for item in found[BOOTS]] == [240, 180, 120, 60, 4, 3, 2, 1]
    assert found[BOOTS][4].words == (
        "2026-11-02 09:00:04 UTC | llamacpp tiny-restart | failed | 20261102T090004-00000004"
    )
    assert "| prime |" in found[BOOTS][6].words
    assert len(found[CONFIGS]) == 2


def test_pickers_list_no_more_than_a_few_hundred(home: Home) -> None:
    ran(home, "many", 9, [made.boot(number) for number in range(600, 600 + sides.LISTED + 5)])
    assert ingest(home).problems == []
    with opened(home) as con:
        assert len(listed(con, BOOTS)) == sides.LISTED


def test_the_newest_is_compared_with_the_newest_before_it_that_has_a_series_in_common(home: Home) -> None:
    with opened(home) as con:
        found = {kind: usual(con, kind) for kind in KINDS}
    assert found[BOOTS] == ("20261102T090300-000000b4", "20261102T090400-000000f0")
    assert found[RUNS] == ("g-1", "r-4")
    assert found[COMMITS] == (A, B)
    ran(home, "r-5", 5, [made.boot(300, options={"ctx": 1024})])
    assert ingest(home).problems == []
    with opened(home) as con:
        assert usual(con, RUNS) == ("r-3", "r-5")
        assert len(set(usual(con, CONFIGS))) == 2


def test_one_alone_is_both_sides_and_none_is_none(tmp_path: Any) -> None:
    one = Home.at(tmp_path / "one")
    one.prepare()
    ran(one, "r-1", 0, [made.boot(1)], git_commit=None)
    assert ingest(one).problems == []
    with opened(one) as con:
        assert usual(con, RUNS) == ("r-1", "r-1")
        assert usual(con, COMMITS) == ("", "")
