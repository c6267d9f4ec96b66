"""The scripts of the actions, run as a runner runs them. A stand-in takes the place of `coldstart`: it writes down its arguments, and
the reports that it is told to."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_coldstart.report.gate_markdown import MARKER

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github/actions/coldstart"

STAND_IN = """#!{python}
import json, os, sys
words = sys.argv[1:]
json.dump(words, open(os.environ["SEEN"], "w"))
json.dump(dict(os.environ), open(os.environ["SEEN"] + ".environ", "w"))
if outcome := os.environ.get("OUTCOME"):
    open(words[words.index("--json") + 1], "w").write(json.dumps({{"outcome": outcome}}))
    open(words[words.index("--markdown") + 1], "w").write("# " + outcome)
print("booted")
sys.exit(int(os.environ["CODE"]))
"""


class Runner:
    """A job of a runner: its checkout, temporary folder and files for outputs and summary."""

    def __init__(self, folder: Path) -> None:
        self.temp, self.checkout = folder / "temp", folder / "checkout"
        self.home = self.temp / "coldstart"
        self.seen = folder / "seen.json"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_WORKSPACE": str(self.checkout),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "SEEN": str(self.seen),
            **{f"GIT_{who}_{what}": "someone" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        programs = self.home / "venv/bin"
        programs.mkdir(parents=True)
        (programs / "python").symlink_to(sys.executable)
        (programs / "coldstart").write_text(STAND_IN.format(python=sys.executable))
        (programs / "coldstart").chmod(0o755)
        self.checkout.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("commit", "--quiet", "--allow-empty", "-m", "one")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.checkout, env=self.environ, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def step(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(ACTION / script)],
            env={**self.environ, "CODE": "0", **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def words(self) -> list[str]:
        return json.loads(self.seen.read_text())

    def outputs(self) -> dict[str, str]:
        lines = Path(self.environ["GITHUB_OUTPUT"]).read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def summary(self) -> str:
        return Path(self.environ["GITHUB_STEP_SUMMARY"]).read_text()


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@pytest.mark.parametrize(
    ("code", "outcome", "inconclusive", "ends"),
    [
        (0, "same", "fail", 0),
        (1, "regressed", "pass", 1),
        (10, "inconclusive", "pass", 0),
        (10, "inconclusive", "fail", 10),
    ],
)
def test_the_exit_code_of_a_gate_becomes_that_of_its_step(
    runner: Runner, code: int, outcome: str, inconclusive: str, ends: int
) -> None:
    done = runner.step(
        "gate.sh", INPUT_BASE="HEAD", CODE=str(code), OUTCOME=outcome, INPUT_ON_INCONCLUSIVE=inconclusive
    )
    assert done.returncode == ends, done.stdout + done.stderr
    report = runner.home / "report"
    assert runner.outputs() == {
        "outcome": outcome,
        "exit-code": str(code),
        "report": str(report),
        "json": str(report / "gate.json"),
        "markdown": str(report / "gate.md"),
    }
    assert runner.summary() == f"# {outcome}"


def test_a_gate_that_broke_down_is_no_regression(runner: Runner) -> None:
    done = runner.step("gate.sh", INPUT_BASE="HEAD", CODE="1")
    assert done.returncode == 1
    assert runner.outputs()["outcome"] == "error"
    assert "compared nothing" in runner.summary()
    assert "booted" in runner.summary()


def test_inputs_reach_the_gate_as_words_and_never_as_shell(runner: Runner) -> None:
    done = runner.step(
        "gate.sh",
        INPUT_BASE="HEAD",
        INPUT_SUITES="a.py $(touch${IFS}owned) *",
        INPUT_BOOTS="6",
        INPUT_TIME="30min",
        INPUT_PREPARE="make 'x y'; true",
        INPUT_ENGINE_PYTHON="vllm=/opt/a b/python\nllamacpp=/opt/c/python\n",
        INPUT_ARGS="-k\nnot slow",
        INPUT_GPU="3",
        OUTCOME="same",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    words = runner.words()
    assert words[:5] == ["gate", "--base", "git:HEAD", "--head", "git:HEAD"]
    tail = ["--boots", "6", "--time", "30min", "--prepare", "make 'x y'; true", "a.py", "$(touch${IFS}owned)", "*"]
    pythons = ["--coldstart-python", "vllm=/opt/a b/python", "--coldstart-python", "llamacpp=/opt/c/python"]
    assert words[words.index("--github") + 1 :] == [*tail, "--", *pythons, "-k", "not slow"]
    assert list(runner.checkout.iterdir()) == [runner.checkout / ".git"]
    environ = json.loads(Path(f"{runner.seen}.environ").read_text())
    assert environ["CUDA_VISIBLE_DEVICES"] == "3"
    assert environ["TMPDIR"] == str(runner.home / "tmp")


def test_without_a_base_a_merge_is_compared_with_the_base_branch(runner: Runner) -> None:
    runner.git("checkout", "--quiet", "-b", "change")
    runner.git("commit", "--quiet", "--allow-empty", "-m", "two")
    runner.git("checkout", "--quiet", "main")
    runner.git("merge", "--quiet", "--no-ff", "-m", "merge", "change")
    assert runner.step("gate.sh", OUTCOME="same").returncode == 0
    assert runner.words()[1:5] == ["--base", f"git:{runner.git('rev-parse', 'HEAD^1')}", "--head", "git:HEAD"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"INPUT_BASE": "nowhere"}, "base: 'nowhere' is no commit of this clone"),
        ({"INPUT_BASE": "HEAD", "INPUT_HEAD": "--output=x"}, "head: '--output=x' is no commit"),
        ({}, "base: HEAD has no parent in this clone"),
        ({"INPUT_BASE": "HEAD", "INPUT_ON_INCONCLUSIVE": "warn"}, "'warn' is neither pass nor fail"),
    ],
)
def test_a_mistake_is_named_and_ends_with_4(runner: Runner, value: dict[str, str], says: str) -> None:
    done = runner.step("gate.sh", **value)
    assert done.returncode == 4
    assert says in done.stdout
    assert runner.outputs() == {"outcome": "error", "exit-code": "4"}
    assert not runner.seen.exists()


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def test_clean_up_ends_what_the_gate_left_and_nothing_else(
    runner: Runner, processes: list[subprocess.Popen[bytes]]
) -> None:
    assert runner.step("gate.sh", INPUT_BASE="HEAD", OUTCOME="same").returncode == 0
    mark = (runner.home / "mark").read_text()
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    marked = {**os.environ, "COLDSTART_ACTION": mark}
    # One has the mark after much else, one only looks like it, one has to be killed.
    processes.append(subprocess.Popen(["sleep", "60"], env=marked))
    processes.append(subprocess.Popen([sys.executable, "-c", deaf], env=marked, stdout=subprocess.PIPE))
    processes.append(subprocess.Popen(["sleep", "60"], env={**os.environ, "COLDSTART_ACTION": f"{mark}0"}))
    assert processes[1].stdout is not None
    processes[1].stdout.readline()
    runner.git("worktree", "add", "--detach", "--quiet", str(runner.home / "tmp/base"))
    runner.git("worktree", "add", "--detach", "--quiet", str(runner.temp / "of another"))
    (runner.temp / "of another").rename(runner.temp / "elsewhere")  # as a gate does between its boots
    for name in ("runs/old.jsonl", "runs/new.jsonl", "logs/new.log"):
        file = runner.home / "store" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    began = (runner.home / "began").stat().st_mtime
    os.utime(runner.home / "store/runs/old.jsonl", (began - 60, began - 60))

    done = runner.step("cleanup.sh", COLDSTART_PATIENCE="1")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "the gate left processes" in done.stdout
    deadline = time.monotonic() + 5
    while processes[0].poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [process.poll() for process in processes] == [-15, -9, None]
    trees = re.findall(r"^worktree .*/(.+)$", runner.git("worktree", "list", "--porcelain"), re.MULTILINE)
    assert trees == ["checkout", "of another"]
    assert [path.name for path in runner.home.iterdir()] == ["report"]
    copied = {str(path.relative_to(runner.home / "report")) for path in (runner.home / "report").glob("*/*")}
    assert copied == {"runs/new.jsonl", "logs/new.log"}


def test_clean_up_of_a_job_that_never_began_is_quiet(runner: Runner) -> None:
    done = runner.step("cleanup.sh")
    assert (done.returncode, done.stderr) == (0, "")


def test_install_names_a_version_that_it_cannot_install(runner: Runner) -> None:
    done = runner.step("install.sh", INPUT_VERSION="--pre")
    assert done.returncode == 4
    assert "neither a version" in done.stdout


GH = """#!/usr/bin/env bash
printf '%s ' "$@" >>"$SEEN"; echo >>"$SEEN"
for word; do [[ "$word" != body=@* ]] || cp "${word#body=@}" "$SEEN.body"; done
[[ "$*" != *--jq* ]] || printf '%s' "$EARLIER"
"""


@pytest.mark.parametrize(
    ("earlier", "call"),
    [("", "POST repos/a/b/issues/7/comments"), ("41\n42\n", "PATCH repos/a/b/issues/comments/41")],
)
def test_a_comment_is_made_once_and_then_replaced(runner: Runner, tmp_path: Path, earlier: str, call: str) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "gh").write_text(GH)
    (programs / "gh").chmod(0o755)
    (tmp_path / "comment.md").write_text(f"{MARKER}\n| a | `b` |\n")
    done = runner.step(
        "comment/comment.sh",
        PATH=f"{programs}:{os.environ['PATH']}",
        GITHUB_REPOSITORY="a/b",
        INPUT_FILE=str(tmp_path / "comment.md"),
        INPUT_PULL="7",
        EARLIER=earlier,
    )
    assert done.returncode == 0, done.stderr
    assert call in runner.seen.read_text().splitlines()[1]
    assert Path(f"{runner.seen}.body").read_text() == f"{MARKER}\n| a | `b` |\n"


def test_no_other_file_becomes_a_comment(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "comment.md").write_text("@everyone")
    done = runner.step(
        "comment/comment.sh", GITHUB_REPOSITORY="a/b", INPUT_FILE=str(tmp_path / "comment.md"), INPUT_PULL="7"
    )
    assert done.returncode == 4
    assert "is not what coldstart gate --comment writes" in done.stdout
