from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from pytest_coldstart.history.acknowledge import Place, make
from pytest_coldstart.history.points import History, history
from pytest_coldstart.history.read import RunPoint, Series
from pytest_coldstart.history.text import DIGITS, lines, overview

PAGE = Path(__file__).parents[2] / "docs" / "history.md"

SERIES = Series(
    *("4f1d0c27a9b3-5be1c0aa", "restart", "suites/test_llamacpp.py::test_cold_start[restart]", "llamacpp", "tiny"),
    *("restart", 42, 1),
)


def example(*given: str) -> History:
    """Two weeks of nightly runs: 2.0 s, a step to 2.3 s with a new driver, and one failed boot."""
    levels = [2.02, 1.99, 2.00, 2.03, 1.98, 2.01, 2.00, 2.02, 2.31, 2.30, 2.33, 2.29, 2.32, 2.30]
    start = datetime(2026, 3, 1, 2, 30)
    runs = []
    for n, level in enumerate(levels):
        values = (level - 0.01, level, math.inf if n == 5 else level + 0.02)
        environment = {"driver": "580.95.05" if n >= 8 else "570.86.15"}
        at = start + timedelta(days=n)
        runs.append(
            RunPoint(f"{at:%Y%m%dT%H%M%S}-{n + 7}", at, values, 0, f"{n + 1:x}" * 40, "main", False, environment)
        )
    made = [
        replace(
            make(
                SERIES.series, "restart", "cold_start", runs[n].run_id, Place.of(runs[n - 1], runs[n]), 0.1, why, "Ada"
            ),
            id="5c1e88d0",
            made_at="2026-03-15T09:00:00.000+00:00",
        )
        for n, why in ((8, why) for why in given)
    ]
    return history(SERIES, "cold_start", runs, made)


def block(name: str) -> list[str]:
    found = re.search(rf"<!-- {name} -->\n```text\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found
    return found[1].split("\n")


def test_the_page_shows_what_is_printed() -> None:
    assert lines(example()) == block("history")


def test_an_acknowledgement_takes_the_place_of_the_command() -> None:
    text = "\n".join(lines(example("the new driver checks more")))
    assert "    acknowledged by Ada on 2026-03-15: the new driver checks more [5c1e88d0]" in text
    assert "coldstart ack" not in text
    assert "+15.2% acknowledged" in text


def test_a_narrow_output_without_blocks_holds() -> None:
    found = lines(example("a reason that is much longer than a line of sixty columns can ever be"), 60, DIGITS)
    assert max(map(len, found)) <= 60
    assert "  1.98 s 11121x11888888 2.33 s" in found
    assert "2026-03-14 02:30  eeeeeeeeee  2.30 s  3" in found
    assert all(line.isascii() for line in found)


def test_a_table_of_all_says_how_many_are_new() -> None:
    plain = overview([example(), example("seen")], 120)
    assert plain[0].split() == ["series", "last", "boots", "failed", "change", "points", "engine", "test"]
    assert "1 (1 new)" in plain[1]
    assert "new" not in plain[2]
    assert plain[1].endswith("llamacpp  test_llamacpp.py::test_cold_start[restart]")
