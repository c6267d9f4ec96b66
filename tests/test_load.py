"""Load efficiency worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_coldstart.load import load_of, sentence
from pytest_coldstart.memory import Load
from pytest_coldstart.record import Phase
from pytest_coldstart.reference import Speed

GB = 10**9
#: 15 GB in two stretches of 9.375 s together: 1.6 GB/s.
PHASES = (
    Phase("imports", 0.0, 20.0, "probe"),
    Phase("load_weights", 20.0, 25.0, "probe"),
    Phase("compile", 25.0, 26.0, "probe"),
    Phase("load_weights", 26.0, 30.375, "probe"),
)


def load(read: float | None, copy: float | None = 52 * GB, tier: str = "pristine", **changes: Any) -> Load:
    """A load of 15 GB at 1.6 GB/s over a link of generation 5 with 16 lanes."""
    pcie: dict[str, Any] = {"gen": 5, "width": 16, **changes}
    speeds: list[Speed] = [(read, "" if read else "not read"), (copy, "" if copy else "not copied")]
    return load_of(pcie.pop("phases", PHASES), pcie.pop("size", 15 * GB), speeds[0], speeds[1], tier=tier, **pcie)


def test_seconds_and_speed_are_of_all_stretches_on_the_critical_path() -> None:
    found = load(1.5 * GB)
    assert found.seconds == 9.375
    assert found.speed == pytest.approx(1.6 * GB)
    assert found.missing == ()


@pytest.mark.parametrize(
    ("read", "copy", "changes", "bound"),
    [
        (1.5 * GB, 52 * GB, {}, "disk"),
        (2.28 * GB, 52 * GB, {}, "disk"),  # 70.2 % of it
        (2.29 * GB, 52 * GB, {}, "loader"),  # 69.9 %
        (6.3 * GB, 52 * GB, {"tier": "restart"}, "loader"),
        (1.7 * GB, 52 * GB, {"tier": "scale_out"}, "page_cache"),
        (6.3 * GB, 2 * GB, {}, "pcie"),
        (2.2 * GB, 2 * GB, {}, "pcie"),  # both are near: the slower one
        (1.9 * GB, 2 * GB, {}, "disk"),
        (6.3 * GB, None, {"gen": 1, "width": 8}, "pcie"),  # the link alone: 2 GB/s
        (6.3 * GB, 1.1 * GB, {"devices": 2}, "pcie"),  # each takes half
        (6.3 * GB, 2 * GB, {"devices": 4}, "loader"),
    ],
)
def test_the_slowest_reference_that_the_load_is_near_is_its_limit(
    read: float, copy: float | None, changes: dict[str, Any], bound: str
) -> None:
    assert load(read, copy, **changes).bound_by == bound


@pytest.mark.parametrize(
    ("read", "changes", "why"),
    [
        (None, {}, "not read"),
        (6.3 * GB, {"copy": None, "gen": None}, "generation and width"),
        (6.3 * GB, {"tier": "wake"}, "its tier does not say where the weights are"),
        (6.3 * GB, {"phases": PHASES[:1]}, "no phase load_weights"),
        (6.3 * GB, {"size": 0}, "the size of the weights is not known"),
        (1 * GB, {}, "faster than a reference"),
    ],
)
def test_what_cannot_be_told_has_a_reason(read: float | None, changes: dict[str, Any], why: str) -> None:
    found = load(read, **changes)
    assert found.bound_by == ""
    assert why in found.missing[-1]


def test_without_a_device_the_plain_read_is_reference_enough() -> None:
    found = load_of(PHASES, 15 * GB, (6.3 * GB, ""), None, None, None, "restart")
    assert (found.bound_by, found.missing) == ("loader", ())


def test_a_sentence_names_speed_references_and_limit() -> None:
    assert sentence(load(1.5 * GB)) == (
        "weights came at 1.6 GB/s; a plain read gives 1.5 GB/s, a pinned copy 52 GB/s, the link 63 GB/s: the disk is the limit"
    )
    assert sentence(load_of(PHASES, 15 * GB, (6.3 * GB, ""), None, None, None, "restart")) == (
        "weights came at 1.6 GB/s; a plain read gives 6.3 GB/s: the loader itself is the limit"
    )


def test_a_sentence_without_a_limit_or_a_speed_has_the_reason() -> None:
    assert sentence(load(None, copy=None, gen=None)) == (
        "weights came at 1.6 GB/s: what limits them is not known (generation and width of the PCIe link are not known)"
    )
    assert sentence(load(1.5 * GB, phases=())).endswith("is not known: no phase load_weights is on the critical path")
    assert sentence(Load()) == ""
