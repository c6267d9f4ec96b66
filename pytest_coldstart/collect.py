"""From markers to parametrised tests; mistakes in a suite become collection errors at file:line."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import NoReturn

import pytest

from pytest_coldstart.engines import EngineError
from pytest_coldstart.engines.base import Engine, Model, ModelMissing
from pytest_coldstart.markers import ColdstartMark, MarkerError, coldstart_mark, slo_bounds, slo_levels
from pytest_coldstart.matrix import MatrixCell, expand
from pytest_coldstart.session import CellParam, Session

FIXTURES = ("coldstart_cell", "coldstart_engine", "coldstart_plan", "cold_boot", "coldstart_client", "shared_cold_boot")


def parametrize(metafunc: pytest.Metafunc, session: Session) -> None:
    """Give the test one parameter a cell.

    :raises pytest.Collector.CollectError: a mistake in its markers, with file and line.
    """
    item = metafunc.definition
    try:
        mark = coldstart_mark(item)
        levels = slo_levels(item)
        if mark is None:
            if levels and "cold_boot" not in metafunc.fixturenames and "shared_cold_boot" not in metafunc.fixturenames:
                _check_slo_only(item)
            return
        if {"cold_boot", "shared_cold_boot"} <= set(metafunc.fixturenames):
            raise MarkerError(
                "the test uses shared_cold_boot and cold_boot (or coldstart_client), which would be two boots at once; "
                "shared_cold_boot.client sends requests to the shared one"
            )
        if "coldstart_cell" not in metafunc.fixturenames:
            raise MarkerError(f"the test asks for none of the fixtures that boot an engine: {', '.join(FIXTURES[3:])}")
        engine = session.engines.get(mark.engine)
        cells = expand(mark, engine, session.settings.pythons.get(engine.name))
        params = [_param(cell, mark, engine) for cell in cells]
    except (MarkerError, EngineError) as error:
        _refuse(item, error)
    except (TypeError, ValueError, AttributeError, OverflowError, RuntimeError, OSError) as error:
        _refuse(item, MarkerError(f"a value of the coldstart marker cannot be used: {error}"))
    scope = "module" if "shared_cold_boot" in metafunc.fixturenames else "function"
    metafunc.parametrize("coldstart_cell", params, indirect=True, scope=scope)  # type: ignore[arg-type]


def _check_slo_only(item: pytest.Function) -> None:
    """A bound of the test's own would be judged by nobody; one of its module may be meant for others."""
    if any(mark.name == "slo" for mark in item.own_markers):
        raise MarkerError("the test has an slo marker and no coldstart marker, so nothing would be judged")


def _param(cell: MatrixCell, mark: ColdstartMark, engine: Engine) -> object:
    slo_bounds(mark for mark in cell.marks if mark.name == "slo")
    if any(mark.name == "coldstart" for mark in cell.marks):
        raise MarkerError("pytest.param(..., marks=pytest.mark.coldstart(...)) changes nothing; make it an axis")
    model: Model | None = None
    missing = ("", "")
    try:
        model = engine.model(cell.cell)
    except ModelMissing as error:
        missing = (str(error), error.enable)
    return pytest.param(CellParam(cell, mark, engine, model, missing), id=cell.id, marks=cell.marks)


def _refuse(item: pytest.Function, error: Exception) -> NoReturn:
    function = inspect.unwrap(item.function)
    line = function.__code__.co_firstlineno
    raise pytest.Collector.CollectError(f"{item.path}:{line}: {item.name}: {error}")


def param_of(item: pytest.Item) -> CellParam | None:
    """The cell that collection gave a test."""
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("coldstart_cell") if callspec else None
    return found if isinstance(found, CellParam) else None


def select(session: Session, items: list[pytest.Item]) -> None:
    """Deselect the cells that --coldstart-engine and --coldstart-tier leave out."""
    settings = session.settings
    for item in items:
        if item.get_closest_marker("coldstart") and param_of(item) is None:
            raise pytest.UsageError(
                f"{item.path}:{(item.location[1] or 0) + 1}: {item.name} is marked coldstart and cannot boot: only pytest functions and methods can, "
                "not those of unittest.TestCase"
            )
    keep: list[pytest.Item] = []
    drop: list[pytest.Item] = []
    for item in items:
        param = param_of(item)
        cell = param.matrix.cell if param else None
        out = cell is not None and (
            (settings.engines and cell.engine not in settings.engines)
            or (settings.tiers and cell.tier not in settings.tiers)
        )
        (drop if out else keep).append(item)
    if drop:
        session.config.hook.pytest_deselected(items=drop)
        items[:] = keep


def estimate(session: Session, items: Sequence[pytest.Item]) -> str:
    """How many cells and boots these items are, and how long they took before."""
    from pytest_coldstart.store.history import expected_seconds

    params = [param for param in map(param_of, items) if param]
    session.estimates = expected_seconds(session.home, [param.matrix.cell.digest for param in params])
    boots, seconds, known = 0, 0.0, 0
    for param in params:
        settings = session.settings
        rounds = settings.rounds_override or param.mark.rounds or settings.rounds
        boots += rounds
        expected = session.estimates.get(param.matrix.cell.digest)
        if expected is not None:
            known += 1
            seconds += expected * rounds
    time = (
        f"about {seconds:.0f} s by the history of {known} of them" if known else "no history to estimate the time from"
    )
    return f"coldstart: {len(params)} cells, {boots} boots, {time}"
