"""Live boots: real child pytests of both sides, on the stand-in engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pytest_coldstart import environment
from pytest_coldstart.gate import live
from pytest_coldstart.gate.checkout import Repository, checkouts
from pytest_coldstart.gate.children import Children
from pytest_coldstart.gate.comparison import CellComparison, GateReport, MetricChange, Side, SideSummary, Summary
from pytest_coldstart.gate.errors import GateError, NothingBooted
from pytest_coldstart.gate.homes import side_homes
from pytest_coldstart.gate.live import live_side, run_live
from pytest_coldstart.store.home import Home
from tests.gate.repository import SUITE, alone, commit, git, make, server
from tests.plugin.conftest import MINE, carriers, eventually

EXTRA = ("-p", "coldstart")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the suite and its engine."""
    alone(monkeypatch, tmp_path / "tmp")
    here = make(tmp_path / "repo")
    commit(here, {"test_suite.py": SUITE, "server.py": server(), "pytest.ini": "[pytest]\n"}, "first")
    return here


def alive() -> list[str]:
    return [line for line, _ in carriers(f"{MINE}={os.environ[MINE]}")]


def boot(here: Path, base: str, head: str, look: live.Look, **more: Any) -> live.Live:
    sides = (live_side(text, here) for text in (base, head))
    extra = (*EXTRA, *more.pop("extra", ()))
    return run_live(*sides, ["test_suite.py"], look, Home.at(here / "store"), here=here, seed=1, extra=extra, **more)


def everything(base: Side, head: Side, final: bool) -> set[tuple[str, str]]:
    return {(boot.record.nodeid, boot.record.cell_digest) for boot in (*base.boots, *head.boots)}


def stored(here: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(here / "store" / "coldstart.duckdb"), read_only=True) as con:
        return con.execute(sql).fetchall()


def test_two_commits_boot_in_blocks_until_each_cell_is_decided(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "FIRST", 1)
    new = commit(here, {"server.py": server(0.3)}, "slower")
    looks: list[tuple[int, int, bool]] = []

    def look(base: Side, head: Side, final: bool) -> Collection[tuple[str, str]]:
        looks.append((len(base.boots), len(head.boots), final))
        return {cell for cell in everything(base, head, final) if "test_two" in cell[0]}

    prepare = f"mkdir -p .venv/bin && ln -s {sys.executable} .venv/bin/python && git rev-parse HEAD"
    done = boot(here, "git:HEAD~1", "git:HEAD", look, most_boots=2, prepare=prepare)

    assert looks == [(2, 2, False), (3, 3, True)]
    for side, sha in ((done.base, git(here, "rev-parse", "HEAD~1")), (done.head, new)):
        assert [boot.record.nodeid.partition("::")[2].partition("[")[0] for boot in side.boots] == [
            "test_one",
            "test_two",
            "test_two",
        ]
        assert {boot.header["git_commit"] for boot in side.boots} == {sha}
        assert [boot.block for boot in side.boots] == [0, 0, 1]
        assert all(boot.record.outcome == "ok" for boot in side.boots)
    # One cell on both sides, though its command holds the path of the checkout.
    assert len({boot.record.cell_digest for boot in (*done.base.boots, *done.head.boots)}) == 2
    listen = {side.name: min(boot.record.instants["listen"] for boot in side.boots) for side in (done.base, done.head)}
    assert listen["head"] > 0.3  # the commit's own engine: it sleeps that long
    assert done.notes == ()

    words = capfd.readouterr().err
    assert f"gate {done.gate}, seed 1" in words
    assert words.count("block 0, ") == words.count("block 1, ") == 2
    kept = stored(
        here, "SELECT extra->'gate'->>'side', count(*) FROM run JOIN boot USING (run_id) GROUP BY 1 ORDER BY 1"
    )
    assert kept == [("base", 3), ("head", 3)]
    assert len(list((here / "store" / "runs").glob("*.jsonl"))) == 4
    assert not any((here / "store" / "gates").iterdir())
    assert list((here.parent / "tmp").glob("coldstart-gate-*")) == []
    assert git(here, "worktree", "list").count("\n") == 0
    assert alive() == []


def test_interpreters_are_given_to_the_children_an_unused_one_is_told_and_a_failed_boot_is_data(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "exit")
    wrapper = here / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    done = boot(
        here,
        f"python:{sys.executable}",
        "python:openai=./wrapper",
        everything,
        most_boots=1,
        extra=["-k", "test_one"],
    )
    for side in (done.base, done.head):
        assert [(boot.record.outcome, boot.record.counted) for boot in side.boots] == [("failed", True)]
    assert f"--coldstart-python=vllm={sys.executable}" in done.base.boots[0].header["command"]
    assert f"--coldstart-python=openai={wrapper}" in done.head.boots[0].header["command"]
    # The suite's command is its own: the head's interpreter was of no use.
    assert [note for note in done.notes if f"no boot of head used {wrapper}" in note]


