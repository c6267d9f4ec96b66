"""Why a cell changed: which phase moved and what of it, which caches and what of the environment differ."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median, quantiles

from pytest_coldstart import units
from pytest_coldstart.attribution import UNATTRIBUTED
from pytest_coldstart.gate.caches import caches, changed
from pytest_coldstart.gate.comparison import Difference, PhaseChange, SideBoot
from pytest_coldstart.gate.differences import differences
from pytest_coldstart.record import BootRecord
from pytest_coldstart.report import explain
from pytest_coldstart.report import reproduce as again
from pytest_coldstart.report.columns import fit
from pytest_coldstart.report.gate_words import signed

#: Of a path with a larger share of unattributed time no phase is told: that time may be its own.
_BLIND = 0.1
#: Phases that are timed from outside the engine, whatever the probe does.
_FROM_OUTSIDE = ("spawn", "first_request")
#: A process is named where it explains this much of its phase's change.
_MOST = 0.8
#: Changes below this are none, seconds.
_NOTHING = 0.001
#: Less than this share of a change is not worth a word.
_ALIKE = 0.1
#: Columns of a failure's message that are kept: it may end with a line of the engine's log.
_MESSAGE = 200

Sums = dict[tuple[str, str], float]


@dataclass(frozen=True)
class Blame:
    """``phases``: those that moved, the one that explains most of the change first. ``caches``: a sentence for each cache that was
    used otherwise. ``differences``: of the environments. ``reproduce``: a pytest command, empty where the head has no boot.
    """

    phases: tuple[PhaseChange, ...] = ()
    caches: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    reproduce: str = ""


def blame(base: Sequence[SideBoot], head: Sequence[SideBoot]) -> Blame:
    """What explains the change between two sides of one cell. Primes, and boots whose evidence contradicts their tier, are
    passed over."""
    base, head = ([boot for boot in side if boot.record.counted] for side in (base, head))
    records = [boot.record for boot in base], [boot.record for boot in head]
    return Blame(phases(*records), caches(*records), differences(base, head), reproduce(base, head))


def phases(base: Sequence[BootRecord], head: Sequence[BootRecord]) -> tuple[PhaseChange, ...]:
    """Medians of each phase over all processes of the critical path, seconds.

    A process is named where it explains most of its phase's change. First come phases that moved in the direction of
    cold_start, by how much; one that varies more within a side than between them counts half. Where boots of one side
    failed more often, the phase in which they did comes before all others, without a share.
    """
    failed = _failures(base, head)
    sides = [[record for record in side if record.phases and not record.failed] for side in (base, head)]
    if not all(sides):
        return failed
    pair, blind = _looked_into(sides[0], sides[1])
    moved = _Moved(*pair, blind)
    names = dict.fromkeys(name for sums in (*moved.base, *moved.head) for name, _ in sums)
    found = [change for name in names if abs((change := moved.phase(name)).change) >= _NOTHING]
    whole = moved.whole
    way = 1 if whole >= 0 else -1
    ranked = sorted(found, key=lambda item: -way * item.change * (0.5 if item.detail.startswith(_UNCLEAR) else 1))
    return (*failed, *ranked)


def _failures(base: Sequence[BootRecord], head: Sequence[BootRecord]) -> tuple[PhaseChange, ...]:
    """The phase in which the boots of a side failed, of the side that failed more often."""
    rates = [sum(record.failed for record in side) / len(side) if side else 0.0 for side in (base, head)]
    if rates[0] == rates[1]:
        return ()
    name, side = ("head", head) if rates[1] > rates[0] else ("base", base)
    bad = [record for record in side if record.failed]
    where: dict[tuple[str, str], list[BootRecord]] = {}
    for record in bad:
        last = record.phases[-1] if record.phases else None
        where.setdefault((last.name, last.process) if last else (UNATTRIBUTED, ""), []).append(record)
    (phase, process), most = max(where.items(), key=lambda item: len(item[1]))
    failure = most[0].failure
    words = f"{len(bad)} of {len(side)} boots of the {name} failed"
    if failure:
        place = explain.FAILED_IN.get(failure.kind) or explain.FAILED_AT.get(failure.instant, failure.instant)
        words += f", at {place}: {fit(failure.message, _MESSAGE)}"
    seconds = [
        median([_sums(record, {}).get((phase, family(process)), 0.0) for record in records]) if records else 0.0
        for records in (
            [record for record in base if record.failed == (name == "base")],
            [record for record in head if record.failed == (name == "head")],
        )
    ]
    return (PhaseChange(phase, process, seconds[0], seconds[1], None, words, failed=True),)


def _looked_into(
    base: list[BootRecord], head: list[BootRecord]
) -> tuple[tuple[list[BootRecord], list[BootRecord]], str]:
    """The boots of both sides whose paths are explained, and which side has none of them while the other has.

    A probe that was off or fell silent on one side alone would look as if its phases had become fast.
    """
    seen = [[record for record in side if _unattributed(record) <= _BLIND] for side in (base, head)]
    if all(seen):
        return (seen[0], seen[1]), ""
    return (base, head), "" if not any(seen) else ("base" if not seen[0] else "head")


def _unattributed(record: BootRecord) -> float:
    total = sum(item.end - item.begin for item in record.phases)
    dark = sum(item.end - item.begin for item in record.phases if item.name == UNATTRIBUTED)
    return dark / total if total else 1.0


@cache
def family(process: str) -> str:
    """A process's name without the number that tells it from its like: "ptxas 3" is one of many "ptxas"."""
    return re.sub(r" \d+$", "", process)


