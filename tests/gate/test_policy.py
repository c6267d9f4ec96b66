"""Policies: what a file may say, for which cells it holds, and what is said of a wrong one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_coldstart.gate.errors import GateError
from pytest_coldstart.gate.policy import Policies, Policy, find, load


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "coldstart-gate.toml"
    path.write_text(text)
    return path


def test_without_a_file_the_defaults_hold() -> None:
    policy = load(None).of("llamacpp", "tiny-restart")
    assert policy == Policy()
    assert policy.metrics == {"cold_start": "fail", "warm_first_token": "warn"}
    assert (policy.floor, policy.margin, policy.alpha, policy.most_boots) == (0.03, 0.10, 0.05, 20)


def test_a_file_changes_what_it_names_and_an_override_what_it_matches(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
[gate]
floor = "5%"
alpha = 0.01
most_boots = 8
seconds = "30min"
inconclusive = "fail"
[gate.metrics]
warm_first_token = "warn"
ready = "pass"

[[gate.cell]]
match = "vllm"
floor = 0.2
[gate.cell.metrics]
cold_start = "warn"

[[gate.cell]]
match = "pristine"
margin = 0.3
""",
    )
    policies = load(path)
    assert policies.of("llamacpp", "tiny-restart") == Policy(
        metrics={"cold_start": "fail", "warm_first_token": "warn", "ready": "pass"},
        floor=0.05,
        alpha=0.01,
        most_boots=8,
        seconds=1800.0,
        inconclusive="fail",
        name=str(path),
    )
    vllm = policies.of("vllm", "tiny-pristine")
    assert (vllm.floor, vllm.margin) == (0.2, 0.3)
    assert vllm.metrics == {"cold_start": "warn", "warm_first_token": "warn", "ready": "pass"}
    assert policies.of("vllm", "tiny-restart").margin == 0.10


def test_the_command_line_beats_the_file_for_every_cell(tmp_path: Path) -> None:
    path = written(tmp_path, '[[gate.cell]]\nmatch = "tiny"\nfloor = 0.2\nmargin = 0.4\n')
    policies = load(path).over({"floor": 0.01, "most_boots": 5})
    policy = policies.of("vllm", "tiny")
    assert (policy.floor, policy.margin, policy.most_boots, policies.default.most_boots) == (0.01, 0.4, 5, 5)
    assert Policies().over({}) == Policies()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gate\n", "line 1"),
        ("[gates]\n", "the file: unknown key 'gates'; valid keys: gate"),
        ("gate = 3\n", "gate: a table is needed, not 3"),
        ("[gate]\nflor = 0.1\n", "gate: unknown key 'flor'; valid keys: cell, metrics, counters, alpha, floor"),
        ("[gate]\nfloor = 3\n", 'gate.floor: 3 is not between 0 and 1; write 0.03 or "3%" for three per cent'),
        ("[gate]\nfloor = '3'\n", "gate.floor: '3' is not between 0 and 1"),
        ("[gate]\nfloor = nan\n", "gate.floor: nan is not a finite number"),
        ("[gate]\nmargin = true\n", "gate.margin: True is no number"),
        ("[gate]\nalpha = 0\n", "gate.alpha: 0 is no level of a test"),
        ("[gate]\nalpha = 0.9\n", "gate.alpha: 0.9 is no level of a test"),
        ("[gate]\nmads = -1\n", "gate.mads: -1 is below zero"),
        ("[gate]\nmost_boots = 0\n", "gate.most_boots: 0 is not a whole number from 1"),
        ("[gate]\nmost_boots = 2.5\n", "gate.most_boots: 2.5 is not a whole number"),
        ("[gate]\nseconds = '30'\n", "gate.seconds: '30' has no unit"),
        ("[gate]\nseconds = -1\n", "gate.seconds: -1: a time must be greater than zero"),
        ("[gate]\ninconclusive = 'no'\n", "gate.inconclusive: 'no' is no action; valid: fail, warn, pass"),
        ("[gate]\nunstable = 1\n", "gate.unstable: 1 is no action"),
        ("[gate.metrics]\ncoldstart = 'fail'\n", "gate.metrics: unknown metric 'coldstart'; valid: "),
        ("[gate.metrics]\ncold_start = 'stop'\n", "gate.metrics: 'stop' is no action"),
        ("[gate]\nmetrics = ['cold_start']\n", "gate.metrics: a table of metric and actions is needed"),
        ("[gate.counters]\nkernel = 'fail'\n", "gate.counters: unknown counter 'kernel'; valid: "),
        ("[gate.cell]\nmatch = 'x'\n", "gate.cell: write each override as a table of its own, [[gate.cell]]"),
        ("[[gate.cell]]\nfloor = 0.1\n", "gate.cell.match: give an engine or a part of a cell's id"),
        ("[[gate.cell]]\nmatch = 'x'\nalpha = 0.1\n", "gate.cell: unknown key 'alpha'; valid keys: match, metrics"),
    ],
)
def test_a_wrong_file_is_named_with_the_key_and_what_is_valid(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(GateError) as caught:
        load(path)
    assert str(caught.value).startswith(f"policy {path}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="No such file"):
        load(tmp_path / "none.toml")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(GateError, match="nested too deeply"):
        load(tmp_path / "deep.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    with pytest.raises(GateError, match="utf-8"):
        load(tmp_path / "latin.toml")


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "bom.toml").write_text("\ufeff[gate]\nfloor = 0.2\n", encoding="utf-8")
    assert load(tmp_path / "bom.toml").default.floor == 0.2


@pytest.mark.parametrize("broken", ["folder", "link"])
def test_what_lies_in_its_place_and_is_no_file_is_not_passed_over(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "coldstart-gate.toml"
    if broken == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    found = find([], tmp_path)
    assert found == path
    with pytest.raises(GateError, match=r"coldstart-gate.toml: (Is a directory|No such file)"):
        load(found)


def test_the_file_beside_the_suite_comes_before_the_one_here(tmp_path: Path) -> None:
    suites, here = tmp_path / "suites", tmp_path / "here"
    suites.mkdir()
    here.mkdir()
    assert find([suites], here) is None
    mine = written(here, "")
    assert find([suites], here) == mine
    theirs = written(suites, "")
    assert find([suites / "test_a.py"], here) == find([suites], here) == theirs


def test_the_policy_of_the_docs_is_the_default_and_two_tables(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "gate.md"
    policies = load(written(tmp_path, page.read_text().partition("```toml\n")[2].partition("```")[0]))
    counters = {"kernels_compiled": "fail", "modules_imported": "warn"}
    assert replace(policies.default, name="default") == replace(Policy(), counters=counters)
    vllm = policies.of("vllm", "tiny-restart")
    assert (vllm.floor, vllm.metrics) == (0.05, {"cold_start": "fail", "warm_first_token": "warn", "ready": "warn"})
