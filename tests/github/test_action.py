"""The composite actions and workflows: what they name exists, and no input can become shell."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github/actions/coldstart"
ACTIONS = [ACTION / "action.yml", ACTION / "comment/action.yml"]
WORKFLOWS = sorted([*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("docs/examples/github/*.yml")])

_INPUT = re.compile(r"\binputs\.([\w-]+)")
_PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}|\$/[\w./-]+")


@cache
def read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text("utf-8"))  # `on` is read as the key True


def steps(data: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    yield from data.get("runs", {}).get("steps", [])
    for job in data.get("jobs", {}).values():
        yield from job.get("steps", [])


def uses(data: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    """Steps and jobs that name an action or a workflow."""
    yield from (step for step in steps(data) if "uses" in step)
    yield from (job for job in data.get("jobs", {}).values() if "uses" in job)


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.parent.name)
def test_each_input_of_an_action_is_declared_and_used(path: Path) -> None:
    data = read(path)
    used = {name for step in data["runs"]["steps"] for name in _INPUT.findall(yaml.safe_dump(step))}
    assert used == set(data["inputs"])


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.parent.name)
def test_a_script_of_an_action_reads_just_the_variables_that_its_step_sets(path: Path) -> None:
    scripts = [step for step in read(path)["runs"]["steps"] if "run" in step]
    assert scripts
    for step in scripts:
        match = re.fullmatch(r'bash "\$GITHUB_ACTION_PATH/([\w/.]+)"', step["run"])
        assert match, f"{step['run']!r} is more than one script"
        read_there = set(re.findall(r"\bINPUT_\w+", (path.parent / match[1]).read_text("utf-8")))
        assert read_there == {name for name in step["env"] if name.startswith("INPUT_")}


@pytest.mark.parametrize("path", [*ACTIONS, *WORKFLOWS], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_expression_is_pasted_into_shell_and_each_action_is_pinned(path: Path) -> None:
    data = read(path)
    assert [step["run"] for step in steps(data) if "${{" in step.get("run", "")] == []
    assert [item["uses"] for item in uses(data) if not _PINNED.fullmatch(item["uses"])] == []


def blocks(page: Path) -> list[dict[Any, Any]]:
    return [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_a_workflow_passes_to_ours_is_an_input_of_it(path: Path) -> None:
    check_inputs(read(path))


def test_the_examples_of_the_page_are_those_of_the_workflow() -> None:
    whole = copy.deepcopy(read(ROOT / "docs/examples/github/coldstart.yml"))
    action, gpu, *others = blocks(ROOT / "docs/ci.md")
    assert gpu["jobs"]["gpu"] == whole["jobs"]["gpu"]
    whole["jobs"]["cpu"]["steps"][-1]["with"].pop("artifact")
    del whole["jobs"]["gpu"]
    assert action == whole
    assert len(others) == 4  # GitLab, Buildkite, bounds, GPU memory
    for data in (action, gpu, *others):
        check_inputs(data)


def check_inputs(data: dict[Any, Any]) -> None:
    """Of the actions and workflows of this repository that *data* uses."""
    for item in uses(data):
        name = re.sub(r"^(\$|[\w-]+/pytest-coldstart)/|@.*", "", item["uses"])
        if not name.startswith(".github/"):
            continue
        target = ROOT / name
        called = read(target if target.suffix == ".yml" else target / "action.yml")
        declared = called["inputs"] if "inputs" in called else called[True]["workflow_call"]["inputs"]
        assert set(item.get("with", {})) <= set(declared), item["uses"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_workflow_runs_for_a_pull_request_with_a_token_that_can_write(path: Path) -> None:
    data = read(path)
    events = data[True]
    assert "pull_request_target" not in (events if isinstance(events, (list, dict)) else [events])
    assert set(data["permissions"].values()) <= {"read"}
    for name, job in data["jobs"].items():
        if "write" in job.get("permissions", {}).values() and "uses" not in job:
            assert not any("setup-python" in step.get("uses", "") for step in job["steps"]), name


def test_a_fork_gets_no_gpu_without_an_environment_that_asks_for_approval() -> None:
    job = read(ROOT / ".github/workflows/gpu-gate.yml")["jobs"]["gate"]
    assert "head.repo.full_name == github.repository || inputs.fork-environment != ''" in job["if"]
    assert "head.repo.full_name != github.repository\n&& inputs.fork-environment" in job["environment"].replace(
        " &&", "\n&&"
    )
    assert job["permissions"] == {"contents": "read"}
    assert job["concurrency"]["cancel-in-progress"] is False