@pytest.mark.parametrize(
    ("suite", "words"),
    [
        ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
        ("def test_nothing(): ...", "1 deselected"),
        (SUITE + "pytestmark = pytest.mark.skip(reason='not on this host')", "not on this host"),
    ],
    ids=["collection", "no cell", "skipped"],
)
def test_child_that_boots_nothing_ends_the_gate_at_once(here: Path, suite: str, words: str) -> None:
    (here / "test_suite.py").write_text(suite)
    python = f"python:{sys.executable}"
    with pytest.raises(NothingBooted) as error:
        boot(here, python, python, lambda *_: pytest.fail("it looked"), most_boots=2)
    assert "its pytest booted no cell" in str(error.value)
    assert words in str(error.value)
    assert list((here / "store" / "runs").iterdir()) == []


def test_time_that_ends_before_the_first_boots_is_an_error(here: Path) -> None:
    python = f"python:{sys.executable}"
    with pytest.raises(GateError, match="the time was used up before both sides had booted once"):
        boot(here, python, python, lambda *_: pytest.fail("it looked"), seconds=0.001)


def test_blocks_that_the_time_does_not_hold_are_not_begun_and_a_cut_one_is_not_drawn() -> None:
    class Runner:
        """Boots that take a second of a clock of their own."""

        def __init__(self) -> None:
            self.boots: list[int | None] = []
            self.nodeids = {"test"}

        def boot(self, block: int, position: int, only: set[str] | None) -> None:
            time[0] += 1
            self.boots.append(block)

        def cut(self) -> None:
            self.boots = [None for _ in self.boots]

        def side(self) -> Side:
            return Side("side", "", tuple(self.boots))  # type: ignore[arg-type]

    time = [0.0]
    looks: list[tuple[int, bool]] = []

    def look(base: Side, head: Side, final: bool) -> Collection[tuple[str, str]]:
        looks.append((len(base.boots), final))
        return {("test", "")}

    def run(deadline: float) -> tuple[Runner, Runner]:
        time[0] = 0.0
        looks.clear()
        runners = Runner(), Runner()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(live.time, "monotonic", lambda: time[0])
            live._boot(dict(zip(("base", "head"), runners, strict=True)), look, 12, 1, deadline)  # type: ignore[arg-type]
        return runners

    base, head = run(deadline=11.5)  # a first block of 8 s, a pair to 10 s, and no pair that would end at 12 s
    assert base.boots == head.boots == [0, 0, 0, 0, 1]
    assert looks == [(4, False), (5, False), (5, True)]
    base, head = run(deadline=5.5)
    assert len(base.boots) + len(head.boots) == 6
    assert {*base.boots, *head.boots} == {None}
    assert [final for _, final in looks] == [True]


GATE = """
import sys
from pathlib import Path
from pytest_coldstart.gate.live import live_side, run_live
from pytest_coldstart.store.home import Home
here = Path.cwd()
side = live_side("git:HEAD", here)
run_live(side, side, ["test_suite.py"], lambda *_: (), Home.at(here / "store"), seed=1, extra=["-p", "coldstart"])
"""


def left(here: Path) -> set[str]:
    """What the sides of all gates still have in the store."""
    return {path.name for path in (here / "store" / "gates").glob("*/*/*")}


def engines() -> list[str]:
    return [line for line, tagged in carriers(f"{MINE}={os.environ[MINE]}") if tagged]


