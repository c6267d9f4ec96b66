"""Whether the store is whole: real files beside a real database."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from dashboard import run_rows
from dashboard.data import health
from dashboard.source import opened
from pytest_coldstart.store.database import migrations
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from pytest_coldstart.store.runfile import RunFile
from tests.dashboard.conftest import boot, run
from tests.store.samples import HEADER


def looked(home: Home, logs: int = health.LOGS) -> tuple[health.Tables, health.Files]:
    with opened(home) as con:
        tables = health.tables(con)
    return tables, health.files(home, tables.ingested, logs)


@pytest.fixture
def filled(home: Home) -> Home:
    run(home, "r-1", [boot("1", 1, 2.0), boot("2", 5, 2.0)], [])
    return home


def test_a_whole_store(filled: Home) -> None:
    tables, files = looked(filled)
    assert (tables.schema, tables.newest_schema) == (max(migrations()),) * 2
    assert (tables.oldest, tables.newest) == (datetime(2026, 11, 2, 8, 1), datetime(2026, 11, 2, 8, 5))
    assert (tables.counts["boot"], tables.counts["run"], tables.counts["metric"]) == (2, 1, 2)
    assert files.database_bytes == filled.database.stat().st_size
    assert (files.run_files, files.unread, files.unread_total) == (1, (), 0)
    assert files.run_bytes == next(filled.runs.iterdir()).stat().st_size


def state(home: Home) -> tuple[str, str]:
    (item,) = looked(home)[1].unread
    return item.state, item.reason


def test_a_run_that_is_being_written_is_no_fault(filled: Home) -> None:
    file = RunFile(filled, "r-2", "main", HEADER)
    file.boot(boot("3", 6, 2.0, run_id="r-2"))
    assert state(filled) == ("being written", "its run has not ended")
    file.close(0)
    assert state(filled) == ("not ingested", "")
    ingest(filled)
    assert looked(filled)[1].unread == ()


def test_a_broken_run_file_is_named_with_the_line_at_fault(filled: Home) -> None:
    (whole,) = filled.runs.iterdir()
    lines = whole.read_text().splitlines()
    (filled.runs / "broken.jsonl").write_text("\n".join([lines[0], "{", lines[1]]) + "\n")
    word, reason = state(filled)
    assert word == "broken"
    assert "broken.jsonl:2: broken line" in reason


@pytest.mark.parametrize("content", ["", '{"kind":"run","vers'])
def test_a_run_file_that_says_nothing_is_broken(filled: Home, content: str) -> None:
    (filled.runs / "empty.jsonl").write_text(content)
    assert state(filled)[0] == "broken"


def test_a_run_file_that_has_grown_since_is_named(filled: Home) -> None:
    (file,) = filled.runs.iterdir()
    size = file.stat().st_size
    file.chmod(0o644)
    with file.open("a") as out:
        out.write('{"kind":"end","exit_status":0}\n')
    assert state(filled) == ("grown", f"{size} bytes of it are in the store")


def test_only_some_of_many_are_looked_at(filled: Home) -> None:
    for number in range(health.UNREAD + 5):
        (filled.runs / f"x{number:02d}.jsonl").write_text("{}\n")
    files = looked(filled)[1]
    assert (len(files.unread), files.unread_total) == (health.UNREAD, health.UNREAD + 5)


def test_logs_are_counted_up_to_a_limit(filled: Home, tmp_path: Path) -> None:
    (filled.logs / "b.probe").mkdir()
    for name in ("1.log", "2.log", "b.probe/samples"):
        (filled.logs / name).write_bytes(b"x" * 100)
    (filled.logs / "loop").symlink_to(filled.logs)
    tables, files = looked(filled)
    assert files.whole
    assert files.logs == 4
    assert 300 <= files.log_bytes < 300 + len(str(filled.logs)) + 1
    tables, files = looked(filled, 2)
    assert (files.logs, files.whole) == (2, False)
    (row,) = (row for row in run_rows.of_store(tables, files) if row["name"] == "logs")
    assert str(row["value"]).startswith("at least 2 files, ")


def test_a_store_without_its_folders_is_whole(filled: Home) -> None:
    for file in filled.runs.iterdir():
        file.unlink()
    filled.runs.rmdir()
    filled.logs.rmdir()
    files = looked(filled)[1]
    assert (files.run_files, files.logs, files.unread) == (0, 0, ())
