"""What a gate does with a change: one policy for all cells, and what differs for some of them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_coldstart import units
from pytest_coldstart.gate.comparison import FAIL, IGNORE, WARN
from pytest_coldstart.gate.errors import GateError
from pytest_coldstart.metrics import METRICS

#: Beside the suites; `coldstart gate --policy FILE` names another.
POLICY_FILE = "coldstart-gate.toml"

#: The metrics whose change is tested, in the order in which they are shown, and what a regression of each does. One that fails
#: leaves the whole level to it: 4 boots a side can decide. Boots are made until what fails is decided.
GATED: Mapping[str, str] = {"cold_start": FAIL, "warm_first_token": WARN}

#: What a regression of each counter does, in the order in which they are shown. Those that fail a build did not differ between
#: equal boots. ``bytes_read`` is decided by what the page cache happens to hold: it is shown, and judged by nobody.
COUNTERS: Mapping[str, str] = {
    "kernels_compiled": FAIL,
    "graphs_compiled": FAIL,
    "bytecode_compiled": FAIL,
    "caches_missed": WARN,
    "cache_files_written": WARN,
    "modules_imported": WARN,
    "processes_started": WARN,
    "bytes_read": IGNORE,
}


@dataclass(frozen=True)
class Policy:
    """Fractions of the base's value, boots a side, seconds.

    ``metrics``: gated metric -> fail, warn or pass on a regression. ``counters``: the same for counters, which are
    decided at one boot a side. ``floor``: the least change that is called one; the larger of it and ``mads`` median
    absolute deviations of the cell's own unchanged history holds. ``most_boots``: boots a side at most, ``seconds``: time
    at most, whichever is first. ``inconclusive``: what an undecided cell does. ``unstable``: what a regression of a cell does whose
    history says that it is unstable. ``tolerance``: of a counter, what is no change.
    """

    metrics: Mapping[str, str] = field(default_factory=lambda: dict(GATED))
    counters: Mapping[str, str] = field(default_factory=dict)
    alpha: float = 0.05
    floor: float = 0.03
    mads: float = 3.0
    margin: float = 0.10
    tolerance: float = 0.10
    most_boots: int = 20
    seconds: float | None = None
    inconclusive: str = WARN
    unstable: str = WARN
    name: str = "default"


ACTIONS = (FAIL, WARN, IGNORE)


@dataclass(frozen=True)
class Policies:
    """One policy for all cells, and what is otherwise for the cells whose engine or id has a text in it; the last one wins."""

    default: Policy = field(default_factory=Policy)
    cells: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def of(self, engine: str, cell_id: str) -> Policy:
        policy = self.default
        for text, changes in self.cells:
            if text == engine or text in cell_id:
                policy = _with(policy, changes)
        return policy

    def over(self, changes: Mapping[str, Any]) -> Policies:
        """The same with *changes*, which the command line gave: they hold for every cell."""
        return Policies(replace(self.default, **changes), (*self.cells, ("", changes)) if changes else self.cells)


def find(suites: Iterable[Path], cwd: Path) -> Path | None:
    """The policy file that lies beside a suite, else in *cwd*."""
    folders = [path if path.is_dir() else path.parent for path in suites]
    # Also one that is no file, or a link to nowhere: it is said, and nobody is judged by other rules than were meant.
    return next((folder / POLICY_FILE for folder in (*folders, cwd) if os.path.lexists(folder / POLICY_FILE)), None)


def load(path: Path | None) -> Policies:
    """Read a policy file; the default policies without one.

    :raises GateError: it cannot be read, or a key or value of it is wrong; the message says where and what is valid.
    """
    if path is None:
        return Policies()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise GateError(f"policy {path}: {error.strerror or error}; give a TOML file") from None
    except RecursionError:
        raise GateError(f"policy {path}: it is nested too deeply") from None
    except ValueError as error:
        raise GateError(f"policy {path}: {error}") from None
    try:
        return _policies(data, str(path))
    except ValueError as error:
        raise GateError(f"policy {path}: {error}") from None


def _policies(data: Mapping[str, Any], name: str) -> Policies:
    gate = _only(data, "the file", ("gate",)).get("gate", {})
    cells = _table(gate, "gate").get("cell", [])
    changes = _changes({key: value for key, value in gate.items() if key != "cell"}, "gate", ("cell", *_KEYS))
    if not isinstance(cells, list):
        raise GateError("gate.cell: write each override as a table of its own, [[gate.cell]]")
    return Policies(_with(Policy(name=name), changes), tuple(map(_override, cells)))


def _override(cell: Any) -> tuple[str, Mapping[str, Any]]:
    text = _table(cell, "gate.cell").get("match")
    if not isinstance(text, str) or not text:
        raise GateError('gate.cell.match: give an engine or a part of a cell\'s id, such as match = "llamacpp"')
    # One family of comparisons has one level and one budget.
    keys = tuple(key for key in _KEYS if key not in ("alpha", "most_boots", "seconds"))
    return text, _changes({key: value for key, value in cell.items() if key != "match"}, "gate.cell", ("match", *keys))


def _changes(table: Mapping[str, Any], where: str, valid: tuple[str, ...]) -> dict[str, Any]:
    _only(table, where, valid)
    return {key: _value(key, value, f"{where}.{key}") for key, value in table.items()}


def _value(key: str, value: Any, where: str) -> Any:
    try:
        return _KEYS[key](value)
    except ValueError as error:
        raise GateError(f"{where}: {error}") from None


def _with(policy: Policy, changes: Mapping[str, Any]) -> Policy:
    """*policy* with *changes*; tables are merged name by name."""
    tables = {key: {**getattr(policy, key), **changes[key]} for key in ("metrics", "counters") if key in changes}
    return replace(policy, **{**changes, **tables})


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise GateError(f"{where}: a table is needed, not {value!r}")
    return value


def _only(table: Mapping[str, Any], where: str, valid: Iterable[str]) -> Mapping[str, Any]:
    for key in table:
        if key not in valid:
            raise GateError(f"{where}: unknown key {key!r}; valid keys: {', '.join(valid)}")
    return table


# -- one value


def action(value: Any) -> str:
    """:raises ValueError: *value* is none of fail, warn and pass."""
    if value not in ACTIONS:
        raise ValueError(f"{value!r} is no action; valid: {', '.join(ACTIONS)}")
    return str(value)


def fraction(value: Any) -> float:
    """A number from 0 to 1, or a text such as ``"3%"``.

    :raises ValueError: it is none, or lies outside.
    """
    if isinstance(value, str):
        number = units.parse(value, "fraction") if "%" in value else _number(value)
    else:
        number = _number(value)
    if not 0 <= number <= 1:
        raise ValueError(f'{value!r} is not between 0 and 1; write 0.03 or "3%" for three per cent')
    return number


def level(value: Any) -> float:
    """A level of significance: a fraction above 0 and up to 0.5.

    :raises ValueError: it is none, or lies outside.
    """
    number = fraction(value)
    if not 0 < number <= 0.5:
        raise ValueError(f"{value!r} is no level of a test; give one above 0 and up to 0.5, such as 0.05")
    return number


def boots(value: Any) -> int:
    """How many boots a side at most.

    :raises ValueError: it is no whole number from 1.
    """
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{value!r} is not a whole number from 1")
    return int(text)


def seconds(value: Any) -> float:
    """Seconds as a number, or a text such as ``"30min"``.

    :raises ValueError: it is neither, or not above zero.
    """
    number = units.parse_duration(value) if isinstance(value, str) else _number(value)
    if number <= 0:
        raise ValueError(f"{value!r}: a time must be greater than zero")
    return number


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r} is no number")
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{value!r} is no number") from None
    if not abs(number) < float("inf"):
        raise ValueError(f"{value!r} is not a finite number")
    return number


def _mads(value: Any) -> float:
    number = _number(value)
    if number < 0:
        raise ValueError(f"{value!r} is below zero")
    return number


def _actions(value: Any, valid: Iterable[str], what: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"a table of {what} and actions is needed, not {value!r}")
    for name in value:
        if name not in valid:
            raise ValueError(f"unknown {what} {name!r}; valid: {', '.join(sorted(valid))}")
    return {name: action(item) for name, item in value.items()}


def _counters(value: Any) -> dict[str, str]:
    return _actions(value, {*COUNTERS, *(name for name, metric in METRICS.items() if metric.counter)}, "counter")


_KEYS: Mapping[str, Callable[[Any], Any]] = {
    "metrics": lambda value: _actions(value, METRICS, "metric"),
    "counters": _counters,
    "alpha": level,
    "floor": fraction,
    "mads": _mads,
    "margin": fraction,
    "tolerance": fraction,
    "most_boots": boots,
    "seconds": seconds,
    "inconclusive": action,
    "unstable": action,
}