def _sums(record: BootRecord, renamed: Mapping[str, str]) -> Sums:
    found: Sums = {}
    for item in record.phases:
        name = family(item.process)
        key = item.name, renamed.get(name, name)
        found[key] = found.get(key, 0.0) + item.end - item.begin
    return found


def _renamed(base: Iterable[Sums], head: Iterable[Sums]) -> dict[str, str]:
    """Processes of the head that have another name on the base: those that only one side has, in their order, where they
    had a phase in common."""
    kept: list[dict[str, set[str]]] = []
    for side in (base, head):
        found: dict[str, set[str]] = {}
        for sums in side:
            for phase, process in sums:
                found.setdefault(process, set()).add(phase)
        kept.append(found)
    old = [name for name in kept[0] if name not in kept[1]]
    new = [name for name in kept[1] if name not in kept[0]]
    if len(old) != len(new):
        return {}
    return {other: name for name, other in zip(old, new, strict=True) if kept[0][name] & kept[1][other]}


_UNCLEAR = "unclear: "


class _Moved:
    """Two sides of successful boots and how far each phase moved between them. ``blind``: the side, if any, into whose
    engine nobody looked; then what the other side knows is not compared."""

    def __init__(self, base: Sequence[BootRecord], head: Sequence[BootRecord], blind: str) -> None:
        self.records = base, head
        self.blind = blind
        plain = [[_sums(record, {}) for record in side] for side in self.records]
        self.renamed = _renamed(*plain)
        self.base, self.head = plain[0], [_sums(record, self.renamed) for record in head]
        if blind:
            self.base, self.head = ([_dark(sums) for sums in side] for side in (self.base, self.head))
        self.whole = self.change(lambda record: sum(item.end - item.begin for item in record.phases))

    def change(self, of: Callable[[BootRecord], float]) -> float:
        base, head = ([of(record) for record in side] for side in self.records)
        return median(head) - median(base)

    def phase(self, name: str) -> PhaseChange:
        values = [
            [sum(s for key, s in sums.items() if key[0] == name) for sums in side] for side in (self.base, self.head)
        ]
        base, head = median(values[0]), median(values[1])
        change = head - base
        process, by = self._process(name, change)
        texts = [by, *_DETAILS.get(name, _path_detail)(name, *self.records, change)] if not self.blind else []
        if self.blind and name == UNATTRIBUTED:
            texts = [f"nobody looked into the engine on the {self.blind}, so its phases are not compared"]
        spread = max(_spread(side) for side in values)
        unclear = f"{_UNCLEAR}varies by {units.show(spread, 's')} within a side" if spread > abs(change) else ""
        detail = "; ".join(text for text in (unclear, *texts) if text)
        return PhaseChange(name, process, base, head, self._share(change), detail)

    def _share(self, change: float) -> float | None:
        """None where phases moved against each other so that the whole is less than half of this one."""
        return change / self.whole if abs(self.whole) >= max(abs(change) / 2, _NOTHING) else None

    def _process(self, phase: str, change: float) -> tuple[str, str]:
        """The process that explains most of a phase's change, or a sentence on the first three of several."""
        names = dict.fromkeys(key[1] for sums in (*self.base, *self.head) for key in sums if key[0] == phase)
        moved = {
            name: median([sums.get((phase, name), 0.0) for sums in self.head])
            - median([sums.get((phase, name), 0.0) for sums in self.base])
            for name in names
        }
        way = 1 if change >= 0 else -1
        most = sorted(moved, key=lambda name: -way * moved[name])
        new = {old: name for name, old in self.renamed.items()}
        shown = {name: f"{new[name]} ({name} on the base)" if name in new else name for name in most}
        if len(most) == 1 or moved[most[0]] * way >= _MOST * abs(change):
            return shown[most[0]], ""
        parts = [
            f"{shown[name] or 'the request'} {signed(moved[name])}"
            for name in most
            if abs(moved[name]) >= abs(change) * _ALIKE
        ]
        return "", ", ".join(parts[:3])


