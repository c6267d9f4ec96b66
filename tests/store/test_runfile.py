from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_coldstart.record import RECORD_VERSION, Failure, Value
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.errors import StoreError, StoreNewer
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.runfile import RunFile, read_run
from tests.store.samples import FULL, HEADER, PASS, record, write


def test_every_field_comes_back(home: Home) -> None:
    file = RunFile(home, "r-1", "gw3", HEADER)
    file.boot(FULL)
    file.verdict("c0ffee000001", "llamacpp-tiny-restart", "restart", "test_a.py::t", PASS)
    file.close(1, boots=1)
    data = read_run(home.root / "runs" / "r-1.gw3.jsonl")
    assert data.boots == [FULL]
    assert data.verdicts[0].verdict == PASS
    assert (data.verdicts[0].cell_digest, data.verdicts[0].nodeid) == ("c0ffee000001", "test_a.py::t")
    assert data.header == {**HEADER, "version": RECORD_VERSION, "run_id": "r-1", "worker": "gw3"}
    assert data.end == {"exit_status": 1, "boots": 1}
    assert (data.closed, data.cut) == (True, False)


def test_lines_on_the_disk(home: Home) -> None:
    path = write(home, "main", FULL)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["run", "boot", "end"]
    assert (lines[0]["run_id"], lines[0]["version"], lines[0]["hostname"]) == ("r-1", RECORD_VERSION, "node7")
    assert (lines[1]["boot_id"], lines[1]["metrics"]["cold_start"]["value"]) == ("b-1", 2.0)
    assert lines[2]["exit_status"] == 0


def test_a_session_without_boots_leaves_no_file(home: Home) -> None:
    RunFile(home, "r-1", "main", HEADER).close(5)
    assert os.listdir(home.runs) == []


def test_a_closed_file_is_immutable(home: Home) -> None:
    file = RunFile(home, "r-1", "main", HEADER)
    file.boot(FULL)
    assert stat.S_IMODE(file.path.stat().st_mode) & 0o200
    file.close(0)
    file.close(0)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o444
    with pytest.raises(StoreError, match="is closed"):
        file.boot(FULL)
    with pytest.raises(StoreError, match="File exists"):
        RunFile(home, "r-1", "main", HEADER).boot(FULL)


def test_what_json_cannot_hold(home: Home) -> None:
    odd = record(
        "b-2",
        failure=Failure("exit", "nul \0 and \udcff", "start"),
        metrics={"cold_start": Value(math.nan, "client", "odd")},
        cell={"options": {"path": Path("/m"), "limit": math.inf}},
    )
    data = read_run(write(home, "main", odd))
    assert data.boots[0].failure == Failure("exit", "nul \0 and ?", "start")
    assert data.boots[0].metrics["cold_start"] == Value(None, "client", "odd")
    assert data.boots[0].cell == {"options": {"path": "/m", "limit": None}}


def test_a_verdict_of_failed_boots_has_no_number(home: Home) -> None:
    file = RunFile(home, "r-1", "main", HEADER)
    file.verdict("c", "i", "restart", "n", Verdict("cold_start", "max", "<=", 10.0, "s", math.inf, 3, "fail", "ini"))
    got = read_run(file.path).verdicts[0].verdict
    assert (got.value, got.verdict, got.rounds) == (None, "fail", 3)


def test_a_cut_last_line_costs_that_line_only(home: Home) -> None:
    path = write(home, "main", FULL, record("b-2"), close=None)
    whole = path.read_bytes()
    for cut in (whole[:-1][:-30], whole[:-2], whole + b"\0\0\0"):
        path.write_bytes(cut)
        data = read_run(path)
        assert data.cut
        assert not data.closed
        assert data.boots[0] == FULL
    path.write_bytes(whole[:-1])  # complete but for the newline
    assert [boot.boot_id for boot in read_run(path).boots] == ["b-1", "b-2"]


def test_a_file_with_half_a_first_line(home: Home) -> None:
    path = home.runs / "r.main.jsonl"
    for content in (b"", b'{"kind":"ru'):
        path.write_bytes(content)
        assert read_run(path).header == {}


