"""From the base's start to the head's by phases that stand in the test, and the waterfall of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dashboard.charts.difference import begins, difference
from dashboard.phase_steps import NO_PHASE, NOT_ADDING, PHASE, REST, TOTAL, Step, steps
from pytest_coldstart.attribution import PHASES
from pytest_coldstart.record import BootRecord, Value
from tests.gate import made


def boot(number: int, total: float, **phases: float | None) -> BootRecord:
    """A boot of *total* seconds; a phase of None is unmeasured, one that is not named took no time."""
    values = {
        f"phase.{name}": Value(phases.get(name, 0.0), "probe")
        if phases.get(name, 0.0) is not None
        else Value(None, None, "it may hide")
        for name in PHASES
    }
    return dataclasses.replace(made.boot(number), metrics={"cold_start": Value(total, "client"), **values})


def short(found: tuple[Step, ...]) -> list[tuple[str, str, float, float]]:
    return [(step.name, step.kind, round(step.begin, 6), round(step.end, 6)) for step in found]


def test_of_one_boot_a_side_the_phases_add_up() -> None:
    found = steps(
        [boot(1, 10, imports=2, compile=5, unattributed=3)], [boot(2, 13, imports=1, compile=8, unattributed=4)]
    )
    assert short(found.steps) == [
        ("base", TOTAL, 0, 10),
        ("imports", PHASE, 10, 9),
        ("compile", PHASE, 9, 12),
        ("unattributed", PHASE, 12, 13),
        ("head", TOTAL, 0, 13),
    ]
    assert found.exact
    assert (found.steps[1].base, found.steps[1].head, found.steps[1].change) == (2, 1, -1)


def test_medians_that_do_not_add_up_have_a_bar_of_their_own() -> None:
    base = [boot(1, 10, imports=4, compile=6), boot(2, 10, imports=6, compile=4), boot(3, 11, imports=1, compile=10)]
    found = steps(base, [boot(4, 12, imports=6, compile=6)])
    # The medians of the base: imports 4, compile 6, and 10 in all.
    assert short(found.steps) == [("base", TOTAL, 0, 10), ("imports", PHASE, 10, 12), ("head", TOTAL, 0, 12)]
    found = steps(base, [boot(4, 13, imports=6, compile=6, unattributed=0)])
    assert short(found.steps)[2] == (NOT_ADDING, REST, 12, 13)
    assert not found.exact


def test_what_is_in_no_measured_phase_is_not_said_to_be_of_medians() -> None:
    found = steps([boot(1, 10, imports=4, compile=None)], [boot(2, 12, imports=5, compile=None)])
    assert short(found.steps) == [
        ("base", TOTAL, 0, 10),
        ("imports", PHASE, 10, 11),
        (NO_PHASE, REST, 11, 12),
        ("head", TOTAL, 0, 12),
    ]
    assert found.unmeasured == (("compile", "it may hide"),)


def test_failed_boots_are_left_out_and_counted() -> None:
    found = steps([boot(1, 10, imports=2), made.boot(2, None)], [boot(3, 11, imports=3)])
    assert (short(found.steps)[1], found.failed) == (("imports", PHASE, 10, 11), 1)


@pytest.mark.parametrize(
    ("base", "head", "problem"),
    [
        (made.boot(1, None), boot(2, 1), "every boot of the base failed: it has no phases to compare"),
        (boot(1, 1), made.boot(2, None), "every boot of the head failed: it has no phases to compare"),
        (made.boot(1), made.boot(2), "no phase is measured: the version that made the boot had no such metric"),
        (
            boot(1, 1),
            dataclasses.replace(boot(2, 1), metrics={"cold_start": Value(None, None, "not seen")}),
            "cold_start is unmeasured in the head: not seen",
        ),
    ],
)
def test_where_there_is_nothing_to_show_it_says_why(base: BootRecord, head: BootRecord, problem: str) -> None:
    found = steps([base], [head])
    assert (found.steps, found.problem) == ((), problem)


# -- the chart


def rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return spec["datasets"][spec["layer"][0].get("data", spec.get("data"))["name"]]


def test_each_bar_begins_where_the_one_above_ends() -> None:
    found = steps([boot(1, 10, imports=2, compile=8)], [boot(2, 4, imports=3, compile=1)])
    spec = difference(found.steps).to_dict()
    assert [(row["step"], row["from"], row["to"], row["kind"], row["change"]) for row in rows(spec)] == [
        ("base", 0, 10, "cold_start", "10.00 s"),
        ("imports", 10, 11, "longer", "+1.00 s"),
        ("compile", 4, 11, "shorter", "-7.00 s"),
        ("head", 0, 4, "cold_start", "4.00 s"),
    ]
    assert spec["description"] == (
        "Waterfall from the base's cold_start, 10.00 s, to the head's, 4.00 s: imports +1.00 s, compile -7.00 s"
    )


def test_the_axis_is_in_the_unit_that_numbers_are_printed_in() -> None:
    spec = difference(steps([boot(1, 0.5, imports=0.5)], [boot(2, 0.25, imports=0.25)]).steps).to_dict()
    assert spec["layer"][0]["encoding"]["x"]["title"] == "from the start (ms)"
    assert [row["to"] for row in rows(spec)] == [500, 500, 250]


def test_the_axis_begins_late_where_a_change_could_not_be_seen_else_and_says_so() -> None:
    small = steps([boot(1, 70, imports=10)], [boot(2, 70.5, imports=10.5)]).steps
    assert begins(small) == pytest.approx(69.5)
    assert difference(small).to_dict()["layer"][0]["encoding"]["x"]["title"].endswith("begins at 69.5")
    assert begins(steps([boot(1, 10, imports=8)], [boot(2, 4, imports=2)]).steps) == 0
    assert begins(steps([boot(1, 10)], [boot(2, 10)]).steps) == 0


def test_a_bar_that_is_left_over_has_a_word_of_its_own() -> None:
    spec = difference(steps([boot(1, 10, compile=None)], [boot(2, 12, compile=None)]).steps).to_dict()
    assert [(row["step"], row["kind"]) for row in rows(spec)][1] == (NO_PHASE, "left over")
    assert "in no measured phase +2.00 s" in spec["description"]
