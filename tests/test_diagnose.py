"""The diagnosis of a hang, of processes that really hang."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_coldstart import probe
from pytest_coldstart.diagnose import MOST_LINES, WIDTH, diagnose
from pytest_coldstart.phases.classify import Classifier
from pytest_coldstart.phases.rules import ALL_RULES
from pytest_coldstart.phases.trace import Frame, ProcessTrace, Sample
from pytest_coldstart.probe.read import read_folder
from pytest_coldstart.process import Launch, Tree

SUPERVISOR = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
print(child.pid, flush=True)
child.wait()
"""


class Hung:
    """An engine that hangs under a supervisor. ``pid`` is its leader's."""

    def __init__(self, argv: list[str], folder: Path, env: dict[str, str] | None = None) -> None:
        self.supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", SUPERVISOR, *argv],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
        self.origin = time.monotonic()
        self.log = folder / "engine.log"
        assert self.supervisor.stdout
        self.pid = int(self.supervisor.stdout.readline())

    def told(
        self,
        until: str,
        traces: Callable[[], list[ProcessTrace]] = list,
        mask: Callable[[str], str] = str,
    ) -> list[str]:
        """The diagnosis once it holds *until*, a regular expression: the process needs a moment to get there."""
        deadline = time.monotonic() + 10
        while True:
            now = time.monotonic()
            lines = diagnose(self.supervisor.pid, self.pid, now, self.origin, traces(), self.log, phase_of, mask)
            if re.search(until, "\n".join(lines)):
                return list(lines)
            assert now < deadline, "\n".join(lines)
            time.sleep(0.05)

    def close(self) -> None:
        os.killpg(self.supervisor.pid, signal.SIGKILL)
        self.supervisor.communicate()


def phase_of(sample: Sample) -> tuple[str, str]:
    return ("load_weights", "shard") if any(frame.function == "load" for frame in sample.stack) else ("", "")


Start = Callable[..., Hung]


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Start]:
    started: list[Hung] = []

    def start(code: str, *args: object, env: dict[str, str] | None = None, flags: str = "-S") -> Hung:
        argv = [sys.executable, *([flags] if flags else []), "-c", code, *map(str, args)]
        started.append(Hung(argv, tmp_path, env))
        return started[-1]

    yield start
    for item in started:
        item.close()


def test_file_lock_that_another_process_holds(hung: Start, tmp_path: Path) -> None:
    path = tmp_path / "weights.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        engine = hung("import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX)", path)
        lines = engine.told("held by")
    name = Path("/proc/self/comm").read_text().strip()
    me = f"{name} (pid {os.getpid()}, not of this boot)"
    assert re.match(rf"phase unknown: \S+ \(pid {engine.pid}\) waits in flock on ", lines[0])
    assert lines[0].endswith(f" waits in flock on {path}, held by {me}")
    assert lines[1] == "no stack of it is known: started with -S: without site, sitecustomize is not run"
    assert lines[2] == "the log is empty"


