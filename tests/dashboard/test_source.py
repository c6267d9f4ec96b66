"""Each store that cannot be shown: what is wrong, where, and a command that mends it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from dashboard.source import Unusable, opened
from pytest_coldstart.cli import main
from pytest_coldstart.store.database import connect, migrate, migrations
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from tests.dashboard import conftest as rows
from tests.store.samples import write
from tests.store.test_database import held


def problem(home: Home) -> Unusable:
    with pytest.raises(Unusable) as caught:
        with opened(home, wait=0.2) as con:
            con.execute("SELECT * FROM main.boot").fetchall()
    return caught.value


def test_no_store(tmp_path: Path) -> None:
    error = problem(Home.at(tmp_path / "a b"))
    assert error.what == "There is no store here."
    assert error.where == str(tmp_path / "a b")
    assert error.command == f"pytest --coldstart --coldstart-store '{tmp_path}/a b'"
    assert not (tmp_path / "a b").exists()


def test_a_folder_without_anything(tmp_path: Path) -> None:
    error = problem(Home.at(tmp_path))
    assert error.what == "The folder has neither a database nor run files."
    assert error.command == f"pytest --coldstart --coldstart-store {tmp_path}"


def test_run_files_without_a_database_are_to_be_ingested(home: Home) -> None:
    write(home, "main", rows.boot("1", 1, 2.0))
    error = problem(home)
    assert error.what == "The folder has run files and no database yet."
    assert error.command == f"coldstart ingest --store {home.root}"
    assert main(shlex.split(error.command)[1:]) == 0
    with opened(home) as con:
        assert con.execute("SELECT count(*) FROM boot").fetchall() == [(1,)]


def test_a_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert problem(Home.at(tmp_path / "file")).what == "The store is a file; it must be a folder or end in .duckdb."
    (tmp_path / "folder.duckdb").mkdir()
    assert problem(Home.at(tmp_path / "folder.duckdb")).what == "The path of the database is no file."


def test_no_database(tmp_path: Path) -> None:
    (tmp_path / "x.duckdb").write_text("words\n" * 1000)
    error = problem(Home.at(tmp_path / "x.duckdb"))
    assert "not a valid DuckDB database" in error.what
    assert "--coldstart-store" not in error.what
    assert error.where == str(tmp_path / "x.duckdb")


def test_a_database_of_something_else(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "x.duckdb")) as con:
        con.execute("CREATE TABLE customers (id INTEGER)").fetchall()
    assert "holds other tables and is no store" in problem(Home.at(tmp_path / "x.duckdb")).what


def test_a_newer_store(home: Home) -> None:
    newest = max(migrations())
    with connect(home.database) as con:
        migrate(con)
        con.execute("INSERT INTO schema_version VALUES (?, now()::TIMESTAMP)", [newest + 1]).fetchall()
    error = problem(home)
    assert f"has schema version {newest + 1}, newer than {newest}" in error.what
    assert error.command == "pip install --upgrade 'pytest-coldstart[dashboard]'"


def test_an_empty_database(home: Home) -> None:
    connect(home.database).close()
    assert problem(home).what == "The store holds no boots yet."


def test_an_older_store_is_left_alone_and_the_command_migrates_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from dashboard import source
    from pytest_coldstart.store import database

    write(home, "main", rows.boot("1", 1, 2.0))
    ingest(home)
    newest = max(migrations())
    steps = {**migrations(), newest + 1: "CREATE TABLE later (x INTEGER)"}
    for module in (database, source):
        monkeypatch.setattr(module, "migrations", lambda: steps)
    error = problem(home)
    assert f"has schema version {newest}; this version reads {newest + 1}" in error.what
    assert main(shlex.split(error.command)[1:]) == 0
    with opened(home) as con:
        assert con.execute("SELECT count(*) FROM later").fetchall() == [(0,)]


def test_a_store_that_is_held_names_the_holder(home: Home) -> None:
    with connect(home.database) as con:
        migrate(con)
    with held(home.database, 60) as pid:
        error = problem(home)
        assert f"PID {pid}" in error.what
        assert error.command == f"ps -f -p {pid}"
    assert "coldstart ingest" not in error.what


def test_a_table_that_is_gone_is_no_traceback(home: Home) -> None:
    with connect(home.database) as con:
        migrate(con)
        con.execute("DROP TABLE boot CASCADE").fetchall()
    assert "could not be read: Catalog Error: Table with name boot does not exist" in problem(home).what


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_store_that_may_not_be_read(home: Home) -> None:
    with connect(home.database) as con:
        migrate(con)
    home.database.chmod(0)
    assert "Permission denied" in problem(home).what


def test_data_and_charts_need_no_streamlit() -> None:
    root = Path(__file__).parents[2]
    files = [file for folder in ("data", "charts") for file in (root / "dashboard" / folder).glob("[a-z]*.py")]
    modules = ", ".join(f"dashboard.{file.parent.name}.{file.stem}" for file in files)
    code = f"import sys, {modules}; print('streamlit' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