@pytest.mark.parametrize("broken", [b'{"kind":"boot","boot_id"', b"[1]", b'{"kind":"boot"}', b"\xff\xfe"])
def test_a_broken_line_in_the_middle_is_named(home: Home, broken: bytes) -> None:
    path = write(home, "main", FULL, record("b-2"), close=None)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], broken, lines[2]]) + b"\n")
    with pytest.raises(StoreError, match=r"r-1\.main\.jsonl:2: broken") as caught:
        read_run(path)
    assert str(path) in str(caught.value)


def test_a_newer_record_version_is_refused(home: Home) -> None:
    path = home.runs / "r.main.jsonl"
    path.write_text('{"kind":"run","version":99,"run_id":"r"}\n')
    with pytest.raises(StoreNewer, match=r"r\.main\.jsonl:1: record version 99 is newer than .*upgrade"):
        read_run(path)


def test_unknown_lines_and_keys_are_passed_over(home: Home) -> None:
    path = write(home, "main", FULL, close=None)
    lines = path.read_text().splitlines()
    lines[1] = lines[1].replace('{"kind":"boot"', '{"kind":"boot","later_key":1', 1)
    path.write_text("\n".join([lines[0], '{"kind":"note","text":"hi"}', lines[1]]) + "\n")
    assert read_run(path).boots == [FULL]


@pytest.mark.parametrize("text", ['{"kind":"boot"}\n', '{"some":"json"}\n', '{"kind":"run","version":1}\n'])
def test_a_file_of_something_else(home: Home, text: str) -> None:
    path = home.runs / "x.jsonl"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"x\.jsonl:1: (not a run file|broken run line)"):
        read_run(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nope\.jsonl: No such file or directory"):
        read_run(tmp_path / "nope.jsonl")


def test_a_full_disk_keeps_what_was_written(mounted: Callable[[str], Path]) -> None:
    home = Home.at(mounted("size=1m") / "home")
    home.prepare()
    file = RunFile(home, "r-1", "main", HEADER)
    file.boot(FULL)
    big = record("b-2", failure=Failure("exit", "x", "start", "y" * 2_000_000))
    with pytest.raises(StoreError, match=r"could not write .*r-1\.main\.jsonl: No space left on device"):
        file.boot(big)
    file.boot(record("b-3"))
    file.close(0)
    data = read_run(file.path)
    assert [boot.boot_id for boot in data.boots] == ["b-1", "b-3"]
    assert data.closed


def test_a_disk_full_from_the_start_leaves_no_file(mounted: Callable[[str], Path]) -> None:
    home = Home.at(mounted("size=1m") / "home")
    home.prepare()
    with open(home.root / "filler", "wb", buffering=0) as filler:
        with contextlib.suppress(OSError):
            while True:
                filler.write(b"\0" * 4096)
    file = RunFile(home, "r-1", "main", HEADER)
    with pytest.raises(StoreError, match="No space left on device"):
        file.boot(FULL)
    file.close(0)
    assert os.listdir(home.runs) == []
    with pytest.raises(StoreError, match="No space left on device"):
        home.prepare()


def test_a_killed_writer_loses_only_the_boot_in_flight(home: Home) -> None:
    code = """
import sys, time
from pathlib import Path
from pytest_coldstart.store.home import Home
from tests.store.samples import FULL, write
write(Home.at(Path(sys.argv[1])), "main", FULL, close=None)
print("written", flush=True)
time.sleep(60)
"""
    top = Path(__file__).parents[2]
    command = [sys.executable, "-c", code, str(home.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=top) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        writer.send_signal(signal.SIGKILL)
    data = read_run(home.runs / "r-1.main.jsonl")
    assert data.boots == [FULL]
    assert not data.closed


def test_a_line_nested_too_deeply_is_a_broken_one(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text("[" * 100_000 + "\n")
    with pytest.raises(StoreError, match=r"deep\.jsonl:1: broken line"):
        read_run(path)
