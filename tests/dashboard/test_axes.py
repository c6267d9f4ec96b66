"""Axes: the units that numbers are printed in, and times that are UTC."""

from __future__ import annotations

from datetime import datetime

import pytest

pytest.importorskip("altair", reason="charts need altair: pip install 'pytest-coldstart[dashboard]'")

from dashboard.charts import axes


@pytest.mark.parametrize(
    ("largest", "family", "unit"),
    [
        (2.5, "s", ("s", 1.0)),
        (0.25, "s", ("ms", 1e-3)),
        (5e-5, "s", ("us", 1e-6)),
        (0.0, "s", ("ms", 1e-3)),
        (3e8, "B", ("MB", 1e6)),
        (3e9, "B/s", ("GB/s", 1e9)),
        (300.0, "B/s", ("B/s", 1.0)),
        (3e4, "B/s", ("B/s", 1.0)),
        (0.5, "fraction", ("%", 0.01)),
        (3.0, "count", ("", 1.0)),
    ],
)
def test_an_axis_has_the_unit_that_numbers_are_printed_in(largest: float, family: str, unit: tuple[str, float]) -> None:
    assert axes.axis_unit(largest, family) == unit


def test_times_are_told_to_be_utc() -> None:
    assert axes.iso(datetime(2026, 11, 2, 8, 1)) == "2026-11-02T08:01:00.000Z"
    assert axes.time().to_dict()["scale"] == {"type": "utc"}
