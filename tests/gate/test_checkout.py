"""Worktrees of two commits: one path for both, nothing left behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_coldstart.gate.checkout import PREFIX, Checkout, Repository, checkouts, prune
from pytest_coldstart.gate.errors import GateError
from tests.gate.repository import commit, git, make


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits and a tag, and worktrees of gates beside it."""
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "work"))
    top = make(tmp_path / "repo")
    commit(top, {"suites/test_a.py": "old", "only_old.py": ""}, "old")
    git(top, "tag", "v1.0")
    git(top, "rm", "-q", "only_old.py")
    commit(top, {"suites/test_a.py": "new"}, "new")
    return top


def worktrees(top: Path) -> list[str]:
    return [line for line in git(top, "worktree", "list", "--porcelain").splitlines() if line.startswith("worktree ")]


def test_each_commit_is_at_the_same_path_and_all_are_gone_at_the_end(top: Path) -> None:
    (top / "suites" / "test_a.py").write_text("not committed")
    seen = []
    with checkouts(Repository.at(top), [("base", "v1.0"), ("head", "HEAD")], "g1") as trees:
        assert len(worktrees(top)) == 3
        for name in ("base", "head", "base"):
            with trees[name].in_place() as folder:
                seen.append((folder, (folder / "suites" / "test_a.py").read_text(), git(folder, "rev-parse", "HEAD")))
    assert len({folder for folder, _, _ in seen}) == 1
    assert [text for _, text, _ in seen] == ["old", "new", "old"]
    assert [found for _, _, found in seen[:2]] == [git(top, "rev-parse", ref) for ref in ("v1.0", "HEAD")]
    assert worktrees(top) == [f"worktree {top}"]
    assert not (top / ".git" / "worktrees").exists()
    assert list((top.parent / "work").iterdir()) == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GateError])
def test_what_ends_a_gate_leaves_no_worktree(top: Path, kind: type[BaseException]) -> None:
    def gate() -> None:
        with checkouts(Repository.at(top), [("base", "HEAD")], "g1") as trees, trees["base"].in_place() as folder:
            (folder / "built").mkdir()
            (folder / "built" / "ignored.o").write_text("")
            raise kind

    with pytest.raises(kind):
        gate()
    assert worktrees(top) == [f"worktree {top}"]
    assert list((top.parent / "work").iterdir()) == []


def test_worktrees_of_a_killed_gate_are_removed_at_the_next_start_and_no_others(top: Path) -> None:
    work = top.parent / "work"
    git(top, "worktree", "add", "-q", "--detach", str(work / f"{PREFIX}dead" / "base"), "HEAD")
    (work / f"{PREFIX}dead" / "base").rename(work / f"{PREFIX}dead" / "checkout")  # it was killed in a boot
    git(top, "worktree", "add", "-q", "--detach", str(work / "of_the_user"), "HEAD")
    with checkouts(Repository.at(top), [("base", "HEAD")], "living"):
        assert not (work / f"{PREFIX}dead").exists()
        prune(work)  # another gate starts
        assert (work / f"{PREFIX}living" / "base").is_dir()
    assert worktrees(top) == [f"worktree {top}", f"worktree {work / 'of_the_user'}"]


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("v1.1", "did you mean v1.0?"),
        ("trunkk", "did you mean trunk?"),
        ("zzz", "git branch --all and git tag list the valid ones"),
        ("--exec=true", "no commit of"),
        ("", "no commit of"),
        ("HEAD:suites", "no commit of"),
    ],
)
def test_unknown_ref_is_named_with_those_that_look_like_it(top: Path, ref: str, words: str) -> None:
    git(top, "branch", "trunk")
    with pytest.raises(GateError) as error:
        Repository.at(top).commit(ref)
    assert str(error.value).startswith(f"git:{ref}: no commit of {top} has that name; ")
    assert words in str(error.value)


def test_shallow_clone_says_how_to_get_the_rest(top: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{top}", "shallow")
    with pytest.raises(GateError, match="shallow: git fetch --unshallow"):
        Repository.at(tmp_path / "shallow").commit("HEAD~1")


def test_folder_that_is_in_no_repository_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(GateError, match=r"needs a git repository, and .* is in none"):
        Repository.at(tmp_path)


def test_git_of_a_hook_does_not_redirect_ours(top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make(tmp_path / "other")
    commit(other, {"a": ""}, "other")
    expected = git(top, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert Repository.at(top).commit("HEAD") == expected


def suites(top: Path, ref: str, here: Path, *words: str) -> list[str]:
    with checkouts(Repository.at(here), [("base", ref)], "g1") as trees, trees["base"].in_place():
        place = str(trees["base"].place)
        return [word.replace(place, "PLACE") for word in trees["base"].suites(words, here)]


def test_suites_are_those_of_the_commit_and_node_ids_stay(top: Path) -> None:
    outside = top.parent / "outside.py"
    outside.write_text("")
    words = ("test_a.py::test_b[c::d]", "..", str(top / "suites" / "test_a.py"), str(outside))
    assert suites(top, "HEAD", top / "suites", *words) == [
        "PLACE/suites/test_a.py::test_b[c::d]",
        "PLACE",
        "PLACE/suites/test_a.py",
        str(outside),
    ]


def test_suites_of_a_folder_reached_by_a_link_are_those_of_the_commit(top: Path) -> None:
    (top.parent / "link").symlink_to(top)
    assert suites(top, "HEAD", top.parent / "link", "suites/test_a.py", ".") == ["PLACE/suites/test_a.py", "PLACE"]


def test_suite_that_a_commit_lacks_is_refused(top: Path) -> None:
    with pytest.raises(GateError, match=r"only_old\.py does not exist at HEAD \([0-9a-f]{12}\); .* copy it there"):
        suites(top, "HEAD", top, "only_old.py")
    with pytest.raises(GateError, match=r"\.\./nowhere\.py: no such file"):
        suites(top, "HEAD", top, "../nowhere.py")


def test_interpreter_of_a_checkout_is_its_virtual_environments(top: Path) -> None:
    with checkouts(Repository.at(top / "suites"), [("base", "HEAD")], "g1") as trees:
        base: Checkout = trees["base"]
        with base.in_place():
            assert base.interpreter() is None
            for folder in (base.place, base.here):
                python = folder / ".venv" / "bin" / "python"
                python.parent.mkdir(parents=True)
                python.write_text("")
                assert base.interpreter() != str(python)  # it cannot be run
                python.chmod(0o755)
                assert base.interpreter() == str(python)


def test_hooks_of_the_user_do_not_run(top: Path) -> None:
    hook = top / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {top.parent}/ran\n")
    hook.chmod(0o755)
    subprocess.run(["git", "-C", str(top), "checkout", "-q", "HEAD"], check=True, env={**os.environ})
    assert (top.parent / "ran").exists()
    (top.parent / "ran").unlink()
    with checkouts(Repository.at(top), [("base", "HEAD")], "g1"):
        pass
    assert not (top.parent / "ran").exists()
