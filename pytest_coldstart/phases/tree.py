"""The processes of one boot as a tree: seen from inside, from outside, or both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_coldstart.phases.classify import Classifier
from pytest_coldstart.phases.timeline import Segment, timeline
from pytest_coldstart.phases.trace import Life, ProcessTrace

#: The start of one process as read twice may differ by this, seconds: a clock tick and its rounding.
_SAME_START = 0.1


@dataclass(eq=False)
class Node:
    """One process: ``traces`` are its interpreters, one after another (an exec keeps the process).

    ``begin`` and ``end``: monotonic seconds of its life, as far as the boot's end.
    """

    pid: int
    parent_pid: int
    begin: float
    end: float
    traces: list[ProcessTrace] = field(default_factory=list)
    life: Life | None = None
    name: str = ""
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def between(self, begin: float, end: float) -> list[Segment]:
        """Its segments, cut to the interval."""
        first = bisect_left(self.segments, begin, key=lambda segment: segment.end)
        cut = []
        for segment in self.segments[first:]:
            if segment.begin >= end:
                break
            left, right = max(segment.begin, begin), min(segment.end, end)
            if right > left:
                cut.append(_cut(segment, left, right))
        return cut


def _cut(segment: Segment, begin: float, end: float) -> Segment:
    if segment.begin == begin and segment.end == end:
        return segment
    return Segment(begin, end, segment.phase, segment.detail, segment.wait, segment.frame, segment.source)


def grown(
    traces: Sequence[ProcessTrace], lives: Sequence[Life], leader: int | None, end: float, classifier: Classifier
) -> list[Node]:
    """All processes with their timelines until *end*, the leader first, then in order of their start.

    Those with no parent among them are children of the leader, or of the first process if *leader* is not seen.
    """
    nodes = _merged(traces, lives, end)
    if not nodes:
        return []
    root = next((node for node in nodes if node.pid == leader), None)
    root = root or next((node for node in nodes if not _parent(node, nodes)), nodes[0])
    by_pid: dict[int, list[Node]] = {}
    for node in nodes:
        by_pid.setdefault(node.pid, []).append(node)
    for node in nodes:
        node.segments = _segments(node, classifier)
        if node is not root:
            node.parent = _parent(node, by_pid.get(node.parent_pid, [])) or root
            node.parent.children.append(node)
    return [root, *(node for node in nodes if node is not root)]


def _merged(traces: Sequence[ProcessTrace], lives: Sequence[Life], end: float) -> list[Node]:
    nodes: list[Node] = []
    by_pid: dict[int, list[Node]] = {}
    for life in sorted(lives, key=lambda life: life.started):
        node = Node(life.pid, life.parent, life.started, end if life.ended is None else min(life.ended, end), life=life)
        by_pid.setdefault(life.pid, []).append(node)
        nodes.append(node)
    for trace in sorted(traces, key=lambda trace: (trace.started, trace.last)):
        known = [node for node in by_pid.get(trace.pid, []) if _same(node, trace)]
        if known:
            node = known[-1]
            node.begin = min(node.begin, trace.started)
            if node.life is None:
                node.end = max(node.end, min(trace.last, end))
        else:
            node = Node(trace.pid, trace.parent, trace.started, min(trace.last, end))
            by_pid.setdefault(trace.pid, []).append(node)
            nodes.append(node)
        node.traces.append(trace)
        # Whoever looks from outside may see a process only after its parent has gone.
        node.parent_pid = trace.parent or node.parent_pid
    return sorted((node for node in nodes if node.begin < end), key=lambda node: node.begin)


def _same(node: Node, trace: ProcessTrace) -> bool:
    """Whether the trace is of this process, not of another one that had the same id."""
    return abs(node.begin - trace.started) <= _SAME_START or any(
        abs(other.started - trace.started) <= _SAME_START for other in node.traces
    )


def _parent(node: Node, candidates: Sequence[Node]) -> Node | None:
    """The last process of the parent's id that had begun when *node* did."""
    born = [
        other
        for other in candidates
        if other is not node and other.pid == node.parent_pid and other.begin <= node.begin + _SAME_START
    ]
    return born[-1] if born else None


def _segments(node: Node, classifier: Classifier) -> list[Segment]:
    segments: list[Segment] = []
    begin = node.begin
    for index, trace in enumerate(node.traces):
        last = index + 1 == len(node.traces)
        end = node.end if last else min(max(trace.last, begin), node.end)
        if end > begin:
            segments.extend(timeline(trace, classifier, begin, end))
            begin = end
    if not node.traces:
        name = node.life.name if node.life else ""
        rule = classifier.process(name)
        phase, detail = (rule.phase, rule.detail or name) if rule else ("", name)
        segments.append(Segment(begin, node.end, phase, detail, "unseen", source="proc", frame=name))
    return segments
