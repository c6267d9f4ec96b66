"""What a rule says of one series, and of all that it watches."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pytest_coldstart.alerts.read import Series
from pytest_coldstart.alerts.rules import Rule

FIRES, UNMEASURED, PENDING, NOT_JUDGED, OK = "fires", "unmeasured", "pending", "not judged", "ok"
#: Of a rule alone: no series is watched by it; what it needs is not installed.
NOTHING, NOT_LOOKED_AT = "matches nothing", "not looked at"

#: The worst first. Where a rule watches several series, the worst of them is its state.
STATES = (FIRES, UNMEASURED, PENDING, NOT_JUDGED, NOTHING, NOT_LOOKED_AT, OK)


@dataclass(frozen=True)
class Finding:
    """One rule on one series.

    ``state``: fires, unmeasured (which fires as well), pending (it would fire, but not yet for as many runs as the rule asks),
    not judged, or ok. ``value``, ``bound``: in words; ``number``: the value in the metric's unit, None where there is none.
    ``run_id``, ``at``: the newest run and its start, UTC. ``since``, ``since_at``: the first run of those in a row for which it holds;
    ``earlier``: it may be one before, which was not looked at.
    """

    series: Series
    state: str
    value: str = ""
    bound: str = ""
    reason: str = ""
    metric: str = ""
    number: float | None = None
    run_id: str | None = None
    at: datetime | None = None
    since: str | None = None
    since_at: datetime | None = None
    earlier: bool = False

    @property
    def fires(self) -> bool:
        return self.state in (FIRES, UNMEASURED)


@dataclass(frozen=True)
class Evaluated:
    """One rule with what it says of each series that it matches. ``reason``: why it was not looked at."""

    rule: Rule
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    state: str = field(init=False)

    def __post_init__(self) -> None:
        seen = {finding.state for finding in self.findings}
        none = NOT_LOOKED_AT if self.reason else NOTHING
        object.__setattr__(self, "state", next((state for state in STATES if state in seen), none))

    @property
    def firing(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.fires)
