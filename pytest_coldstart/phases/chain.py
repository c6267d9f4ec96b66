"""What one process and all below it did in an interval: each wait is handed to the process that was waited for."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_coldstart.phases.names import says_nothing
from pytest_coldstart.phases.timeline import SILENT, Segment
from pytest_coldstart.phases.tree import Node

#: Waits that another process can end.
_HANDED_ON = ("children", "threads", "idle")
#: Two processes were done at once if not farther apart than this, seconds: about one round of samples.
_AT_ONCE = 0.1
#: A wait shorter than this, seconds, says nothing of how far apart ranks are.
_SHORT = 0.5


@dataclass(frozen=True)
class Piece:
    """An interval and who had it. ``gap``: nobody was seen to work; a phase of a gap is what was waited in."""

    begin: float
    end: float
    node: Node
    phase: str
    detail: str
    frame: str
    source: str
    gap: bool = False


@dataclass(frozen=True)
class Ranks:
    """Comparable processes that one waited for, monotonic seconds: who was done when."""

    begin: float
    end: float
    done: tuple[tuple[Node, float], ...]


def chain(node: Node, begin: float, end: float, ranks: list[Ranks]) -> list[Piece]:
    """Pieces that cover the part of the interval in which *node* lived, in order; appends to *ranks*."""
    pieces: list[Piece] = []
    for run in _runs(node, node.between(begin, end)):
        if _can_hand_on(node, run[0]):
            pieces.extend(_handed_on(node, run, ranks))
        else:
            pieces.extend(_piece(node, part, gap=part.wait != "") for part in run)
    return pieces


def kind_of(name: str) -> str:
    """What ranks of one kind have in common: the name without its numbers. One that says nothing has no kind."""
    if says_nothing(name):
        return name
    return re.sub(r"\d+", "", name).strip(" -_")


def _can_hand_on(node: Node, segment: Segment) -> bool:
    """Whether others may have this time: a shell's or a wrapper's too, but not that of an interpreter that fell silent."""
    return segment.wait in _HANDED_ON or (segment.wait == "unseen" and not node.traces)


def _piece(node: Node, part: Segment, gap: bool) -> Piece:
    return Piece(part.begin, part.end, node, part.phase, part.detail, part.frame, part.source, gap)


def _runs(node: Node, segments: Iterable[Segment]) -> list[list[Segment]]:
    """Waits that can be handed on one after another are one wait; everything else is by itself."""
    runs: list[list[Segment]] = []
    for segment in segments:
        if runs and _can_hand_on(node, segment) and _can_hand_on(node, runs[-1][0]):
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return runs


def _handed_on(node: Node, run: Sequence[Segment], ranks: list[Ranks]) -> list[Piece]:
    begin, end = run[0].begin, run[-1].end
    chains = []
    for child in node.children:
        if child.begin < end and child.end > begin:
            pieces = chain(child, max(begin, child.begin), min(end, child.end), ranks)
            if pieces:
                chains.append((child, pieces))
    ordered = _in_order(chains, end)
    _note_ranks(chains, begin, end, ranks)
    taken: list[Piece] = []
    free = [(begin, end)]
    for gap in (False, True):
        for _, pieces in ordered:
            free = _fill(taken, free, [piece for piece in pieces if piece.gap == gap and (piece.phase or not gap)])
    for part in run:
        own = _cut_free(free, part.begin, part.end)
        if part.wait == "children":
            # A child that nobody looked into still is what the wait was for.
            for _, pieces in ordered:
                own = _fill(taken, own, [_hidden(piece, part) for piece in pieces if _is_hidden(piece)])
        known = bool(part.phase)
        _fill(taken, own, [_piece(node, part, gap=not known or part.wait == "idle")])
    return sorted(taken, key=lambda piece: piece.begin)


def _is_hidden(piece: Piece) -> bool:
    """Whether this is a process that lived and into which nobody looked, or looked no longer."""
    return piece.gap and not piece.phase and (not piece.node.traces or piece.frame in SILENT)


def _hidden(piece: Piece, wait: Segment) -> Piece:
    """The time of such a process as part of what the wait for it was part of."""
    said = piece.frame if piece.frame in SILENT else piece.detail
    detail = f"{wait.detail}: {said}" if wait.phase and wait.detail else said
    return replace(piece, phase=wait.phase, detail=detail, frame=said, gap=False)


def _done(pieces: Sequence[Piece], phased: bool = False) -> float:
    """When the last work ended, -inf if there was none."""
    return max((piece.end for piece in pieces if not piece.gap and (piece.phase or not phased)), default=float("-inf"))


def _busy_until(node: Node, when: float) -> float:
    """The end of the work that *node* is in the middle of at *when*."""
    first = bisect_right(node.segments, when, key=lambda segment: segment.end)
    until = when
    for segment in node.segments[first:]:
        if segment.wait:
            break
        until = segment.end
    return until


def _in_order(chains: list[tuple[Node, list[Piece]]], end: float) -> list[tuple[Node, list[Piece]]]:
    """The last to be done first: by kind of process for work that has a phase, then by process for any work."""
    by_kind: dict[str, float] = {}
    for node, pieces in chains:
        kind = kind_of(node.name)
        by_kind[kind] = max(by_kind.get(kind, float("-inf")), _done(pieces, phased=True))

    def key(item: tuple[Node, list[Piece]]) -> tuple[float, str, float]:
        node, pieces = item
        done = _done(pieces)
        if done > end - _AT_ONCE:
            done = max(end, _busy_until(node, end))
        return by_kind[kind_of(node.name)], kind_of(node.name), done

    return sorted(chains, key=key, reverse=True)


def _note_ranks(chains: list[tuple[Node, list[Piece]]], begin: float, end: float, ranks: list[Ranks]) -> None:
    """Record when comparable processes were done, unless the wait ended before any of them was."""
    by_kind: dict[str, list[tuple[Node, float]]] = {}
    for node, pieces in chains:
        done = _done(pieces, phased=True)
        if node.traces and done > begin:
            by_kind.setdefault(kind_of(node.name), []).append((node, done))
    for group in by_kind.values():
        ended = any(done < end - _AT_ONCE or _busy_until(node, end) - end < _AT_ONCE for node, done in group)
        if len(group) > 1 and ended and end - begin >= _SHORT:
            ranks.append(Ranks(begin, end, tuple(group)))


def _fill(taken: list[Piece], free: list[tuple[float, float]], pieces: Sequence[Piece]) -> list[tuple[float, float]]:
    """Put *pieces*, in order of time, where *free* is; returns what is still free."""
    left: list[tuple[float, float]] = []
    position = 0
    for begin, end in free:
        at = begin
        while position < len(pieces) and pieces[position].end <= at:
            position += 1
        index = position
        while index < len(pieces) and pieces[index].begin < end:
            piece = pieces[index]
            a, b = max(piece.begin, at), min(piece.end, end)
            if b > a:
                if a > at:
                    left.append((at, a))
                taken.append(piece if (a, b) == (piece.begin, piece.end) else replace(piece, begin=a, end=b))
                at = b
            index += 1
        if at < end:
            left.append((at, end))
    return left


def _cut_free(free: Sequence[tuple[float, float]], begin: float, end: float) -> list[tuple[float, float]]:
    return [(max(a, begin), min(b, end)) for a, b in free if a < end and b > begin]
