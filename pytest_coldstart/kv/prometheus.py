"""Prometheus text of one scrape, so that numbers of one instant are read together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_coldstart.observe.scrape import fetch, labels_of, samples

#: More than any cache, queue or counter of tokens holds.
_MOST = 10**15
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True)
class Sample:
    """One value and its labels."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Samples:
    """All samples of one scrape, by name."""

    by_name: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)

    def of(self, *names: str) -> tuple[Sample, ...]:
        """The samples of the first of *names* that is there; none where none is."""
        return next((self.by_name[name] for name in names if name in self.by_name), ())

    def total(self, *names: str) -> float | None:
        """The sum over the label sets of the first of *names* that is there; None without one, or where one is no count."""
        values = [sample.value for sample in self.of(*names)]
        return count(sum(values)) if values and None not in map(count, values) else None


def count(value: float | None) -> float | None:
    """*value* where it can be a count of something; None where it is none, negative, infinite or beyond all measure."""
    return value if value is not None and 0 <= value <= _MOST else None


def whole(value: float | None) -> int | None:
    """As :func:`count`, in whole numbers."""
    return None if count(value) is None else round(value)  # type: ignore[arg-type]


def parse(text: bytes) -> Samples:
    """Read Prometheus text; lines that are none are left out."""
    found: dict[str, list[Sample]] = {}
    for name, labels, value in samples(text):
        try:
            sample = Sample(_labels(labels), float(value))
        except ValueError:
            continue
        found.setdefault(name, []).append(sample)
    return Samples({name: tuple(of_name) for name, of_name in found.items()})


def scrape(host: str, port: int, path: str = "/metrics") -> Samples | None:
    """What the engine answers now; None where it gives no answer."""
    text = fetch(host, port, path)
    return parse(text) if text is not None else None


def _labels(text: bytes) -> dict[str, str]:
    return {name: _ESCAPED.sub(_unescaped, value) for name, value in labels_of(text).items()} if text else {}


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
