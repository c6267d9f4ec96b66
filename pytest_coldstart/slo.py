"""SLOs: one grammar for a bound wherever it is written, statistics over rounds, verdicts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_coldstart import units
from pytest_coldstart.attribution import PHASES, UNATTRIBUTED
from pytest_coldstart.fragmentation import PARTS
from pytest_coldstart.metrics import METRICS, median, percentile
from pytest_coldstart.record import BootRecord, Value

#: Each statistic over rounds, with the rounds it needs to be more than an interpolation.
STATISTICS: Mapping[str, int] = {"max": 1, "min": 1, "mean": 1, "p50": 1, "p90": 10, "p95": 20, "p99": 100}

DEFAULTS = ("cold_start<=10s", "warm_first_token<=500ms", "fragmentation<=5%", "leaked_gpu_memory<=0B")

#: The dot of phase.NAME belongs to the metric; any other one begins the statistic.
_GRAMMAR = re.compile(
    r"\s*(?P<metric>phase\.\w*|\w+)(?:\.(?P<stat>\w+))?(?:@(?P<tier>\w+))?\s*(?P<op><=|>=)\s*(?P<bound>\S.*?)\s*"
)
GRAMMAR = (
    "METRIC[.STAT][@TIER] <=|>= BOUND, such as 'cold_start<=10s', 'warm_first_token.p50@restart<=200ms' or "
    "'phase.imports<=15s'"
)


class SLOError(ValueError):
    """A bound that cannot be read; the message lists what is valid."""


@dataclass(frozen=True)
class Bound:
    """A bound on one statistic of one metric; ``value`` is in the metric's unit."""

    metric: str
    stat: str
    tier: str | None
    op: str
    value: float
    text: str
    source: str

    @property
    def named(self) -> bool:
        """Whether a person asked for it: then a metric that cannot exist is unmeasured, not n/a."""
        return self.source != "default"

    @property
    def what(self) -> str:
        return f"{self.metric}.{self.stat}"

    @property
    def limit(self) -> str:
        return f"{self.op} {units.show(self.value, METRICS[self.metric].unit)}"

    def holds(self, value: float) -> bool:
        return value <= self.value if self.op == "<=" else value >= self.value


@dataclass(frozen=True)
class Verdict:
    """One bound judged over the rounds of one cell. ``verdict``: pass, fail, unmeasured or n/a."""

    metric: str
    stat: str
    op: str
    bound: float
    unit: str
    value: float | None
    rounds: int
    verdict: str
    bound_source: str
    value_source: str | None = None
    reason: str | None = None

    @property
    def broken(self) -> bool:
        return self.verdict in ("fail", "unmeasured")

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        if self.value is not None and math.isinf(self.value):
            data["value"] = None
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        return cls(**data)


def parse_bound(text: str, source: str, tiers: Iterable[str]) -> Bound:
    """Read one bound.

    :raises SLOError: no such form, metric, statistic or tier, or a missing or wrong unit.
    """
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise SLOError(f"SLO {text!r} is not of the form {GRAMMAR}")
    metric = METRICS.get(match["metric"])
    if metric is None:
        raise SLOError(f"SLO {text!r}: {_unknown(match['metric'])}")
    stat = match["stat"] or ("max" if match["op"] == "<=" else "min")  # the worst round for this bound
    if stat not in STATISTICS:
        raise SLOError(f"SLO {text!r}: unknown statistic {stat!r}; valid statistics: {', '.join(STATISTICS)}")
    known = sorted(tiers)
    if match["tier"] is not None and match["tier"] not in known:
        raise SLOError(f"SLO {text!r}: unknown tier {match['tier']!r}; valid tiers: {', '.join(known)}")
    try:
        value = units.parse(match["bound"], metric.unit)
    except units.QuantityError as error:
        raise SLOError(f"SLO {text!r}: {error}") from None
    return Bound(metric.name, stat, match["tier"], match["op"], value, text.strip(), source)


def _unknown(name: str) -> str:
    if name.partition(".")[0] == "phase":
        phase = name.partition(".")[2]
        what = f"unknown phase {phase!r}" if phase else "a phase needs its name, as in 'phase.imports'"
        return f"{what}; valid phases: {', '.join(PHASES)}"
    return f"unknown metric {name!r}; valid metrics: {', '.join(sorted(METRICS))}"


def effective(levels: Sequence[Sequence[Bound]], tier: str) -> list[Bound]:
    """The bounds that hold for *tier*, from *levels* in order of precedence, merged per metric.

    The first level that says anything about a metric decides it; within a level, bounds that
    name the tier replace those that name none.
    """
    chosen: dict[str, list[Bound]] = {}
    for level in levels:
        here: dict[str, list[Bound]] = {}
        for bound in level:
            if bound.tier in (None, tier):
                here.setdefault(bound.metric, []).append(bound)
        for metric, bounds in here.items():
            exact = [bound for bound in bounds if bound.tier == tier]
            chosen.setdefault(metric, exact or bounds)
    order = list(METRICS)
    return [bound for metric in sorted(chosen, key=order.index) for bound in chosen[metric]]


