"""The store as a page sees it: opened read-only, for one question, and closed again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import duckdb

from dashboard.shared import attached
from pytest_coldstart.store.database import migrations, require_known, said, version
from pytest_coldstart.store.errors import StoreError, StoreLocked, StoreNewer, why
from pytest_coldstart.store.home import CHOOSE, Home

#: Seconds to wait while another process holds the database. Runs write it for a moment.
WAIT = 3.0

_HOLDER = re.compile(r"is held by (.+), still after")


class Unusable(Exception):
    """There is nothing to show: what was wrong, where, and the command that mends it."""

    def __init__(self, what: str, where: object, command: str) -> None:
        super().__init__(f"{what} ({where}); {command}")
        self.what = what
        self.where = str(where)
        self.command = command


class Held(Unusable):
    """Another process holds the store; a run that writes lets it go in a moment."""


@contextmanager
def opened(home: Home, wait: float = WAIT) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database of *home*, read-only. While it is open no run can write: ask and leave.

    :raises Unusable: there is no store, it is held, it is none of ours, or of another version.
    """
    with ExitStack() as stack:
        try:
            _require_file(home)
            con = stack.enter_context(attached(home.database, wait))
        except OSError as error:
            raise _broken(home, f"The store cannot be read: {why(error)}.") from error
        except StoreLocked as error:
            raise _held(home, error) from error
        except StoreError as error:
            raise _broken(home, _sentence(error)) from error
        try:
            _require_schema(con, home)
            yield con
        except duckdb.Error as error:
            raise _broken(home, f"The store could not be read: {said(error)}.") from error


def empty(home: Home) -> Unusable:
    """A store without boots."""
    return Unusable("The store holds no boots yet.", home.database, _boot(home))


def _require_file(home: Home) -> None:
    if home.database.is_file():
        return
    if home.database.exists():
        raise _broken(home, "The path of the database is no file.")
    if not home.root.exists():
        raise Unusable("There is no store here.", home.root, _boot(home))
    if not home.root.is_dir():
        raise Unusable("The store is a file; it must be a folder or end in .duckdb.", home.root, _other())
    if any(home.runs.glob("*.jsonl")):
        raise Unusable("The folder has run files and no database yet.", home.root, _ingest(home))
    raise Unusable("The folder has neither a database nor run files.", home.root, _boot(home))


def _require_schema(con: duckdb.DuckDBPyConnection, home: Home) -> None:
    try:
        found = version(con)
        require_known(found, str(home.database))
    except StoreNewer as error:
        command = "pip install --upgrade 'pytest-coldstart[dashboard]'"
        raise Unusable(_sentence(error), home.database, command) from error
    except StoreError as error:
        raise _broken(home, _sentence(error)) from error
    if found == 0:
        raise empty(home)
    if found < max(migrations()):
        # Migrating would write, which the dashboard never does. Export opens as every other command.
        what = f"The store has schema version {found}; this version reads {max(migrations())}. Any other command migrates it."
        raise Unusable(what, home.database, f"coldstart export --table schema_version --store {named(home)}")


def _held(home: Home, error: StoreLocked) -> Unusable:
    holder = _HOLDER.search(str(error))
    what = (
        f"The store is held by {holder[1] if holder else 'another process'}. A run that writes lets it go in a "
        "moment; another client must be closed. The command names the process. Then try again."
    )
    pid = re.search(r"PID (\d+)", what)
    return Held(what, home.database, f"ps -f -p {pid[1]}" if pid else f"fuser -v {shlex.quote(str(home.database))}")


def _broken(home: Home, what: str) -> Unusable:
    return Unusable(what, home.database, _other())


def _sentence(error: StoreError) -> str:
    text = str(error).replace(f"; {CHOOSE}", "").replace(f", or {CHOOSE}", "")
    return f"{text[0].upper()}{text[1:]}."


def named(home: Home) -> str:
    """What ``--store`` would be given for *home*."""
    return shlex.quote(str(home.root if home == Home.at(home.root) else home.database))


def _boot(home: Home) -> str:
    return f"pytest --coldstart --coldstart-store {named(home)}"


def _ingest(home: Home) -> str:
    return f"coldstart ingest --store {named(home)}"


def _other() -> str:
    return "coldstart dashboard --store OTHER"
