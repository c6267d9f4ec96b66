"""The examples of docs/alerts.md are rules, and its body of a webhook is one."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pytest_coldstart.alerts import file, text, told
from pytest_coldstart.alerts.change import BEFORE
from pytest_coldstart.alerts.evaluate import LOOKED_BACK, SERIES_LOOKED_BACK
from pytest_coldstart.alerts.rules import FILTERS, MOST_NEW_RUNS, NEW_RUNS
from pytest_coldstart.alerts.table import _KEYS
from pytest_coldstart.alerts.told import Alert
from tests.alerts.conftest import NOW

PAGE = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_holds_every_condition(tmp_path: Path) -> None:
    (example,) = blocks("toml")
    path = tmp_path / file.RULES_FILE
    path.write_text(example)
    rules = file.load(path).rules
    assert len({type(rule.condition) for rule in rules}) == 5
    path.write_text(file.EXAMPLE)
    assert len(file.load(path).rules) == 2


def test_every_key_is_described() -> None:
    described = {
        word for cell in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for word in re.findall(r"`(\w+)", cell)
    }
    assert set(_KEYS) - described <= {"name", "metric", "stat", "runs", "days"}
    assert set(FILTERS) <= described
    assert f"the newest `runs` ({NEW_RUNS}) or `days`" in PAGE


def test_numbers_are_those_of_the_code() -> None:
    assert f"At most {LOOKED_BACK} runs back are looked at, of at most {SERIES_LOOKED_BACK} series" in PAGE
    assert f"the {BEFORE} before (`days`: the newest {BEFORE + MOST_NEW_RUNS})" in PAGE
    assert f"it names {text.NAMED} alerts" in PAGE


def test_the_body_has_the_fields_that_are_posted() -> None:
    (example,) = map(json.loads, blocks("json"))
    real = text.body(told.News(), Path("/s"), NOW)
    assert list(example) == list(real)
    assert set(example["firing"][0]) <= set(Alert.__dataclass_fields__)
    for name in set(Alert.__dataclass_fields__) - set(example["firing"][0]):
        assert f"`{name}`" in PAGE
