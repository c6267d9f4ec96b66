"""Two commits of one repository, each in a worktree of its own, which the boots see at one and the same path."""

from __future__ import annotations

import difflib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_coldstart.gate.errors import GateError

#: Where the worktrees of a gate are: below TMPDIR, or /var/tmp, which is on a disk where /tmp may be memory.
PREFIX = "coldstart-gate-"

#: Set by git for hooks and aliases; they would make every git command see that repository instead of the worktree.
_OF_A_REPOSITORY = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
)


def environ() -> dict[str, str]:
    """The environment without what binds git to one repository."""
    return {name: value for name, value in os.environ.items() if name not in _OF_A_REPOSITORY}


@dataclass(frozen=True)
class Repository:
    """``top``: the folder of the user's working tree. ``prefix``: where in it the user is."""

    top: Path
    prefix: Path

    @classmethod
    def at(cls, here: Path) -> Repository:
        """:raises GateError: *here* is in no working tree, or there is no git."""
        done = _git(here, "rev-parse", "--show-toplevel", "--show-prefix")
        if done.returncode:
            raise GateError(f"a side git:REF needs a git repository, and {here} is in none: {_last(done)}")
        top, _, prefix = done.stdout.partition("\n")
        return cls(Path(top), Path(prefix.rstrip("\n")))

    def has(self, ref: str) -> bool:
        return _usable(ref) and _git(self.top, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").returncode == 0

    def dirty(self) -> bool:
        """Whether tracked files differ from the commit that is checked out."""
        return bool(_git(self.top, "status", "--porcelain", "--untracked-files=no").stdout.strip())

    def commit(self, ref: str) -> str:
        """The commit that *ref* names.

        :raises GateError: none; with the refs that look like it.
        """
        done = _git(self.top, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}") if _usable(ref) else None
        if done is not None and done.returncode == 0:
            return done.stdout.strip()
        names = _git(self.top, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags", "refs/remotes")
        near = difflib.get_close_matches(ref, names.stdout.split(), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "git branch --all and git tag list the valid ones"
        if _git(self.top, "rev-parse", "--is-shallow-repository").stdout.strip() == "true":
            hint += " The clone is shallow: git fetch --unshallow (in GitHub's checkout action, fetch-depth: 0)"
        raise GateError(f"git:{ref}: no commit of {self.top} has that name; {hint}")


@dataclass
class Checkout:
    """A worktree. ``aside``: where it waits; ``place``: where it is in use, the same for all checkouts of a gate."""

    repository: Repository
    ref: str
    commit: str
    aside: Path
    place: Path

    @property
    def here(self) -> Path:
        """The user's folder, in the worktree in use."""
        return self.place / self.repository.prefix

    @contextmanager
    def in_place(self) -> Iterator[Path]:
        """The worktree at its place; yields the user's folder in it.

        Both sides see one path: a command, a cache key or an interpreter's path differs only where the commits do.
        """
        self.aside.rename(self.place)
        try:
            yield self.here
        finally:
            self.place.rename(self.aside)

    def suites(self, words: Sequence[str], user: Path) -> list[str]:
        """*words*, as the user gave them in the folder *user*, for a pytest that starts in :attr:`here`.

        One inside the repository is the worktree's, one outside of it is taken as it is. Call it in place.

        :raises GateError: one does not exist at that commit.
        """
        return [self._suite(word, user) for word in words]

    def _suite(self, word: str, user: Path) -> str:
        name, colons, rest = word.partition("::")
        given = Path(os.path.normpath(user / name))
        top = self.repository.top
        known = (given, given.parent.resolve() / given.name, given.resolve())  # links, in the file's name at the last
        inside = next((path for path in known if path.is_relative_to(top)), None)
        mapped = given if inside is None else self.place / inside.relative_to(top)
        if not mapped.exists():
            if inside is None:
                raise GateError(f"{name}: no such file or folder")
            raise GateError(
                f"{name} does not exist at {self.ref} ({self.commit[:12]}); a suite outside the repository "
                "is used as it is for every commit: copy it there and name the copy"
            )
        return f"{mapped}{colons}{rest}"

    def interpreter(self) -> str | None:
        """``.venv/bin/python`` of the user's folder, else of the whole worktree. Call it in place."""
        for folder in (self.here, self.place):
            python = folder / ".venv" / "bin" / "python"
            if python.is_file() and os.access(python, os.X_OK):
                return str(python)
        return None


@contextmanager
def checkouts(repository: Repository, refs: Sequence[tuple[str, str]], gate: str) -> Iterator[dict[str, Checkout]]:
    """Detached worktrees for *refs*, pairs of a name and a ref; all are gone at the end, whatever ends it.

    What a killed gate left is removed first.

    :raises GateError: an unknown ref, or git cannot make a worktree.
    """
    commits = {name: repository.commit(ref) for name, ref in refs}
    parent = _parent()
    prune(parent)
    folder = parent / f"{PREFIX}{gate}"
    folder.mkdir(mode=0o700)
    held = hold(folder)
    try:
        found = {}
        for name, ref in refs:
            found[name] = Checkout(repository, ref, commits[name], folder / name, folder / "checkout")
            _add(found[name])
        yield found
    finally:
        _remove(folder)
        if held is not None:
            os.close(held)


def hold(folder: Path) -> int | None:
    """A lock on *folder* for as long as the descriptor is open, here or in a child; None where another holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def prune(parent: Path) -> None:
    """Remove the worktrees of our gates that no longer run."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            held = hold(folder)
            if held is not None:
                _remove(folder)
                os.close(held)


def _parent() -> Path:
    for folder in (os.environ.get("TMPDIR"), "/var/tmp"):
        if folder and Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return Path(folder).absolute()
    return Path(tempfile.gettempdir()).absolute()


def _add(checkout: Checkout) -> None:
    # Hooks are meant for the user's own checkouts.
    done = _git(
        checkout.repository.top,
        *("-c", "core.hooksPath=/dev/null", "worktree", "add", "--detach", "--quiet"),
        str(checkout.aside),
        checkout.commit,
    )
    if done.returncode:
        raise GateError(f"git:{checkout.ref}: git could not make a worktree in {checkout.aside.parent}: {_last(done)}")


def _remove(folder: Path) -> None:
    """What ``git worktree remove --force`` does, wherever the worktree is just now; ignored files go too."""
    for tree in folder.iterdir():
        with suppress(OSError):
            word, _, path = (tree / ".git").read_text().strip().partition(": ")
            administration = Path(path)
            if word == "gitdir" and administration.parent.name == "worktrees":
                shutil.rmtree(administration, ignore_errors=True)
                with suppress(OSError):
                    administration.parent.rmdir()  # as git does with the last one
    shutil.rmtree(folder, ignore_errors=True)


def _usable(ref: str) -> bool:
    """Whether git would take *ref* for a ref, and not for an option."""
    return bool(ref) and not ref.startswith("-") and "\0" not in ref


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
            stdin=subprocess.DEVNULL,
            env=environ(),
        )
    except FileNotFoundError:
        raise GateError("a side git:REF needs git, which is not installed here") from None


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"git exited {done.returncode}"
