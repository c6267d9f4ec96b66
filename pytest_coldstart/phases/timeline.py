"""The samples of one process -> what it did at each instant of its life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pytest_coldstart.phases.asleep import with_sleep
from pytest_coldstart.phases.classify import Classifier, Mark
from pytest_coldstart.phases.trace import ProcessTrace, Sample

#: Samples farther apart than this, seconds, have a gap between them: something held the GIL.
GAP = 0.1
#: Why a process that was looked into has no stack: after its last sample, and where it has none at all.
SILENT = ("its probe fell silent", "no samples", "its probe began later")
#: A thread's sample may be taken this much later, seconds, than the main thread's of the same round.
_ROUND = 0.01


@dataclass(frozen=True)
class Segment:
    """One process from ``begin`` to ``end``, monotonic seconds.

    ``phase`` is "" where no rule knows. ``wait`` is "" for work, one of rules.WAITS, or "unseen": nothing is known
    but that it lived; of a wait, ``phase`` is what it is part of. ``frame`` names the stack, or says why there is
    none. ``source`` is probe, probe gap or proc.
    """

    begin: float
    end: float
    phase: str
    detail: str = ""
    wait: str = ""
    frame: str = ""
    source: str = "probe"

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def timeline(trace: ProcessTrace, classifier: Classifier, begin: float, end: float) -> list[Segment]:
    """What the interpreter of *trace* did from *begin* to *end*, without a gap or an overlap.

    The time between two samples is split in the middle. A gap of more than 0.1 s belongs whole to the later sample:
    a call that held the GIL has only just returned there. What lies before the first sample is the start of the
    process, then belongs to that sample.
    """
    segments: list[Segment] = []
    ticks = [sample for sample in trace.samples if sample.thread == 0]
    up = trace.python if trace.python is not None else (ticks[0].when if ticks else trace.last)
    before = Segment(begin, min(up, end), "spawn", source="proc")
    if trace.late:
        before = replace(before, phase="", wait="unseen", frame=SILENT[2], source="probe")
    _add(segments, before, begin, end)
    marks = _marks(trace.samples, classifier)
    spans = _spans([tick.when for tick in ticks], up)
    for mark, (left, middle, right, source) in zip(marks, spans, strict=True):
        _add(segments, _segment(left, middle, mark, source), begin, end)
        _add(segments, _segment(middle, right, mark), begin, end)
    if ticks:
        held = spans[-1][2]
        _add(segments, _segment(held, min(max(trace.last, held), held + GAP), marks[-1]), begin, end)
    why = SILENT[0] if ticks else SILENT[1]
    _add(segments, Segment(segments[-1].end if segments else begin, end, "", wait="unseen", frame=why), begin, end)
    return joined(segments)


def gaps(trace: ProcessTrace) -> float:
    """Seconds in gaps of more than 0.1 s between samples of the main thread."""
    times = [sample.when for sample in trace.samples if sample.thread == 0]
    return sum(after - before for before, after in pairwise(times) if after - before > GAP)


def joined(segments: Sequence[Segment]) -> list[Segment]:
    """The same with equal neighbours made one."""
    result: list[Segment] = []
    for segment in segments:
        if result and _same(result[-1], segment):
            result[-1] = _between(segment, result[-1].begin, segment.end)
        else:
            result.append(segment)
    return result


def _same(one: Segment, other: Segment) -> bool:
    return (one.phase, one.detail, one.wait, one.frame, one.source) == (
        (other.phase, other.detail, other.wait, other.frame, other.source)
    )


def _between(segment: Segment, begin: float, end: float) -> Segment:
    return Segment(begin, end, segment.phase, segment.detail, segment.wait, segment.frame, segment.source)


def _segment(begin: float, end: float, mark: Mark, source: str = "probe") -> Segment:
    return Segment(begin, end, mark.phase, mark.detail, mark.wait, mark.frame, source)


def _add(segments: list[Segment], segment: Segment, begin: float, end: float) -> None:
    """Append what of *segment* lies in the interval and after the last one."""
    left = max(segment.begin, segments[-1].end if segments else begin)
    right = min(segment.end, end)
    if right > left:
        segments.append(_between(segment, left, right))


def _spans(times: Sequence[float], up: float) -> list[tuple[float, float, float, str]]:
    """For each sample: the begin of its time, the end of the gap before it, its end, and the first part's source."""
    spans = []
    for index, when in enumerate(times):
        before = times[index - 1] if index else None
        after = times[index + 1] if index + 1 < len(times) else None
        if before is None:
            left = min(up, when)
            source = "probe gap" if when - left > GAP else "probe"
        elif when - before > GAP:
            left, source = before, "probe gap"
        else:
            left, source = (before + when) / 2, "probe"
        right = when if after is None or after - when > GAP else (when + after) / 2
        spans.append((left, when, right, source))
    return spans


def _marks(samples: Sequence[Sample], classifier: Classifier) -> list[Mark]:
    """What the process did at each sample of its main thread: another thread's work where the main one waits for it."""
    marks: list[Mark] = []
    others: dict[int, Sample] = {}
    threads = [sample for sample in samples if sample.thread]
    position = 0
    before: Sample | None = None
    for sample in samples:
        if sample.thread:
            continue
        while position < len(threads) and threads[position].when <= sample.when + _ROUND:
            others[threads[position].thread] = threads[position]
            position += 1
        mark = with_sleep(classifier.mark(sample.stack, sample.importing), sample, before)
        before = sample
        if mark.wait in ("threads", "idle"):
            running = [classifier.mark(other.stack, other.importing) for other in others.values() if other.stack]
            mark = _taken_over(mark, running)
        marks.append(mark)
    return marks


def _taken_over(main: Mark, running: Sequence[Mark]) -> Mark:
    """The thread that has the main thread's time while it waits: known work, a wait for processes, unknown work."""
    for mark in running:
        if mark.phase and not mark.wait:
            return mark
    for mark in running:
        if mark.wait in ("children", "peers"):
            return mark if mark.phase else replace(mark, phase=main.phase, detail=main.detail)
    if main.wait == "threads" and not main.phase:
        return next((mark for mark in running if not mark.wait), main)
    # Threads of native code have no stack here: the wait for them is the work that it is part of.
    return replace(main, wait="") if main.wait == "threads" and main.phase else main