def _dark(sums: Sums) -> Sums:
    found: Sums = {}
    for (phase, process), seconds in sums.items():
        key = (phase, process) if phase in _FROM_OUTSIDE else (UNATTRIBUTED, "")
        found[key] = found.get(key, 0.0) + seconds
    return found


def _spread(values: Sequence[float]) -> float:
    """How far apart the values of one side are: their middle half, of fewer than four all of them."""
    if len(values) < 4:
        return max(values) - min(values)
    low, _, high = quantiles(values, n=4, method="inclusive")
    return high - low


def _most(
    base: Sequence[Mapping[str, float]], head: Sequence[Mapping[str, float]], change: float
) -> tuple[str, float] | None:
    """The name whose median moved most in the direction of *change*, and by how much."""
    names = dict.fromkeys(name for item in (*base, *head) for name in item)
    moved = {
        name: median([item.get(name, 0.0) for item in head]) - median([item.get(name, 0.0) for item in base])
        for name in names
    }
    way = 1 if change >= 0 else -1
    name = max(moved, key=lambda name: way * moved[name], default=None)
    return (name, moved[name]) if name is not None and way * moved[name] >= _NOTHING else None


_BYTECODE = " (bytecode)"


def _imports(phase: str, base: Sequence[BootRecord], head: Sequence[BootRecord], change: float) -> list[str]:
    found = _most([_packages(record) for record in base], [_packages(record) for record in head], change)
    texts = [f"most by the package {found[0]}: {signed(found[1])}"] if found else []

    def compiled(record: BootRecord) -> float:
        return sum(
            item.end - item.begin for item in record.phases if item.name == phase and item.detail.endswith(_BYTECODE)
        )

    seconds = median([compiled(record) for record in head]) - median([compiled(record) for record in base])
    if abs(seconds) >= max(abs(change) * _ALIKE, _NOTHING):
        texts.append(f"compiling bytecode: {signed(seconds)}")
    return texts + changed(base, head, lambda name: name == "bytecode")


