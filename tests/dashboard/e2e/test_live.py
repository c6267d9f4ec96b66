"""Pages that are open while runs write, and stores that cannot be shown."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from dashboard.frame import PAGES
from pytest_coldstart.store.database import connect, migrate, migrations
from pytest_coldstart.store.home import Home
from tests.dashboard.conftest import SMALL
from tests.dashboard.e2e.conftest import Reads, Serve
from tests.dashboard.e2e.reader import WORDS, Reader
from tests.dashboard.e2e.server import Server

SUITE = f"""
import pytest

@pytest.mark.coldstart(engine="llamacpp", tier="restart", rounds=2, requests=1, {SMALL})
@pytest.mark.slo("cold_start<=10min", "warm_first_token<=10min")
def test_boot(cold_boot): ...
"""
SECRET = "hf_NeverEverOnAnyPage0123456789"

#: Seconds from the end of a run until an open page shows it. A page looks every 2 s and is run again in less than one;
#: the rest is for machines that do other things too.
SOON, AT_LAST = 5, 60


def run_of(folder: Path, store: Path) -> subprocess.Popen[bytes]:
    """A real run of llama.cpp that writes to *store*, with secrets in its environment."""
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    secrets = {"HF_TOKEN": SECRET, "OPENAI_API_KEY": f"sk-{SECRET}", "MY_PASSWORD": SECRET, "LLAMA_ARG_API_KEY": SECRET}
    words = ["-p", "coldstart", "-p", "no:cacheprovider", "--coldstart", "--coldstart-store", str(store), "-q"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *words, "--coldstart-keep-logs", "all"],
        cwd=folder,
        env={**environ, **secrets, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=(folder / "out").open("w"),
        stderr=subprocess.STDOUT,
    )


@pytest.fixture
def growing(booted: Path, tmp_path: Path) -> Path:
    """A copy of the store with real boots, to write to."""
    return Path(shutil.copytree(booted, tmp_path / "growing"))


def test_open_pages_work_while_a_run_writes_and_show_it_when_it_has_ended(
    growing: Path, tmp_path: Path, serve: Serve, reads: Reads
) -> None:
    server = serve("--store", str(growing))
    readers = {page: reads().open(server, page) for page in ("overview", "trend", "boot", "runs")}
    for reader in readers.values():
        reader.page.evaluate(_RECORD)
    before = _runs(growing)
    run = run_of(tmp_path, growing)
    ended: list[float] = []
    watch = threading.Thread(target=lambda: (run.wait(), ended.append(time.time())))
    watch.start()
    walker = reads()
    try:
        while not ended:
            for page in PAGES:
                walker.open(server, page)
                for name, reader in readers.items():
                    assert reader.page.get_by_test_id("stException").count() == 0, name
                if ended:
                    break
    finally:
        run.kill()
        watch.join()
    assert run.returncode == 0, (tmp_path / "out").read_text()
    (new,) = _runs(growing) - before
    boots = _boots(growing, new)
    ((last,),) = _asked(growing, "SELECT strftime(started_at, '%Y-%m-%d %H:%M:%S UTC') FROM run WHERE run_id = ?", new)
    took = {}
    for page, word in (("runs", new), ("overview", last)):
        _wait_for(readers[page], word)
        readers[page].page.wait_for_function("word => said.some(([at, words]) => words.includes(word))", arg=word)
        took[page] = readers[page].page.evaluate(_FIRST_WITH, word) / 1000 - ended[0]
    print(
        f"shown after the end of the run: {', '.join(f'{page} {took[page]:.1f} s' for page in took)} (wanted: {SOON} s)"
    )
    assert max(took.values()) < AT_LAST
    for name, reader in readers.items():
        reader.settled()
        assert SECRET not in reader.text(), name
    assert SECRET not in walker.open(server, "boot", boot=boots[-1]).text()
    assert SECRET not in walker.open(server, "runs", run=new).text()


#: Keeps what a page says and when it began to say it, and finds when a word came.
_RECORD = """() => {
  window.said = [];
  const look = () => {
    const words = TEXT();
    if (said.at(-1)?.[1] !== words) said.push([Date.now(), words]);
  };
  setInterval(look, 250);
}""".replace("TEXT", f"({WORDS})")
_FIRST_WITH = "word => said.find(([at, words]) => words.includes(word))[0]"


def _wait_for(reader: Reader, word: str) -> None:
    deadline = time.monotonic() + AT_LAST
    while word not in reader.text():
        assert time.monotonic() < deadline, f"{word} is not on the page after {AT_LAST} s:\n{reader.text()[:2000]}"
        reader.page.wait_for_timeout(100)


def _runs(store: Path) -> set[str]:
    return {row[0] for row in _asked(store, "SELECT run_id FROM run")}


def _boots(store: Path, run: str) -> list[str]:
    return [row[0] for row in _asked(store, "SELECT boot_id FROM boot WHERE run_id = ?", run)]


def _asked(store: Path, sql: str, *values: str) -> list[tuple[str, ...]]:
    with connect(store / "coldstart.duckdb", read_only=True, wait=30) as con:
        return con.execute(sql, list(values)).fetchall()


# -- stores that cannot be shown


@contextmanager
def held(database: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the database open for writing."""
    code = f"import duckdb; con = duckdb.connect({str(database)!r}); print('held', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.communicate("\n", timeout=60)


