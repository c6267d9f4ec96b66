"""Axes, include, exclude -> cells with stable ids."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pytest_coldstart.burst import spec_from
from pytest_coldstart.cell import Cell
from pytest_coldstart.coldness import TIERS
from pytest_coldstart.engines.base import Engine, EngineError
from pytest_coldstart.markers import ColdstartMark, MarkerError, check_command, refuse_bare_container
from pytest_coldstart.redact import is_secret
from pytest_coldstart.warmup import Warmup, WarmupError, create

#: Axes that are no engine option.
GENERAL = ("model", "python", "command", "warmup", "tier")
_ENV = "env."

#: What ``-k`` accepts in a name.
_NOT_IN_IDS = re.compile(r"[^\w.+:/-]+")

#: OWNER/NAME of Hugging Face's hub, unless a relative path is there: adapters look for that first.
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class Point:
    """One value of one axis: what a person may have named and marked with ``pytest.param``."""

    value: Any
    label: str | None = None
    marks: tuple[Any, ...] = ()


@dataclass(frozen=True)
class MatrixCell:
    """A cell, its id within the test and the pytest marks of its values."""

    cell: Cell
    id: str
    warmup: Warmup
    marks: tuple[Any, ...] = ()


def expand(mark: ColdstartMark, engine: Engine, python: str | None = None) -> list[MatrixCell]:
    """Every cell of a marker, in the order in which its axes were written, the tier last.

    *python* is the interpreter of cells that name none.

    :raises MarkerError: unknown axes, no cell at all, two cells that are the same or share an id.
    :raises EngineError: a value that the engine does not take.
    """
    axes = _axes(mark)
    _check_axes(axes, mark, engine)
    rows = [dict(zip(axes, points, strict=True)) for points in itertools.product(*axes.values())]
    for rule in mark.exclude:
        if not any(_matches(row, rule) for row in rows):
            raise MarkerError(f"exclude={dict(rule)!r} matches no cell of the matrix")
    rows = [row for row in rows if not any(_matches(row, rule) for rule in mark.exclude)]
    named = [name for name, points in axes.items() if len(points) > 1 or points[0].label]
    for rule in mark.include:
        base = {name: points[0] for name, points in axes.items()}
        rows.append({**base, **{name: _point(value) for name, value in rule.items()}})
        named += [name for name in rule if name not in named]
    if not rows:
        raise MarkerError("the matrix is empty: exclude= drops every cell")
    order = [name for name in named if name != "tier"] + ["tier"]
    cells = [_cell(mark, engine, row, order, python) for row in rows]
    _check_unique(cells)
    return cells


def _axes(mark: ColdstartMark) -> dict[str, list[Point]]:
    axes = {name: [_point(value) for value in values] for name, values in mark.matrix.items()}
    if "tier" not in axes:
        tiers = mark.tier if isinstance(mark.tier, (list, tuple)) and not _is_param(mark.tier) else [mark.tier]
        if not tiers:
            raise MarkerError("tier=[] is empty: it would make no cell")
        axes["tier"] = [_point(tier) for tier in tiers]
    return axes


def _is_param(value: Any) -> bool:
    return hasattr(value, "marks") and hasattr(value, "values") and hasattr(value, "id")


def _point(value: Any) -> Point:
    if _is_param(value):
        if len(value.values) != 1:
            raise MarkerError(f"pytest.param in an axis takes one value, got {len(value.values)}: {value.values!r}")
        label = value.id if isinstance(value.id, str) else None
        return Point(value.values[0], label, tuple(value.marks))
    return Point(value)


def _check_axes(axes: Mapping[str, Any], mark: ColdstartMark, engine: Engine) -> None:
    used = [*axes, *(name for rule in (*mark.include, *mark.exclude) for name in rule)]
    for name in used:
        if not isinstance(name, str):
            raise MarkerError(f"axis {name!r} is not a string")
        if name in engine.options or name in GENERAL or (name.startswith(_ENV) and len(name) > len(_ENV)):
            continue
        near = difflib.get_close_matches(name, (*GENERAL, *engine.options), 1, 0.8)
        if engine.passes_options and not near:
            continue  # the engine's own check of the option follows
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise MarkerError(
            f"unknown axis {name!r}; {hint}valid axes: {', '.join([*GENERAL, 'env.NAME'])} and the options of engine "
            f"{engine.name!r}: {', '.join(sorted(engine.options)) or 'none'}"
        )
    for point in axes["tier"]:
        if not isinstance(point.value, str) or point.value not in TIERS:
            raise MarkerError(f"unknown tier {point.value!r}; valid tiers: {', '.join(TIERS)}")


def _matches(row: Mapping[str, Point], rule: Mapping[str, Any]) -> bool:
    return all(name in row and row[name].value == value for name, value in rule.items())


def _cell(
    mark: ColdstartMark, engine: Engine, row: Mapping[str, Point], order: Sequence[str], python: str | None
) -> MatrixCell:
    values = {name: point.value for name, point in row.items()}
    options = dict(mark.options)
    env = dict(mark.env)
    for name, value in values.items():
        if name.startswith(_ENV):
            env[name.removeprefix(_ENV)] = str(value)
        elif name not in GENERAL:
            options[name] = value
    try:
        warmup = create(values.get("warmup", mark.warmup))
    except WarmupError as error:
        raise MarkerError(str(error)) from None
    if values["tier"] not in TIERS:
        raise MarkerError(f"unknown tier {values['tier']!r}; valid tiers: {', '.join(TIERS)}")
    command = check_command(values.get("command", mark.command))
    refuse_bare_container(command, mark.container is not None)
    own_python = _text(values.get("python", mark.python))
    labels: dict[str, str | None] = {name: point.label for name, point in row.items() if point.label}
    if own_python is None and python is not None and not command:
        # Where the environment lies is not what the cell is: its versions are kept with each boot.
        labels["python"] = None
    model = _text(values.get("model", mark.model))
    if model and _HUB_NAME.fullmatch(model) and not Path(model).exists():
        labels.setdefault("model", model)  # two owners' models of one name are two
    cell = Cell(
        engine=engine.name,
        model=model,
        tier=values["tier"],
        options=options,
        env=env,
        python=own_python or (None if command else python),
        command=command,
        warmup=warmup.spec(),
        requests=_requests(mark),
        container=mark.container,
        labels=labels,
    )
    engine.check(cell)
    marks = tuple(mark for point in row.values() for mark in point.marks)
    return MatrixCell(cell, _id(row, order), warmup, marks)


def _requests(mark: ColdstartMark) -> dict[str, Any]:
    """How the requests of a cell are shaped. A burst that a suite names decides numbers, so it is identity too."""
    shape: dict[str, Any] = {"count": mark.requests, "words": list(mark.prompt_words)}
    if mark.burst is not None and (spec := spec_from(mark.burst)) is not None:
        shape["burst"] = spec.digest
    return shape


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _id(row: Mapping[str, Point], order: Iterable[str]) -> str:
    return "-".join(_part(name, row[name]) for name in order if name in row)


def _part(name: str, point: Point) -> str:
    if name == "tier":
        return str(point.value)
    value = point.label or _short(name, point.value)
    if name.startswith(_ENV) and is_secret(name.removeprefix(_ENV)) and not point.label:
        value = hashlib.sha256(value.encode()).hexdigest()[:6]  # ids are printed and stored
    text = value if point.label and name in GENERAL else f"{name}:{value}"
    return _NOT_IN_IDS.sub(".", text).strip(".") or name


def _short(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "+".join(str(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return "+".join(str(part) for part in value)
    if name == "model":
        return PurePath(str(value)).name
    return str(value)


def _check_unique(cells: Sequence[MatrixCell]) -> None:
    seen: dict[str, MatrixCell] = {}
    digests: dict[str, MatrixCell] = {}
    for item in cells:
        twin = digests.get(item.cell.digest)
        if twin:
            raise MarkerError(f"two cells are the same: {twin.id!r} and {item.id!r}; remove one of them")
        if item.id in seen:
            raise MarkerError(
                f"two different cells have the id {item.id!r}; name their values with pytest.param(value, id='...')"
            )
        seen[item.id] = digests[item.cell.digest] = item


__all__ = ["EngineError", "MatrixCell", "Point", "expand"]
