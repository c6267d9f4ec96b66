"""Rows for pytest-benchmark: the boots of each judged cell are replayed to it, one round a boot.

The boots are made, stopped and judged by this plugin. At the end of the run, when all is known of
them, each cell is given to pytest-benchmark through the test's own fixture ``benchmark``: its
``pedantic`` mode, on a clock that only the replay moves. So its table, its JSON, its storage and
its comparisons work, and nothing it does or fails to do can touch a boot or a verdict.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_coldstart import __version__, environment, judge
from pytest_coldstart.collect import param_of
from pytest_coldstart.handle import ColdBoot
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import BootRecord
from pytest_coldstart.session import CellParam, Session

NAME = "coldstart-benchmark"
#: The fixture that stands on each test with a row, for as long as the test runs.
FIXTURE = "_coldstart_row"
#: Under this name pytest-benchmark registers its session.
THEIR_SESSION = "pytest-benchmark"
#: Their options that ask for something to be kept or compared.
_ASKING = ("benchmark_json", "benchmark_save", "benchmark_autosave", "benchmark_compare")


@dataclass
class Clock:
    """A clock of seconds that stands at 0 when a round begins and at the boot's duration when it ends.

    It is reset, and not advanced on and on, since a sum of floats would change their last digits.
    Until the replay it is the ``real`` one, for a body that asks for ``benchmark`` dynamically.
    """

    real: Callable[[], float]
    durations: Iterator[float] | None = None
    now: float = 0.0

    def coldstart_clock(self) -> float:
        """The timer. pytest-benchmark shows its name, as ``options.timer`` of a row."""
        return self.real() if self.durations is None else self.now

    def begin_round(self) -> tuple[tuple[float], dict[str, Any]]:
        self.now = 0.0
        assert self.durations is not None
        return (next(self.durations),), {}

    def boot(self, seconds: float) -> None:
        self.now = seconds


@dataclass
class Row:
    """A judged cell: the test whose id the row bears, and the ``benchmark`` fixture that makes it."""

    item: pytest.Item
    boot: ColdBoot
    fixture: Any
    clock: Clock


class Rows:
    """One instance a run, registered under :data:`NAME`; does nothing where pytest-benchmark is not active."""

    def __init__(self, session: Session) -> None:
        self.session = session
        #: By the node id and the cell digest that the boots are stored under.
        self.rows: dict[tuple[str, str], Row] = {}
        #: Cells that get no row since a boot failed, for the JSON.
        self.failed: list[dict[str, Any]] = []
        #: What went wrong with pytest-benchmark -> the test at which it did first.
        self.problems: dict[str, str] = {}
        self._first_on: dict[tuple[str, str], pytest.Item] = {}

    # -- collection: what pytest-benchmark is to see of our tests

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        """Show pytest-benchmark a static ``benchmark`` on our tests while it sorts out benchmarks.

        A fixture that is requested dynamically is not seen by --benchmark-only and --benchmark-skip.
        After that the name is taken off again: a benchmark fixture that fails must not fail the test.
        """
        touched: list[list[str]] = []
        if self._wanted():
            self._note_shared(items)
            for item in items:
                names: list[str] = getattr(item, "fixturenames", [])  # the tests of one function share one list
                if param_of(item) is not None and "benchmark" not in names:
                    names[:0] = [FIXTURE, "benchmark"]
                    touched.append(names)
        try:
            return (yield)
        finally:
            for names in touched:
                names.remove("benchmark")

    def _wanted(self) -> bool:
        theirs: Any = self.session.config.pluginmanager.get_plugin(THEIR_SESSION)
        return theirs is not None and (not getattr(theirs, "disabled", False) or getattr(theirs, "skip", False))

    def _note_shared(self, items: Sequence[pytest.Item]) -> None:
        """For each boot that tests share, the one that stands first in the file: its id is the row's.

        Whichever test happens to run last would give a row another name from run to run.
        """
        for item in items:
            key = _shared_key(item)
            if key is not None:
                first = self._first_on.setdefault(key, item)
                self._first_on[key] = min(first, item, key=lambda one: (one.location[1] or 0, one.nodeid))

    # -- each test

    @pytest.fixture(name=FIXTURE)
    def _row(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Set up before the boots and torn down after them: takes ``benchmark`` and remembers the cell."""
        item: pytest.Item = request.node
        for old in [key for key in self.rows if key[0] == item.nodeid]:
            del self.rows[old]  # an earlier attempt, whose boots are among those of this one
        taken: tuple[Any, Clock] | None = None
        with self._unharmed(item.nodeid):
            taken = _take(request)
        yield
        boot = judge.boot_of(self.session, item)
        if taken is None or boot is None or judge.OUTCOME not in item.stash:
            return
        key = _shared_key(item)
        named = self._first_on.get(key, item) if key else item
        self.rows[(boot.plan.nodeid, boot.plan.cell.digest)] = Row(named, boot, *taken)

    # -- the end

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # pytest-benchmark's own is a wrapper too, and reads the rows
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        for row in self.rows.values():
            with self._unharmed(row.item.nodeid):
                self._replay(row)
        return (yield)

    def _replay(self, row: Row) -> None:
        """Make the row, unless a boot failed: a mean without the failed boot would lie."""
        fixture, records = row.fixture, row.boot.records
        failed = row.boot.rounds.failed
        if failed is not None:
            self.failed.append(_without_row(row.item, records, failed))
            return
        if fixture.has_error or bool(fixture.stats):
            return  # the body asked for it with getfixturevalue: the row is the test's own
        durations = [record.metrics["cold_start"].value for record in records]
        known = [seconds for seconds in durations if seconds is not None]
        if not known or len(known) < len(durations):
            raise ValueError("a boot has no cold_start")
        fixture.name, fixture.fullname = row.item.name, row.item.nodeid
        fixture.param, fixture.params = _params(row.item, records[0])
        if fixture.group is None:
            fixture.group = f"cold_start {records[0].tier}"
        fixture.extra_info["coldstart"] = extra_info(records)
        fixture.cprofile = False  # it would show the replay
        row.clock.durations = iter(known)
        fixture.pedantic(row.clock.boot, setup=row.clock.begin_round, rounds=len(known))
        took = list(fixture.stats.stats.data)
        if took != known:
            fixture.has_error = True  # keeps the row out of the JSON
            fixture.stats.stats.data.clear()  # and out of the table
            raise ValueError(f"it took {took} for {known}")

    @contextmanager
    def _unharmed(self, nodeid: str) -> Iterator[None]:
        """Whatever pytest-benchmark raises becomes a line at the end of the run."""
        try:
            yield
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            self.problems.setdefault(f"{type(error).__name__}: {error}".strip().splitlines()[0], nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        for problem, nodeid in self.problems.items():
            text = f"coldstart: warning: pytest-benchmark has no row of {nodeid}, and maybe of others: {problem}"
            terminalreporter.write_line(text, yellow=True)
        theirs: Any = config.pluginmanager.get_plugin(THEIR_SESSION)
        if getattr(theirs, "disabled", False) and any(config.getoption(name, None) for name in _ASKING):
            terminalreporter.write_line(
                "coldstart: pytest-benchmark is disabled (by pytest-xdist or --benchmark-disable): it has no rows of the "
                "boots; the store has them"
            )

    # -- hooks of pytest-benchmark

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Add what decides our series. Only what stays the same from run to run: a difference is a warning."""
        with self._unharmed("machine_info"):
            machine_info["coldstart"] = hardware()

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Add the run, by which the boots are found in the store, and the cells that failed."""
        output_json["coldstart"] = {
            "version": __version__,
            "run_id": self.session.run_id,
            "failed": self.failed,
        }


def _take(request: pytest.FixtureRequest) -> tuple[Any, Clock]:
    """The test's ``benchmark`` fixture, on a clock of ours.

    A timer can be given by a marker only. It joins what a marker of the suite says, such as a
    group, and is taken off at once.
    """
    item = request.node
    theirs = item.get_closest_marker("benchmark")
    arguments = dict(theirs.kwargs) if theirs else {}
    clock = Clock(arguments.get("timer") or _usual_timer(request.config))
    markers = list(item.own_markers)
    item.add_marker(pytest.mark.benchmark(**{**arguments, "timer": clock.coldstart_clock}), append=False)
    try:
        fixture = request.getfixturevalue("benchmark")
    finally:
        item.own_markers[:] = markers
    fixture.skipped = True  # it would warn that the test did not use it
    return fixture, clock


def _usual_timer(config: pytest.Config) -> Callable[[], float]:
    """What --benchmark-timer names."""
    theirs: Any = config.pluginmanager.get_plugin(THEIR_SESSION)
    found: Callable[[], float] = getattr(getattr(theirs, "options", {}).get("timer"), "target", time.perf_counter)
    return found


def _shared_key(item: pytest.Item) -> tuple[str, str] | None:
    """The module and the cell of a test on a shared boot."""
    param, module = param_of(item), item.getparent(pytest.Module)
    if param is None or module is None or "shared_cold_boot" not in getattr(item, "fixturenames", ()):
        return None
    return module.nodeid, param.matrix.cell.digest


def _params(item: pytest.Item, record: BootRecord) -> tuple[str | None, dict[str, Any]]:
    """``param`` and ``params`` of a row, for --benchmark-group-by=param:NAME: the cell's axes as plain data."""
    callspec: Any = getattr(item, "callspec", None)
    others = {name: value for name, value in callspec.params.items() if not isinstance(value, CellParam)}
    cell = {name: record.cell.get(name) for name in ("engine", "model", "tier")}
    return callspec.id, {**record.cell.get("options", {}), **cell, **others}


def extra_info(records: Sequence[BootRecord]) -> dict[str, Any]:
    """What ``extra_info["coldstart"]`` of a row holds; the n-th value of each list belongs to the n-th round.

    Values are in the metric's unit. One that was not measured is None, with the reason in
    ``reasons`` at the same place.
    """
    first = records[0]
    return {
        "run_id": first.run_id,
        "nodeid": first.nodeid,
        "cell_id": first.cell_id,
        "cell_digest": first.cell_digest,
        "engine": first.engine,
        "tier": first.tier,
        "versions": first.versions,
        "boot_ids": [record.boot_id for record in records],
        "metrics": {name: _metric(name, records) for name in METRICS},
    }


def _metric(name: str, records: Sequence[BootRecord]) -> dict[str, Any]:
    values: list[float | None] = []
    reasons: list[str | None] = []
    for record in records:
        found = record.metrics.get(name)
        value, reason = (found.value, found.reason) if found else (None, "not derived")
        if value is not None and not math.isfinite(value):  # JSON has no word for it
            value, reason = None, f"the value is {value}"
        values.append(value)
        reasons.append(reason)
    metric = METRICS[name]
    return {"unit": metric.unit, "better": metric.better, "values": values, "reasons": reasons}


def _without_row(item: pytest.Item, records: Sequence[BootRecord], failed: BootRecord) -> dict[str, Any]:
    return {
        "fullname": item.nodeid,
        "cell_digest": failed.cell_digest,
        "engine": failed.engine,
        "tier": failed.tier,
        "boot_ids": [record.boot_id for record in records],
        "failed_boot_id": failed.boot_id,
        "failure": failed.failure.kind if failed.failure else None,
    }


def hardware() -> dict[str, Any]:
    """The host as far as the store's series tell hosts apart; memory in whole GiB."""
    cpu, cores, memory = environment.cpu_model(), os.cpu_count() or 0, environment.memory_bytes()
    gpus = environment.gpu_names()
    return {
        "hardware_class": environment.hardware_class(cpu, cores, memory, gpus),
        "cpu": cpu,
        "cores": cores,
        "memory_gib": round((memory or 0) / 2**30) or None,
        "gpus": gpus,
        "gpu_driver": environment.gpu_driver(),
    }
