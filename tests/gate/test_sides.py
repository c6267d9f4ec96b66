"""Sides: what a person writes, which stored boots it means, and what is said where it means none."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest

from pytest_coldstart.gate.errors import GateError
from pytest_coldstart.gate.sides import load, parse, verdicts_of
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.database import connect
from pytest_coldstart.store.errors import StoreError, StoreLocked, StoreNewer
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from tests.gate.made import boot, run, side

SLOW = Verdict("cold_start", "max", "<=", 1.0, "s", 2.0, 2, "fail", "command line", "client")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home.at(tmp_path / "store")
    made.prepare()
    return made


def ids(home: Home, text: str, cwd: Path | None = None) -> list[str]:
    return [item.record.boot_id for item in load("base", text, home, cwd or home.root).boots]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("run:last", "run", "last"),
        ("git:HEAD~2", "git", "HEAD~2"),
        ("python:vllm=v/bin/python", "python", "vllm=v/bin/python"),
    ],
)
def test_a_side_is_read_by_its_prefix(text: str, kind: str, value: str) -> None:
    assert (parse("base", text).kind, parse("base", text).value) == (kind, value)


@pytest.mark.parametrize(
    "text", ["", "run:", "git: ", "no/such/file.jsonl", "commit:abc", "a" * 5000, "~no-such-user-here/x"]
)
def test_what_is_no_side_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(GateError, match="git:REF") as caught:
        parse("head", text)
    assert "head" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_is_found_by_its_id_the_beginning_of_it_and_last(home: Home) -> None:
    one = run(home, "20261101-a", [boot(1)], started_at="2026-11-01T09:00:00+00:00")
    run(home, "20261102-b", [boot(2), boot(3)])
    ingest(home)
    assert ids(home, "run:20261101-a") == ids(home, "run:20261101") == ids(home, str(one)) == [boot(1).boot_id]
    assert ids(home, "run:last") == [boot(2).boot_id, boot(3).boot_id]
    with pytest.raises(GateError, match="several runs begin so"):
        ids(home, "run:2026110")


def test_a_stored_boot_is_the_one_of_its_run_file_with_its_gate_and_verdicts(home: Home) -> None:
    place = {"gate": "g-1", "side": "base", "block": 2, "position": 5}
    path = run(home, "r-1", [boot(1), boot(2, None)], [SLOW], gate=place)
    ingest(home)
    stored, written = load("base", "run:r-1", home, home.root), load("base", str(path), home, home.root)
    assert [item.record for item in stored.boots] == [item.record for item in written.boots]
    assert [(item.gate, item.block, item.position) for item in stored.boots] == [("g-1", 2, 5)] * 2
    assert stored.verdicts == written.verdicts
    assert stored.verdicts[0].verdict == SLOW
    for name in ("gpu", "driver", "cpu", "hardware_class", "git_commit", "versions", "command"):
        assert stored.boots[0].header[name] == written.boots[0].header[name], name


def test_the_verdicts_of_boots_made_now_are_those_of_their_run_files(home: Home) -> None:
    run(home, "r-1", [boot(1)], [SLOW])
    run(home, "r-2", [boot(2)], [SLOW])
    assert verdicts_of(home, side("head", [])) == ()
    made = load("head", str(home.runs / "r-2.main.jsonl"), home, home.root)
    assert [(item.nodeid, item.verdict) for item in verdicts_of(home, made)] == [(boot(2).nodeid, SLOW)]


def test_priming_boots_and_boots_that_contradict_their_tier_are_of_no_side(home: Home) -> None:
    path = run(home, "r-1", [boot(1, role="prime"), boot(2, outcome="error"), boot(3)])
    ingest(home)
    assert ids(home, "run:r-1") == ids(home, str(path)) == [boot(3).boot_id]


def test_a_store_folder_is_a_side_with_and_without_its_database(home: Home) -> None:
    run(home, "r-1", [boot(1)])
    run(home, "r-2", [boot(2)])
    assert ids(home, str(home.root)) == [boot(1).boot_id, boot(2).boot_id]
    ingest(home)
    assert ids(home, str(home.root)) == ids(home, str(home.database)) == [boot(1).boot_id, boot(2).boot_id]


def test_a_git_ref_means_the_clean_runs_at_its_commit(home: Home, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        line = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "one")
    git("tag", "v1")
    git("commit", "-q", "--allow-empty", "-m", "two")
    first, second = git("rev-parse", "v1"), git("rev-parse", "main")
    run(home, "r-1", [boot(1)], git_commit=first)
    run(home, "r-2", [boot(2)], git_commit=first, git_dirty=True)
    run(home, "r-3", [boot(3)], git_commit=second, git_dirty=True)
    ingest(home)
    assert ids(home, "git:v1", tmp_path) == ids(home, f"git:{first[:8]}", tmp_path) == [boot(1).boot_id]
    with pytest.raises(
        GateError, match=f"commit {second[:9]}, of which the store holds no run; runs at it with changed files"
    ):
        ids(home, "git:main", tmp_path)
    with pytest.raises(GateError, match=r"git:nonsense: there is no such branch, tag or commit here; .*--unshallow"):
        ids(home, "git:nonsense", tmp_path)
    with pytest.raises(GateError, match="no such branch"):
        ids(home, "git:--help", tmp_path)


def test_a_ref_outside_a_checkout_says_so(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "r-1", [boot(1)])
    ingest(home)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(GateError, match="not a git repository"):
        ids(home, "git:main", tmp_path)


def test_an_unknown_run_lists_the_newest_five(home: Home) -> None:
    for day in range(1, 8):
        run(home, f"r-{day}", [boot(day)], started_at=f"2026-11-0{day}T09:00:00+00:00")
    ingest(home)
    with pytest.raises(GateError, match=r"run:zz: the store has no such run; the newest:") as caught:
        ids(home, "run:zz")
    assert [line.split()[0] for line in str(caught.value).splitlines()[1:]] == ["r-7", "r-6", "r-5", "r-4", "r-3"]


def test_an_empty_side_and_a_python_side_without_suites_are_refused(home: Home) -> None:
    path = run(home, "r-1", [boot(1, role="prime")])
    ingest(home)
    for text in ("run:r-1", str(path), str(home.root)):
        with pytest.raises(GateError, match="is empty: it has no measured boot that counts"):
            ids(home, text)
    with pytest.raises(GateError, match="give the suites to boot"):
        ids(home, "python:/usr/bin/python3")


def test_a_missing_store_says_what_makes_one(home: Home) -> None:
    with pytest.raises(StoreError, match=r"there is no store at .*; run `coldstart ingest`"):
        ids(home, "run:last")


def test_a_corrupted_or_newer_run_file_is_named_and_left_as_it_is(home: Home) -> None:
    path = run(home, "r-1", [boot(1)])
    lines = path.read_bytes().splitlines(keepends=True)
    broken = path.with_name("broken.jsonl")
    broken.write_bytes(lines[0] + lines[1][:-40] + b"\n" + lines[2])
    content = broken.read_bytes()
    with pytest.raises(StoreError, match=r"broken.jsonl:2: broken line: .*; base needs a whole run file"):
        ids(home, str(broken))
    assert broken.read_bytes() == content
    newer = path.with_name("newer.jsonl")
    newer.write_bytes(lines[0].replace(b'"version":', b'"version":9'))
    with pytest.raises(StoreNewer, match="upgrade it"):
        ids(home, str(newer))


@pytest.mark.parametrize(
    ("line", "changes", "said"),
    [
        (0, {"gpu": ["H200"]}, "the run's gpu is ['H200'], not a text"),
        (0, {"memory_bytes": "much"}, "the run's memory_bytes is 'much', not a number"),
        (0, {"memory_bytes": math.nan}, "the run's memory_bytes is nan, not a number"),
        (0, {"versions": ["a"]}, "the run's versions is ['a'], not a table"),
        (1, {"started_at": None}, "it has no started_at"),
        (1, {"cell": ["a"]}, "cell is ['a'], not a table"),
        (1, {"cell": {"options": ["a"]}}, "cell.options is ['a'], not a table"),
        (1, {"tier": None}, "it has no tier"),
        (1, {"versions": ["a"]}, "versions is ['a'], not a table"),
        (
            1,
            {"metrics": {"cold_start": {"value": "fast", "source": "client"}}},
            "metrics.cold_start.value is 'fast', not a number",
        ),
        (
            1,
            {"phases": [{"name": "engine_init", "begin": "x", "end": 1.0, "source": "log"}]},
            "phases[0].begin is 'x', not a number",
        ),
    ],
)
def test_a_run_file_with_a_value_of_another_kind_is_named_with_the_value(
    home: Home, line: int, changes: dict[str, object], said: str
) -> None:
    path = run(home, "r-1", [boot(1)])
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    lines[line] |= changes
    path.write_text("".join(json.dumps(item) + "\n" for item in lines))
    with pytest.raises(StoreError) as caught:
        ids(home, str(path))
    assert f"{said}; base needs a whole run file" in str(caught.value)


def test_lines_nested_too_deeply_are_broken_ones(home: Home) -> None:
    path = home.runs / "deep.jsonl"
    path.write_text("[" * 100_000 + "\n")
    with pytest.raises(StoreError, match=r"deep\.jsonl:1: broken line"):
        ids(home, str(path))


def test_a_copy_of_a_run_file_adds_no_boot(home: Home) -> None:
    path = run(home, "r-1", [boot(1), boot(2)])
    path.with_name("copy.jsonl").write_bytes(path.read_bytes())
    assert ids(home, str(home.root)) == [boot(1).boot_id, boot(2).boot_id]


def test_a_broken_database_is_named_and_left_as_it_is(home: Home) -> None:
    run(home, "r-1", [boot(1)])
    ingest(home)
    content = home.database.read_bytes()
    for broken in (
        b"no database at all" * 1000,
        content[: len(content) // 2],
        content[:4096] + bytes(len(content) - 4096),
    ):
        home.database.write_bytes(broken)
        with pytest.raises(StoreError, match=r"could not (open|read) the store"):
            ids(home, str(home.database))
        assert home.database.read_bytes() == broken


def test_a_run_file_whose_last_line_is_cut_is_a_side_of_the_boots_before(home: Home) -> None:
    path = run(home, "r-1", [boot(1), boot(2)])
    lines = path.read_bytes().splitlines(keepends=True)
    cut = path.with_name("cut.jsonl")
    cut.write_bytes(lines[0] + lines[1] + lines[2][:100])
    assert ids(home, str(cut)) == [boot(1).boot_id]


def test_a_store_that_another_process_holds_is_said_to_be_held(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import pytest_coldstart.store.database as database

    run(home, "r-1", [boot(1)])
    ingest(home)
    code = "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('held', flush=True); time.sleep(60)"
    words = [sys.executable, "-c", code, str(home.database)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            reader = database.reader
            monkeypatch.setattr(database, "reader", lambda path: reader(path, wait=0.1))
            with pytest.raises(StoreLocked, match="no result is lost"):
                ids(home, "run:r-1")
        finally:
            holder.kill()
    with connect(home.database, read_only=True) as con:
        assert con.execute("SELECT count(*) FROM boot").fetchall() == [(1,)]