@pytest.fixture(scope="module")
def broken(booted: Path, serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> tuple[Server, dict[str, str]]:
    """One server for stores with something wrong each, and their names in the address."""
    folder = tmp_path_factory.mktemp("broken")
    source = booted / "coldstart.duckdb"
    stores = {name: folder / name for name in ("missing", "empty", "newer", "older", "corrupted")}
    stores |= {"locked": folder / "locked"}
    for name, path in stores.items():
        if name != "missing":
            Home.at(path).prepare()
    for name in ("empty", "newer", "older"):
        with connect(Home.at(stores[name]).database) as con:
            migrate(con)
            if name == "older":
                con.execute("DELETE FROM schema_version WHERE version > 1").fetchall()
            if name == "newer":
                con.execute(
                    "INSERT INTO schema_version VALUES (?, now()::TIMESTAMP)", [max(migrations()) + 1]
                ).fetchall()
    shutil.copy(source, Home.at(stores["locked"]).database)
    data = bytearray(source.read_bytes())
    data[8192:] = bytes(byte ^ 0x5A for byte in data[8192:])
    Home.at(stores["corrupted"]).database.write_bytes(data)
    words = [word for path in stores.values() for word in ("--store", str(path))]
    return serve(*words), {name: str(path) for name, path in stores.items()}


#: What a page says of each, and the command that it names.
SAYS = {
    "missing": ("There is no store here.", "pytest --coldstart --coldstart-store"),
    "empty": ("The store holds no boots yet.", "pytest --coldstart --coldstart-store"),
    "newer": ("newer than", "pip install --upgrade"),
    "older": ("schema version 1", "coldstart export"),
    "corrupted": ("Corrupt database file", "coldstart dashboard --store"),
}


@pytest.mark.parametrize("what", SAYS)
def test_each_page_says_what_is_wrong_with_a_store(
    broken: tuple[Server, dict[str, str]], reader: Reader, what: str
) -> None:
    server, stores = broken
    reader.open(server, "overview", store=stores[what])
    for title in PAGES.values():
        if title != "Overview":
            reader.after(reader.page.get_by_role("link", name=title, exact=True).first.click)
        words = reader.text()
        for word in (*SAYS[what], stores[what]):
            assert word in words, f"{title}: {words}"


def test_each_page_says_who_holds_a_store_and_shows_it_once_it_is_free(
    broken: tuple[Server, dict[str, str]], reader: Reader
) -> None:
    server, stores = broken
    with held(Path(stores["locked"]) / "coldstart.duckdb") as process:
        reader.open(server, "overview", store=stores["locked"])
        for title in PAGES.values():
            if title != "Overview":
                reader.after(reader.page.get_by_role("link", name=title, exact=True).first.click)
            words = reader.text()
            assert "is held by" in words, f"{title}: {words}"
            assert f"ps -f -p {process.pid}" in words
        reader.open(server, "overview", store=stores["locked"])
    _wait_for(reader, "tier restart")
    reader.settled()


def test_what_was_read_before_is_shown_while_a_store_is_held(growing: Path, serve: Serve, reader: Reader) -> None:
    server = serve("--store", str(growing))
    before = reader.open(server).main().inner_text()
    with held(growing / "coldstart.duckdb"):
        os.utime(growing / "coldstart.duckdb")
        _wait_for(reader, "A run is writing")
        assert before.splitlines()[:3] == reader.settled().main().inner_text().splitlines()[:3]
    reader.page.wait_for_function("!document.body.innerText.includes('A run is writing')")
    reader.settled()
