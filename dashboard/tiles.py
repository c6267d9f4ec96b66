"""Series, standings, verdicts -> what the overview says of each series. No page and no SQL in here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dashboard import place, text
from dashboard.data.overview import Standing
from dashboard.data.series import Series
from dashboard.data.verdicts import WORST, RunVerdict
from pytest_coldstart import units

#: The metrics whose SLOs stand on every tile.
SLOS = ("cold_start", "warm_first_token", "fragmentation")

Row = dict[str, str]


@dataclass(frozen=True)
class Tile:
    """One series as the overview shows it. ``standing``: None where only gates have booted it. ``stale``: why it is, else empty."""

    series: Series
    standing: Standing | None
    stale: str = ""

    @property
    def verdict(self) -> str:
        return self.standing.verdict if self.standing else "not judged"

    @property
    def verdicts(self) -> tuple[RunVerdict, ...]:
        return self.standing.verdicts if self.standing else ()

    def of(self, metric: str) -> RunVerdict | None:
        """The worst verdict on *metric*; None where it was not judged."""
        found = sorted((item for item in self.verdicts if item.metric == metric), key=rank)
        return found[0] if found else None

    @property
    def slos(self) -> list[tuple[str, RunVerdict | None]]:
        """The three, then every other SLO that is broken."""
        others = [item for item in self.verdicts if item.metric not in SLOS and item.verdict in ("fail", "unmeasured")]
        return [*((name, self.of(name)) for name in SLOS), *((item.metric, item) for item in sorted(others, key=rank))]

    @property
    def first(self) -> str:
        """The metric to look at first: one whose SLO is broken, else the cold start."""
        broken = [item for item in sorted(self.verdicts, key=rank) if item.verdict in ("fail", "unmeasured")]
        return broken[0].metric if broken else SLOS[0]

    @property
    def bound(self) -> float | None:
        """The upper bound on the cold start; of several, the one judged worst."""
        found = self.of(SLOS[0])
        return found.bound if found and found.op == "<=" else None


def rank(item: RunVerdict | Tile) -> int:
    """The place of a verdict, the worst first; a word that nobody knows is the last."""
    return WORST.index(item.verdict) if item.verdict in WORST else len(WORST)


def tiles(
    series: Iterable[Series], standings: Mapping[str, Standing], now: datetime, all_branches: bool = True
) -> list[Tile]:
    """A tile a series, the worst first, then the stale, then the one that ran last.

    Without *all_branches*, a series without a standing has no run on the branch that was asked for, and is left out.
    """
    found = []
    for item in series:
        standing = standings.get(item.id)
        if standing or all_branches:
            found.append(Tile(item, standing, why_stale(standing, now) if standing else ""))
    return sorted(found, key=lambda tile: (rank(tile), not tile.stale, -_age(tile)))


def _age(tile: Tile) -> float:
    last = tile.standing.last if tile.standing else tile.series.last
    return (last - datetime.min).total_seconds() if last else 0.0


def why_stale(standing: Standing, now: datetime) -> str:
    """What makes a series stale, in words; empty where nothing does."""
    found = []
    if standing.missing:
        found.append(
            f"missing from the last {_runs(standing.missed)} of its test file on this branch and hardware class"
        )
    if standing.late(now) and standing.usual:
        found.append(
            f"last run {text.age(standing.last, now)}, usually one every {text.span(standing.usual.total_seconds())}"
        )
    return "; ".join(found)


def _runs(count: int) -> str:
    return "run" if count == 1 else f"{count} runs"


def answer(found: Sequence[Tile]) -> tuple[str, str]:
    """Are we inside our SLOs now: one sentence, and how bad it is (``fail``, ``stale`` or ``pass``)."""
    counts = Counter(tile.verdict for tile in found)
    stale = sum(bool(tile.stale) for tile in found)
    fail, silent, unjudged = counts["fail"], counts["unmeasured"], counts["not judged"]
    parts = [f"{fail or 'none'} of {len(found)} series {'breaks' if fail <= 1 else 'break'} an SLO"]
    if not fail and not silent and not unjudged:
        parts = [
            f"all {len(found)} series are inside their SLOs" if len(found) > 1 else "the one series is inside its SLOs"
        ]
    if silent:
        more = "more " if fail else ""
        parts.append(f"{silent} {more}{_has(silent)} one unmeasured, which counts as broken")
    parts += [f"{unjudged} {_is(unjudged)} not judged"] if unjudged else []
    parts += [f"{stale} {_is(stale)} stale"] if stale else []
    bad = "fail" if fail or silent else "stale" if unjudged or stale else "pass"
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}.", bad


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _has(count: int) -> str:
    return "has" if count == 1 else "have"


def bound(item: RunVerdict) -> str:
    """``max <= 10.00 s``."""
    return f"{item.stat} {item.op} {units.show(item.bound, item.unit)}"


def value(item: RunVerdict | None) -> str:
    """What was judged: a number, or in a word why there is none."""
    if item is None:
        return "not judged"
    if item.value is not None:
        return units.show(item.value, item.unit)
    return "failed" if item.verdict == "fail" else item.verdict


def rows(found: Iterable[Tile], now: datetime) -> list[Row]:
    """A row a series."""
    return [
        {
            "verdict": tile.verdict,
            "stale": tile.stale or "-",
            "engine": tile.series.engine,
            "cell": tile.series.cell_id,
            "tier": tile.series.tier,
            **{name: _judged(tile.of(name)) for name in SLOS},
            "last run": _last(tile, now),
            "boots": text.boots(tile.series),
            "trend": place.trend(tile.series.id, tile.first),
            "newest boot": place.boot(tile.standing.boot_id) if tile.standing else "",
            "test": tile.series.nodeid,
            "branch": tile.standing.branch if tile.standing else tile.series.branch,
            "model": tile.series.model,
            "hardware class": tile.series.hardware,
        }
        for tile in found
    ]


def _judged(item: RunVerdict | None) -> str:
    """``2.31 s, pass``; where there is no number the word alone."""
    shown = value(item)
    return shown if item is None or shown == item.verdict else f"{shown}, {item.verdict}"


def _last(tile: Tile, now: datetime) -> str:
    return text.age(tile.standing.last, now) if tile.standing else "gates only"


def slo_rows(found: Iterable[Tile]) -> list[Row]:
    """A row an SLO, with the reason where it is unmeasured or n/a."""
    return [
        {
            "verdict": item.verdict,
            "SLO": f"{item.metric}.{bound(item)}",
            "value": value(item),
            "reason": item.reason or "-",
            "rounds": str(item.rounds),
            "bound from": item.bound_source,
            "cell": tile.series.cell_id,
            "test": item.nodeid,
            "run": item.run_id,
        }
        for tile in found
        for item in sorted(tile.verdicts, key=rank)
    ]
