"""``coldstart bisect`` under a real ``git bisect run``, and what each outcome is to git."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_coldstart.cli import main
from pytest_coldstart.gate.bisect import BAD, GOOD, SKIP, STOP, exit_code
from pytest_coldstart.gate.comparison import IGNORE, CellComparison, GateReport, Refusal, SideSummary
from tests.gate.repository import SUITE, alone, commit, git, make, server

ONE = SUITE.partition("\n@pytest.mark.coldstart(**ENGINE, env")[0]


#: Two boots a side can show a difference of one metric at this level: 2 against 2 have 6 orders.
POLICY = '[gate]\nalpha = 0.4\n[gate.metrics]\nwarm_first_token = "pass"\n'


def test_git_bisect_run_finds_the_commit_that_made_the_start_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(monkeypatch, tmp_path / "tmp")
    top = make(tmp_path / "repo")
    files = {"test_suite.py": ONE, "server.py": server(), "pytest.ini": "[pytest]\n", "coldstart-gate.toml": POLICY}
    good = commit(top, files, "good")
    slow = commit(top, {"server.py": server(1.5)}, "slower")
    commit(top, {"README": "more"}, "later")
    git(top, "bisect", "start", "HEAD", good)
    store = str(tmp_path / "store")
    command = [sys.executable, "-m", "pytest_coldstart.cli", "bisect", "--store", store, "--good", good]
    found = subprocess.run(
        [
            "git",
            "bisect",
            "run",
            *command,
            *"--seed=1 --boots=2 test_suite.py -- -p coldstart".split(),
        ],
        cwd=top,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{slow} is the first bad commit" in found.stdout, found.stdout + found.stderr
    assert git(top, "worktree", "list").count("\n") == 0
    assert list((tmp_path / "tmp").glob("coldstart-gate-*")) == []


def report(*outcomes: str, failed: int = 0, verdict: str = "fail", refused: tuple[Refusal, ...] = ()) -> GateReport:
    cells = tuple(CellComparison("c", "d", "e", "restart", "n", outcome, verdict) for outcome in outcomes)
    return GateReport(SideSummary("base"), SideSummary("head", failed=failed), cells=cells, refused=refused)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (report("same"), GOOD),
        (report("improved", "same"), GOOD),
        (report("regressed", "inconclusive"), BAD),
        (report("inconclusive", "same"), SKIP),
        (report(), SKIP),
        (report("regressed", failed=1), SKIP),
        (report("same", refused=(Refusal("c", "restart", "another model"),)), SKIP),
        (report("regressed", verdict=IGNORE), GOOD),
        # What broke an SLO need not be what this bisection looks for.
        (replace(report("same"), broken=("cold_start<=1s",)), GOOD),
    ],
)
def test_each_outcome_is_good_bad_or_skipped(found: GateReport, code: int) -> None:
    assert exit_code(found) == code


@pytest.mark.parametrize(
    "words",
    [
        ["--good", "nowhere", "suite.py"],
        ["--good", "HEAD"],
        ["suite.py"],
        ["--good", "HEAD", "--no-such", "suite.py"],
        ["--good", "HEAD", "--boots", "0", "suite.py"],
    ],
    ids=["unknown ref", "no suite", "no ref", "unknown option", "no boots"],
)
def test_mistake_stops_the_bisection_and_is_no_commits_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(make(tmp_path / "repo"))
    commit(tmp_path / "repo", {"suite.py": ""}, "one")
    assert main(["bisect", *words]) == STOP


def test_help_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "--help"]) == 0
    assert "git bisect run" in capsys.readouterr().out
