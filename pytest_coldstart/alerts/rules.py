"""Rules: what is watched of which series, and when it fires."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pytest_coldstart import units
from pytest_coldstart.slo import Bound

#: The mildest first.
SEVERITIES = ("info", "warning", "critical")

#: What a rule can narrow its series by, each a glob pattern or a list of them.
FILTERS = ("engine", "model", "tier", "cell", "test", "hardware", "gpu", "branch")

#: The stored verdicts that a rule can fire on.
VERDICTS = ("fail", "unmeasured")

#: The ways in which a level can change.
WORSE, BETTER, ANY = "worse", "better", "any"

#: In how many of the newest runs a change counts as new, unless the rule says; and in how many it can.
NEW_RUNS, MOST_NEW_RUNS = 10, 100
#: Runs in a row at most that ``for`` can ask for.
MOST_RUNS = 50


@dataclass(frozen=True)
class Judged:
    """Fires on one of *words* among the stored verdicts of the newest run."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Changed:
    """Fires on a change point that nobody has acknowledged and whose first run after is among the newest *runs*, or not older
    than *seconds*. ``size``: the least one, a fraction; ``way``: worse, better or any."""

    way: str
    size: float
    runs: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Stale:
    """Fires when the newest run is older than *seconds*."""

    seconds: float


@dataclass(frozen=True)
class Failed:
    """Fires when at least *boots* of the newest run failed."""

    boots: int


Condition = Bound | Judged | Changed | Stale | Failed


@dataclass(frozen=True)
class Rule:
    """One ``[[alert]]``. ``filters``: pairs of a filter and its patterns; ``runs``: how many of the newest in a row the condition has to
    hold for; ``line``: of the file, where its table begins."""

    name: str
    condition: Condition
    metric: str = ""
    filters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    severity: str = "warning"
    runs: int = 1
    message: str = ""
    line: int = 0

    @property
    def branches(self) -> tuple[str, ...]:
        """The patterns of branches whose runs alone are looked at; none means all."""
        return dict(self.filters).get("branch", ())

    @property
    def what(self) -> str:
        """The condition in words."""
        lasting = f", {self.runs} runs in a row" if self.runs > 1 else ""
        return _what(self.condition, self.metric) + lasting

    @property
    def which(self) -> str:
        """The filters in words."""
        return ", ".join(f"{name} {' or '.join(patterns)}" for name, patterns in self.filters) or "all series"


def _what(condition: Condition, metric: str) -> str:
    match condition:
        case Bound():
            return f"{condition.what} {condition.limit}"
        case Judged(words):
            return f"a verdict {' or '.join(words)}{f' of {metric}' if metric else ''}"
        case Changed(way, size, runs, seconds):
            since = f"{runs} runs" if runs else show_days(seconds or 0.0)
            return f"{metric} {way if way != ANY else 'changed'} by {size * 100:.3g} % within the newest {since}"
        case Stale(seconds):
            return f"no run for {show_days(seconds)}"
        case Failed(boots):
            return f"{boots} {'boot' if boots == 1 else 'boots'} failed"


def matches(value: str, patterns: Iterable[str]) -> bool:
    """Whether one of *patterns* is *value* or matches it: a test's id holds brackets, which a pattern takes for a set."""
    return any(pattern == value or fnmatchcase(value, pattern) for pattern in patterns)


def show_days(seconds: float) -> str:
    """``3 d``, ``36 h``, or as :func:`pytest_coldstart.units.show` says shorter ones."""
    for unit, worth in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= (2 if unit == "d" else 1) * worth or (seconds >= worth and seconds % worth == 0):
            return f"{seconds / worth:.3g} {unit}" if seconds < 1000 * worth else f"{seconds / worth:.0f} {unit}"
    return units.show(seconds, "s")
