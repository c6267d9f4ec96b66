"""Quantities with units: one table for every bound, option and printed number."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

#: For each unit family (the canonical unit a value is stored in), the suffixes a
#: person may write and what each is worth in the canonical unit.
FAMILIES: Mapping[str, Mapping[str, float]] = {
    "s": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0},
    "B": {
        "B": 1.0,
        "KB": 1e3,
        "MB": 1e6,
        "GB": 1e9,
        "KiB": 2.0**10,
        "MiB": 2.0**20,
        "GiB": 2.0**30,
    },
    "B/s": {"B/s": 1.0, "MB/s": 1e6, "GB/s": 1e9, "MiB/s": 2.0**20, "GiB/s": 2.0**30},
    "fraction": {"%": 0.01},
    "count": {"": 1.0},
}

_QUANTITY = re.compile(r"\s*(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<unit>.*?)\s*")


class QuantityError(ValueError):
    """A quantity that cannot be read; the message names the valid units."""


def parse(text: str, family: str) -> float:
    """Read ``"500ms"`` as a number in the canonical unit of *family*.

    :raises QuantityError: no number, a missing unit, or a unit of another family.
    """
    scales = FAMILIES[family]
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(f"{text!r} is not a number with a unit, such as {example(family)!r}")
    unit = match["unit"]
    if unit not in scales:
        valid = ", ".join(repr(name) for name in scales)
        if not unit:
            raise QuantityError(f"{text!r} has no unit; valid units here: {valid}")
        if family == "count":
            raise QuantityError(f"{text!r}: a count takes no unit, write {match['number']!r}")
        raise QuantityError(f"{text!r}: unknown unit {unit!r}; valid units here: {valid}")
    value = float(match["number"]) * scales[unit]
    if not math.isfinite(value):
        raise QuantityError(f"{text!r} is not a finite number")
    return value


def parse_duration(text: str) -> float:
    """Read a positive duration such as ``"90s"``; returns seconds."""
    seconds = parse(text, "s")
    if seconds <= 0:
        raise QuantityError(f"{text!r}: a duration must be greater than zero")
    return seconds


def example(family: str) -> str:
    return {"s": "10s", "B": "64MiB", "B/s": "1GB/s", "fraction": "5%", "count": "3"}[family]


def show(value: float | None, family: str) -> str:
    """The short text for a value, as tables print it: ``1.23 s``, ``94 MB``, ``5 %``."""
    if value is None:
        return "-"
    if math.isinf(value):
        return "failed"
    if family == "s":
        return _seconds(value)
    if family in ("B", "B/s"):
        return _bytes(value) + ("/s" if family == "B/s" else "")
    if family == "fraction":
        return f"{value * 100:.3g} %"
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def _seconds(value: float) -> str:
    size = abs(value)
    if size >= 100:
        return f"{value:.0f} s"
    if size >= 1:
        return f"{value:.2f} s"
    if size >= 1e-3 or value == 0:
        return f"{value * 1e3:.3g} ms"
    return f"{value * 1e6:.3g} us"


def _bytes(value: float) -> str:
    for suffix, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {suffix}"
    return f"{value:.0f} B"
