"""The end of a boot: its output, its leftovers, containers, and the loss of the supervisor."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_coldstart.boot import Boot
from pytest_coldstart.cell import Container
from pytest_coldstart.errors import HarnessFault
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord
from tests.conftest import FAKE, MakePlan, assert_nothing_left, eventually

Booted = Callable[..., BootRecord]
MakeBoot = Callable[[Plan], Boot]

pytestmark = pytest.mark.timeout(120)


class TestOutput:
    def test_endless_output_neither_blocks_the_boot_nor_fills_the_disk(self, booted: Booted) -> None:
        record = booted("endless_output", "--count", "200")
        assert record.outcome == "ok"
        assert record.log_bytes == 200 << 20
        assert record.log_path is not None
        assert os.path.getsize(record.log_path) < 34 << 20
        with open(record.log_path, "rb") as file:
            assert b"output over the limit was left out" in file.read()

    def test_bytes_that_are_no_text_long_lines_and_progress_bars(self, booted: Booted) -> None:
        record = booted("invalid_utf8")
        assert record.outcome == "ok"
        assert record.log_path is not None
        log = Path(record.log_path).read_bytes()
        assert b"\xff\xfe that are no text" in log
        assert log.count(b"y") >= 300_000
        assert b"] progress 99 %\n" in log
        assert b"] after the bar\n" in log
        assert b"\r" not in log

    def test_line_without_an_end_is_kept_and_its_bytes_are_counted_right(self, booted: Booted) -> None:
        record = booted("half_a_line")
        assert record.log_bytes == len("no newline")
        assert record.log_path is not None
        assert "no newline" in Path(record.log_path).read_text()

    def test_logs_of_good_boots_are_removed_on_request(self, booted: Booted, tmp_path: Path) -> None:
        assert booted(keep_logs="failed").log_path is None
        assert booted("exit_at_once", keep_logs="failed").log_path is not None
        assert len(list((tmp_path / "logs").glob("*.log"))) == 1


class TestStop:
    def test_escaped_child_is_swept_and_named(self, booted: Booted, tmp_path: Path) -> None:
        note = tmp_path / "child"
        record = booted("forks_escaping_child", "--note", str(note))
        assert record.outcome == "ok"
        child = int(note.read_text())
        assert eventually(lambda: not Path(f"/proc/{child}").exists())  # dead, and reaped by whoever inherits it
        assert [name for name in record.stop.leaked_processes if name.endswith(f"(pid {child})")]
        assert record.stop.forced is True

    def test_engine_that_ignores_sigterm_is_killed_after_its_grace(self, booted: Booted) -> None:
        record = booted("ignores_sigterm", options={"stop_grace": 0.5})
        assert record.outcome == "ok"
        assert record.stop.forced is True
        assert record.stop.exit_code == -signal.SIGKILL
        assert record.stop.duration is not None
        assert record.stop.duration >= 0.5

    def test_shared_memory_that_the_engine_held_is_removed_and_the_rest_reported(self, booted: Booted) -> None:
        name = f"coldstart-test-{os.getpid()}"
        left = Path(f"/dev/shm/{name}-left")
        try:
            record = booted("leaves_shm", "--name", name)
            assert sorted(path for path in record.stop.leaked_shm if name in path) == [
                f"/dev/shm/{name}-left",
                f"/dev/shm/{name}-mapped",
                f"/dev/shm/{name}-open",
            ]
            assert not Path(f"/dev/shm/{name}-open").exists()
            assert not Path(f"/dev/shm/{name}-mapped").exists()
            assert left.exists(), "a file whose maker cannot be proved was removed"
            assert record.stop.leaked_bytes is not None
            assert record.stop.leaked_bytes >= 4096 + 8192 + 12288
        finally:
            for kind in ("left", "mapped", "open"):
                Path(f"/dev/shm/{name}-{kind}").unlink(missing_ok=True)

    def test_shared_memory_from_before_the_boot_is_never_removed(self, booted: Booted, tmp_path: Path) -> None:
        """Weights in /dev/shm that the engine maps are the user's."""
        weights = Path(f"/dev/shm/coldstart-weights-{os.getpid()}")
        weights.write_bytes(b"w" * 4096)
        script = tmp_path / "opens.py"
        script.write_text(
            f"import runpy, sys\nkept = open({str(weights)!r}, 'rb')\nsys.argv[0] = {str(FAKE)!r}\n"
            f"runpy.run_path({str(FAKE)!r}, run_name='__main__')\n"
        )
        try:
            record = booted(command=(sys.executable, "-S", str(script), "--port", "{port}"))
            assert record.outcome == "ok"
            assert weights.read_bytes() == b"w" * 4096
            assert str(weights) not in record.stop.leaked_shm
        finally:
            weights.unlink(missing_ok=True)

    def test_shared_memory_that_another_process_holds_too_is_not_removed(
        self, make_plan: MakePlan, boots: MakeBoot
    ) -> None:
        name = f"coldstart-shared-{os.getpid()}"
        boot = boots(make_plan("leaves_shm", "--name", name))
        try:
            boot.run()
            with open(f"/dev/shm/{name}-open", "rb"):
                record = boot.stop()
                assert Path(f"/dev/shm/{name}-open").exists()
            assert not Path(f"/dev/shm/{name}-mapped").exists()
            assert f"/dev/shm/{name}-open" in record.stop.leaked_shm
        finally:
            for kind in ("left", "mapped", "open"):
                Path(f"/dev/shm/{name}-{kind}").unlink(missing_ok=True)

    def test_loss_of_the_supervisor_is_a_harness_fault_long_before_the_timeout(
        self, make_plan: MakePlan, boots: MakeBoot
    ) -> None:
        boot = boots(make_plan("hang_silent", boot_timeout=600.0, hang_timeout=600.0))

        def kill() -> None:
            if eventually(lambda: boot.tree is not None and boot.tree.start_time is not None, 30):
                assert boot.tree is not None
                os.kill(boot.tree.supervisor_pid, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        with pytest.raises(HarnessFault, match="supervisor"):
            boot.run()
        thread.join()
        assert_nothing_left(boot)


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Path]:
    """A command ``docker`` whose containers run in a daemon's process tree, as the real one's do.

    ``docker run`` asks the daemon for a server and stays in the foreground, deaf to SIGTERM;
    ``docker stop`` asks the daemon to end it and writes down that it was called.
    """
    client = tmp_path / "docker"
    client.write_text(
        "#!/bin/sh\n"
        f"cd {tmp_path}\n"
        'case "$1" in\n'
        '  run) trap "" TERM; echo "$@" >> calls; echo "$3" > wanted; while [ ! -e ended ]; do sleep 0.05; done ;;\n'
        '  stop) echo "$@" >> calls; touch unwanted; while [ ! -e ended ]; do sleep 0.05; done ;;\n'
        "esac\n"
    )
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
    ending = threading.Event()

    def daemon() -> None:
        server: subprocess.Popen[bytes] | None = None
        while not ending.is_set() and not (tmp_path / "unwanted").exists():
            wanted = tmp_path / "wanted"
            if server is None and wanted.exists() and (port := wanted.read_text().strip()):
                server = subprocess.Popen([sys.executable, "-S", str(FAKE), "--port", port])
            time.sleep(0.02)
        if server is not None:
            server.kill()
            server.wait()
        (tmp_path / "ended").touch()

    thread = threading.Thread(target=daemon)
    thread.start()
    yield client
    ending.set()
    thread.join()


class TestContainer:
    def test_stop_command_of_a_container_is_called_and_ends_the_server(
        self, booted: Booted, docker: Path, tmp_path: Path
    ) -> None:
        record = booted(
            command=(str(docker), "run", "-p", "{port}", "--name={name}"),
            container=Container(stop=(str(docker), "stop", "{name}"), port=8000),
        )
        assert record.outcome == "ok"
        name = f"coldstart-{record.boot_id}"
        calls = (tmp_path / "calls").read_text().splitlines()
        assert calls[0].startswith("run -p ")
        assert calls[0].endswith(f"--name={name}")
        assert calls[1:] == [f"stop {name}"]
        assert record.stop.port_free is True
        assert record.stop.exit_code == 0
