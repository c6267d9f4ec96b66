"""What a gate found: plain data, printed as JSON and read back the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_coldstart.attribution import known
from pytest_coldstart.record import BootRecord
from pytest_coldstart.stats.decision import INCONCLUSIVE, OUTCOMES, REGRESSED
from pytest_coldstart.store.runfile import CellVerdict, finite

#: Version of the JSON that `coldstart gate --json` prints.
GATE_VERSION = 1

#: Exit codes of ``coldstart gate``.
EXIT_OK, EXIT_REGRESSED, EXIT_USAGE, EXIT_INCONCLUSIVE = 0, 1, 4, 10

#: What a policy does with a comparison that did not come out well.
FAIL, WARN, IGNORE = "fail", "warn", "pass"


@dataclass(frozen=True)
class SideBoot:
    """One boot of a side. ``header``: the first line of its run. ``block`` and ``position``: its place in an interleaved
    gate (``gate``: that gate's id); None where it was made in a run of its own."""

    record: BootRecord
    header: Mapping[str, Any]
    gate: str | None = None
    block: int | None = None
    position: int | None = None


@dataclass(frozen=True)
class Side:
    """``text``: as it was written (``run:ID``, ``git:REF``, ``python:PATH``, a path). ``name``: base or head.

    ``verdicts``: what became of the SLOs in the runs of these boots.
    """

    name: str
    text: str
    boots: tuple[SideBoot, ...] = ()
    verdicts: tuple[CellVerdict, ...] = ()


@dataclass(frozen=True)
class Summary:
    """The values of one metric on one side: unit of the metric; +infinity for a failed boot is kept as ``failed``."""

    values: tuple[float, ...] = ()
    failed: int = 0
    unmeasured: int = 0
    reason: str = ""
    median: float | None = None


@dataclass(frozen=True)
class MetricChange:
    """One metric of one cell, base against head. ``kind``: time (decided by a test) or counter (decided at one boot a side).

    ``change``, ``low``, ``high``, ``floor``, ``margin``: fractions of the base; ``normalised``: the change after each boot
    was divided by its reference workload. ``policy``: what the policy does about a bad outcome: fail, warn or pass.
    """

    metric: str
    unit: str
    kind: str
    outcome: str
    base: Summary
    head: Summary
    better: str = "lower"
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    floor: float = 0.0
    margin: float = 0.0
    normalised: float | None = None
    policy: str = FAIL
    reason: str = ""
    needs: int | None = None
    method: str = ""
    final: bool = True


@dataclass(frozen=True)
class PhaseChange:
    """How far one phase of the critical path moved: medians in seconds, and its share of the whole change. ``failed``: boots of
    one side failed in it, and that is why it is named."""

    phase: str
    process: str
    base: float
    head: float
    share: float | None = None
    detail: str = ""
    failed: bool = False

    @property
    def change(self) -> float:
        return self.head - self.base


@dataclass(frozen=True)
class Difference:
    """What differs between the sides: ``versions.torch``, ``driver``, ``options.enforce_eager``."""

    what: str
    base: str
    head: str


@dataclass(frozen=True)
class CellComparison:
    """One cell on both sides. ``outcome``: the worst of its gated changes; ``verdict``: what the policy made of it (fail,
    warn or pass). ``boots``: ids a side."""

    cell_id: str
    cell_digest: str
    engine: str
    tier: str
    nodeid: str
    outcome: str
    verdict: str
    changes: tuple[MetricChange, ...] = ()
    phases: tuple[PhaseChange, ...] = ()
    caches: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    reproduce: str = ""
    interleaved: bool = False
    unstable: bool = False
    base_boots: tuple[str, ...] = ()
    head_boots: tuple[str, ...] = ()

    @property
    def blamed(self) -> PhaseChange | None:
        """The phase that moved most in the direction of the change."""
        return self.phases[0] if self.phases else None


@dataclass(frozen=True)
class Refusal:
    """A cell that was not compared, and what differs or is missing."""

    cell_id: str
    tier: str
    reason: str


@dataclass(frozen=True)
class SideSummary:
    text: str
    commit: str | None = None
    runs: tuple[str, ...] = ()
    boots: int = 0
    failed: int = 0
    started_at: str | None = None
    hardware: str = ""


@dataclass(frozen=True)
class GateReport:
    """``broken``: SLOs of the head that do not hold, in words. ``seconds``: how long the gate booted; 0 for stored boots."""

    base: SideSummary
    head: SideSummary
    cells: tuple[CellComparison, ...] = ()
    refused: tuple[Refusal, ...] = ()
    broken: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    alpha: float = 0.05
    policy: str = "default"
    on_inconclusive: str = WARN
    seconds: float = 0.0
    made_at: str = ""
    version: int = GATE_VERSION

    @property
    def outcome(self) -> str:
        """The worst outcome of any cell; of one that could not be compared nothing is known."""
        found = {cell.outcome for cell in self.cells} | ({INCONCLUSIVE} if self.refused else set())
        return next((outcome for outcome in OUTCOMES if outcome in found), INCONCLUSIVE)

    @property
    def exit_code(self) -> int:
        """1: an SLO is broken, or a change that the policy fails. 10: nothing of that, and a cell undecided."""
        if self.broken or any(cell.verdict == FAIL and cell.outcome == REGRESSED for cell in self.cells):
            return EXIT_REGRESSED
        if not self.cells or self.refused:
            return EXIT_INCONCLUSIVE
        undecided = any(cell.outcome == INCONCLUSIVE and cell.verdict != IGNORE for cell in self.cells)
        return EXIT_INCONCLUSIVE if undecided else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold: infinities become None, with ``failed`` beside them."""
        return {**finite(dataclasses.asdict(self)), "outcome": self.outcome, "exit_code": self.exit_code}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GateReport:
        """:raises ValueError, KeyError, TypeError: *data* is no such report."""
        item = dict(data)
        item["base"], item["head"] = known(SideSummary, item["base"]), known(SideSummary, item["head"])
        item["cells"] = tuple(_cell(dict(cell)) for cell in item.get("cells", ()))
        item["refused"] = tuple(known(Refusal, dict(one)) for one in item.get("refused", ()))
        return known(cls, {name: tuple(value) if isinstance(value, list) else value for name, value in item.items()})


def _cell(item: dict[str, Any]) -> CellComparison:
    item["changes"] = tuple(_change(dict(one)) for one in item.get("changes", ()))
    item["phases"] = tuple(known(PhaseChange, dict(one)) for one in item.get("phases", ()))
    item["differences"] = tuple(known(Difference, dict(one)) for one in item.get("differences", ()))
    return known(
        CellComparison, {name: tuple(value) if isinstance(value, list) else value for name, value in item.items()}
    )


def _change(item: dict[str, Any]) -> MetricChange:
    for side in ("base", "head"):
        item[side] = known(Summary, {**item[side], "values": tuple(item[side].get("values", ()))})
    return known(MetricChange, item)
