"""Load efficiency: how fast the weights came, beside what disk, link and device could do, and which of them was the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_coldstart.coldness import TIERS
from pytest_coldstart.memory import Load
from pytest_coldstart.record import Phase
from pytest_coldstart.reference import Speed, link_speed
from pytest_coldstart.units import show

#: A load is at a limit from this share of its speed on, and no more where it is faster than the limit by as much.
NEAR = 0.7

_LIMITS = {
    "disk": "the disk is the limit",
    "page_cache": "the page cache, read by one thread, is the limit",
    "pcie": "the way to the device is the limit",
    "loader": "the loader itself is the limit",
}


def load_of(
    phases: Sequence[Phase],
    weight_bytes: int | None,
    read_speed: Speed,
    copy_speed: Speed | None,
    gen: int | None,
    width: int | None,
    tier: str,
    devices: int = 1,
) -> Load:
    """The load of one boot from its critical path and the references of its machine.

    *copy_speed* is None where no device takes the weights. *gen* and *width* are of the PCIe link of one device. Each of
    *devices* takes its share over a link of its own.
    """
    pieces = [phase for phase in phases if phase.name == "load_weights"]
    seconds = sum(phase.end - phase.begin for phase in pieces) or None
    copied, no_copy = copy_speed or (None, "")
    link = link_speed(gen, width) if copy_speed else None
    missing = [
        "" if weight_bytes else "the size of the weights is not known",
        "" if seconds else "no phase load_weights is on the critical path",
        "" if read_speed[0] else read_speed[1] or "no plain read was timed",
        "" if copied or copy_speed is None else no_copy or "no copy to the device was timed",
        "" if link or copy_speed is None else "generation and width of the PCIe link are not known",
    ]
    load = Load(weight_bytes or None, seconds, read_speed[0], copied, link)
    bound, why = _bound(load, TIERS[tier].weights, devices, copy_speed is not None)
    return replace(load, bound_by=bound, missing=tuple(text for text in (*missing, why) if text))


def _bound(load: Load, state: str, devices: int, copies: bool) -> tuple[str, str]:
    """What the load was bound by, or why that cannot be told where nothing else says it."""
    if state == "any":
        return "", "its tier does not say where the weights are before the start, so no reference is one for it"
    if load.speed is None:
        return "", ""
    source = "disk" if state == "evicted" else "page_cache"
    ways = [speed * devices for speed in (load.copy_speed, load.link_speed) if speed]
    limits = [(speed, name) for speed, name in ((load.read_speed, source), *((way, "pcie") for way in ways)) if speed]
    near = [(speed, name) for speed, name in limits if NEAR <= load.speed / speed <= 1 / NEAR]
    if near:
        return min(near)[1], ""
    if load.read_speed is None or (copies and not ways):
        return "", ""
    if load.speed > min(limits)[0]:
        return "", "the weights came faster than a reference: read in parallel, or not whole within load_weights"
    return "loader", ""


def sentence(load: Load) -> str:
    """One line for people: speed, references and limit; why there is none; empty where nothing at all is known."""
    if load.speed is None:
        return f"how fast the weights came is not known: {load.missing[0]}" if load.missing else ""
    named = (("a plain read gives", load.read_speed), ("a pinned copy", load.copy_speed), ("the link", load.link_speed))
    beside = ", ".join(f"{name} {show(speed, 'B/s')}" for name, speed in named if speed)
    text = f"weights came at {show(load.speed, 'B/s')}" + (f"; {beside}" if beside else "")
    if load.bound_by:
        return f"{text}: {_LIMITS.get(load.bound_by, load.bound_by)}"
    return f"{text}: what limits them is not known" + (f" ({load.missing[-1]})" if load.missing else "")
