"""Two sides of a comparison with their boots, from one question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb

from dashboard.compare_rows import Comparison, compared, uncompared
from dashboard.data.sides import BOOTS, CONFIGS, Chosen, chosen
from pytest_coldstart.gate import sides
from pytest_coldstart.gate.comparison import Side
from pytest_coldstart.gate.errors import GateError
from pytest_coldstart.gate.match import ALLOWED, ALLOWED_PARTS, cell_facts, host_facts, match, unlike
from pytest_coldstart.gate.policy import load
from pytest_coldstart.record import BootRecord
from pytest_coldstart.store.boots import fetched, records
from pytest_coldstart.store.errors import StoreError

#: What a comparison reads of a boot beside its own row.
_TABLES = ("instant", "phase", "metric", "cache")


@dataclass(frozen=True)
class Asked:
    """What the address asks for. ``gates``, ``depth``: as :func:`dashboard.data.sides.chosen` takes them. ``allow``: what may differ between cells.

    ``policy``: the gate's policy file, and the time of its last change so that another one is another question.
    """

    kind: str
    base: str
    head: str
    gates: bool = False
    depth: int = 1
    allow: tuple[str, ...] = ()
    policy: tuple[str, int] | None = None


@dataclass(frozen=True)
class Answer:
    """``comparison``: None where one of the sides has a ``problem``, or ``problem`` says why both together have."""

    base: Chosen
    head: Chosen
    comparison: Comparison | None = None
    problem: str = ""
    allow: tuple[str, ...] = ()


def answer(con: duckdb.DuckDBPyConnection, asked: Asked) -> Answer:
    """The whole comparison."""
    base, head = (
        chosen(con, asked.kind, name, word, asked.gates, asked.depth)
        for name, word in (("base", asked.base), ("head", asked.head))
    )
    found = Answer(base, head)
    if base.problem or head.problem:
        return found
    if base.id == head.id:
        return replace(found, problem="Base and head are the same: nothing is compared with itself. Choose another.")
    try:
        policies = load(Path(asked.policy[0]) if asked.policy else None)
        left, right, allow = _read(con, base, head, asked)
    except (StoreError, GateError) as error:
        return replace(found, problem=f"{error}.")
    comparison = compared(left, right, policies, con, allow)
    if _two_cells(asked) and not comparison.cells:
        comparison = uncompared(left, right, comparison)
    return replace(found, comparison=comparison, allow=allow)


def _two_cells(asked: Asked) -> bool:
    """Whether somebody chose two cells, and not two sides on which equal cells are looked for."""
    return asked.kind in (BOOTS, CONFIGS)


def _read(
    con: duckdb.DuckDBPyConnection, base: Chosen, head: Chosen, asked: Asked
) -> tuple[Side, Side, tuple[str, ...]]:
    """Both sides, and what may differ between their cells. What cells are is read of all boots, and what they did of those that
    are compared.

    :raises StoreError: a row cannot be read.
    """
    ids = sorted({*base.boots, *head.boots})
    headers = sides.headers(con, sorted({*base.runs, *head.runs}))
    made = {record.boot_id: record for record in records(fetched(con, ids, ()))}
    left, right = (_side(one, made, headers) for one in (base, head))
    allow = allowed(left, right) if _two_cells(asked) else asked.allow
    pairs = match(left, right, allow).pairs
    needed = sorted({boot.record.boot_id for pair in pairs for boot in (*pair.base, *pair.head)})
    if _two_cells(asked) and not pairs:
        needed = ids
    made |= {record.boot_id: record for record in records(fetched(con, needed, _TABLES))}
    left, right = (_side(one, made, headers) for one in (base, head))
    verdicts = sides.verdicts(con, head.runs) if asked.kind != BOOTS else ()
    return left, replace(right, verdicts=verdicts), allow


def _side(one: Chosen, made: Mapping[str, BootRecord], headers: Mapping[str, Mapping[str, Any]]) -> Side:
    return sides.of_records(one.name, one.text, [made[id] for id in one.boots if id in made], headers)


def allowed(base: Side, head: Side) -> tuple[str, ...]:
    """What a gate must be told to allow, so that it compares these two cells, which somebody chose: all that differs but the
    hardware, whose classes are never compared here, and engine and tier, which a gate never mixes."""
    facts = [{**cell_facts(side.boots[-1].record), **host_facts(side.boots[-1].header)} for side in (base, head)]
    return tuple(name for name in unlike(*facts) if _may_differ(name))


def _may_differ(name: str) -> bool:
    part, dot, _ = name.partition(".")
    return name not in ("gpu", "hardware") and (name in ALLOWED or bool(dot and part in ALLOWED_PARTS))


def offered(reasons: Sequence[str]) -> list[str]:
    """Of the reasons for which cells were refused: what could be allowed on this page."""
    words = [part.split()[0] for reason in reasons for part in reason.split("--allow ")[1:] if part.split()]
    return [word for word in dict.fromkeys(words) if _may_differ(word)]
