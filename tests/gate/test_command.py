"""``coldstart gate``: what it prints and writes, and how it exits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_coldstart.cli import main
from pytest_coldstart.gate.comparison import GateReport
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from tests.gate import repository
from tests.gate.made import boot, run

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gate(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in a folder without anything; returns its exit status, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def go(*words: str | Path) -> tuple[int, str, str]:
        status = main(["gate", *(str(word) for word in words)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return go


@pytest.fixture
def sides(tmp_path: Path) -> dict[str, Path]:
    """Run files: eight boots of 2 s, eight of 2.5 s, eight like the first ones; the numbers are told apart by a few ms."""
    home = Home.at(tmp_path / "runs-of-others")
    home.prepare()

    def file(name: str, first: int, seconds: float) -> Path:
        return run(
            home, name, [boot(first + n, seconds + 0.002 * ((n * 5) % 8)) for n in range(8)], git_commit="c" * 40
        )

    return {"base": file("r-base", 0, 2.0), "slow": file("r-slow", 10, 2.5), "same": file("r-same", 20, 2.001)}


def test_a_regression_exits_1_and_an_improvement_and_the_same_exit_0(gate: Run, sides: dict[str, Path]) -> None:
    status, out, err = gate("--base", sides["base"], "--head", sides["slow"])
    assert (status, err) == (1, "")
    assert "regressed" in out
    assert "cold_start" in out
    assert gate("--base", sides["slow"], "--head", sides["base"])[0] == 0
    assert gate("--base", sides["base"], "--head", sides["same"])[0] == 0


def test_an_undecided_comparison_exits_10(gate: Run, sides: dict[str, Path]) -> None:
    assert gate("--base", sides["base"], "--head", sides["slow"], "--floor", "50%")[0] == 10


def test_json_alone_is_on_standard_output(gate: Run, sides: dict[str, Path]) -> None:
    status, out, _ = gate("--base", sides["base"], "--head", sides["slow"], "--json")
    report = GateReport.from_dict(json.loads(out))
    assert (report.outcome, report.exit_code, status) == ("regressed", 1, 1)
    assert (report.base.text, report.base.boots, report.base.commit) == (str(sides["base"]), 8, "c" * 40)
    change = next(item for item in report.cells[0].changes if item.metric == "cold_start")
    assert change.change == pytest.approx(0.25, abs=0.01)
    assert report.cells[0].phases[0].phase in ("load_weights", "first_request")


def test_every_file_of_the_report_is_written(gate: Run, sides: dict[str, Path], tmp_path: Path) -> None:
    names = ("json", "markdown", "comment", "junit", "badge")
    words = [f"--{name}={tmp_path / name}" for name in names]
    status, out, err = gate("--base", sides["base"], "--head", sides["slow"], "--github", *words)
    assert (status, err) == (1, "")
    assert [line for line in out.splitlines() if line.startswith("::error ")]
    assert GateReport.from_dict(json.loads((tmp_path / "json").read_text())).outcome == "regressed"
    assert json.loads((tmp_path / "badge").read_text())["schemaVersion"] == 1
    assert "cold_start" in (tmp_path / "markdown").read_text()
    assert "cold_start" in (tmp_path / "comment").read_text()
    assert ElementTree.parse(tmp_path / "junit").getroot().tag == "testsuites"


def test_runs_of_the_store_are_sides(gate: Run, sides: dict[str, Path], tmp_path: Path) -> None:
    home = Home.at(tmp_path / "store")
    ingest(home, sides.values())
    assert gate("--store", home.root, "--base", "run:r-base", "--head", "run:r-sl")[0] == 1
    status, _, err = gate("--store", home.root, "--base", "run:r-bas", "--head", "run:no")
    assert status == 4
    assert err.startswith("coldstart: head run:no: the store has no such run; the newest:")


def test_a_policy_beside_is_found_and_one_that_is_named_is_read(
    gate: Run, sides: dict[str, Path], tmp_path: Path
) -> None:
    words = ("--base", sides["base"], "--head", sides["slow"])
    (tmp_path / "mild.toml").write_text('[gate.metrics]\ncold_start = "warn"\nwarm_first_token = "warn"\n')
    assert gate(*words, "--policy", tmp_path / "mild.toml")[0] == 0
    (tmp_path / "mild.toml").rename(tmp_path / "coldstart-gate.toml")
    assert gate(*words)[0] == 0
    (tmp_path / "coldstart-gate.toml").write_text("[gate]\nflor = 1\n")
    status, _, err = gate(*words)
    assert status == 4
    assert "gate: unknown key 'flor'; valid keys: " in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--base", "nonsense", "--head", "run:last"), "base 'nonsense' is no such form and no path that exists"),
        (("--base", "{base}", "--head", "run:last"), "there is no store at"),
        (("--base", "{base}", "--head", "git:main"), "not a git repository"),
        (("--base", "{base}", "--head", "python:python3"), "give the suites to boot"),
        (("--base", "{base}", "--head", "{slow}", "--allow", "tier"), "tiers and engines are never compared"),
        (
            ("--base", "{base}", "--head", "{slow}", "--head-cell", "zz"),
            "is part of no cell's id; the head has: tiny-restart",
        ),
        (
            ("--base", "{base}", "--head", "{slow}", "--seed", "3"),
            "--seed: only what is booted now needs that; give SUITES",
        ),
        (("--base", "{base}", "--head", "{slow}", "--", "-k", "x"), "arguments after --: only what is booted now"),
        (("--base", "{base}", "--head", "{slow}", "--json", "--github"), "both want standard output"),
        (
            ("--base", "{base}", "--head", "{slow}", "--junit", "no/such/folder/x.xml"),
            "give a file in a folder that exists",
        ),
        (("--base", "{base}", "--head", "{slow}", "--alpha", "2"), "argument --alpha: '2' is not between 0 and 1"),
        (
            ("--base", "{base}", "--head", "{slow}", "--boots", "0"),
            "argument --boots: '0' is not a whole number from 1",
        ),
        (("--base", "{base}", "--head", "{slow}", "--time", "5"), "argument --time: '5' has no unit"),
        (
            (
                "--base",
                "{base}",
            ),
            "the following arguments are required: --head",
        ),
        (("--base", "{base}", "--head", "git:main", "suites"), "'{base}' cannot be booted"),
        (("--base", "git:a", "--head", "git:b", "--base-cell", "x", "suites"), "with SUITES choose tests: -- -k TEXT"),
    ],
)
def test_wrong_usage_exits_4_with_what_is_valid(
    gate: Run,
    sides: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    paths = {name: str(path) for name, path in sides.items()}
    (tmp_path / ".coldstart").mkdir()
    if "git:main" in words and "suites" not in words:
        ingest(Home.at(tmp_path / ".coldstart"), [sides["base"]])
    status, out, err = gate(*(word.format(**paths) for word in words))
    assert (status, out) == (4, "")
    assert said.format(**paths) in err


def test_a_broken_run_file_exits_4_and_is_left_as_it_is(gate: Run, sides: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(sides["slow"].read_bytes().replace(b'"kind":"boot"', b'"kind":"boot', 1))
    content = broken.read_bytes()
    status, _, err = gate("--base", sides["base"], "--head", broken)
    assert status == 4
    assert "broken.jsonl:2: broken line" in err
    assert broken.read_bytes() == content


def test_a_file_that_cannot_be_written_is_said_and_hides_no_regression(gate: Run, sides: dict[str, Path]) -> None:
    words = ("--base", sides["base"], "--head")
    status, out, err = gate(*words, sides["slow"], "--badge", "/dev/full")
    assert (status, err) == (1, "coldstart: --badge /dev/full was not written: No space left on device\n")
    assert "regressed" in out
    assert gate(*words, sides["same"], "--badge", "/dev/full")[0] == 4


def test_suites_are_booted_at_both_commits_and_a_broken_slo_of_the_head_exits_1(
    gate: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.alone(monkeypatch, tmp_path / "tmp")
    top = repository.make(tmp_path / "repo")
    repository.commit(top, {"test_a.py": repository.SUITE, "server.py": repository.server()}, "one")
    repository.git(top, "branch", "old")
    repository.commit(top, {"notes.txt": "2"}, "two")
    monkeypatch.chdir(top)
    sides = ("--base", "git:old", "--head", "git:HEAD")
    slos = ("--coldstart-slo=cold_start<=1us", "--coldstart-slo=warm_first_token<=1h")
    only = ("-p", "coldstart", *slos, "-k", "test_one")
    status, out, err = gate(*sides, "--boots", "1", "--seed", "7", "--json=-", "test_a.py", "--", *only)
    report = GateReport.from_dict(json.loads(out))
    assert (status, report.exit_code, report.outcome) == (1, 1, "inconclusive")
    assert (report.base.boots, report.head.boots, len(report.cells)) == (1, 1, 1)
    assert report.cells[0].interleaved
    assert [line.partition(":")[0] for line in report.broken] == ["openai restart"]
    assert report.seconds > 0
    assert any(note.endswith("seed 7") for note in report.notes)
    assert "seed 7" in err


def test_the_head_is_no_part_of_the_history_that_excuses_it(gate: Run, sides: dict[str, Path], tmp_path: Path) -> None:
    home = Home.at(tmp_path / "store")
    ingest(home, [sides["base"], sides["slow"]])
    status, out, _ = gate("--store", home.root, "--base", "run:r-base", "--head", "run:r-slow")
    assert status == 1
    assert "unstable" not in out


def test_a_fault_of_ours_is_no_regression(
    sides: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fault(*words: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("pytest_coldstart.gate.judge.match", fault)
    assert main(["gate", "--base", str(sides["base"]), "--head", str(sides["slow"])]) == 4
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--store", "--policy", "--base"])
def test_a_name_longer_than_the_system_allows_is_one_sentence(gate: Run, sides: dict[str, Path], option: str) -> None:
    status, _, err = gate("--base", sides["base"], "--head", sides["slow"], option, "a" * 300)
    assert (status, err.count("\n")) == (4, 1)


def test_without_the_extra_it_says_how_to_get_it(sides: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import sys\nsys.modules['scipy'] = None\nfrom pytest_coldstart.cli import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    words = [
        sys.executable,
        str(tmp_path / "main.py"),
        "gate",
        "--base",
        str(sides["base"]),
        "--head",
        str(sides["slow"]),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        4,
        "coldstart: coldstart gate needs the extra gate: pip install 'pytest-coldstart[gate]'\n",
    )
