"""Engines that the probe cannot get into, or that end it: each boot is judged all the same, and what is missing is said."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pytest_coldstart.attribution import Process
from pytest_coldstart.boot import Boot
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord
from tests.conftest import FAKE, MakePlan, assert_nothing_left

MakeBoot = Callable[[Plan], Boot]
Run = Callable[..., BootRecord]

pytestmark = pytest.mark.timeout(60)

#: What an engine does before it is the fake one: it loads for a while, in a function of a name of its own.
BEFORE = """
import os, resource, runpy, signal, sys, threading, time
def loads(): time.sleep(0.55)
"""
AFTER = f"runpy.run_path({str(FAKE)!r}, run_name='__main__')\n"


@pytest.fixture
def run(make_plan: MakePlan, boots: MakeBoot, tmp_path: Path) -> Run:
    """Boots an engine that does *before* first, checks its path and that nothing is left; *flags*: the interpreter's."""

    def boot_it(
        before: str = "loads()\n",
        flags: Sequence[str] = (),
        fault: str = "none",
        prepare: Callable[[Boot], object] = lambda boot: None,
    ) -> BootRecord:
        (tmp_path / "engine.py").write_text(BEFORE + before + AFTER)
        command = (sys.executable, *flags, str(tmp_path / "engine.py"), "--port", "{port}", "--fault", fault)
        boot = boots(make_plan(command=command))
        prepare(boot)
        boot.run()
        record = boot.stop()
        assert_nothing_left(boot)
        assert_is_partition(record)
        return record

    return boot_it


def assert_is_partition(record: BootRecord) -> None:
    """The path covers the boot from its start to its first answer or its failure, without a gap or an overlap."""
    end = record.attribution.end
    assert end is not None
    if record.outcome == "ok":
        assert end == record.instants["first_done"]
    else:
        assert 0 < end <= record.instants["stopped"]
    bounds = [(phase.begin, phase.end) for phase in record.phases]
    assert bounds[0][0] == 0.0
    assert bounds[-1][1] == end
    assert [stop for _, stop in bounds[:-1]] == [start for start, _ in bounds[1:]]
    assert all(start < stop for start, stop in bounds)


def server(record: BootRecord) -> Process:
    return next(process for process in record.attribution.processes if process.name == "server")


def seconds(record: BootRecord, detail: str) -> float:
    return sum(phase.end - phase.begin for phase in record.phases if detail in phase.detail)


def test_an_ordinary_engine_misses_nothing(run: Run) -> None:
    record = run()
    assert record.outcome == "ok"
    assert record.attribution.missing == ()
    assert server(record).samples >= 5
    assert seconds(record, "loads") == pytest.approx(0.55, abs=0.3)


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("-I", "started with -I, which ignores PYTHONPATH"),
        ("-E", "started with -E, which ignores PYTHONPATH"),
        ("-S", "started with -S: without site, sitecustomize is not run"),
    ],
)
def test_an_interpreter_that_looks_for_no_probe(flag: str, reason: str, run: Run) -> None:
    record = run(flags=(flag,))
    assert record.outcome == "ok"
    assert server(record).missing == reason
    assert server(record).probe == "off"
    assert f"server: {reason}" in record.attribution.missing


def test_an_engine_that_replaces_its_path_is_sampled_on(run: Run) -> None:
    record = run("sys.path = [path for path in sys.path if 'probe' not in path]\nloads()\n")
    assert record.outcome == "ok"
    assert record.attribution.missing == ()
    assert seconds(record, "loads") == pytest.approx(0.55, abs=0.3)


def test_a_server_that_was_forked_without_exec_has_a_trace_of_its_own(run: Run) -> None:
    record = run(
        "child = os.fork()\nif child:\n    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\nloads()\n"
    )
    assert record.outcome == "ok"
    assert record.attribution.missing == ()
    parent, child = record.attribution.processes
    assert child.parent == parent.pid
    assert child.samples >= 5


def test_an_engine_that_exits_hard_after_it_was_ready(run: Run) -> None:
    record = run(fault="die_after_first_token")
    assert record.outcome == "failed"
    assert record.failure is not None
    assert record.stop.exit_code == 9
    assert "ready" in record.instants
    assert server(record).samples >= 5
    assert seconds(record, "loads") == pytest.approx(0.55, abs=0.3)


def test_an_engine_that_is_killed_while_it_boots(run: Run) -> None:
    record = run("threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()\nloads()\n")
    assert record.outcome == "failed"
    assert record.failure is not None
    assert record.failure.kind == "exit"
    assert "SIGKILL" in record.failure.message
    assert record.stop.exit_code == -signal.SIGKILL
    assert seconds(record, "loads") >= 0.2


def test_a_probe_without_a_folder(run: Run) -> None:
    record = run(prepare=lambda boot: (boot.plan.logs / f"{boot.boot_id}.probe").write_text(""))
    assert record.outcome == "ok"
    assert record.attribution.probe == "off"
    (missing,) = record.attribution.missing
    assert missing.startswith("the probe has no folder to write to: ")
    assert "File exists" in missing
    assert {phase.name for phase in record.phases} == {"unattributed", "first_request"}


def test_a_probe_whose_disk_is_full(run: Run) -> None:
    # The log is written by the supervisor, whose limit this is not.
    record = run("time.sleep(0.3)\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\nloads()\nloads()\n")
    assert record.outcome == "ok"
    assert server(record).missing.startswith("its probe fell silent at ")
    assert any("its probe fell silent" in sentence for sentence in record.attribution.missing)


def test_a_fault_in_the_attribution_costs_the_path_and_not_the_boot(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The assertions of ``run`` on the path do not hold here: its own check is left out."""
    monkeypatch.setattr(f"{__name__}.assert_is_partition", lambda record: None)

    def breaks(inputs: object) -> None:
        raise RuntimeError("of all things")

    monkeypatch.setattr("pytest_coldstart.insight.attribute", breaks)
    record = run()
    assert record.outcome == "ok"
    assert record.phases == ()
    assert record.attribution.missing == ("its time was not attributed, a fault of ours: RuntimeError: of all things",)
    assert record.metrics["attributed"].value is None
