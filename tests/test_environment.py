"""What a run says of its host: hardware class, git state and CI, without secrets."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

from pytest_coldstart import environment
from pytest_coldstart.environment import ci_ids, git_state, hardware_class

GIB = 2**30


def test_a_hardware_class_is_the_same_for_the_same_machine_and_hides_its_parts() -> None:
    found = hardware_class("AMD EPYC 9654", 96, 755 * GIB, ["NVIDIA H200", "NVIDIA A100"])
    assert found == hardware_class("AMD EPYC 9654", 96, 755 * GIB, ["NVIDIA A100", "NVIDIA H200"]), "order of GPUs"
    assert found == hardware_class("AMD EPYC 9654", 96, 755 * GIB + 1000, ["NVIDIA H200", "NVIDIA A100"]), "a few bytes"
    assert len(found) == 12
    assert int(found, 16) >= 0


@pytest.mark.parametrize(
    "other",
    [
        *(("Xeon", 96, 755 * GIB, ["H200"]), ("EPYC", 48, 755 * GIB, ["H200"]), ("EPYC", 96, 754 * GIB, ["H200"])),
        *(("EPYC", 96, 755 * GIB, ["H200", "H200"]), ("EPYC", 96, 755 * GIB, []), ("EPYC", 96, None, ["H200"])),
    ],
)
def test_machines_that_differ_in_cpu_cores_memory_or_gpus_are_other_classes(other: tuple) -> None:
    assert hardware_class(*other) != hardware_class("EPYC", 96, 755 * GIB, ["H200"])


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, {}),
        ({"CI": "true"}, {}),
        (
            {"GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": "17", "GITHUB_SHA": "abc", "GITHUB_TOKEN": "s"},
            {"system": "GITHUB_ACTIONS", "GITHUB_RUN_ID": "17", "GITHUB_SHA": "abc"},
        ),
        (
            {"GITLAB_CI": "true", "CI_JOB_ID": "3", "CI_JOB_TOKEN": "s"},
            {"system": "GITLAB_CI", "CI_JOB_ID": "3"},
        ),
        ({"BUILDKITE": "true", "BUILDKITE_BRANCH": "main"}, {"system": "BUILDKITE", "BUILDKITE_BRANCH": "main"}),
        (
            {"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com"},
            {"system": "GITHUB_ACTIONS", "GITHUB_SERVER_URL": "https://github.com"},
        ),
        (
            {"GITLAB_CI": "true", "CI_JOB_URL": "https://g/j", "CI_PIPELINE_URL": "https://g/p"},
            {"system": "GITLAB_CI", "CI_JOB_URL": "https://g/j", "CI_PIPELINE_URL": "https://g/p"},
        ),
        (
            {"BUILDKITE": "1", "BUILDKITE_BUILD_URL": "https://b"},
            {"system": "BUILDKITE", "BUILDKITE_BUILD_URL": "https://b"},
        ),
    ],
)
def test_ci_ids_are_those_of_the_system_that_runs_us(environ: dict[str, str], found: dict[str, str]) -> None:
    assert ci_ids(environ) == found


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_git_state_is_the_commit_the_branch_and_whether_tracked_files_differ(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "trunk")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "x")
    commit = git(tmp_path, "rev-parse", "HEAD")
    clean = {"git_commit": commit, "git_branch": "trunk", "git_dirty": False}
    assert git_state(tmp_path) == clean
    (tmp_path / "untracked").write_text("2")
    assert git_state(tmp_path) == clean
    (tmp_path / "a").write_text("3")
    assert git_state(tmp_path) == {**clean, "git_dirty": True}


def test_outside_a_checkout_nothing_is_known_of_git(tmp_path: Path) -> None:
    assert git_state(tmp_path) == {"git_commit": None, "git_branch": None, "git_dirty": None}


def test_a_run_is_described_by_what_the_system_says_of_itself(tmp_path: Path) -> None:
    found = environment.collect(tmp_path, ["pytest", "--api-key", "abc", "-q"])
    assert found["command"] == ["pytest", "--api-key", "***", "-q"]
    assert found["hostname"] == platform.node()
    assert found["cores"] == os.cpu_count()
    assert found["kernel"] == platform.release()
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["pytest"] == pytest.__version__
    memory = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert found["memory_bytes"] == pytest.approx(memory, rel=0.01)
    assert 0 <= found["steal_fraction"] <= 1
    assert found["hardware_class"] == hardware_class(found["cpu"], found["cores"], found["memory_bytes"], [])


def test_importing_the_environment_names_no_engine() -> None:
    source = Path(environment.__file__).read_text().lower()
    assert [word for word in ("llama", "vllm", "openai") if word in source] == []
