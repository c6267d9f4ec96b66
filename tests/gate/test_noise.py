"""What the references say of a comparison, worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_coldstart.gate.comparison import SideBoot
from pytest_coldstart.gate.noise import normalised, strays
from pytest_coldstart.record import Failure, Value
from tests.store.samples import HEADER, record

PYTHON = "python 3.11.7"


def boot(
    name: str, cold_start: float, imports: float | None = 0.04, read: float | None = None, **more: Any
) -> SideBoot:
    references = {"reference_import": Value(imports, PYTHON) if imports else Value(None, None, "not timed")}
    if read:
        references["reference_read"] = Value(read, "client")
    metrics = {"cold_start": Value(cold_start, "client")}
    header = {**HEADER, **more.pop("header", {})}
    return SideBoot(record(name, **{"metrics": metrics, "references": references, **more}), header)


def test_a_machine_that_was_twice_as_slow_for_one_side_is_taken_out() -> None:
    base = [boot("a", 2.0), boot("b", 2.2), boot("c", 1.8)]
    head = [boot("d", 4.0, 0.08), boot("e", 4.4, 0.08), boot("f", 3.6, 0.08)]
    assert normalised(base, head, "cold_start") == pytest.approx(0.0)


def test_a_reference_that_scatters_more_than_the_boots_is_of_no_use() -> None:
    base = [boot("a", 2.0, 0.02), boot("b", 2.0, 0.04), boot("c", 2.0, 0.08)]
    head = [boot("d", 2.5, 0.04), boot("e", 2.5, 0.04), boot("f", 2.5, 0.04)]
    assert normalised(base, head, "cold_start") is None
    assert normalised(base[1:2], head, "cold_start") == pytest.approx(0.25)


def test_equal_references_leave_the_change_of_the_medians() -> None:
    assert normalised([boot("a", 2.0)], [boot("b", 2.5)], "cold_start") == pytest.approx(0.25)


def test_without_a_reference_or_a_value_of_each_boot_nothing_is_normalised() -> None:
    assert normalised([boot("a", 2.0)], [boot("b", 2.5, None)], "cold_start") is None
    assert normalised([boot("a", 2.0)], [boot("b", 2.5)], "warm_first_token") is None
    assert normalised([boot("a", 2.0)], [], "cold_start") is None
    assert normalised([boot("a", 2.0, references={})], [boot("b", 2.0)], "cold_start") is None


def test_references_of_two_versions_of_python_are_no_common_measure() -> None:
    other = boot("b", 2.5, references={"reference_import": Value(0.03, "python 3.14.0")})
    assert normalised([boot("a", 2.0)], [other], "cold_start") is None


def test_failed_boots_are_infinitely_slow_whatever_their_reference() -> None:
    failed = boot("f", 9.9, None, outcome="failed", failure=Failure("exit", "it died", "start"))
    assert normalised([boot("a", 2.0)], [boot("b", 2.5), boot("c", 2.5), failed], "cold_start") == pytest.approx(0.25)
    assert normalised([boot("a", 2.0)], [boot("b", 2.5), failed, failed], "cold_start") is None


def test_a_boot_whose_reference_strays_is_named_with_the_numbers() -> None:
    boots = [boot(name, 2.0, value) for name, value in (("a", 0.040), ("b", 0.041), ("c", 0.039), ("d", 0.062))]
    # The median is 40.5 ms, the median deviation 1 ms; 62 ms are 53 % above it.
    assert strays(boots) == ("boot d: its reference_import strays: 62 ms, +53% from the median 40.5 ms of 4 boots",)


@pytest.mark.parametrize(
    "values",
    [
        (0.040, 0.040, 0.040, 0.045),  # 12.5 %, though no other one differs at all
        (0.030, 0.040, 0.050, 0.060),  # 33 %, and all of them scatter as much
        (0.040, 0.040, 0.080),  # too few to call one odd
    ],
)
def test_a_reference_strays_by_both_measures_or_not_at_all(values: tuple[float, ...]) -> None:
    assert strays([boot(str(index), 2.0, value) for index, value in enumerate(values)]) == ()


def test_references_of_other_hardware_or_of_other_weights_are_groups_of_their_own() -> None:
    slow = {"hostname": "node8", "hardware_class": "t4x1"}
    hosts = [boot(str(n), 2.0, 0.04) for n in range(4)] + [boot(f"s{n}", 2.0, 0.09, header=slow) for n in range(4)]
    assert strays(hosts) == ()
    large = {"cell": {"engine": "llamacpp", "model": "large"}}
    weights = [boot(str(n), 2.0, read=5e9) for n in range(4)] + [
        boot(f"l{n}", 2.0, read=2e9, **large) for n in range(4)
    ]
    assert strays(weights) == ()
    assert [text.partition(":")[0] for text in strays([*weights, boot("x", 2.0, read=1e9)])] == ["boot x"]


def test_a_fast_reference_strays_too() -> None:
    boots = [boot(str(n), 2.0, 0.04) for n in range(4)] + [boot("quick", 2.0, 0.02)]
    assert strays(boots) == ("boot quick: its reference_import strays: 20 ms, -50% from the median 40 ms of 5 boots",)
