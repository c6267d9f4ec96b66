"""Runs, from a real database, against values that stand in the test."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dashboard import ci, run_rows
from dashboard.data.runs import Detail, Run, count, detail, run, runs, within
from dashboard.source import opened
from pytest_coldstart.record import Value
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.export import export, write
from pytest_coldstart.store.home import Home
from tests.dashboard import conftest as store
from tests.dashboard.conftest import boot, failed

PASS = Verdict("cold_start", "max", "<=", 10.0, "s", 3.0, 2, "pass", "default", "client")
FAIL = Verdict("warm_first_token", "max", "<=", 0.5, "s", None, 2, "fail", "default", None, "a boot failed")
GITHUB = {
    "system": "GITHUB_ACTIONS",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "a/b",
    "GITHUB_RUN_ID": "17",
    "GITHUB_RUN_ATTEMPT": "2",
}


def detailed(home: Home, run_id: str, newest: int = 500) -> Detail:
    with opened(home) as con:
        found = detail(con, run_id, newest)
    assert found is not None
    return found


@pytest.fixture
def filled(home: Home) -> Home:
    """Two runs: one with a failed boot on a day, one of a gate on the day after."""
    store.run(home, "r-1", [boot("1", 1, 2.0), failed("2", 2), boot("3", 3, None)], [PASS, FAIL], ci=GITHUB)
    gate = {"gate": "g", "side": "head", "block": 1, "position": 1}
    later = {"started_at": "2026-11-03T09:00:00+00:00", "git_commit": None, "gate": gate, "driver": None}
    store.run(home, "r-2", [boot("4", 4, 4.0, outcome="error")], [], **later)
    return home


def test_each_run_says_what_it_was_and_what_came_of_it(filled: Home) -> None:
    with opened(filled) as con:
        later, sooner = runs(con)
        assert count(con) == 2
        assert runs(con, 1) == (later,)
    assert (sooner.id, sooner.started_at, sooner.exit_status) == ("r-1", datetime(2026, 11, 2, 8), 0)
    assert (sooner.boots, sooner.failed, sooner.errors, sooner.verdicts) == (3, 1, 0, {"pass": 1, "fail": 1})
    assert (sooner.commit, sooner.branch, sooner.dirty) == ("0123abc", "main", True)
    assert (sooner.hostname, sooner.driver, sooner.gate) == ("node7", "570.86.15", "")
    assert sooner.ci_url == "https://github.com/a/b/actions/runs/17/attempts/2"
    assert (later.errors, later.gate, later.commit, later.driver, later.verdicts) == (1, "head", None, "", {})


def test_a_row_of_a_run_is_in_words(filled: Home) -> None:
    with opened(filled) as con:
        later, sooner = run_rows.listed(runs(con))
    assert (sooner["end"], sooner["boots"], sooner["verdicts"]) == ("passed", "3 (1 failed)", "1 fail, 1 pass")
    assert (sooner["commit"], sooner["versions"]) == ("0123abc (main, dirty)", "pytest 9.2.0")
    assert (later["boots"], later["verdicts"], later["commit"]) == ("1 (1 error)", "not judged", "unknown")
    assert (later["CI"], later["driver"], later["gate"], later["open"]) == (None, "-", "head", "runs?run=r-2")


def test_there_is_no_column_of_links_without_links(home: Home) -> None:
    store.run(home, "r-1", [boot("1", 1, 2.0)], [])
    with opened(home) as con:
        (row,) = run_rows.listed(runs(con))
    assert "CI" not in row


@pytest.mark.parametrize(
    ("status", "words"),
    [(0, "passed"), (1, "tests failed"), (2, "interrupted"), (None, "no end was stored"), (77, "exit status 77")],
)
def test_an_exit_status_is_told_in_words(filled: Home, status: int | None, words: str) -> None:
    with duckdb.connect(str(filled.database)) as con:
        con.execute("UPDATE run SET exit_status = ? WHERE run_id = 'r-1'", [status]).fetchall()
    assert run_rows.ended(detailed(filled, "r-1").run) == words


def test_one_run_has_its_boots_verdicts_and_environment(filled: Home) -> None:
    found = detailed(filled, "r-1")
    assert [(item.id, item.outcome, item.cold_start) for item in found.boots] == [
        ("3", "ok", None),
        ("2", "failed", None),
        ("1", "ok", 2.0),
    ]
    rows = run_rows.of_boots(found.boots)
    assert [row["cold_start"] for row in rows] == [
        "unmeasured: the instant 'first_done' was not seen",
        "failed",
        "2.00 s",
    ]
    assert rows[1]["outcome"] == "failed (exit: exited with 1)"
    assert [(row["verdict"], row["value"]) for row in run_rows.of_verdicts(found.verdicts)] == [
        ("fail", "failed"),
        ("pass", "3.00 s"),
    ]
    named = {row["name"]: row["value"] for row in run_rows.of_environment(found)}
    assert named["kernel"] == "6.8.0"
    assert named["version of pytest"] == "9.2.0"
    assert named["locale"] == "C.UTF-8"
    assert named["CI GITHUB_RUN_ID"] == "17"
    assert found.command == ("pytest", "-q")


def test_the_newest_boots_are_kept_where_there_are_too_many(filled: Home) -> None:
    found = detailed(filled, "r-1", 2)
    assert [item.id for item in found.boots] == ["3", "2"]
    assert found.run.boots == 3


def test_references_are_summed_up_over_the_boots_of_the_run_alone(home: Home) -> None:
    def timed(value: float | None) -> dict[str, Value]:
        return {"reference_import": Value(value, "python 3.12") if value else Value(None, None, "it was not timed")}

    values = [1.0, 3.0, 5.0, None]
    store.run(home, "r-1", [boot(str(n), n, 2.0, metrics=timed(value)) for n, value in enumerate(values, 1)], [])
    store.run(home, "r-2", [boot("9", 9, 2.0, metrics=timed(99.0))], [])
    (row,) = run_rows.of_references(detailed(home, "r-1").references)
    assert (row["reference"], row["median"], row["least"], row["most"]) == (
        "reference_import",
        "3.00 s",
        "1.00 s",
        "5.00 s",
    )
    assert (row["measured"], row["reason"]) == ("3 of 4 boots", "it was not timed")


def test_a_run_that_is_not_there_is_none(filled: Home) -> None:
    with opened(filled) as con:
        assert run(con, "' OR 1=1 --") is None
        assert detail(con, "r-3") is None


def test_boots_without_a_row_of_their_run_are_still_a_run(filled: Home) -> None:
    with duckdb.connect(str(filled.database)) as con:
        con.execute("DELETE FROM run WHERE run_id = 'r-1'").fetchall()
    found = detailed(filled, "r-1")
    assert (found.run.boots, found.run.started_at, found.run.exit_status) == (3, datetime(2026, 11, 2, 8, 1), None)
    assert found.run.hardware == "CPU unknown, ? cores, memory unknown, no GPU"


def listed(*boots: int) -> tuple[Run, ...]:
    fields: dict[str, Any] = dict.fromkeys(Run.__dataclass_fields__)
    return tuple(Run(**{**fields, "id": str(number), "boots": boot}) for number, boot in enumerate(boots))


@pytest.mark.parametrize(("boots", "taken"), [((5, 5, 5), 2), ((10,), 1), ((11, 1), 0), ((), 0), ((3, 9, 1), 1)])
def test_a_download_ends_before_it_is_too_large(boots: tuple[int, ...], taken: int) -> None:
    assert within(listed(*boots), 10) == listed(*boots)[:taken]


# -- CI


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, None),
        ({key: value for key, value in GITHUB.items() if key != "GITHUB_SERVER_URL"}, None),
        (
            {**GITHUB, "GITHUB_SERVER_URL": "https://ghe.example.org/"},
            "https://ghe.example.org/a/b/actions/runs/17/attempts/2",
        ),
        ({**GITHUB, "GITHUB_RUN_ATTEMPT": None}, "https://github.com/a/b/actions/runs/17"),
        (
            {**GITHUB, "GITHUB_RUN_ID": "1/../../x?y"},
            "https://github.com/a/b/actions/runs/1%2F..%2F..%2Fx%3Fy/attempts/2",
        ),
        ({**GITHUB, "GITHUB_SERVER_URL": "javascript:alert(1)//"}, None),
        (
            {"system": "GITLAB_CI", "CI_JOB_URL": "https://gitlab.com/a/-/jobs/3", "CI_PIPELINE_URL": "x"},
            "https://gitlab.com/a/-/jobs/3",
        ),
        ({"system": "GITLAB_CI", "CI_PIPELINE_URL": "http://g/p/1"}, "http://g/p/1"),
        ({"system": "GITLAB_CI", "CI_JOB_URL": "data:text/html,x"}, None),
        ({"system": "GITLAB_CI", "CI_JOB_URL": "https://user:secret@g/p"}, None),
        ({"system": "GITLAB_CI", "CI_JOB_URL": "https://[g/p"}, None),
        ({"system": "GITLAB_CI", "CI_JOB_URL": 3}, None),
        (
            {
                "system": "BUILDKITE",
                "BUILDKITE_BUILD_URL": "https://buildkite.com/a/b/builds/1",
                "BUILDKITE_JOB_ID": "j#1",
            },
            "https://buildkite.com/a/b/builds/1#j%231",
        ),
        ({"system": "BUILDKITE", "BUILDKITE_JOB_ID": "j"}, None),
    ],
)
def test_only_an_address_of_the_web_is_a_link(given: dict[str, object], url: str | None) -> None:
    assert ci.url(given) == url


# -- export


def test_an_export_of_one_run_has_its_boots_alone(filled: Home, tmp_path: Path) -> None:
    out = io.StringIO()
    export(filled, "csv", out, run_ids=["r-1"])
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [(row["boot_id"], row["cold_start"]) for row in rows] == [("1", "2.0"), ("2", ""), ("3", "")]
    with opened(filled) as con:
        write(con, "json", tmp_path / "boots", run_ids=["r-2", "it's"])
        write(con, "csv", tmp_path / "metrics", "metric", run_ids=["r-1"])
        write(con, "csv", tmp_path / "verdicts", "verdict", run_ids=["r-2"])
    assert [row["boot_id"] for row in json.loads((tmp_path / "boots").read_text())] == ["4"]
    assert {row["boot_id"] for row in csv.DictReader((tmp_path / "metrics").open())} == {"1", "2", "3"}
    assert list(csv.DictReader((tmp_path / "verdicts").open())) == []


def test_an_export_of_no_run_has_no_boots(filled: Home, tmp_path: Path) -> None:
    for format in ("csv", "json"):
        export(filled, format, tmp_path / format, run_ids=[])
    assert json.loads((tmp_path / "json").read_text()) == []
    assert len((tmp_path / "csv").read_text().splitlines()) == 1


def test_a_table_that_is_of_no_run_cannot_be_cut_by_runs(filled: Home) -> None:
    with pytest.raises(StoreError, match="the table 'ingested' is of no run"):
        export(filled, "csv", io.StringIO(), "ingested", run_ids=["r-1"])
