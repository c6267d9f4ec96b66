"""Counters decide at one boot a side: numbers worked by hand, and records of every state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_coldstart.gate.comparison import MetricChange, SideBoot
from pytest_coldstart.gate.counters import counters
from pytest_coldstart.gate.policy import COUNTERS, Policy
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import Cache, Failure, Inventory, Value
from tests.store.samples import HEADER, record

EMPTY = {name: Value(None, None, "not told") for name, metric in METRICS.items() if metric.counter}


def side(name: str, *values: float | None, **changes: Any) -> list[SideBoot]:
    """One boot a value, with no other counter than *name*."""
    found = []
    for index, value in enumerate(values):
        measured = Value(value, "inventory") if value is not None else Value(None, None, "not told")
        found.append(SideBoot(record(f"b{index}", metrics=EMPTY | {name: measured}, **changes), HEADER))
    return found


def change(base: list[SideBoot], head: list[SideBoot], policy: Policy | None = None) -> MetricChange:
    (found,) = counters(base, head, policy or Policy())
    return found


@pytest.mark.parametrize(
    ("name", "base", "head", "outcome"),
    [
        ("kernels_compiled", [24], [24], "same"),
        ("kernels_compiled", [0], [1], "same"),  # one kernel is within what is no change
        ("kernels_compiled", [0], [2], "regressed"),
        ("kernels_compiled", [40], [24], "improved"),
        ("kernels_compiled", [40], [43], "same"),  # 7.5 %
        ("kernels_compiled", [40], [45], "regressed"),  # 12.5 %
        ("caches_missed", [0], [1], "regressed"),
        ("bytecode_compiled", [0], [2], "same"),
        ("bytecode_compiled", [0, 2], [4861], "regressed"),
        ("modules_imported", [13991, 13988], [15500, 15501], "regressed"),
        ("modules_imported", [13991], [15300], "same"),  # 9.4 %
        ("bytes_read", [0], [64 << 20], "same"),
        ("bytes_read", [0], [65 << 20], "regressed"),
        ("processes_started", [3], [4], "same"),
        ("processes_started", [3], [5], "regressed"),
    ],
)
def test_sides_apart_by_more_than_the_tolerance_differ(
    name: str, base: list[float], head: list[float], outcome: str
) -> None:
    found = change(side(name, *base), side(name, *head))
    assert (found.metric, found.kind, found.outcome, found.policy) == (name, "counter", outcome, COUNTERS[name])
    assert (found.base.values, found.head.values) == (tuple(base), tuple(head))
    assert found.final


def test_the_change_is_a_share_of_the_bases_median() -> None:
    assert change(side("kernels_compiled", 40), side("kernels_compiled", 50)).change == 0.25
    assert change(side("kernels_compiled", 0), side("kernels_compiled", 50)).change is None
    assert change(side("kernels_compiled", 0), side("kernels_compiled", 0)).change == 0.0


def test_a_counter_that_varies_within_a_side_is_none_and_decides_nothing() -> None:
    found = change(side("kernels_compiled", 24, 24, 24), side("kernels_compiled", 90, 30))
    assert (found.outcome, found.policy) == ("inconclusive", "pass")
    assert found.reason == "it varies within the head, 30 to 90: it is no counter here"


def test_ranges_that_nearly_touch_are_undecided_where_the_medians_are_apart() -> None:
    found = change(side("modules_imported", 100, 100, 109), side("modules_imported", 110, 120, 120))
    assert (found.outcome, found.policy) == ("inconclusive", "pass")
    assert "the ranges by less" in found.reason


def test_the_policy_says_what_a_counter_does_and_how_much_is_no_change() -> None:
    policy = Policy(counters={"kernels_compiled": "warn"}, tolerance=0.5)
    found = change(side("kernels_compiled", 40), side("kernels_compiled", 59), policy)
    assert (found.outcome, found.policy) == ("same", "warn")
    assert change(side("kernels_compiled", 40), side("kernels_compiled", 61), policy).outcome == "regressed"


def test_what_one_side_alone_counted_has_the_others_reason() -> None:
    found = change(side("kernels_compiled", 24), side("kernels_compiled", None, None))
    assert (found.outcome, found.policy, found.reason) == ("inconclusive", "pass", "head: not told")
    assert (found.head.unmeasured, found.head.values) == (2, ())


def test_what_no_side_counted_is_left_out() -> None:
    assert counters(side("kernels_compiled", None), side("kernels_compiled", None), Policy()) == ()
    assert counters([], [], Policy()) == ()


def test_failed_boots_have_no_counters_and_their_side_is_never_better() -> None:
    failed = side("kernels_compiled", 3, outcome="failed", failure=Failure("exit", "it died", "start"))
    better = change(side("kernels_compiled", 40), [*side("kernels_compiled", 24), *failed])
    assert (better.outcome, better.reason) == ("inconclusive", "it is better, and a boot of the head failed")
    assert (better.head.values, better.head.failed) == ((24.0,), 1)
    worse = change(side("kernels_compiled", 24), [*side("kernels_compiled", 40), *failed])
    assert worse.outcome == "regressed"
    assert change(side("kernels_compiled", 24), failed).reason == "head: every boot failed"


def test_priming_boots_and_boots_in_error_are_left_out() -> None:
    prime = side("kernels_compiled", 900, role="prime")
    error = side("kernels_compiled", 900, outcome="error")
    assert change(side("kernels_compiled", 0), [*prime, *error, *side("kernels_compiled", 0)]).outcome == "same"


def test_boots_of_two_tiers_are_refused() -> None:
    with pytest.raises(ValueError, match="several tiers are not comparable: pristine, restart"):
        counters(side("kernels_compiled", 24, tier="pristine"), side("kernels_compiled", 0), Policy())


def test_a_boot_that_is_older_than_the_counters_is_counted_from_its_caches() -> None:
    def boot(kernels: int) -> SideBoot:
        empty, filled = Inventory(0, 0, "e"), Inventory(kernels, 1, "f")
        cache = Cache("triton", "/c", empty, filled, kernels, ("k.cubin",), {"kernels": kernels}, 1)
        return SideBoot(replace(record("b"), metrics={}, caches=(cache,)), HEADER)

    found = {item.metric: item for item in counters([boot(24)], [boot(48)], Policy())}
    assert found["kernels_compiled"].outcome == "regressed"
    assert found["bytes_read"].outcome == "same"
    assert "bytecode_compiled" not in found
