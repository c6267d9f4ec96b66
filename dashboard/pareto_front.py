"""Which config should I run: of cells that can be compared, those that no other is better than in everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.data.matrix import Result
from dashboard.data.series import NEVER_COUNTED, Series

#: What a config is judged on; all three are better when they are lower.
TIMES = ("cold_start", "warm_first_token")
#: What memory can mean: of the devices where GPUs were measured, else of the processes.
MEMORY = ("gpu_memory_ready", "peak_rss")


@dataclass(frozen=True)
class Candidate:
    """One series with its three numbers; ``dominated``: ids of the series that are at least as good in all and better in one."""

    series: str
    values: tuple[float, float, float]
    dominated: tuple[str, ...] = ()

    @property
    def best(self) -> bool:
        return not self.dominated


@dataclass(frozen=True)
class LeftOut:
    """A series that cannot be placed, and why."""

    series: str
    why: str


def memory_metric(series: Sequence[Series], results: Mapping[tuple[str, str], Result]) -> str:
    """The metric of memory that most of *series* have; the GPU's where as many have it."""

    def measured(name: str) -> int:
        return sum((item.id, name) in results and results[item.id, name].value is not None for item in series)

    return max(MEMORY, key=lambda name: (measured(name), -MEMORY.index(name)))


def front(
    series: Sequence[Series], results: Mapping[tuple[str, str], Result], memory: str
) -> tuple[list[Candidate], list[LeftOut]]:
    """The candidates, those of the front first and then by cold start, and what was left out.

    A series of which one boot failed is left out: a config that does not always boot is none to run.
    """
    names = (*TIMES, memory)
    placed: list[Candidate] = []
    left: list[LeftOut] = []
    for item in series:
        found = [results.get((item.id, name)) for name in names]
        why = next((why for name, one in zip(names, found, strict=True) if (why := _lacking(name, one))), "")
        if why:
            left.append(LeftOut(item.id, why))
        else:
            cold, warm, size = (one.value or 0.0 for one in found if one)
            placed.append(Candidate(item.id, (cold, warm, size)))
    judged = [
        Candidate(
            one.series, one.values, tuple(other.series for other in placed if dominates(other.values, one.values))
        )
        for one in placed
    ]
    return sorted(judged, key=lambda one: (not one.best, one.values)), left


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether *one* is at most *other* in everything and less in something."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _lacking(name: str, found: Result | None) -> str:
    if found is None:
        return NEVER_COUNTED
    if found.failed:
        return f"{found.failed} of {found.boots} boots of the newest run failed"
    if found.value is None:
        return f"{name} is unmeasured: {found.reason}"
    return ""
