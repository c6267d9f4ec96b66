"""Where results live: the folder of run files, logs and caches, and the database beside them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from pytest_coldstart.store.errors import StoreError, why

CHOOSE = "choose another with --coldstart-store (coldstart: --store)"


@dataclass(frozen=True)
class Home:
    """Absolute paths of one store; nothing is made before :meth:`prepare`."""

    root: Path
    database: Path

    @classmethod
    def at(cls, path: Path) -> Home:
        """The home that *path* names: a folder, or a ``.duckdb`` file whose folder it then is.

        :raises StoreError: it begins with the home of a user that does not exist.
        """
        try:
            path = path.expanduser().absolute()
        except RuntimeError as error:  # no such user
            raise StoreError(f"the store {path}: {error}; {CHOOSE}") from None
        if path.suffix == ".duckdb":
            return cls(path.parent, path)
        return cls(path, path / "coldstart.duckdb")

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def caches(self) -> Path:
        return self.root / "caches"

    def prepare(self) -> None:
        """Make the folders, and prove that files can be made in them.

        :raises StoreError: a folder cannot be made or written to.
        """
        where = self.root
        try:
            ours = _make(self.root)
            for where in (self.runs, self.logs, self.caches):
                where.mkdir(exist_ok=True)
            for where in (self.root, self.runs, self.logs, self.caches):
                _prove(where)
            if ours:  # a folder that a person made may be meant for version control
                where = self.root / ".gitignore"
                where.write_text("*\n")
        except OSError as error:
            raise StoreError(f"the store cannot be written: {where}: {why(error)}; {CHOOSE}") from error


def _make(folder: Path) -> bool:
    """Make *folder*; returns whether it is ours. Of two processes, only one made it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise
        return False
    return True


def _prove(folder: Path) -> None:
    """Mode bits tell too little: mounts, quotas and full disks refuse as well."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".writable-") as file:
        file.write(b"?")
