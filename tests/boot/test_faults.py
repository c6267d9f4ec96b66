"""Every way in which an engine fails: what the record says of it, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_coldstart.boot import Boot
from pytest_coldstart.client import RequestFailed
from pytest_coldstart.errors import HarnessFault
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord
from tests.conftest import FAKE, MakePlan, assert_nothing_left, can_bind, eventually
from tests.fake_engine import REASON

Booted = Callable[..., BootRecord]
MakeBoot = Callable[[Plan], Boot]

pytestmark = pytest.mark.timeout(120)


def test_what_an_engine_answers_is_no_command_to_a_terminal(make_plan: MakePlan, boots: MakeBoot) -> None:
    boot = boots(make_plan())
    boot.run()
    boot._fail(RequestFailed("status", "HTTP 500 from /x: \x1b[2Jgone"))
    assert boot.failure is not None
    assert boot.failure.message.startswith("HTTP 500 from /x: \\x1b[2Jgone")
    assert_nothing_left(boot)


class TestWithoutFault:
    def test_instants_come_in_order(self, booted: Booted) -> None:
        record = booted()
        assert record.outcome == "ok"
        assert record.failure is None
        instants = record.instants
        order = ["start", "listen", "ready", "first_token", "first_done", "warmed", "stopped"]
        assert sorted(order, key=lambda name: instants[name]) == order
        assert instants["start"] == 0
        assert [request.kind for request in record.requests] == ["first", "warm", "warm"]
        assert [request.completion_tokens for request in record.requests] == [16, 4, 4]
        assert record.stop.exit_code == -signal.SIGTERM
        assert record.stop.port_free is True
        assert record.stop.leaked_processes == ()

    def test_first_token_is_timed_from_the_request_and_the_end_from_the_last_token(self, booted: Booted) -> None:
        record = booted("none", "--first-wait", "0.5", "--gap", "0.04")
        first, *warm = record.requests
        assert first.ttft is not None
        assert first.done is not None
        assert first.first_token is not None
        assert first.ttft >= 0.5
        assert first.done - first.first_token >= 15 * 0.04 / 2  # the first token may have been noticed late
        assert all(request.ttft is not None and request.ttft >= 0.5 for request in warm)
        assert record.metrics["warm_first_token"].value == warm[0].ttft

    def test_chat_role_delta_is_no_token(self, booted: Booted) -> None:
        record = booted("role_delta_first", "--seconds", "0.4", options={"api": "chat"})
        assert record.outcome == "ok"
        assert record.requests[0].ttft is not None
        assert record.requests[0].ttft >= 0.4

    def test_an_event_may_hold_several_tokens(self, booted: Booted) -> None:
        record = booted("multi_token_event")
        assert record.outcome == "ok"
        assert record.requests[0].completion_tokens == 16
        assert record.requests[0].events == 4 + 2  # four times four tokens, the finish, the usage

    def test_a_warm_up_is_sent_before_the_warm_requests(self, booted: Booted) -> None:
        record = booted(warmup={"strategy": "prompts", "count": 2, "tokens": 3})
        assert [request.kind for request in record.requests] == ["first", "warmup", "warmup", "warm", "warm"]
        assert record.instants["warmed"] >= (record.requests[2].done or 0)


class TestBeforeReady:
    def test_exit_at_once_shows_the_code_and_the_reason(self, booted: Booted) -> None:
        record = booted("exit_at_once")
        assert record.outcome == "failed"
        assert record.failure is not None
        assert record.failure.kind == "exit"
        assert "exit code 3" in record.failure.message
        assert "before it listened" in record.failure.message
        assert REASON in record.failure.log_tail
        assert record.failure.instant == "start"
        assert record.stop.exit_code == 3
        # But for what its stop tells.
        assert {value.value for name, value in record.metrics.items() if not METRICS[name].after_stop} == {None}

    def test_death_by_a_signal_is_named(self, booted: Booted) -> None:
        record = booted("segfault")
        assert record.failure is not None
        assert record.failure.kind == "exit"
        assert "SIGSEGV" in record.failure.message
        assert "about to crash" in record.failure.log_tail

    def test_death_at_90_percent_shows_the_last_line(self, booted: Booted) -> None:
        record = booted("die_before_listen")
        assert record.failure is not None
        assert record.failure.kind == "exit"
        assert "exit code 5" in record.failure.message
        assert "loading weights: 90 %" in record.failure.message
        assert record.failure.log_tail.count("loading weights:") == 10
        assert "listen" not in record.instants

    def test_missing_command_is_an_exec_failure_with_the_systems_words(self, booted: Booted) -> None:
        record = booted(command=("/nowhere/serve", "--port", "{port}"))
        assert record.failure is not None
        assert record.failure.kind == "exec"
        assert "/nowhere/serve" in record.failure.message
        assert "No such file or directory" in record.failure.message

    def test_file_that_may_not_be_executed_is_an_exec_failure(self, booted: Booted, tmp_path: Path) -> None:
        script = tmp_path / "serve"
        script.write_text("#!/bin/sh\n")
        record = booted(command=(str(script), "{port}"))
        assert record.failure is not None
        assert record.failure.kind == "exec"
        assert "Permission denied" in record.failure.message

    def test_missing_working_directory_is_an_exec_failure(self, booted: Booted, tmp_path: Path) -> None:
        record = booted(cwd=tmp_path / "gone")
        assert record.failure is not None
        assert record.failure.kind == "exec"

    def test_silent_hang_is_found_and_its_stacks_are_in_the_log(self, booted: Booted) -> None:
        record = booted("hang_silent", hang_timeout=1.5)
        assert record.failure is not None
        assert record.failure.kind == "hang"
        assert "no output, no CPU and no I/O for 1.5 s" in record.failure.message
        assert "Fatal Python error: Aborted" in record.failure.log_tail
        assert "in before_listening" in record.failure.log_tail
        assert record.stop.exit_code == -signal.SIGABRT

    def test_a_hang_is_found_without_the_observer_too(self, booted: Booted) -> None:
        record = booted("hang_silent", hang_timeout=1.5, observe=False)
        assert record.failure is not None
        assert record.failure.kind == "hang"

    def test_listening_without_answering_is_a_hang(self, booted: Booted) -> None:
        record = booted("listen_and_hang", hang_timeout=1.5)
        assert record.failure is not None
        assert record.failure.kind == "hang"
        assert record.failure.instant == "listen"
        assert "after 'listen'" in record.failure.message

    def test_an_engine_that_prints_is_not_hanging(self, booted: Booted, tmp_path: Path) -> None:
        script = tmp_path / "prints.py"
        script.write_text(
            "import os, sys, time\n"
            "for index in range(8):\n    print('still loading', index, flush=True); time.sleep(0.3)\n"
            f"os.execv(sys.executable, [sys.executable, '-S', {str(FAKE)!r}, '--port', sys.argv[1]])\n"
        )
        record = booted(command=(sys.executable, "-S", str(script), "{port}"), hang_timeout=1.5)
        assert record.outcome == "ok"
        assert record.instants["ready"] >= 2.4

    def test_boot_timeout(self, booted: Booted) -> None:
        record = booted("hang_silent", boot_timeout=1.5)
        assert record.failure is not None
        assert record.failure.kind == "timeout"
        assert "boot timeout of 1.5 s" in record.failure.message
        assert "Fatal Python error: Aborted" in record.failure.log_tail

    @pytest.mark.parametrize(
        ("name", "fault"), [("listen", "hang_silent"), ("ready", "health_503_a_while"), ("first_done", "none")]
    )
    def test_deadline_of_an_instant(self, booted: Booted, name: str, fault: str) -> None:
        record = booted(fault, "--seconds", "1000", "--first-wait", "1000", deadlines={name: 1.5})
        assert record.failure is not None
        assert record.failure.kind == "deadline"
        assert f"the instant {name!r} was not reached within its deadline of 1.5 s" in record.failure.message
        if name == "ready":
            assert "last answer: /" in record.failure.message
            assert " 503" in record.failure.message

    def test_deadline_of_the_first_token_ends_with_the_token_and_not_with_the_answer(self, booted: Booted) -> None:
        record = booted("none", "--gap", "0.2", deadlines={"first_token": 2.5}, requests=0)
        assert record.failure is None
        assert record.instants["first_token"] < 2.5 < record.instants["first_done"]

    def test_health_503_for_a_while_is_waited_for(self, booted: Booted) -> None:
        record = booted("health_503_a_while", "--seconds", "1")
        assert record.outcome == "ok"
        assert record.instants["ready"] >= 1
        assert record.instants["listen"] < record.instants["ready"]
        assert record.poll_delay is not None
        assert record.poll_delay > 0


class TestPorts:
    def test_port_of_another_process_is_a_harness_fault_that_names_it(
        self, make_plan: MakePlan, boots: MakeBoot
    ) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            boot = boots(make_plan(port=port))
            with pytest.raises(HarnessFault, match=rf"port {port} is already in use by .*\(pid {os.getpid()}\)"):
                boot.run()
            assert boot.tree is None
        assert can_bind(port)

    def test_port_held_by_another_boot_is_a_harness_fault(self, make_plan: MakePlan, boots: MakeBoot) -> None:
        first = boots(make_plan())
        first.run()
        assert first.port is not None
        second = boots(make_plan(port=first.port.number))
        with pytest.raises(HarnessFault, match="held by another boot of pytest-coldstart"):
            second.run()
        assert first.stop().outcome == "ok"
        assert_nothing_left(first)

    def test_another_process_on_the_port_after_the_launch_is_foreign(
        self, make_plan: MakePlan, boots: MakeBoot
    ) -> None:
        boot = boots(make_plan("never_binds"))
        foreign: list[subprocess.Popen[bytes]] = []

        def intrude() -> None:
            if eventually(lambda: boot.tree is not None and boot.tree.start_time is not None, 30):
                assert boot.port is not None
                words = [sys.executable, "-S", str(FAKE), "--port", str(boot.port.number)]
                foreign.append(subprocess.Popen(words))

        thread = threading.Thread(target=intrude)
        thread.start()
        try:
            boot.run()
            thread.join()
            assert boot.failure is not None
            assert boot.failure.kind == "foreign_port"
            assert f"(pid {foreign[0].pid})" in boot.failure.message
            assert boot.failure.instant == "start"
            assert boot.stop().requests == ()
            assert boot.stop().instants.keys() == {"start", "stopped"}
            assert boot.stop().stop.port_free is False
            assert foreign[0].poll() is None, "the foreign process was ended"
        finally:
            thread.join()
            for process in foreign:
                process.kill()
                process.wait()
        assert_nothing_left(boot)
