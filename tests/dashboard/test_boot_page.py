"""The page of one boot as Streamlit runs it: on real boots, on a store of hostile ones, and on none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from pytest_coldstart import units
from pytest_coldstart.attribution import Hint
from pytest_coldstart.dashboard import app
from pytest_coldstart.record import BootRecord, Phase
from pytest_coldstart.report import explain
from pytest_coldstart.report.path import hint_texts
from pytest_coldstart.report.show import lines
from pytest_coldstart.store.boots import find, host, load
from pytest_coldstart.store.database import connect, migrate
from pytest_coldstart.store.home import Home
from tests.dashboard import hostile
from tests.dashboard.conftest import boot, failed, run

Open = Callable[..., AppTest]


@pytest.fixture
def open_page(monkeypatch: pytest.MonkeyPatch) -> Open:
    """The page of a store, with the choices of an address."""

    def opened(store: Path, **query: str) -> AppTest:
        monkeypatch.setattr("sys.argv", ["app.py", "--store", str(store)])
        page = AppTest.from_file(str(app()), default_timeout=120)
        page.run()
        page.query_params.update(query)
        page.switch_page("app_pages/boot.py").run()
        assert not page.exception, [item.value for item in page.exception]
        return page

    return opened


def record(store: Path, word: str) -> tuple[BootRecord, dict[str, object]]:
    with duckdb.connect(str(store / "coldstart.duckdb"), read_only=True) as con:
        found = load(con, find(con, word))
        return found, host(con, found.run_id)


def texts(page: AppTest) -> list[str]:
    return [line for item in page.text for line in item.value.splitlines()]


def rows(page: AppTest, column: str) -> list[dict[str, str]]:
    """The table that has *column*."""
    return next(item.value.to_dict("records") for item in page.dataframe if column in item.value.columns)


# -- real boots


def test_without_an_address_the_newest_measured_boot_is_shown_and_stands_in_the_address(
    booted: Path, open_page: Open
) -> None:
    page = open_page(booted)
    with duckdb.connect(str(booted / "coldstart.duckdb"), read_only=True) as con:
        ((newest,),) = con.execute(
            "SELECT boot_id FROM boot WHERE role = 'measured' ORDER BY started_at DESC, boot_id DESC LIMIT 1"
        ).fetchall()
    assert page.query_params["boot"] in (newest, [newest])
    assert f"boot {newest}" in texts(page)


def test_a_boot_says_what_coldstart_show_says(booted: Path, open_page: Open) -> None:
    with duckdb.connect(str(booted / "coldstart.duckdb"), read_only=True) as con:
        ((id,),) = con.execute("SELECT max(boot_id) FROM boot WHERE outcome = 'ok' AND role = 'measured'").fetchall()
    found, place = record(booted, id)
    page = open_page(booted, boot=id)
    shown = texts(page)
    for line in explain.evidence_lines(found):
        assert line in shown
    for line in hint_texts(found):
        assert line in shown
    said = [line.strip() for line in lines(found, place, 100_000)]
    for line in (*explain.evidence_lines(found), *hint_texts(found)):
        assert line in said
    assert [row["statement"] for row in rows(page, "statement")] == [explain.cache_words(item) for item in found.caches]
    assert rows(page, "reason")[0]["value"] == units.show(found.metrics["cold_start"].value, "s")
    assert {item.label: item.value for item in page.metric}["cold\\_start"] == units.show(
        found.metrics["cold_start"].value, "s"
    )


def test_a_boot_has_its_charts_and_each_says_in_words_what_it_shows(booted: Path, open_page: Open) -> None:
    with duckdb.connect(str(booted / "coldstart.duckdb"), read_only=True) as con:
        ((id,),) = con.execute("SELECT max(boot_id) FROM boot WHERE outcome = 'ok' AND role = 'measured'").fetchall()
    page = open_page(booted, boot=id)
    specs = [item.proto.spec for item in page.get("vega_lite_chart")]
    assert len(specs) >= 6
    assert all('"description"' in spec for spec in specs)
    assert any("CPU of the tree" in spec for spec in specs)
    assert any(line.startswith("GPU memory in use: unmeasured: no GPU") for line in texts(page))


def test_a_failed_boot_says_why_with_its_log(booted: Path, open_page: Open) -> None:
    found, _ = record(booted, "last-failed")
    assert found.failure is not None
    page = open_page(booted, boot="last-failed")
    assert page.error[0].value.startswith("This boot failed")
    assert any(found.failure.message.split(";")[0] in line for line in texts(page))
    assert {item.value for item in page.metric} >= {"failed"}
    assert any("llama" in item.value or "gguf" in item.value for item in page.code)


def test_the_command_that_boots_the_cell_again_names_the_test(booted: Path, open_page: Open) -> None:
    found, _ = record(booted, "last")
    page = open_page(booted, boot="last")
    (command,) = [item.value for item in page.code if item.value.startswith("pytest --coldstart")]
    assert found.nodeid.partition("[")[0] in command
    assert "--coldstart-rounds=1" in command


# -- choices


@pytest.fixture
def filled(home: Home) -> Home:
    log = home.logs / "b.log"
    log.write_text("[+    0.100] early\n[+    0.500] in the middle\n[+    1.900] late\n")
    phases = (
        Phase("imports", 0.0, 0.25, "probe", "server"),
        Phase("load_weights", 0.25, 1.5, "log", "server", "shards"),
        Phase("first_request", 1.5, 2.0, "client"),
    )
    whole: dict[str, Any] = {"phases": phases, "log_path": str(log), "hints": (Hint("a", "set X", 1.25),)}
    run(home, "r-1", [boot("20261102T080100-aaaa", 1, 2.0, **whole), failed("20261102T080200-bbbb", 2)], [])
    run(home, "r-2", [boot("20261102T080300-cccc", 3, 2.5, **whole)], [], started_at="2026-11-02T09:03:00+01:00")
    return home


def test_a_phase_is_a_jump_to_its_lines_of_the_log(filled: Home, open_page: Open) -> None:
    page = open_page(filled.root, boot="20261102T080300")
    (log,) = [item for item in page.code if "early" in item.value]
    assert "late" in log.value
    phase = next(item for item in page.selectbox if item.key == "phase")
    assert phase.options[2] == "load_weights of server, 250 ms to 1.50 s (1.25 s)"
    phase.set_value("1").run()
    assert not page.exception
    assert page.query_params["phase"] in ("1", ["1"])
    (log,) = [item for item in page.code if "in the middle" in item.value]
    assert log.value == "    0.500  in the middle"
    again = open_page(filled.root, boot="20261102T080300", phase="1")
    assert "    0.500  in the middle" in [item.value for item in again.code]


def test_a_beginning_in_the_address_becomes_the_whole_id(filled: Home, open_page: Open) -> None:
    page = open_page(filled.root, boot="20261102T0801")
    assert page.query_params["boot"] in ("20261102T080100-aaaa", ["20261102T080100-aaaa"])
    assert any("a newer boot is in the store" in item.value for item in page.markdown)


@pytest.mark.parametrize("word", ["20261102", "gone"])
def test_an_address_that_names_none_or_several_says_so_and_shows_the_newest(
    filled: Home, open_page: Open, word: str
) -> None:
    page = open_page(filled.root, boot=word)
    assert "does not have, or has several of" in page.warning[0].value
    assert any(repr(word) in line for line in texts(page))
    assert "boot 20261102T080300-cccc" in texts(page)


def test_another_run_another_boot_and_an_id_lead_to_their_boots(filled: Home, open_page: Open) -> None:
    page = open_page(filled.root)
    page.selectbox("boot_run").set_value("r-1").run()
    assert "boot 20261102T080200-bbbb" in texts(page)
    page.selectbox("boot_of_run").set_value("20261102T080100-aaaa").run()
    assert "boot 20261102T080100-aaaa" in texts(page)
    page.text_input("boot_word").set_value("20261102T0803").run()
    assert "boot 20261102T080300-cccc" in texts(page)
    assert not page.exception


def test_the_end_of_the_axis_is_a_choice_in_the_address(filled: Home, open_page: Open) -> None:
    page = open_page(filled.root, boot="20261102T080300")
    assert "to 2.06 s" in page.get("vega_lite_chart")[1].proto.spec
    page.toggle("whole").set_value(True).run()
    assert "to 7.73 s" in page.get("vega_lite_chart")[1].proto.spec


def test_links_lead_to_the_trend_the_run_and_the_boots_around(filled: Home, open_page: Open) -> None:
    page = open_page(filled.root, boot="20261102T080200")
    (links,) = [item.value for item in page.markdown if "trend of its series" in item.value]
    for part in (
        "(trend?series=",
        "(runs?run=r-1)",
        "(boot?boot=20261102T080100-aaaa)",
        "(boot?boot=20261102T080300-cccc)",
    ):
        assert part in links


# -- stores that are not as they should be


def test_a_store_without_boots_says_what_to_run(tmp_path: Path, open_page: Open) -> None:
    home = Home.at(tmp_path / "store")
    home.prepare()
    with connect(home.database) as con:
        migrate(con)
    page = open_page(home.root)
    assert "The store holds no boots yet." in texts(page)
    assert page.code[0].value.startswith("pytest --coldstart")


def test_a_boot_with_nothing_optional_is_shown(home: Home, open_page: Open) -> None:
    bare = BootRecord("b", "r-1", "n", "c", {}, "d", "e", "openai", "restart", "measured", 1, "failed", "")
    run(home, "r-1", [bare], [])
    page = open_page(home.root, boot="b")
    assert "why is not stored" in texts(page)
    assert "No request was sent." in texts(page)


def test_a_boot_that_cannot_be_read_is_a_sentence(filled: Home, open_page: Open) -> None:
    with duckdb.connect(str(filled.database)) as con:
        con.execute("UPDATE boot SET usage = '[1]' WHERE boot_id = '20261102T080300-cccc'").fetchall()
    page = open_page(filled.root)
    assert page.error[0].value == "This boot cannot be shown."
    assert any("cannot be read" in line for line in texts(page))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return hostile.store(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("boot", ["b-50-good", "b-50-bad", f"b-50 {hostile.EVERYTHING}", "b-0-good"])
def test_what_others_wrote_is_shown_as_text(attacked: Home, open_page: Open, boot: str) -> None:
    page = open_page(attacked.root, boot=boot)
    marked = [*page.markdown, *page.caption, *page.title, *page.warning, *page.info, *page.error]
    for item in marked:
        for part in hostile.SEEN:
            assert part not in item.value
    shown = "\n".join(texts(page))
    assert f"boot {boot}"[:20] in shown
    assert not any("\x1b" in item.value or "\x00" in item.value for item in (*page.text, *page.code))
    assert hostile.OUTSIDE not in "\n".join(item.value for item in page.code)


def test_a_log_outside_of_the_store_is_not_read(attacked: Home, open_page: Open) -> None:
    page = open_page(attacked.root, boot="b-0-good")
    assert any("lies outside the store's folder" in line for line in texts(page))


def test_very_many_pieces_processes_and_requests_are_capped_and_said(home: Home, open_page: Open) -> None:
    sample = boot("b", 1, 2.0)
    request, process = sample.requests[0], sample.attribution.processes[0]
    many = dataclasses.replace(
        sample,
        phases=tuple(Phase("imports", n * 0.001, (n + 1) * 0.001, "probe", f"p {n % 300}") for n in range(3000)),
        requests=tuple(dataclasses.replace(request, kind="warm", index=n, sent=float(n)) for n in range(2500)),
        attribution=dataclasses.replace(
            sample.attribution, processes=tuple(dataclasses.replace(process, pid=n, name=f"p {n}") for n in range(300))
        ),
    )
    run(home, "r-1", [many], [])
    said = [item.value for item in open_page(home.root, boot="b").caption]
    assert any(text.startswith("2000 shorter pieces are left out") for text in said)
    assert any(text.startswith("100 that lived for less time") for text in said)
    assert any(text.startswith("500 later requests") for text in said)
    assert any(text.startswith("284 processes that held the path for less time have no lane") for text in said)