def started(here: Path) -> subprocess.Popen[bytes]:
    """A gate whose first child has made one boot whole and has an engine up that never listens."""
    later = here.parent / "later"
    code = f"""
    with open({str(later)!r}, "a") as file:
        file.write("x")
        if file.tell() > 1:
            time.sleep(600)
"""
    text = server().replace("    time.sleep(float(0.0))\n", code)
    commit(here, {"server.py": text}, "hangs")
    command = [sys.executable, "-c", GATE]
    gate = subprocess.Popen(command, cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert eventually(lambda: gate.poll() is not None or (later.exists() and later.stat().st_size > 1))
    assert engines()
    return gate


def test_ctrl_c_ends_child_engine_and_worktree_and_keeps_what_was_booted(here: Path) -> None:
    gate = started(here)
    gate.send_signal(signal.SIGINT)
    _, words = gate.communicate(timeout=60)
    assert gate.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in words
    assert alive() == []
    assert list((here.parent / "tmp").glob("coldstart-gate-*")) == []
    assert left(here) <= {"logs"}
    assert stored(here, "SELECT count(*) FROM boot WHERE outcome = 'ok'") == [(1,)]


@pytest.mark.parametrize(
    ("number", "heard"), [(signal.SIGINT, "INT"), (signal.SIGTERM, "TERM"), (signal.SIGHUP, "TERM")]
)
def test_each_signal_reaches_the_child_and_its_end_is_waited_for(
    tmp_path: Path, number: signal.Signals, heard: str
) -> None:
    def mine(*_: Any) -> None:
        raise AssertionError("the gate's own handler is not there")

    traps = 'for word in INT TERM HUP; do trap "echo $word; exit 0" $word; done'
    # Nothing but builtins: a shell says so when another command of its group ends by the signal.
    code = f"{traps}; kill -s {number.name[3:]} $PPID; while :; do :; done"
    before = signal.signal(number, mine)  # a shell may have had it ignored, which every child would inherit
    try:
        with (tmp_path / "said").open("wb") as said, pytest.raises(SystemExit) as ended, Children() as children:
            children.run(["sh", "-c", code], tmp_path, os.environ, said)
        assert signal.getsignal(number) is mine
    finally:
        signal.signal(number, before)
    assert ended.value.code == 128 + number
    assert (tmp_path / "said").read_text().split() == [heard]


def test_killed_gate_leaves_nothing_running_and_the_next_one_takes_what_it_booted(here: Path) -> None:
    gate = started(here)
    gate.kill()
    gate.communicate(timeout=60)
    assert eventually(lambda: alive() == [])
    assert len(list((here.parent / "tmp").glob("coldstart-gate-*"))) == 1
    home = Home.at(here / "store")
    with side_homes(home, "next", ["base"]), checkouts(Repository.at(here), [("base", "HEAD")], "next"):
        assert [path.name for path in (here.parent / "tmp").glob("coldstart-gate-*")] == ["coldstart-gate-next"]
    assert left(here) <= {"logs"}
    assert stored(here, "SELECT count(*) FROM boot WHERE outcome = 'ok'") == [(1,)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run:last", "cannot be booted; with SUITES a side is git:REF, python:INTERPRETER"),
        ("git:", "cannot be booted"),
        ("python:", "cannot be booted"),
        ("python:vlm=python3", "unknown engine 'vlm'; valid engines: llamacpp, "),
        ("python:./nowhere", "'./nowhere' is no executable file; give the interpreter"),
        ("python:./env", "no executable file; did you mean "),
    ],
)
def test_side_that_cannot_be_booted_says_what_is_valid(tmp_path: Path, text: str, words: str) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    with pytest.raises(GateError) as error:
        live_side(text, tmp_path)
    assert words in str(error.value)


def test_interpreter_path_may_hold_an_equals_sign(tmp_path: Path) -> None:
    python = tmp_path / "a=b"
    python.symlink_to(sys.executable)
    assert live_side(f"python:{python}", tmp_path).python == str(python)
    assert live_side(f"python:vllm={python}", tmp_path) == live.LiveSide(
        f"python:vllm={python}", python=str(python), engine="vllm"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, None),
        ("", None),
        ("no json", None),
        ("[]", None),
        ('{"gate": "g"}', None),
        ('{"gate": "g", "side": "base", "block": "x", "position": 0}', None),
        (
            '{"gate": "g", "side": "base", "block": 2, "position": 1, "pid": 7}',
            {"gate": "g", "side": "base", "block": 2, "position": 1},
        ),
    ],
)
def test_place_in_a_gate_is_read_or_none(text: str | None, found: dict[str, Any] | None) -> None:
    environ = {} if text is None else {"COLDSTART_GATE": text}
    assert environment.gate_place(environ) == found
    assert json.loads(json.dumps(found)) == found


def test_preparation_that_fails_says_for_which_side(here: Path) -> None:
    with pytest.raises(
        NothingBooted, match=r"--prepare ended with exit code 7 in the checkout of git:HEAD: exit 7"
    ) as error:
        boot(here, "git:HEAD", "git:HEAD", lambda *_: (), prepare="exit 7")
    assert error.value.side == "base"
    assert list((here.parent / "tmp").glob("coldstart-gate-*")) == []


def test_undecided_are_cells_with_a_change_that_more_boots_may_decide_and_that_matters() -> None:
    def cell(name: str, *changes: tuple[bool, str]) -> CellComparison:
        found = tuple(
            MetricChange("cold_start", "s", "time", "inconclusive", Summary(), Summary(), policy=policy, final=final)
            for final, policy in changes
        )
        return CellComparison("c", f"digest {name}", "e", "restart", name, "inconclusive", "warn", found)

    cells = (
        cell("open", (True, "fail"), (False, "fail")),
        cell("warned", (False, "warn")),
        cell("passed", (False, "pass"), (True, "fail")),
        cell("decided", (True, "fail")),
        cell("nothing"),
    )
    report = GateReport(SideSummary("base"), SideSummary("head"), cells=cells)
    assert live.undecided(report) == {("open", "digest open"), ("warned", "digest warned")}
