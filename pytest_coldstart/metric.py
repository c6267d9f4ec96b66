"""What a metric is: one declaration gives name, unit, direction, derivation and help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_coldstart.record import BootRecord, Value


@dataclass(frozen=True)
class Metric:
    """One named number of a boot.

    ``unit`` is a family of :mod:`pytest_coldstart.units`; ``better`` is lower or higher.
    ``derive`` takes a boot that did not fail; with ``after_stop`` also one that did. ``after_stop`` marks what is known only once
    the process tree is gone, ``gpu`` what a boot without a GPU has none of: a default bound on it does not hold there.
    ``counter`` marks what equal boots count nearly alike, so that one boot a side can be compared.
    """

    name: str
    unit: str
    help: str
    derive: Callable[[BootRecord], Value]
    source: str = "client"
    better: str = "lower"
    sql_type: str = "DOUBLE"
    after_stop: bool = False
    gpu: bool = False
    counter: bool = False


class MetricRegistry(dict[str, Metric]):
    """Metrics by name; a name is declared once."""

    def add(self, metric: Metric) -> None:
        if metric.name in self and self[metric.name] != metric:
            raise ValueError(f"metric {metric.name!r} is declared twice")
        if metric.better not in ("lower", "higher"):
            raise ValueError(f"metric {metric.name!r}: better must be 'lower' or 'higher'")
        self[metric.name] = metric
