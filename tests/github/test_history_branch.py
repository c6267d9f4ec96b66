"""Run files of many nights on a branch of a real repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    bare = tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(bare)], check=True)
    return bare


def append(remote: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "HISTORY_REMOTE": str(remote)}
    return subprocess.run(
        ["bash", str(ROOT / ".github/nightly/append.sh"), str(folder)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def night(folder: Path, **files: str) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def kept(remote: Path) -> dict[str, str]:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(remote), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    names = git("ls-tree", "-r", "--name-only", "coldstart-history").splitlines()
    return {name: git("show", f"coldstart-history:{name}") for name in names}


def test_nights_add_up_on_a_branch_that_holds_run_files_alone(remote: Path, tmp_path: Path) -> None:
    first, second = night(tmp_path / "one", a="1"), night(tmp_path / "two", a="1", b="2")
    for folder, says in ((first, "added 1"), (second, "added 2"), (second, "already")):
        done = append(remote, folder)
        assert done.returncode == 0, done.stderr
        assert says in done.stdout
    assert kept(remote) == {"runs/a.jsonl": "1", "runs/b.jsonl": "2"}
    count = subprocess.run(
        ["git", "-C", str(remote), "rev-list", "--count", "coldstart-history"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert count.stdout.strip() == "2"


def test_a_run_file_never_changes(remote: Path, tmp_path: Path) -> None:
    assert append(remote, night(tmp_path / "one", a="1")).returncode == 0
    done = append(remote, night(tmp_path / "two", a="other", b="2"))
    assert done.returncode == 1
    assert "runs/a.jsonl is there with other content" in done.stdout
    assert kept(remote) == {"runs/a.jsonl": "1"}


def test_a_night_without_run_files_is_told_and_changes_nothing(remote: Path, tmp_path: Path) -> None:
    done = append(remote, night(tmp_path / "none"))
    assert done.returncode == 0
    assert "no run file" in done.stdout
