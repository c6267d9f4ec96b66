"""Whether a boot's critical path has a delay where the delay truly was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_coldstart.attribution import PHASES, UNATTRIBUTED
from pytest_coldstart.record import BootRecord, Phase
from truth.table import Injection

#: Seconds by which the path may miss a delay, and the share of a boot by which its sum may miss the total.
WITHIN, SUM_SHARE = 0.3, 0.01
#: Two boots of one kind: seconds and share by which one phase of theirs may differ.
NOISE_SECONDS, NOISE_SHARE = 0.3, 0.15
#: Share of a plain boot that has a phase, at least.
ATTRIBUTED = 0.95


@dataclass(frozen=True)
class Truth:
    """When a delay truly was, seconds from the boot's start, and in which process."""

    begin: float
    end: float
    pid: int

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Verdict:
    """``found``: seconds of the delay that the path has in its phase and process. ``elsewhere``: in which others it has
    how much. ``problems``: what does not hold."""

    injection: Injection
    truth: Truth | None
    process: str = ""
    found: float = 0.0
    elsewhere: tuple[tuple[str, float], ...] = ()
    problems: tuple[str, ...] = ()


def judge(injection: Injection, truth: Truth | None, record: BootRecord) -> Verdict:
    """One delay in one boot's path."""
    if truth is None:
        return Verdict(injection, None, problems=("the delay did not happen",))
    process = process_of(record, truth)
    inside: Counter[tuple[str, str]] = Counter()
    detailed = 0.0
    for phase in record.phases:
        seconds = min(phase.end, truth.end) - max(phase.begin, truth.begin)
        if seconds > 0:
            inside[phase.name, phase.process] += seconds
            right = (phase.name, phase.process) == (injection.phase, process)
            detailed += seconds if right and phase.detail.startswith(injection.detail) else 0.0
    found = inside.pop((injection.phase, process), 0.0)
    least = truth.seconds - WITHIN
    problems = []
    if found < least:
        problems.append(f"{found:.2f} s in {injection.phase} of {process}")
    elif injection.detail and detailed < least:
        problems.append(f"{detailed:.2f} s of it called {injection.detail}")
    problems += [
        f"{seconds:.2f} s in {name} of {where}" for (name, where), seconds in inside.items() if seconds > WITHIN
    ]
    if injection.hot:
        # A frame whose thread sleeps is said to.
        named = (
            f.seconds for f in record.attribution.hottest if f.process == process and f.frame.startswith(injection.hot)
        )
        hot = sum(named)
        if hot < least:
            problems.append(f"hottest has {injection.hot} with {hot:.2f} s")
    if injection.spread:
        problems += _spread(record, truth, process)
    others = tuple((f"{name} of {where}", seconds) for (name, where), seconds in inside.most_common())
    return Verdict(injection, truth, process, found, others, tuple(problems))


def process_of(record: BootRecord, truth: Truth) -> str:
    """The name of the process that was delayed."""
    names = [item.name for item in record.attribution.processes if item.pid == truth.pid and item.start <= truth.begin]
    return names[-1] if names else f"process {truth.pid}, which was not seen"


def _spread(record: BootRecord, truth: Truth, process: str) -> list[str]:
    """A slow rank: the wait in which it was slow must show all ranks, it last, and by how much."""
    for spread in record.attribution.spreads:
        if spread.begin < truth.end < spread.end and process in spread.done and len(spread.done) > 1:
            others = [done for name, done in spread.done.items() if name != process]
            distance = spread.done[process] - max(others)
            if distance >= truth.seconds - WITHIN:
                return []
            return [f"the spread shows it {distance:.2f} s behind"]
    return ["no spread shows the ranks"]


def whole(record: BootRecord) -> list[str]:
    """What keeps the path from being a partition of [0, first_done]."""
    total, problems, at = record.instants["first_done"], [], 0.0
    for phase in record.phases:
        if phase.begin != at:
            problems.append(f"{phase.name} begins at {phase.begin:.3f} s, not at {at:.3f} s")
        at = phase.end
    summed = sum(phase.end - phase.begin for phase in record.phases)
    if abs(summed - total) > SUM_SHARE * total:
        problems.append(f"the path's sum is {summed:.3f} s of {total:.3f} s")
    return problems


def explained(record: BootRecord) -> list[str]:
    """What keeps enough of a boot without delays from having a phase."""
    share = attributed(record)
    return [] if share >= ATTRIBUTED else [f"{share:.1%} attributed"]


def seconds_of(phases: Sequence[Phase]) -> Counter[str]:
    """Phase -> seconds on the path."""
    result: Counter[str] = Counter()
    for phase in phases:
        result[phase.name] += phase.end - phase.begin
    return result


def attributed(record: BootRecord) -> float:
    """Share of the path that has a phase."""
    return 1 - seconds_of(record.phases)[UNATTRIBUTED] / record.instants["first_done"]


@dataclass(frozen=True)
class Compared:
    """One phase of a delayed boot and its delays, beside those of boots without delays, seconds."""

    phase: str
    injected: float
    delays: float
    controls: tuple[float, ...]

    @property
    def differs(self) -> bool:
        """Whether what is not delay lies outside of what the controls had, and of what such a machine's boots differ by."""
        rest, least, most = self.injected - self.delays, min(self.controls), max(self.controls)
        return not least - _noise(least) <= rest <= most + _noise(most)


def _noise(seconds: float) -> float:
    return NOISE_SECONDS + NOISE_SHARE * seconds


def compared(verdicts: Sequence[Verdict], record: BootRecord, controls: Sequence[BootRecord]) -> list[Compared]:
    """All phases of all these boots: those without a delay must not have moved either."""
    injected, plain = seconds_of(record.phases), [seconds_of(control.phases) for control in controls]
    delays: Counter[str] = Counter()
    for verdict in verdicts:
        delays[verdict.injection.phase] += verdict.truth.seconds if verdict.truth else 0.0
    names = [name for name in PHASES if max(injected[name], *(seconds[name] for seconds in plain)) >= 0.05]
    return [Compared(name, injected[name], delays[name], tuple(seconds[name] for seconds in plain)) for name in names]
