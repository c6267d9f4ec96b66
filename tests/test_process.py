"""A supervised process tree: the exact start, what the engine inherits, and the supervisor's death."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.locks import HostLock
from pytest_coldstart.process import Launch, SupervisorLost, Tree, exit_words, kill_tagged, read_log_tail
from tests.conftest import carriers, eventually

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("covered_children")]

MakeTree = Callable[..., Tree]

#: Writes what it inherited to the file that its argument names; its first act is to look at the clock.
LOOK = """
import time
began = time.monotonic()
import json, os, sys
files = {}
for name in os.listdir("/proc/self/fd"):
    try:
        files[name] = os.readlink("/proc/self/fd/" + name)
    except OSError:
        pass
found = {"began": began, "pid": os.getpid(), "session": os.getsid(0), "group": os.getpgid(0), "files": files,
         "environment": dict(os.environ), "cwd": os.getcwd(), "parent": os.getppid()}
with open(sys.argv[1] + ".part", "w") as file:
    json.dump(found, file)
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(1000)
"""


@pytest.fixture
def make_tree(tmp_path: Path) -> Iterator[MakeTree]:
    trees: list[Tree] = []

    def make(*argv: str, hold: tuple[int, ...] = (), **fields: Any) -> Tree:
        settings: dict[str, Any] = {"env": dict(os.environ), "cwd": tmp_path, "log": tmp_path / "log", "grace": 5.0}
        tree = Tree(Launch(argv, **{**settings, "boot_id": secrets.token_hex(8), **fields}), hold)
        trees.append(tree)
        return tree

    yield make
    for tree in trees:
        if tree.ended is None:
            tree.kill()


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code, *arguments)


def looked(tree: Tree, note: Path) -> dict[str, Any]:
    tree.start()
    assert eventually(note.exists, 30)
    return dict(json.loads(note.read_text()))


def tag(tree: Tree) -> str:
    return f"PYTEST_COLDSTART_BOOT={tree.launch.boot_id}"


class TestStart:
    def test_start_is_before_the_first_act_of_the_engine_and_after_the_call(
        self, make_tree: MakeTree, tmp_path: Path
    ) -> None:
        tree = make_tree(*python(LOOK, str(tmp_path / "note")))
        assert tree.start_time is None
        called = time.monotonic()
        found = looked(tree, tmp_path / "note")
        assert tree.start_time is not None
        assert called <= tree.start_time <= found["began"]
        assert tree.pid == found["pid"]
        assert found["parent"] == tree.supervisor_pid

    def test_engine_has_a_session_of_its_own_and_carries_the_tag(self, make_tree: MakeTree, tmp_path: Path) -> None:
        tree = make_tree(*python(LOOK, str(tmp_path / "note")), env={**os.environ, "OURS": "1"})
        found = looked(tree, tmp_path / "note")
        assert found["session"] == found["group"] == found["pid"]
        assert found["session"] != os.getsid(0)
        assert found["environment"]["PYTEST_COLDSTART_BOOT"] == tree.launch.boot_id
        assert found["environment"]["OURS"] == "1"
        assert found["cwd"] == str(tmp_path)
        assert carriers(tag(tree)) == [found["pid"]]

    def test_engine_inherits_no_descriptor_and_reads_nothing(self, make_tree: MakeTree, tmp_path: Path) -> None:
        lock = HostLock(f"test-{secrets.token_hex(4)}")
        assert lock.try_acquire()
        with open(tmp_path / "secret", "w") as ours:
            os.set_inheritable(ours.fileno(), True)
            tree = make_tree(*python(LOOK, str(tmp_path / "note")), hold=(lock.fileno(),))
            files = looked(tree, tmp_path / "note")["files"]
        lock.remove()
        assert files["0"] == "/dev/null"
        assert files["1"] == files["2"]
        assert files["1"].startswith("pipe:")
        # The listing itself is open while it is made, and is gone when it is read.
        assert {name for name, target in files.items() if not target.startswith("/proc/")} == {"0", "1", "2"}

    def test_supervisor_keeps_a_lock_until_the_tree_is_gone(self, make_tree: MakeTree, tmp_path: Path) -> None:
        name = f"test-{secrets.token_hex(4)}"
        lock, other = HostLock(name), HostLock(name)
        assert lock.try_acquire()
        tree = make_tree(*python("import time; time.sleep(1000)"), hold=(lock.fileno(),))
        tree.start()
        lock.release()
        assert not other.try_acquire()
        tree.stop()
        assert other.try_acquire()
        other.remove()

    def test_failed_exec_has_the_error_number(self, make_tree: MakeTree) -> None:
        tree = make_tree("/nowhere/engine")
        tree.start()
        assert tree.exec_errno == 2
        assert tree.pid is None
        assert tree.stop().code is None


class TestEnd:
    @pytest.mark.parametrize(("act", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9)])
    def test_exit_is_told_without_asking(self, make_tree: MakeTree, act: str, code: int) -> None:
        tree = make_tree(*python(f"import os, sys; print('last words', flush=True); {act}"))
        tree.start()
        assert eventually(lambda: tree.exit_code is not None)
        assert tree.exit_code == code
        ended = tree.stop()
        assert (ended.code, ended.forced, ended.leaked) == (code, False, ())
        assert ended.log_bytes == len("last words\n")
        assert read_log_tail(tree.launch.log).endswith("] last words")

    def test_stop_tells_its_times_and_a_second_stop_the_same(self, make_tree: MakeTree) -> None:
        tree = make_tree(*python("import time; time.sleep(1000)"))
        tree.start()
        before = time.monotonic()
        ended = tree.stop()
        assert before <= ended.begin <= ended.end <= time.monotonic()
        assert ended.code == -signal.SIGTERM
        assert tree.stop() is ended

    def test_child_that_outlives_the_leader_is_swept_and_named(self, make_tree: MakeTree) -> None:
        code = "import os, time\nif os.fork() == 0: time.sleep(1000)\n"
        tree = make_tree(*python(code))
        tree.start()
        assert eventually(lambda: tree.exit_code is not None)
        (child,) = carriers(tag(tree))
        assert [name.partition(" (pid ")[2] for name in tree.stop().leaked] == [f"{child})"]
        assert carriers(tag(tree)) == []

    def test_child_that_escapes_and_drops_the_tag_is_swept_too(self, make_tree: MakeTree, tmp_path: Path) -> None:
        code = (
            "import os, sys, time\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    if os.fork(): os._exit(0)\n"
            "    open(sys.argv[1], 'w').write(str(os.getpid()))\n"
            "    os.closerange(0, 3)\n"
            "    os.execve('/bin/sleep', ['sleep', '1000'], {})\n"
            "os.wait(); time.sleep(1000)\n"
        )
        tree = make_tree(*python(code, str(tmp_path / "note")))
        tree.start()
        assert eventually(lambda: (tmp_path / "note").exists() and (tmp_path / "note").read_text())
        child = int((tmp_path / "note").read_text())
        assert eventually(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")
        assert carriers(tag(tree)) == [tree.pid]
        assert tree.stop().leaked == (f"sleep (pid {child})",)
        assert eventually(lambda: not Path(f"/proc/{child}").exists())  # dead, and reaped by whoever inherits it

    def test_supervisor_reaps_orphans(self, make_tree: MakeTree) -> None:
        """Otherwise an engine that leaves a thousand orphans would fill the process table."""
        code = "import os, time\nfor _ in range(50):\n    if os.fork() == 0:\n        os.fork(); os._exit(0)\nprint('made', flush=True)\ntime.sleep(1000)"
        tree = make_tree(*python(code))
        tree.start()

        def orphans() -> int:
            children = Path(f"/proc/{tree.supervisor_pid}/task/{tree.supervisor_pid}/children").read_text()
            return len(children.split()) - 1

        assert eventually(lambda: tree.last_line == "made")
        assert eventually(lambda: orphans() == 0)
        tree.stop()

    def test_death_of_the_supervisor_kills_the_leader_and_stop_sweeps_the_rest(
        self, make_tree: MakeTree, tmp_path: Path
    ) -> None:
        code = (
            "import os, sys, time\n"
            "if os.fork() == 0:\n    os.setsid()\n    open(sys.argv[1], 'w').close()\n"
            "time.sleep(1000)\n"
        )
        tree = make_tree(*python(code, str(tmp_path / "note")))
        tree.start()
        assert eventually((tmp_path / "note").exists)
        leader = tree.pid
        assert leader in carriers(tag(tree))
        os.kill(tree.supervisor_pid, signal.SIGKILL)
        assert eventually(lambda: leader not in carriers(tag(tree)))
        assert eventually(lambda: tree.lost)
        assert len(carriers(tag(tree))) == 1
        with pytest.raises(SupervisorLost):
            tree.stop()
        assert carriers(tag(tree)) == []

    def test_kill_tagged_ends_those_and_no_others(self, make_tree: MakeTree) -> None:
        first, second = make_tree(*python("import time; time.sleep(1000)")), make_tree("sleep", "1000")
        first.start()
        second.start()
        pids = carriers(tag(first))
        assert kill_tagged(tag(first)) == pids
        assert second.pid is not None
        assert carriers(tag(second)) == [second.pid]


class TestLog:
    def test_log_is_bounded_and_keeps_its_end(self, make_tree: MakeTree, tmp_path: Path) -> None:
        code = "for index in range(20000): print('line', index)\nprint('the end')"
        tree = make_tree(*python(code), log_limit=50_000)
        tree.start()
        assert eventually(lambda: tree.exit_code == 0)
        tree.stop()
        log = (tmp_path / "log").read_text()
        assert len(log) < 50_000 + 64 * 1024 + 200
        assert "] line 0\n" in log
        assert log.endswith("] the end\n")

    def test_first_output_that_is_over_the_limit_at_once_keeps_its_beginning(self, tmp_path: Path) -> None:
        from pytest_coldstart.supervisor import Log

        log = Log(str(tmp_path / "log"), 100)
        log.feed(b"".join(b"line %d\n" % index for index in range(10_000)))
        log.close()
        lines = (tmp_path / "log").read_text().splitlines()
        assert [line[13:] for line in lines[:5]] == [f"line {index}" for index in range(5)]  # 20 bytes each
        assert lines[5] == "[output over the limit was left out here]"
        assert lines[-1].endswith("] line 9999")

    def test_lines_have_the_offset_at_which_they_were_printed(self, make_tree: MakeTree, tmp_path: Path) -> None:
        code = "import time; time.sleep(0.5); print('first', flush=True); time.sleep(0.5); print('second')"
        tree = make_tree(*python(code))
        tree.start()
        assert eventually(lambda: tree.exit_code == 0)
        tree.stop()
        lines = (tmp_path / "log").read_text().splitlines()
        offsets = [float(line[2:11]) for line in lines]
        assert [line[13:] for line in lines] == ["first", "second"]
        assert offsets[0] >= 0.5
        assert offsets[1] >= 1.0

    def test_log_that_is_not_there_is_empty(self, tmp_path: Path) -> None:
        assert read_log_tail(tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("code", "words"), [(0, "exit code 0"), (3, "exit code 3"), (-9, "signal SIGKILL"), (-99, "signal 99")]
)
def test_exit_words(code: int, words: str) -> None:
    assert exit_words(code) == words