def _packages(record: BootRecord) -> dict[str, float]:
    """Package -> seconds, over the processes whose imports are on the critical path."""
    names = {item.process for item in record.phases if item.name == "imports"}
    found: dict[str, float] = {}
    for process in record.attribution.processes:
        if process.name in names:
            for package, seconds in process.imports.items():
                found[package] = found.get(package, 0.0) + seconds
    return found


def _compile(phase: str, base: Sequence[BootRecord], head: Sequence[BootRecord], change: float) -> list[str]:
    caches = changed(base, head, lambda name: name != "bytecode")
    return [*_path_detail(phase, base, head, change), *caches]


def _load(phase: str, base: Sequence[BootRecord], head: Sequence[BootRecord], change: float) -> list[str]:
    """What was read from storage, and the speed: bytes of the weight files over the phase."""
    texts = []
    read = [
        [float(r.evidence.tree_read_bytes) for r in side if r.evidence.tree_read_bytes is not None]
        for side in (base, head)
    ]
    size = max((record.evidence.weight_bytes for record in (*base, *head)), default=0)
    if all(read) and abs(median(read[1]) - median(read[0])) > _ALIKE * max(size, 1):
        first, second = (units.show(median(side), "B") for side in read)
        texts.append(f"{first} read from storage on the base, {second} on the head")
    speeds = [[s for s in (_speed(record, phase) for record in side) if s is not None] for side in (base, head)]
    if all(speeds):
        first, second = (units.show(median(side), "B/s") for side in speeds)
        texts += [f"{first} on the base, {second} on the head"] if first != second else []
    return [*_path_detail(phase, base, head, change), *texts]


def _speed(record: BootRecord, phase: str) -> float | None:
    seconds = sum(item.end - item.begin for item in record.phases if item.name == phase)
    return record.evidence.weight_bytes / seconds if seconds > 0 and record.evidence.weight_bytes else None


def _unexplained(phase: str, base: Sequence[BootRecord], head: Sequence[BootRecord], change: float) -> list[str]:
    """The frame in which the time was spent; where no frame is known, between which instants."""

    def frames(record: BootRecord) -> dict[str, float]:
        return {f"{item.frame} of {family(item.process)}": item.seconds for item in record.attribution.hottest}

    hot = _most([frames(record) for record in base], [frames(record) for record in head], change)
    if hot:
        return [f"most in {hot[0]}: {signed(hot[1])}"]
    part = _most([dict(explain.parts(r)) for r in base], [dict(explain.parts(r)) for r in head], change)
    return [f"most from {part[0]}: {signed(part[1])}"] if part else []


def _path_detail(phase: str, base: Sequence[BootRecord], head: Sequence[BootRecord], change: float) -> list[str]:
    """What of a phase moved most, by the details of the critical path."""

    def details(record: BootRecord) -> dict[str, float]:
        found: dict[str, float] = {}
        for item in record.phases:
            if item.name == phase:
                found[item.detail] = found.get(item.detail, 0.0) + item.end - item.begin
        return found

    found = _most([details(record) for record in base], [details(record) for record in head], change)
    return [f"most by {found[0]}: {signed(found[1])}"] if found and found[0] else []


_DETAILS: Mapping[str, Callable[[str, Sequence[BootRecord], Sequence[BootRecord], float], list[str]]] = {
    "imports": _imports,
    "compile": _compile,
    "load_weights": _load,
    UNATTRIBUTED: _unexplained,
}


def reproduce(base: Sequence[SideBoot], head: Sequence[SideBoot]) -> str:
    """The cheapest pytest command that boots the head's cell; with the commit as a comment where the base is at another one."""
    if not head:
        return ""
    boot = max(head, key=lambda boot: boot.record.failed)
    command = again.command(boot.record, boot.header.get("command") or ())
    commit = boot.header.get("git_commit")
    if commit and any(other.header.get("git_commit") != commit for other in base):
        command += f"  # in a checkout of {shlex.quote(str(commit)[:12])}"
    return command
