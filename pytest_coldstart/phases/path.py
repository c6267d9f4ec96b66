"""One chain from a boot's start to its end: a partition of that time, each part with its phase and process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pytest_coldstart.attribution import UNATTRIBUTED, Spread
from pytest_coldstart.phases.chain import Piece, Ranks, chain
from pytest_coldstart.phases.timeline import SILENT
from pytest_coldstart.phases.tree import Node

#: Details that change faster than this, seconds, are not told apart on the path.
SLIVER = 0.1
#: Offsets and monotonic seconds of one instant differ by this at most.
_ROUNDING = 1e-6
UNKNOWN_WAIT = "waits, and what for is not known"
UNTIL_POLL = "up, until the poll that saw it"


@dataclass(frozen=True)
class Step:
    """A part of the path, seconds from the boot's start.

    ``frame``: where unattributed time was. ``open``: nobody was seen to work, so that another source may say more.
    """

    begin: float
    end: float
    phase: str
    source: str
    process: str = ""
    detail: str = ""
    frame: str = ""
    open: bool = False

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def walk(
    nodes: Sequence[Node],
    origin: float,
    end: float,
    instants: Mapping[str, float],
    poll_delay: float | None,
    leads: bool = True,
) -> tuple[list[Step], list[Spread]]:
    """The path from 0 to *end*, seconds from the start at *origin*, and the ranks that were waited for.

    *nodes*: the boot's processes, the leader first, with names; *leads*: the first one is the process that was started. The steps touch each other and their bounds are
    exact: the first begins at 0, the last ends at *end*.
    """
    leader = nodes[0]
    ready = min(instants.get("ready", end), end)
    ranks: list[Ranks] = []
    steps = _cover(
        [step_of(piece, origin) for piece in chain(leader, origin, origin + ready, ranks)], 0.0, ready, leader, leads
    )
    if "ready" in instants and poll_delay:
        steps = _until_poll(steps, ready - poll_delay)
    if ready < end:
        steps += _first_request(nodes, origin, ready, end)
    return merged(steps), [_spread(item, origin) for item in ranks]


def step_of(piece: Piece, origin: float) -> Step:
    """A piece of a chain in seconds from the start at *origin*."""
    begin, end = piece.begin - origin, piece.end - origin
    name = piece.node.name
    if piece.phase:
        return Step(begin, end, piece.phase, piece.source, name, piece.detail, piece.frame)
    detail = piece.frame or piece.detail
    if piece.gap and piece.node.traces and piece.frame not in SILENT:
        detail = f"{UNKNOWN_WAIT}: {piece.frame}"
    return Step(begin, end, UNATTRIBUTED, piece.source, name, detail, piece.frame, piece.gap)


def _cover(steps: Sequence[Step], begin: float, end: float, leader: Node, leads: bool) -> list[Step]:
    """The steps, with what lies before the leader's life as spawn and what lies behind it as unattributed."""
    result: list[Step] = []
    at = begin
    for step in steps:
        if step.begin > at and not result and leads:
            result.append(Step(at, step.begin, "spawn", "proc", leader.name))
            at = step.begin
        elif step.begin > at + _ROUNDING:
            result.append(Step(at, step.begin, UNATTRIBUTED, "proc", leader.name, "not seen", "not seen", open=True))
            at = step.begin
        if step.end > at:
            result.append(replace(step, begin=at))
            at = step.end
    if result and at > end - _ROUNDING:
        result[-1] = replace(result[-1], end=end)
    elif at < end:
        text = "the leader has ended" if result else "the leader was not seen"
        result.append(Step(at, end, UNATTRIBUTED, "proc", leader.name, text, text, open=True))
    return result


def _until_poll(steps: Sequence[Step], since: float) -> list[Step]:
    """From the last poll that failed to ready: a server that nobody was seen to work in may have been up."""
    result: list[Step] = []
    for step in steps:
        if not step.open or not step.detail.startswith(UNKNOWN_WAIT) or step.end <= since:
            result.append(step)
            continue
        if step.begin < since:
            result.append(replace(step, end=since))
        up = replace(step, begin=max(step.begin, since), phase="server_start", detail=UNTIL_POLL, source="client")
        result.append(replace(up, frame="", open=False))
    return result


def _first_request(nodes: Sequence[Node], origin: float, ready: float, end: float) -> list[Step]:
    """From ready to *end*: what a process was seen to do, the leader first, else the request itself."""
    a, b = origin + ready, origin + end
    cuts = {a, b}
    busy = []
    for order, node in enumerate(nodes):
        for part in node.between(a, b):
            if part.phase and (not part.wait or (part.wait == "unseen" and not node.traces)):
                busy.append((part.begin, part.end, order, part))
                cuts.update((part.begin, part.end))
    edges = sorted(cuts)
    steps: list[Step] = []
    for left, right in pairwise(edges):
        here = [item for item in busy if item[0] <= left and item[1] >= right]
        found = min(here, key=lambda item: item[2], default=None)
        begin, until = max(left - origin, ready), min(right - origin, end)
        if found:
            part, node = found[3], nodes[found[2]]
            steps.append(Step(begin, until, part.phase, part.source, node.name, part.detail, part.frame))
        else:
            steps.append(Step(begin, until, "first_request", "client"))
    if steps:
        steps[-1] = replace(steps[-1], end=end)
    return [replace(step, begin=steps[index - 1].end if index else ready) for index, step in enumerate(steps)]


def _spread(item: Ranks, origin: float) -> Spread:
    return Spread(item.begin - origin, item.end - origin, {node.name: done - origin for node, done in item.done})


def merged(steps: Sequence[Step]) -> list[Step]:
    """The same with equal neighbours made one; empty ones go."""
    result: list[Step] = []
    for step in steps:
        if step.end <= step.begin:
            continue
        if result and _like(result[-1], step):
            result[-1] = replace(result[-1], end=step.end)
        else:
            result.append(step)
    return result


def _like(one: Step, other: Step) -> bool:
    return _same_but_detail(one, other) and one.detail == other.detail


def dissolved(steps: Sequence[Step]) -> list[Step]:
    """Details that alternate faster than 0.1 s in one phase and process go under the longer one's name.

    No phase, process or source gains or loses by it.
    """
    result: list[Step] = []
    run: list[Step] = []
    for step in steps:
        if run and not _same_but_detail(run[-1], step):
            result.extend(_without_slivers(run))
            run = []
        run.append(step)
    return result + _without_slivers(run)


def _same_but_detail(one: Step, other: Step) -> bool:
    return (one.phase, one.process, one.source, one.open) == (other.phase, other.process, other.source, other.open)


def _without_slivers(run: list[Step]) -> list[Step]:
    run = list(run)
    while len(run) > 1:
        index = min(range(len(run)), key=lambda index: run[index].seconds)
        if run[index].seconds >= SLIVER:
            break
        sides = [side for side in (index - 1, index + 1) if 0 <= side < len(run)]
        into = max(sides, key=lambda side: run[side].seconds)
        first, second = sorted((index, into))
        run[first : second + 1] = [replace(run[into], begin=run[first].begin, end=run[second].end)]
        run = merged(run)
    return run
