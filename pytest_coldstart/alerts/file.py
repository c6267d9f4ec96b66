"""The file of rules: where it is, and reading it with all its mistakes at once."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_coldstart.alerts.rules import Rule
from pytest_coldstart.alerts.table import Source, Table, unknown

#: Beside pyproject.toml, in the working directory or beside the store; ``coldstart alerts --rules FILE`` names another.
RULES_FILE = "coldstart-alerts.toml"

#: Version of the file's format.
VERSION = 1

EXAMPLE = """\
version = 1

[[alert]]
name = "cold start over its SLO"
metric = "cold_start"
bound = "<= 10s"
severity = "critical"

[[alert]]
name = "nightly has stopped"
stale = "3d"
"""


class RulesError(ValueError):
    """The file cannot be used; each of ``problems`` says where, what is wrong, what is valid."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Rules:
    """What a file holds. ``acknowledgements``: a file of them beside the store's own, or None."""

    path: Path
    rules: tuple[Rule, ...]
    acknowledgements: Path | None = None


def places(cwd: Path, root: Path) -> list[Path]:
    """Where the file is looked for, in this order: *cwd* and above it up to the folder with pyproject.toml, then beside the
    store whose folder is *root* and in it."""
    above = []
    for folder in (cwd, *cwd.parents):
        above.append(folder)
        if (folder / "pyproject.toml").exists():
            break
    else:
        above = [cwd]
    return list(dict.fromkeys(folder / RULES_FILE for folder in (*above, root.parent, root)))


def find(cwd: Path, root: Path) -> Path | None:
    """The file of rules, as :func:`places` says."""
    # Also one that is a link to nowhere: it is said, and nothing is watched by other rules than were meant.
    return next((path for path in places(cwd, root) if os.path.lexists(path)), None)


def load(path: Path) -> Rules:
    """Read a file of rules.

    :raises RulesError: it cannot be read, or something in it is wrong; all problems are named.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = tomllib.loads(text)
    except OSError as error:
        raise RulesError([f"{path}: {error.strerror or error}; give a TOML file"]) from None
    except UnicodeDecodeError:
        raise RulesError([f"{path}: it is not UTF-8; write it as UTF-8"]) from None
    except RecursionError:
        raise RulesError([f"{path}: it is nested too deeply"]) from None
    except tomllib.TOMLDecodeError as error:
        at = re.search(r" \(at line (\d+), column \d+\)", str(error))
        line = int(at[1]) if at else text.count("\n") + 1
        what = str(error).replace(at[0], "") if at else str(error)
        raise RulesError([f"{path}:{line}: no TOML: {what}"]) from None
    except ValueError as error:  # a number of thousands of digits
        raise RulesError([f"{path}: no TOML: {error}"]) from None
    return _File(Source(path, text)).rules(data)


@dataclass
class _File:
    """A file that is being read."""

    source: Source

    def rules(self, data: Mapping[str, Any]) -> Rules:
        self._version(data)
        for key in data:
            if key not in ("version", "alert", "acknowledgements"):
                self.source.wrong(
                    self.source.line_of(key), unknown("key", key, ("version", "alert", "acknowledgements"))
                )
        tables = data.get("alert", [])
        if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
            self.source.wrong(self.source.line_of("alert"), "alert: write each rule as a table of its own, [[alert]]")
            tables = []
        elif not tables and not self.source.problems:
            self.source.wrong(1, f"there is no rule; write at least one, such as\n{EXAMPLE}")
        lines = self.source.tables(len(tables))
        found = [Table(self.source, table, *lines[number], number + 1).rule() for number, table in enumerate(tables)]
        self._unique(found)
        more = self._acknowledgements(data)
        if self.source.problems:
            raise RulesError(self.source.problems)
        return Rules(self.source.path, tuple(rule for rule in found if rule), more)

    def _version(self, data: Mapping[str, Any]) -> None:
        found, valid = data.get("version"), f"write version = {VERSION} at the top"
        if found is None:
            self.source.wrong(1, f"version is missing; {valid}")
        elif isinstance(found, bool) or not isinstance(found, int) or found < 1:
            self.source.wrong(self.source.line_of("version"), f"version: {found!r} is no version; {valid}")
        elif found > VERSION:
            self.source.wrong(
                self.source.line_of("version"),
                f"version {found} is newer than {VERSION}, the newest that this pytest-coldstart knows; upgrade it",
            )

    def _acknowledgements(self, data: Mapping[str, Any]) -> Path | None:
        found = data.get("acknowledgements")
        if found is None:
            return None
        path = self.source.path.parent / found if isinstance(found, str) and found else None
        if path is None or not path.is_file():
            self.source.wrong(
                self.source.line_of("acknowledgements"), f"acknowledgements: there is no file {found!r} beside this one"
            )
        return path

    def _unique(self, found: Iterable[Rule | None]) -> None:
        lines: dict[str, int] = {}
        for rule in found:
            if rule and rule.name in lines:
                self.source.wrong(
                    rule.line,
                    f"name: {rule.name!r} is taken by line {lines[rule.name]}; each rule needs a name of its own",
                )
            elif rule:
                lines[rule.name] = rule.line
