"""The config matrix: its axes, and what stands in its squares."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dashboard.data.matrix import Result
from dashboard.data.newest import Config
from dashboard.data.series import NEVER_COUNTED, Series
from pytest_coldstart import units
from pytest_coldstart.coldness import TIERS
from pytest_coldstart.engines import EngineError, EngineRegistry
from pytest_coldstart.metrics import Metric

#: Axes that every store has; an engine option is one of more: ``option.NAME``.
LABELS = {
    "engine": "engine",
    "tier": "tier",
    "model": "model",
    "hardware": "hardware class",
    "warmup": "warm-up strategy",
    "version": "engine version",
}
_OPTION = "option."
NOT_SET = "not set"

#: How an SLO of a square is broken.
BROKEN, UNMEASURED = "SLO broken", "SLO unmeasured"

#: Axis -> series -> where it stands on it.
Places = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Square:
    """One square. ``number``: series in it, of which ``series`` is the worst, which the square shows.

    ``shown``: its words; ``mark``: empty, or how an SLO of any of them is broken; ``boots`` and ``failed``: of the worst;
    ``notes``: what else has to be said.
    """

    x: str
    y: str
    tier: str
    series: str
    state: str
    value: float | None
    shown: str
    mark: str
    number: int = 1
    boots: int = 0
    failed: int = 0
    notes: tuple[str, ...] = ()


def label(axis: str) -> str:
    return LABELS.get(axis) or f"option {axis.removeprefix(_OPTION)}"


def places(series: Sequence[Series], configs: Mapping[str, Config]) -> Places:
    """Every axis, those on which *series* differ first."""
    found: dict[str, dict[str, str]] = {
        "engine": {item.id: item.engine or "unknown" for item in series},
        "tier": {item.id: item.tier or "unknown" for item in series},
        "model": {item.id: item.model or "none" for item in series},
        "hardware": {item.id: item.hardware for item in series},
        "warmup": {item.id: strategy(_config(configs, item).warmup) for item in series},
        "version": {item.id: version(item.engine, _config(configs, item).versions) for item in series},
    }
    for name in _options(series, configs):
        found[_OPTION + name] = {item.id: option(_config(configs, item).options, name) for item in series}
    differ = {axis: len(set(by.values())) > 1 for axis, by in found.items()}
    return {axis: found[axis] for axis in sorted(found, key=lambda axis: not differ[axis])}


def _config(configs: Mapping[str, Config], item: Series) -> Config:
    return configs.get(item.id, Config({}, {}, {}))


def _options(series: Sequence[Series], configs: Mapping[str, Config]) -> list[str]:
    """Options that take more than one value within an engine; not to be set is one, too."""
    engines: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for item in series:
        engines[item.engine].append(_config(configs, item).options)
    return sorted(
        {
            name
            for found in engines.values()
            for name in set().union(*found)
            if len({option(options, name) for options in found}) > 1
        }
    )


def option(options: Mapping[str, object], name: str) -> str:
    """The value of an option, as a person writes it in JSON; text without its quotes."""
    if name not in options:
        return NOT_SET
    value = options[name]
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def strategy(warmup: Mapping[str, object]) -> str:
    """``prompts count=4``: the strategy with its arguments, since they decide the numbers."""
    arguments = [f"{name}={option(warmup, name)}" for name in sorted(warmup) if name != "strategy"]
    return " ".join([str(warmup.get("strategy", "none")), *arguments])


def version(engine: str, versions: Mapping[str, object]) -> str:
    """The version of the engine's own distribution."""
    return next((str(versions[name]) for name in (*_distributions(engine), engine) if name in versions), "unknown")


@lru_cache(maxsize=64)
def _distributions(engine: str) -> tuple[str, ...]:
    try:
        adapter = EngineRegistry().get(engine)
    except EngineError:  # another machine's engine
        return ()
    return adapter.one_of or adapter.distributions[:1]


def ordered(values: Iterable[str]) -> list[str]:
    """Values of an axis in the order in which a person looks for them: tiers coldest first, numbers by size."""
    tiers = list(TIERS)

    def key(value: str) -> tuple[object, ...]:
        if value in tiers:
            return (0, tiers.index(value), ())
        parts = tuple(
            (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", value) if part
        )
        try:
            return (1, float(value), parts)
        except ValueError:
            return (2, 0, parts)

    return sorted(set(values), key=key)


def squares(
    series: Sequence[Series],
    found: Places,
    axes: tuple[str, str],
    results: Mapping[tuple[str, str], Result],
    metric: Metric,
) -> list[Square]:
    """The squares that hold a series; where tier is no axis, those of each tier for themselves."""
    x, y = axes
    grouped: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for item in series:
        place = (found[x][item.id], found[y][item.id], "" if "tier" in axes else item.tier)
        lost = Result(item.id, metric.name, "", "unmeasured", reason=NEVER_COUNTED)
        grouped[place].append(results.get((item.id, metric.name), lost))
    return [_square(place, group, metric) for place, group in grouped.items()]


def _square(place: tuple[str, str, str], group: Sequence[Result], metric: Metric) -> Square:
    worst = max(group, key=lambda item: _badness(item, metric))
    return Square(
        *place,
        worst.series,
        worst.state,
        worst.value,
        shown(worst, metric),
        mark([item.verdict for item in group]),
        len(group),
        worst.boots,
        worst.failed,
        tuple(_notes(worst, group, metric)),
    )


def _badness(item: Result, metric: Metric) -> tuple[object, ...]:
    """What is worse is larger; a number tells more than that there is none."""
    sign = 1 if metric.better == "lower" else -1
    state = {"failed": 2, "ok": 1, "unmeasured": 0}[item.state]
    return (state, item.verdict == "fail", sign * (item.value or 0.0))


def shown(item: Result, metric: Metric) -> str:
    """``2.31 s``, ``failed``, ``unmeasured`` or ``n/a``."""
    if item.value is not None:
        return units.show(item.value, metric.unit)
    return "n/a" if item.state == "unmeasured" and item.verdict == "n/a" else item.state


def mark(verdicts: Iterable[str]) -> str:
    """What a square says of SLOs; unmeasured counts as broken there."""
    found = set(verdicts)
    return BROKEN if "fail" in found else UNMEASURED if "unmeasured" in found else ""


def _notes(worst: Result, group: Sequence[Result], metric: Metric) -> list[str]:
    notes = [worst.reason] if worst.reason else []
    if worst.failed and worst.boots > 1:
        notes.append(f"{worst.failed} of {worst.boots} boots failed")
    if worst.unmeasured and worst.boots > 1:
        notes.append(f"{worst.unmeasured} of {worst.boots} boots unmeasured")
    if len(group) > 1:
        words = ", ".join(shown(item, metric) for item in group[:8]) + (", ..." if len(group) > 8 else "")
        notes.append(f"the worst of {len(group)} series: {words}")
    return notes
