"""The y axis of a trend: the unit, what lies on it, and bands above it for boots that have no value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from dashboard.charts.axes import axis_unit, titled
from pytest_coldstart.metrics import Metric

#: A bound farther away than this many times the largest value would squeeze all boots into a line; it is said in words.
FAR = 3.0

#: Of the axis, what a band takes.
_BAND = 0.09


@dataclass(frozen=True)
class Scale:
    """``worth``: of one unit of the axis in the metric's unit. ``bands``: name -> place above ``top``."""

    title: str
    worth: float
    low: float
    top: float
    bands: dict[str, float]

    def place(self, value: float) -> float:
        return value / self.worth

    def y(self) -> alt.Y:
        high = max(self.bands.values(), default=self.top) + (self.top - self.low) * _BAND * (0.6 if self.bands else 0)
        named = " : ".join(f"abs(datum.value - {place!r}) < 1e-9 ? '{name}'" for name, place in self.bands.items())
        return alt.Y(
            "y:Q",
            title=self.title,
            scale=alt.Scale(domain=[self.low, high], nice=False),
            axis=alt.Axis(
                values=[*ticks(self.low, self.top), *self.bands.values()],
                labelExpr=f"{named} : datum.label" if named else "datum.label",
            ),
        )


def scaled(metric: Metric, values: Sequence[float], bounds: Sequence[float], bands: Sequence[str]) -> Scale:
    """The axis for *values* and for those of *bounds* that are not :func:`far`, from zero on; with *bands* above it."""
    shown = [*values, *(bound for bound in bounds if not far(bound, values))]
    unit, worth = axis_unit(max((abs(value) for value in shown), default=0.0), metric.unit)
    low, top = min([0.0, *shown]) / worth, max([0.0, *shown]) / worth
    top = top + (top - low) * 0.06 if top > low else low + 1.0
    step = (top - low) * _BAND
    places = {name: round(top + step * (number + 0.6), 9) for number, name in enumerate(bands)}
    return Scale(titled(metric.name, unit), worth, low, top, places)


def far(bound: float, values: Sequence[float]) -> bool:
    """Whether a bound lies too far above *values* to be drawn with them."""
    largest = max(values, default=0.0)
    return largest > 0 and bound > FAR * largest


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most *most* + 1 round numbers from *low* to *high*."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]
