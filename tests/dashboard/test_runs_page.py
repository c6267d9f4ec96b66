"""The page of runs as Streamlit runs it, on a store that real boots have made and on one that is an attack."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from pytest_coldstart.store.home import Home
from tests.dashboard import hostile
from tests.dashboard.conftest import boot, run

RUNS = "app_pages/runs.py"
GITLAB = {"system": "GITLAB_CI", "CI_JOB_URL": "https://gitlab.example.org/a/-/jobs/3"}


def opened(page: AppTest, store: Path, monkeypatch: pytest.MonkeyPatch, **query: str) -> AppTest:
    monkeypatch.setenv("COLDSTART_STORE", str(store))
    page.run()
    page.query_params.update(query)
    page.switch_page(RUNS).run()
    assert not page.exception
    return page


def tables(page: AppTest) -> list[list[dict[str, Any]]]:
    return [item.value.to_dict("records") for item in page.dataframe]


def words(page: AppTest) -> str:
    items = [*page.markdown, *page.caption, *page.warning, *page.success, *page.text]
    return re.sub(r"\\(.)", r"\1", "\n".join(item.value for item in items))


def test_a_real_run_is_shown_whole(page: AppTest, booted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(page, booted, monkeypatch)
    runs, boots, verdicts, environment, *_ = tables(page)
    with duckdb.connect(str(booted / "coldstart.duckdb"), read_only=True) as con:
        ids = con.execute("SELECT boot_id FROM boot ORDER BY started_at DESC, boot_id DESC").fetchall()
        ((run_id,),) = con.execute("SELECT run_id FROM run").fetchall()
        judged = con.execute("SELECT count(*) FROM verdict").fetchall()
    assert [(row["end"], row["boots"]) for row in runs] == [("tests failed", f"{len(ids)} (1 failed)")]
    assert [(row["boot"],) for row in boots] == ids
    assert [(len(verdicts),)] == judged
    assert "version of xllamacpp" not in environment  # of boots, and no run's
    assert {"host", "hardware", "version of pytest"} <= {row["name"] for row in environment}
    assert page.query_params["run"] in (run_id, [run_id])
    assert "Every run file beside the database is in it." in words(page)
    assert f"coldstart prune --keep-days 90 --dry-run --store {booted}" in [item.value for item in page.code]


def test_a_run_can_be_linked_to_and_chosen(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    run(home, "r-2", [boot("2", 2, 2.0)], [], started_at="2026-11-03T09:00:00+00:00")
    opened(page, home.root, monkeypatch, run="r-1")
    assert [row["boot"] for row in tables(page)[1]] == ["1"]
    page.selectbox[0].set_value("r-2").run()
    assert not page.exception
    assert [row["boot"] for row in tables(page)[1]] == ["2"]
    assert page.query_params["run"] in ("r-2", ["r-2"])


def test_a_link_to_a_run_that_is_gone_says_so(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    opened(page, home.root, monkeypatch, run="gone")
    assert "The link asks for the run 'gone', which is not in this store." in words(page)
    assert page.selectbox[0].value == "r-1"


def test_a_ci_job_is_a_link(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [], ci=GITLAB)
    opened(page, home.root, monkeypatch)
    assert [(item.proto.label, item.proto.url) for item in page.get("link_button")] == [
        ("GitLab job", "https://gitlab.example.org/a/-/jobs/3")
    ]
    assert tables(page)[0][0]["CI"] == GITLAB["CI_JOB_URL"]


def test_a_download_is_made_when_it_is_asked_for(home: Home) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    run(home, "r-2", [boot("2", 2, 3.0)], [])
    from dashboard.download import maker

    made = maker(home, "json", ("r-2",))
    run(home, "r-3", [boot("3", 3, 4.0)], [])
    assert [(row["boot_id"], row["cold_start"]) for row in json.loads(made())] == [("2", 3.0)]
    assert maker(home, "parquet", ("r-1",))().startswith(b"PAR1")
    assert b"cold_start" in maker(home, "csv", ())().splitlines()[0]


def test_there_is_a_button_for_each_format(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    opened(page, home.root, monkeypatch)
    assert [item.proto.label for item in page.get("download_button")] == [
        *("parquet of these runs", "csv of these runs", "json of these runs"),
        *("parquet of this run", "csv of this run", "json of this run"),
    ]


def test_a_run_file_that_is_not_in_the_store_is_named(
    page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(home, "r-1", [boot("1", 1, 2.0)], [])
    (home.runs / "broken.jsonl").write_text("{}\n")
    opened(page, home.root, monkeypatch)
    assert [(row["file"], row["state"]) for row in tables(page)[-1]] == [("broken.jsonl", "broken")]
    assert f"coldstart ingest --store {home.root}" in [item.value for item in page.code]


def test_an_attack_is_shown_as_text(page: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = hostile.store(tmp_path)
    opened(page, made.root, monkeypatch)
    with duckdb.connect(str(made.database), read_only=True) as con:
        ids = [id for (id,) in con.execute("SELECT run_id FROM run").fetchall()]
    for id in ids[:12]:
        page.selectbox[0].set_value(id).run()
        assert not page.exception
        assert not page.get("link_button")
        for item in [*page.markdown, *page.caption]:
            assert not re.search(r"(?<!\\)(<script|<img|\]\(javascript|:red\[owned)", item.value)
