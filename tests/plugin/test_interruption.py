"""An interrupted run leaves no process behind and loses no boot that had ended."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.plugin.conftest import Inner, eventually

CELLS = """
@fake
def test_first(cold_boot): ...

@pytest.mark.coldstart(**ENGINE, env={"FAKE_DELAY": "600"})
def test_boots_for_ever(cold_boot): ...

@fake
def test_never_reached(cold_boot): ...
"""

BODY = """
@fake
def test_first(cold_boot): ...

@fake
def test_body_runs_for_ever(cold_boot):
    pathlib.Path("in-body").touch()
    time.sleep(600)

@fake
def test_never_reached(cold_boot): ...
"""

EXIT = {signal.SIGINT: 2, signal.SIGTERM: 2, signal.SIGKILL: -signal.SIGKILL}


def stored_lines(inner: Inner) -> int:
    """Boots in the run files so far."""
    return sum(path.read_text().count('"kind":"boot"') for path in inner.run_files)


def end_by(inner: Inner, process: subprocess.Popen[bytes], number: signal.Signals) -> str:
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == EXIT[number], output.decode()
    assert eventually(lambda: not inner.alive()), inner.alive()
    return output.decode()


@pytest.mark.parametrize("number", EXIT, ids=lambda number: number.name)
def test_a_signal_during_a_boot_leaves_no_process_and_loses_no_boot_that_ended(
    inner: Inner, number: signal.Signals
) -> None:
    inner.suite(CELLS)
    process = inner.start()
    assert eventually(lambda: stored_lines(inner) == 1 and inner.engines())
    text = end_by(inner, process, number)
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    assert inner.cli("ingest", "--store", str(inner.store)).ret == 0
    assert inner.query("SELECT nodeid, outcome FROM boot") == [("test_suite.py::test_first[restart]", "ok")]


@pytest.mark.parametrize("number", EXIT, ids=lambda number: number.name)
def test_a_signal_during_a_body_leaves_no_process_and_loses_no_boot_that_ended(
    inner: Inner, number: signal.Signals
) -> None:
    inner.suite(BODY)
    process = inner.start()
    assert eventually((inner.path / "in-body").exists)
    end_by(inner, process, number)
    assert inner.cli("ingest", "--store", str(inner.store)).ret == 0
    found = inner.query("SELECT split_part(split_part(nodeid, '::', 2), '[', 1) FROM boot ORDER BY started_at")
    # A boot that was whole when its body was interrupted is stopped and stored, unless pytest itself was killed.
    whole = [("test_first",)] if number == signal.SIGKILL else [("test_first",), ("test_body_runs_for_ever",)]
    assert found == whole


def test_after_a_kill_the_next_run_on_the_same_host_gets_its_turn(inner: Inner) -> None:
    """The lock that keeps boots apart is the kernel's: it goes when its last holder is gone."""
    inner.suite(CELLS)
    process = inner.start()
    assert eventually(lambda: stored_lines(inner) == 1 and inner.engines())
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    result = inner.run("-k", "first")
    assert result.ret == 0
    assert inner.boots() == 2  # the killed run's boot came in with this one's


def test_two_runs_at_once_on_one_store_both_pass_and_all_boots_are_in_it(inner: Inner) -> None:
    inner.suite("""
@pytest.mark.coldstart(**{**ENGINE, "rounds": 2, "tier": ["restart", "scale_out"]})
def test_a(cold_boot): ...
""")
    processes = [inner.start(), inner.start()]
    outputs = [process.communicate(timeout=200)[0].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert inner.cli("ingest", "--store", str(inner.store)).ret == 0
    assert inner.query("SELECT count(*), count(DISTINCT boot_id), count(DISTINCT run_id) FROM boot") == [(8, 8, 2)]
    assert inner.query("SELECT exit_status FROM run") == [(0,), (0,)]