def test_record_lock_of_fcntl(hung: Start, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        engine = hung("import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX)", path)
        lines = engine.told("held by")
    assert f"waits in fcntl on {path}, held by " in lines[0]
    assert f"(pid {os.getpid()}, not of this boot)" in lines[0]


def test_lock_whose_taker_ended_is_held_by_its_heir(hung: Start, tmp_path: Path) -> None:
    path = tmp_path / "inherited.lock"
    code = """
import fcntl, os, subprocess, sys, time
if not (taker := os.fork()):
    file = open(sys.argv[1])
    fcntl.flock(file, fcntl.LOCK_EX)
    subprocess.Popen(["sleep", "60"], pass_fds=[file.fileno()])
    os._exit(0)
os.waitpid(taker, 0)
fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX)
"""
    path.touch()
    # The heir has no parent in the tree any more, so it is not seen: without a name it is still said that one holds it.
    lines = hung(code, path).told("held by")
    assert lines[0].endswith(f"waits in flock on {path}, held by a process that is not seen")


def test_deadlock_of_two_processes(hung: Start, tmp_path: Path) -> None:
    code = """
import fcntl, os, sys
first, second = sys.argv[1:]
one, two = os.pipe(), os.pipe()
def take(mine, theirs, tell, hear):
    file = open(mine); fcntl.flock(file, fcntl.LOCK_EX)
    os.write(tell, b"x"); os.read(hear, 1)
    fcntl.flock(open(theirs), fcntl.LOCK_EX)
if os.fork():
    take(first, second, one[1], two[0])
else:
    take(second, first, two[1], one[0])
"""
    paths = [tmp_path / name for name in ("a.lock", "b.lock")]
    for path in paths:
        path.touch()
    engine = hung(code, *paths)
    lines = engine.told("(?s)flock.*flock")
    (circle,) = (line for line in lines if line.startswith("these wait for each other's locks: "))
    pids = re.findall(r"pid (\d+)", circle)
    assert len(pids) == 3
    assert pids[0] == pids[2]
    assert str(engine.pid) in pids


@pytest.mark.parametrize("wait", ["peer.recv(1)", "peer.settimeout(60); peer.recv(1)"])
def test_peer_that_never_answers(hung: Start, wait: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; peer = socket.create_connection(('127.0.0.1', {port})); {wait}"
        lines = hung(code).told("ESTABLISHED")
    assert re.search(rf"waits in (recvfrom|poll) on TCP to 127\.0\.0\.1:{port} \(ESTABLISHED\)$", lines[0])


def test_peer_that_never_accepts(hung: Start) -> None:
    """A listener's full queue lets connections hang as a firewall that drops packets does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        with socket.create_connection(address):
            lines = hung(f"import socket; socket.create_connection({address!r})").told("SYN_SENT")
    assert lines[0].endswith(f"waits in connect on TCP to 127.0.0.1:{address[1]} (SYN_SENT)")


def test_stopped_process_comes_before_the_one_that_waits_for_it(hung: Start) -> None:
    code = """
import multiprocessing, os, signal
def worker(pipe):
    os.kill(os.getpid(), signal.SIGSTOP)
context = multiprocessing.get_context("fork")
here, there = context.Pipe(duplex=False)
child = context.Process(target=worker, args=(there,))
child.start(); there.close()
here.recv()
"""
    engine = hung(code)
    lines = engine.told("is stopped")
    pid = re.search(r"pid (\d+)", lines[0])
    assert pid
    assert lines[0].endswith(f"(pid {pid[1]}) is stopped by a signal such as SIGSTOP (state T)")
    assert int(pid[1]) != engine.pid
    (leader,) = (line for line in lines if f"(pid {engine.pid}) waits" in line)
    assert re.search(rf"waits in read on a pipe whose other end \S+ \(pid {pid[1]}\) holds$", leader)


def test_sleep_of_a_child_whose_parent_waits_for_its_end(hung: Start) -> None:
    child = "import time; time.sleep(60)"
    engine = hung(f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {child!r}])")
    lines = engine.told(r"sleeps(?s:.*)for the end of")
    assert re.search(r"^phase unknown: \S+ \(pid \d+\) sleeps \(clock_nanosleep\)$", lines[0])
    pid = re.findall(r"pid (\d+)", lines[0])[0]
    assert re.search(rf"\(pid {engine.pid}\) waits for the end of \S+ \(pid {pid}\) \(wait4\)$", lines[-1])


def test_thread_on_which_the_main_thread_waits(hung: Start, tmp_path: Path) -> None:
    path = tmp_path / "thread.lock"
    code = """
import fcntl, sys, threading
thread = threading.Thread(target=lambda: fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX))
thread.start(); thread.join()
"""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = hung(code, path).told("another of its threads")
    assert "waits for a lock or a thread of its own (futex); another of its threads waits in flock on " in lines[0]


@pytest.mark.parametrize("way", ["select.select([b], [], [])", "p = select.poll(); p.register(b, 1); p.poll()",
                                 "p = select.epoll(); p.register(b, 1); p.poll()"])  # fmt: skip
def test_descriptors_of_a_wait_for_several(hung: Start, way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        lines = hung(f"import select, socket; b = socket.create_connection(('127.0.0.1', {port})); {way}").told(
            "to 127"
        )
    assert re.search(rf"waits in p?(select6?|poll|epoll_\S+) on TCP to 127\.0\.0\.1:{port} \(ESTABLISHED\)$", lines[0])


def test_server_that_idles_is_not_what_others_wait_on(hung: Start) -> None:
    code = """
import os, socket, time
if not os.fork():
    socket.create_server(("127.0.0.1", 0)).accept()
time.sleep(60)
"""
    engine = hung(code)
    time.sleep(0.3)
    lines = engine.told("sleeps")
    assert f"(pid {engine.pid}) sleeps" in lines[0]
    assert not any("accept" in line for line in lines)


def test_stack_of_the_probe_and_log_line_of_the_process(hung: Start, tmp_path: Path) -> None:
    out = tmp_path / "probe"
    out.mkdir()
    (tmp_path / "loader.py").write_text("import time\n\n\ndef load():\n    time.sleep(60)\n")
    env = probe.environment(out, "full", {"PYTHONPATH": str(tmp_path)})
    engine = hung("import loader; loader.load()", env=env, flags="")
    engine.log.write_text(
        f"[+   0.100] (Core pid={engine.pid}) reads with hf_secret\n[+   0.200] (Other pid=1) is well\n"
    )
    lines = engine.told("the same since", lambda: read_folder(out), lambda line: line.replace("hf_secret", "***"))
    assert re.match(
        r"load_weights \(shard\): \S+ \(pid \d+\) sleeps \(clock_nanosleep\); its stack is the same", lines[0]
    )
    found = re.search(r"since (\d+\.\d) s \(for (\d+\.\d) s\)$", lines[0])
    assert found
    assert float(found[2]) >= 1.0
    assert lines[1] == "its stack, innermost first: loader:load line 5 < __main__:<module>"
    age = re.match(
        rf"its last line of the log, (\d+\.\d) s old: '\(Core pid={engine.pid}\) reads with \*\*\*'$", lines[2]
    )
    assert age
    assert abs(float(age[1]) - (float(found[1]) + float(found[2]) - 0.1)) <= 0.2


def test_loop_that_polls_stands_still(hung: Start) -> None:
    """A lock of filelock is tried 20 times a second: the stack is elsewhere now and then."""
    engine = hung("import time; time.sleep(60)")
    poll = (Frame("vllm.loader", "load", "l.py"), Frame("filelock._api", "BaseFileLock.acquire", "a.py"))
    tried = (*poll, Frame("filelock._unix", "UnixFileLock._acquire", "u.py"))
    origin = engine.origin - 100
    engine.origin = origin
    samples = [Sample(origin + 6 + n / 20, 0, tried if n % 7 == 0 else poll, 300) for n in range(2, 1600)]
    early = [Sample(origin + n / 20, 0, (Frame("x", "y", "z"),), 1) for n in range(100)]
    last = samples[-1].when
    trace = ProcessTrace(engine.pid, 1, origin, origin, "full", samples=early + samples, last=time.monotonic() + 60)
    lines = engine.told("sleeps", lambda: [trace])
    assert "; its stack is the same since 6.1 s (for " in lines[0]
    assert last - origin > 80
    assert any(line.startswith("it polls a lock of filelock; lock files held: ") for line in lines)


def test_probe_that_fell_silent_is_said() -> None:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", SUPERVISOR, "sleep", "60"], stdout=subprocess.PIPE)
    try:
        assert child.stdout
        pid, now = int(child.stdout.readline()), time.monotonic() + 20  # as if that much time had passed
        sample = Sample(now - 20, 0, (Frame("torch._ops", "call", "o.py"),), 7)
        trace = ProcessTrace(pid, child.pid, now - 30, now - 30, "full", samples=[sample], last=now - 20)
        lines = diagnose(child.pid, pid, now, now - 30, [trace], Path("/nowhere/engine.log"), phase_of)
        os.kill(pid, signal.SIGKILL)
        child.wait()
        gone = diagnose(child.pid, pid, now, now - 30, [], Path("/nowhere/engine.log"), None)
    finally:
        child.kill()
        child.communicate()
    assert lines[0].endswith("; its samples end at 10.0 s (20.0 s ago)")
    assert gone == ("no process of the engine lives", "the log is empty")


def test_lines_are_few_and_short(hung: Start, tmp_path: Path) -> None:
    code = """
import os, time
for _ in range(20):
    if not os.fork():
        break
time.sleep(60)
"""
    engine = hung(code)
    engine.log.write_text(f"[+   0.100] {'x' * 2000}\n")
    lines = engine.told("more processes wait")
    assert len(lines) == MOST_LINES
    assert max(map(len, lines)) == WIDTH


def test_error_in_the_diagnosis_is_told_and_not_raised(hung: Start) -> None:
    engine = hung("import time; time.sleep(60)")

    def broken(sample: Sample) -> tuple[str, str]:
        raise RuntimeError("no rule")

    sample = Sample(engine.origin, 0, (Frame("x", "y", "z"),), 1)
    trace = ProcessTrace(engine.pid, 1, engine.origin, engine.origin, "full", samples=[sample], last=engine.origin)
    lines = diagnose(engine.supervisor.pid, engine.pid, time.monotonic(), 0.0, [trace], engine.log, broken)
    assert lines == ("no diagnosis: RuntimeError: no rule",)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_what_may_not_be_read_is_left_out(hung: Start) -> None:
    engine = hung("import time; time.sleep(60)")
    engine.told("sleeps")
    code = (
        "import os, sys, time; from pathlib import Path; from pytest_coldstart.diagnose import diagnose\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"print(*diagnose({engine.supervisor.pid}, {engine.pid}, time.monotonic(), 0.0, [], Path('/x'), None), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.match(rf"phase unknown: server \(pid {engine.pid}\) waits.* \(state S\)\n", done.stdout)


EXAMPLE = (Path(__file__).parent.parent / "docs" / "diagnosis.md").read_text()


def test_example_of_the_docs(tmp_path: Path) -> None:
    for name in ("engine.py", "kernels.py"):
        found = re.search(rf"```python\n(# {name}\n.*?)```", EXAMPLE, re.S)
        assert found
        (tmp_path / name).write_text(found[1])
    shown = re.search(r"```text\n(.*?)```", EXAMPLE, re.S)
    assert shown
    (tmp_path / "build.lock").touch()
    out = tmp_path / "probe"
    out.mkdir()
    env = {**os.environ, **probe.environment(out, "full", {})}
    classifier = Classifier(ALL_RULES)

    def phase(sample: Sample) -> tuple[str, str]:
        mark = classifier.mark(sample.stack, sample.importing)
        return mark.phase, mark.detail

    hold = (
        "import fcntl, time; f = open('build.lock'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold], cwd=tmp_path, stdout=subprocess.PIPE)
    assert holder.stdout
    holder.stdout.readline()
    log = tmp_path / "engine.log"
    tree = Tree(Launch((sys.executable, "engine.py"), env, tmp_path, log, "diagnosis"))
    try:
        tree.start()
        assert tree.start_time
        deadline = time.monotonic() + 15
        lines: tuple[str, ...] = ()
        while "the same since" not in "".join(lines):
            now = time.monotonic()
            assert now < deadline, lines
            lines = diagnose(tree.supervisor_pid, tree.pid, now, tree.start_time, read_folder(out), log, phase)
            time.sleep(0.1)
    finally:
        tree.stop()
        holder.kill()
        holder.communicate()
    told = "\n".join(lines).replace(str(tmp_path), "/srv/engine")
    assert _plain(told) == _plain(shown[1].rstrip("\n")), told


def _plain(text: str) -> str:
    """Without what differs from one run to the next: pids, seconds, how the interpreter is called."""
    text = re.sub(r"python[\d.]*(?= \(pid)", "python", text)
    text = re.sub(r"(multiprocessing\S+ line )\d+", r"\1N", text)
    return re.sub(r"(?<=pid[= ])\d+", "N", re.sub(r"\d+\.\d(?= s\b)", "N", text))


def test_log_may_count_from_another_moment_than_the_boot(tmp_path: Path) -> None:
    """An engine that was woken has written its log since before the boot."""
    log = tmp_path / "engine.log"
    log.write_text("[+  90.000] asleep\n")
    lines = diagnose(os.getpid(), None, 1100.0, 1095.0, [], log, None, log_origin=1000.0)
    assert "the last line of the log, 10.0 s old: 'asleep'" in lines
