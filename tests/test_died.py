"""Processes of an engine that died: what another one's log tells of them, and what was seen of the tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from pytest_coldstart.cause import cause, died, explained
from pytest_coldstart.observe.proc import TreeObserver
from pytest_coldstart.record import Failure

INITIALIZATION = (
    "[+  12.5] (APIServer pid=2) RuntimeError: Engine core initialization failed. See root cause above. "
    "Failed core proc(s): {'EngineCore': -9}"
)
WORKER = (
    "[+  31.2] (EngineCore pid=3) ERROR 11-30 10:00:00 [multiproc_executor.py:315] Worker proc VllmWorker-0 died "
    "unexpectedly (exit code: -11), shutting down executor."
)


class TestLog:
    def test_core_that_was_killed_while_it_loaded(self) -> None:
        assert cause([INITIALIZATION]) is None
        assert died([INITIALIZATION]) == "EngineCore ended with signal SIGKILL"

    def test_worker_that_crashed(self) -> None:
        assert died([WORKER]) == "VllmWorker-0 ended with signal SIGSEGV"

    def test_nothing_after_the_failure_counts(self) -> None:
        assert died([WORKER], until=31.0) == ""
        assert died(["ValueError: {'EngineCore': -9}"]) == ""

    def test_reason_in_the_log_comes_first(self) -> None:
        failure = Failure("exit", "it ended", "start")
        found = explained(failure, ["[+ 1.0] ValueError: no memory", INITIALIZATION], None, "ended: x")
        assert found.message == "it ended; the engine said: ValueError: no memory"

    @pytest.mark.parametrize(
        ("lines", "words"), [([INITIALIZATION], "EngineCore ended with signal SIGKILL"), ([], "seen")]
    )
    def test_log_comes_before_what_was_seen(self, lines: list[str], words: str) -> None:
        assert explained(Failure("exit", "it ended", "start"), lines, None, "seen").message == f"it ended; {words}"

    def test_end_of_a_long_reason_is_kept(self) -> None:
        reason = f"ValueError: {'custom code ' * 60}pass trust_remote_code=True"
        message = explained(Failure("exit", "it ended", "start"), [reason]).message
        assert message.startswith("it ended; the engine said: ValueError: custom code")
        assert message.endswith("pass trust_remote_code=True")
        assert len(message) <= 430


def test_exception_of_transformers_brings_a_row_of_its_table() -> None:
    text = """
[+  14.870] [transformers] \\x1b[1mQwen2ForCausalLM LOAD REPORT\\x1b[0m from: checkpoint
[+  14.870] Key                                       | Status   |
[+  14.870] ------------------------------------------+----------+----------------------------
[+  14.870] model.layers.{0, 1}.mlp.down_proj.weight  | MISMATCH | Reinit due to size mismatch
[+  14.870] model.layers.{0, 1}.mlp.up_proj.weight    | MISMATCH | Reinit due to size mismatch
[+  14.880] Traceback (most recent call last):
[+  14.889] RuntimeError: You set `ignore_mismatched_sizes` to `False`, thus raising an error. For details look at the above report!
"""
    found = cause(text.strip("\n").splitlines())
    assert found is not None
    assert found.endswith("above report! model.layers.{0, 1}.mlp.down_proj.weight: Reinit due to size mismatch")


def test_processes_that_ended_are_told_in_their_order() -> None:
    sleeper = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    children = [subprocess.Popen(sleeper) for _ in range(3)]
    observer = TreeObserver(os.getpid())
    try:
        observer.take()
        time.sleep(0.3)
        for child in (children[1], children[0]):
            child.send_signal(signal.SIGKILL)
            deadline = time.monotonic() + 5
            while child.pid in observer.take().names:  # a zombie counts as ended
                assert time.monotonic() < deadline
                time.sleep(0.01)
        ended = observer.ended(but=None, lived=0.2)
        told = [f"pid {children[number].pid}, signal SIGKILL)" for number in (1, 0)]
        assert [text.partition("(")[2] for text in ended] == told
        assert len(observer.ended(but=children[1].pid, lived=0.2)) == 1
        assert observer.ended(but=None, lived=60) == []
    finally:
        for child in children:
            child.kill()
            child.wait()