def statistic(values: Sequence[float], stat: str) -> float:
    """One statistic over rounds; +infinity, a failed boot, takes part as any value does."""
    if stat == "max":
        return max(values)
    if stat == "min":
        return min(values)
    if stat == "mean":
        return sum(values) / len(values)
    if stat == "p50":
        return median(values)
    return percentile(values, int(stat[1:]) / 100)


def judge(
    bounds: Sequence[Bound],
    records: Sequence[BootRecord],
    impossible: Mapping[str, str],
    stopped: bool = True,
) -> list[Verdict]:
    """Judge *bounds* over the counted boots of one cell.

    *impossible* maps each metric that cannot exist for the engine to the reason. With
    *stopped* false, bounds on metrics that are known only after the stop are left out. So are
    default bounds on what only a GPU has, where no boot had one.
    """
    rounds = [record for record in records if record.counted]
    has_gpu = any(record.memory.gpus for record in records)
    return [
        _judge(bound, rounds, impossible)
        for bound in bounds
        if (stopped or not METRICS[bound.metric].after_stop)
        and (bound.named or has_gpu or not METRICS[bound.metric].gpu)
    ]


def _judge(bound: Bound, rounds: Sequence[BootRecord], impossible: Mapping[str, str]) -> Verdict:
    metric = METRICS[bound.metric]

    def verdict(word: str, value: float | None = None, **more: str | None) -> Verdict:
        return Verdict(
            bound.metric, bound.stat, bound.op, bound.value, metric.unit, value, len(rounds), word, bound.source, **more
        )

    if metric.name in impossible:
        reason = impossible[metric.name]
        return verdict("unmeasured", reason=reason) if bound.named else verdict("n/a", reason=reason)
    if not rounds:
        return verdict("unmeasured", reason="no boot of this cell was made")
    worst = math.inf if bound.op == "<=" else -math.inf  # what a failed boot counts as: never within a bound
    values: list[float] = []
    hidden: list[float] = []  # the same, if all that is unattributed were of this phase
    source: str | None = None
    for record in rounds:
        if record.failed:
            values.append(worst)
            hidden.append(worst)
            continue
        measured = record.metrics.get(metric.name)
        if measured is None or measured.value is None:
            if part := _broken_part(bound, record):
                return verdict("fail", part.value, value_source=part.source, reason=part.reason)
            return verdict(
                "unmeasured", reason=f"round {record.round}: {measured.reason if measured else 'not derived'}"
            )
        values.append(measured.value)
        hidden.append(measured.value + _may_hide(bound, record))
        source = measured.source
    needs = STATISTICS[bound.stat]
    if len(values) < needs:
        return verdict("unmeasured", reason=f"{bound.stat} over rounds needs {needs} of them, there were {len(values)}")
    value = statistic(values, bound.stat)
    if bound.holds(value) and not bound.holds(most := statistic(hidden, bound.stat)):
        shown, most_shown = units.show(value, metric.unit), units.show(most, metric.unit)
        return verdict("unmeasured", reason=f"{shown} was seen; with what is unattributed it may be {most_shown}")
    return verdict("pass" if bound.holds(value) else "fail", value, value_source=source)


def _broken_part(bound: Bound, record: BootRecord) -> Value | None:
    """The part of a whole that breaks *bound* by itself, where the whole is unmeasured since another part is."""
    if bound.metric != "fragmentation" or bound.op != "<=":
        return None
    for name in PARTS:
        part = record.metrics.get(name)
        if part is not None and part.value is not None and not bound.holds(part.value):
            return Value(part.value, part.source, f"round {record.round}: by {name} alone")
    return None


def _may_hide(bound: Bound, record: BootRecord) -> float:
    """Seconds that a phase may have beyond what was seen of it; they matter under an upper bound."""
    if not bound.metric.startswith("phase.") or bound.op != "<=" or bound.metric == f"phase.{UNATTRIBUTED}":
        return 0.0
    return sum(item.end - item.begin for item in record.phases if item.name == UNATTRIBUTED)


def pass_rate_floor(rounds: int) -> float:
    """What *rounds* passes out of *rounds* show: the one-sided 95 % Clopper-Pearson lower limit.

    With n of n successes that limit is 0.05 ** (1 / n) (Clopper and Pearson, 1934).
    """
    return 0.05 ** (1 / rounds) if rounds else 0.0
