"""Facts of versions as data, and options as words."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_coldstart.engines import flags, sglang_facts, turbomind_facts
from pytest_coldstart.engines.facts import Since, held, number

ROWS = (Since((0, 6), "old"), Since((0, 14, 1), "middle"), Since((1, 0), "new"))


@pytest.mark.parametrize(
    ("version", "value"),
    [
        ("0.5.9", "old"),  # before all rows
        ("0.6.3.post1", "old"),
        ("0.14.0", "old"),
        ("0.14.1", "middle"),
        ("0.32.0+cpu", "middle"),
        ("1.0", "new"),
        ("1.1.0rc3", "new"),
        ("main", "new"),
        (None, "new"),
    ],
)
def test_value_that_holds_for_a_version(version: str | None, value: str) -> None:
    assert held(ROWS, version) == value


def test_version_as_numbers() -> None:
    assert number("0.5.14.post1") == (0, 5, 14)
    assert number("1.1.0rc3") == (1, 1, 0)
    assert number("dev") is None


@pytest.mark.parametrize(
    ("rows", "version", "value"),
    [
        (turbomind_facts.CACHE_MAX_ENTRY_COUNT, "0.14.2", "share or blocks"),
        (turbomind_facts.CACHE_MAX_ENTRY_COUNT, "0.15.0", "share"),
        (turbomind_facts.CACHE_LOG, "0.14.2", "nothing"),
        (turbomind_facts.CACHE_LOG, "0.18.0", "blocks"),
        (turbomind_facts.HEALTH, "0.9.2", "always 200"),
        (turbomind_facts.HEALTH, "0.18.0", "200 while the engine is well"),
        (sglang_facts.HEALTH, "0.4.6", "HTTP server up"),
        (sglang_facts.HEALTH, "0.5.14", "the server's own warm-up request was answered"),
    ],
)
def test_facts_that_were_read_off_versions(rows: tuple[Since, ...], version: str, value: str) -> None:
    assert held(rows, version) == value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--a-flag"]),
        (False, []),
        (None, []),
        (0, ["--a-flag", "0"]),
        ("x y", ["--a-flag", "x y"]),
        ({"b": [None], "a": True}, ["--a-flag", '{"a": true, "b": [null]}']),
        ([1, {"a": 2}], ["--a-flag", "1", '{"a": 2}']),
    ],
)
def test_option_as_words(value: Any, words: list[str]) -> None:
    assert flags.words("a_flag", value) == words
