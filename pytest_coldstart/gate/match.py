"""Which cell of the base is compared with which cell of the head, and what stands against it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_coldstart.gate.comparison import Refusal, Side, SideBoot
from pytest_coldstart.gate.errors import GateError
from pytest_coldstart.record import BootRecord

#: What `--allow` takes by its whole name, and what it takes with a name after the dot.
ALLOWED = ("driver", "gpu", "hardware", "python", "command", "model", "warmup", "requests")
ALLOWED_PARTS = ("options", "env")
_HOST = ("gpu", "hardware", "driver")

Facts = Mapping[str, str]


@dataclass(frozen=True)
class Group:
    """All boots of one side of one cell on one kind of machine. ``facts``: what the other side must have alike."""

    boots: tuple[SideBoot, ...]
    facts: Facts

    @property
    def record(self) -> BootRecord:
        """Its newest boot."""
        return self.boots[-1].record

    @property
    def words(self) -> str:
        count = f"{len(self.boots)} boot{'s' if len(self.boots) > 1 else ''}"
        return f"{self.record.engine} {self.record.cell_id} ({count})"


@dataclass(frozen=True)
class Pair:
    """A cell of the base and the one of the head that it is compared with."""

    base: tuple[SideBoot, ...]
    head: tuple[SideBoot, ...]


@dataclass(frozen=True)
class Matched:
    """``refused``: cells that both sides have and that cannot be compared. ``notes``: cells of one side alone."""

    pairs: tuple[Pair, ...] = ()
    refused: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


def check_allow(words: Iterable[str]) -> tuple[str, ...]:
    """The words of ``--allow``, commas split.

    :raises GateError: a word that names nothing that may differ.
    """
    split = tuple(part.strip() for word in words for part in word.split(",") if part.strip())
    for word in split:
        part, dot, name = word.partition(".")
        if word not in ALLOWED and not (part in ALLOWED_PARTS and dot and name):
            valid = ", ".join((*ALLOWED, *(f"{part}.NAME" for part in ALLOWED_PARTS)))
            never = "; tiers and engines are never compared with each other" if word in ("tier", "engine") else ""
            raise GateError(f"--allow {word!r} names nothing that may differ; valid: {valid}{never}")
    return split


def match(base: Side, head: Side, allow: Sequence[str] = (), base_cell: str = "", head_cell: str = "") -> Matched:
    """Pair the cells of both sides. Tiers are never mixed, and each cell is paired at most once.

    *allow*: what may differ between the cells of a pair, as :func:`check_allow` returns it. *base_cell*, *head_cell*: a part of
    the ids of the cells that are compared; empty for all.

    :raises GateError: no cell has such a part in its id.
    """
    left, right = _groups(_chosen(base, base_cell)), _groups(_chosen(head, head_cell))
    pairs: list[Pair] = []
    refused: list[Refusal] = []

    def take(one: Group, other: Group) -> None:
        left.remove(one)
        right.remove(other)
        shared = {boot.record.boot_id for boot in one.boots} & {boot.record.boot_id for boot in other.boots}
        if shared:
            what = f"{len(shared)} boot{'s are' if len(shared) > 1 else ' is'} on both sides"
            refused.append(_refusal(other, f"{what}: boots are not compared with themselves"))
        else:
            pairs.append(Pair(one.boots, other.boots))

    for same in (_equal, lambda one, other: _alike(one, other, allow)):
        for one in tuple(left):
            fitting = [other for other in right if same(one, other)]
            if len(fitting) == 1 and sum(same(another, fitting[0]) for another in left) == 1:
                take(one, fitting[0])
    for one in tuple(left):
        found = _meant(one, left, right, allow)
        if found is not None:
            left.remove(one)
            right.remove(found[0])
            refused.append(_refusal(found[0], found[1]))
    notes = [f"only the base has {group.words}" for group in left]
    notes += [f"only the head has {group.words}" for group in right]
    return Matched(tuple(pairs), tuple(refused), tuple(notes))


def _chosen(side: Side, part: str) -> Sequence[SideBoot]:
    boots = [boot for boot in side.boots if boot.record.counted]
    exact = [boot for boot in boots if boot.record.cell_id == part]
    found = exact or [boot for boot in boots if part in boot.record.cell_id]
    if part and not found:
        ids = ", ".join(sorted({boot.record.cell_id for boot in boots})) or "none"
        raise GateError(f"--{side.name}-cell {part!r} is part of no cell's id; the {side.name} has: {ids}")
    return found


def _groups(boots: Iterable[SideBoot]) -> list[Group]:
    found: dict[tuple[str, ...], list[SideBoot]] = {}
    for boot in boots:
        host = host_facts(boot.header)
        found.setdefault((boot.record.cell_digest, *host.values()), []).append(boot)
    return [
        Group(tuple(group), {**cell_facts(group[-1].record), **host_facts(group[-1].header)})
        for group in found.values()
    ]


def cell_facts(record: BootRecord) -> dict[str, str]:
    """What a cell is, flat: engine, model, tier, options.NAME, env.NAME, python, command, warmup, requests."""
    facts: dict[str, str] = {}
    for name, value in record.cell.items():
        if name in ALLOWED_PARTS and isinstance(value, Mapping):
            facts.update({f"{name}.{key}": _text(item) for key, item in value.items()})
        else:
            facts[name] = _text(value)
    return {**facts, "engine": record.engine, "tier": record.tier}


def host_facts(header: Mapping[str, Any]) -> dict[str, str]:
    """What must be alike of the machines: GPU model, hardware (processor, cores, memory; its class where those are not
    known) and driver."""
    cpu, cores, size = header.get("cpu"), header.get("cores"), header.get("memory_bytes")
    hardware = f"{cpu}, {cores} cores, {round(size / 2**30)} GiB" if cpu and size else header.get("hardware_class")
    values = (header.get("gpu"), hardware, header.get("driver"))
    return {name: str(value or "none") for name, value in zip(_HOST, values, strict=True)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _equal(one: Group, other: Group) -> bool:
    same = all(one.facts[name] == other.facts[name] for name in _HOST)
    return same and one.record.cell_digest == other.record.cell_digest


def _alike(one: Group, other: Group, allow: Sequence[str]) -> bool:
    """Whether they differ in what is allowed alone; a value that was hidden as a secret may differ unseen."""
    different = unlike(one.facts, other.facts)
    if not different:
        return one.record.cell_digest == other.record.cell_digest
    return all(name in allow for name in different)


def unlike(one: Facts, other: Facts) -> list[str]:
    """The names whose values differ, or that one of both alone has."""
    return [name for name in dict.fromkeys((*one, *other)) if one.get(name) != other.get(name)]


def _meant(one: Group, left: Sequence[Group], right: Sequence[Group], allow: Sequence[str]) -> tuple[Group, str] | None:
    """The head's group that *one* would be compared with, and why it is not; None where none is near enough."""
    fitting = [other for other in right if _alike(one, other, allow)]
    if fitting:
        ids = ", ".join(dict.fromkeys(other.record.cell_id for other in fitting))
        return fitting[0], f"it fits several cells: {ids}; choose with --base-cell and --head-cell"
    rules: tuple[Callable[[Group], bool], ...] = (
        lambda other: other.record.cell_digest == one.record.cell_digest,
        lambda other: (other.record.nodeid, other.record.cell_id) == (one.record.nodeid, one.record.cell_id),
        lambda other: len(left) == len(right) == 1,
    )
    near = next((other for rule in rules for other in right if rule(other)), None)
    return None if near is None else (near, _why(one.facts, near.facts, allow))


def _why(one: Facts, other: Facts, allow: Sequence[str]) -> str:
    names = [name for name in unlike(one, other) if name not in allow]
    if not names:
        return "its identity differs in a value that was hidden as a secret"
    said = "; ".join(f"{name}: {one.get(name, 'not set')} against {other.get(name, 'not set')}" for name in names)
    never = [name for name in names if name in ("tier", "engine")]
    if never:
        return f"{said}; {' and '.join(f'{name}s' for name in never)} are never mixed"
    return f"{said}; {' '.join(f'--allow {name}' for name in names)} compares them all the same"


def _refusal(group: Group, reason: str) -> Refusal:
    return Refusal(group.record.cell_id, group.record.tier, reason)
