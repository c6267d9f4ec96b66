"""A store, a file of rules, and what they say together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from pytest_coldstart.alerts import file
from pytest_coldstart.alerts.evaluate import look, results
from pytest_coldstart.alerts.finding import Evaluated
from pytest_coldstart.alerts.rules import Rule
from pytest_coldstart.history.acknowledge import FILE_NAME, read
from pytest_coldstart.store.database import reader
from pytest_coldstart.store.home import Home

#: Two hours after the boots of tests/dashboard/conftest.py.
NOW = datetime(2026, 11, 2, 10)

Says = Callable[..., Evaluated]
Loads = Callable[[str], tuple[Rule, ...]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home.at(tmp_path / "store")
    made.prepare()
    return made


@pytest.fixture
def loads(tmp_path: Path) -> Loads:
    """The rules of a file with these tables below its version."""

    def loaded(tables: str) -> tuple[Rule, ...]:
        path = tmp_path / file.RULES_FILE
        path.write_text(f"version = 1\n{tables}\n")
        return file.load(path).rules

    return loaded


@pytest.fixture
def says(home: Home, loads: Loads) -> Says:
    """What one rule says of the store at a time."""

    def said(keys: str, now: datetime = NOW) -> Evaluated:
        rules = loads(f'[[alert]]\nname = "a"\n{keys}')
        with reader(home.database) as con:
            looked = look(con, rules)
        (found,) = results(looked, read(home.root / FILE_NAME).given, now)
        return found

    return said
