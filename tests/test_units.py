"""Quantities: each unit is worth what physics says, and what is no quantity is refused with the valid units."""

from __future__ import annotations

import pytest

from pytest_coldstart.units import QuantityError, parse, parse_duration, show


@pytest.mark.parametrize(
    ("text", "family", "value"),
    [
        ("10s", "s", 10.0),
        (" 10 s ", "s", 10.0),
        ("500ms", "s", 0.5),
        ("1.5min", "s", 90.0),
        ("2h", "s", 7200.0),
        ("250us", "s", 0.00025),
        ("7ns", "s", 7e-9),
        (".5s", "s", 0.5),
        ("5.s", "s", 5.0),
        ("1e3ms", "s", 1.0),
        ("+1s", "s", 1.0),
        ("-1s", "s", -1.0),
        ("64MiB", "B", 67_108_864.0),
        ("64MB", "B", 64_000_000.0),
        ("1KiB", "B", 1024.0),
        ("2GiB", "B", 2_147_483_648.0),
        ("0B", "B", 0.0),
        ("1.5GB/s", "B/s", 1.5e9),
        ("1MiB/s", "B/s", 1_048_576.0),
        ("5%", "fraction", 0.05),
        ("150 %", "fraction", 1.5),
        ("3", "count", 3.0),
    ],
)
def test_a_quantity_is_read_in_the_canonical_unit(text: str, family: str, value: float) -> None:
    assert parse(text, family) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "family", "words"),
    [
        ("10", "s", "has no unit; valid units here: 'ns', 'us', 'ms', 's', 'min', 'h'"),
        ("10sec", "s", "unknown unit 'sec'"),
        ("10S", "s", "unknown unit 'S'"),
        ("10MB", "s", "unknown unit 'MB'"),
        ("5", "fraction", "has no unit; valid units here: '%'"),
        ("0.05", "fraction", "has no unit"),
        ("3s", "count", "a count takes no unit, write '3'"),
        ("64mb", "B", "unknown unit 'mb'"),
        ("1GB", "B/s", "unknown unit 'GB'"),
        ("", "s", "not a number with a unit, such as '10s'"),
        ("ten s", "s", "not a number with a unit"),
        ("infs", "s", "not a number with a unit"),
        ("nan%", "fraction", "not a number with a unit"),
        ("1e400s", "s", "not a finite number"),
        ("1,5s", "s", "unknown unit ',5s'"),
        ("--1s", "s", "not a number with a unit"),
    ],
)
def test_what_is_no_quantity_of_the_family_is_refused_with_the_reason(text: str, family: str, words: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(text, family)
    assert words in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["0s", "-1s", "0ms"])
def test_a_duration_is_greater_than_zero(text: str) -> None:
    with pytest.raises(QuantityError, match="greater than zero"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "family", "text"),
    [
        (None, "s", "-"),
        (float("inf"), "s", "failed"),
        (float("-inf"), "B/s", "failed"),
        (123.4, "s", "123 s"),
        (1.234, "s", "1.23 s"),
        (0.0123, "s", "12.3 ms"),
        (0.0, "s", "0 ms"),
        (1.5e-5, "s", "15 us"),
        (-0.5, "s", "-500 ms"),
        (94_000_000.0, "B", "94 MB"),
        (1.5e9, "B", "1.5 GB"),
        (999.0, "B", "999 B"),
        (2e9, "B/s", "2 GB/s"),
        (0.05, "fraction", "5 %"),
        (1.0, "fraction", "100 %"),
        (3.0, "count", "3"),
        (0.123, "count", "0.12"),
    ],
)
def test_a_value_is_shown_short_and_in_its_unit(value: float | None, family: str, text: str) -> None:
    assert show(value, family) == text
