"""What is lost, and what is not, where a process cannot write or is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.probe.running import ended, functions, main_samples, run_program, start

pytestmark = pytest.mark.timeout(60)

#: Seconds of the end that a killed process may lose: a write each 0.25 s, and a sampler that has to be let run.
LOST = 0.3


SUDDEN = (
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ("import os; os._exit(5)", 5),
    ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
)


@pytest.fixture(scope="module", autouse=True)
def sudden(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[subprocess.Popen[bytes], Path]]:
    """They run while other tests do."""
    # Old enough that not every sample is written at once.
    text = "import time\nfor _ in range(120): time.sleep(0.01)\nprint(time.monotonic(), flush=True)\n"
    folders = [tmp_path_factory.mktemp("sudden") for _ in SUDDEN]
    return [(start(["-c", text + how], folder), folder) for (how, _), folder in zip(SUDDEN, folders, strict=True)]


@pytest.mark.parametrize("place", ["nowhere", "file/below"])
def test_no_folder_no_trace_and_no_difference(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended_program = "import time\ntime.sleep(0.2)\nprint('on')\nraise SystemExit(3)\n"
    ran = ended(start(["-c", ended_program], tmp_path / place), tmp_path / place)
    assert (ran.code, ran.out, ran.err) == (3, b"on\n", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_full_disk_loses_what_it_loses_and_says_so(tmp_path: Path) -> None:
    text = """
import time, os, resource, sys
def before(): time.sleep(0.3)
def meanwhile(): time.sleep(0.7)
def after(): time.sleep(0.3)
before()
out = os.environ["COLDSTART_PROBE_OUT"]
size = max(os.path.getsize(os.path.join(out, name)) for name in os.listdir(out))
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
meanwhile()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
after()
print("on")
"""
    ran = run_program(text, tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, b"on\n", b"")
    trace = ran.trace
    seen = {name for sample in main_samples(trace) for name in functions(sample)}
    assert {"before", "after"} <= seen
    # The write that was due when there was space again had the last moments before that.
    times = [sample.when for sample in main_samples(trace)]
    assert max(after - before for before, after in pairwise(times)) >= 0.3
    count, _, words = trace.lost.partition(" ")
    assert int(count) >= 3
    assert words == "of its records could not be written: File too large"
    # Every sample whose frames were defined in lost records has them all the same.
    assert all(functions(sample)[0] == "<module>" for sample in main_samples(trace)[2:])
    assert [sample.when for sample in trace.samples] == sorted(sample.when for sample in trace.samples)


def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    text = """
import time, resource
time.sleep(0.3)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
def after(): time.sleep(0.3)
after()
"""
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "program.py").write_text(text)
    words = ("-c", f"ulimit -S -f 0; exec {sys.executable} program.py")
    ran = ended(start(words, folder, python="/bin/sh"), folder)
    assert (ran.code, ran.out, ran.err) == (0, b"", b"")
    trace = ran.trace
    assert trace.lost.endswith("of its records could not be written: File too large")
    assert trace.python is not None
    # The instants are those at which it was, not those at which it could be written.
    assert trace.started <= trace.python <= trace.stamps["main"] <= main_samples(trace)[-1].when - 0.3
    assert "after" in functions(main_samples(trace)[-1])


def test_a_process_that_ends_at_once_has_been_there(tmp_path: Path) -> None:
    ran = run_program("import os; os._exit(0)", tmp_path)
    assert ran.trace.stamps["python"] >= ran.trace.started


def test_forks_without_exec_have_files_of_their_own(tmp_path: Path) -> None:
    text = """
import time, os
def parent(): time.sleep(0.2)
def child(): time.sleep(0.3)
def grandchild(): time.sleep(0.3)
parent()
if os.fork() == 0:
    if os.fork() == 0:
        grandchild()
        os._exit(0)
    child()
    os.wait()
    os._exit(0)
os.wait()
print("on")
"""
    ran = run_program(text, tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, b"on\n", b"")
    traces = {
        name: trace
        for name in ("parent", "child", "grandchild")
        for trace in ran.traces
        if any(name in functions(sample) for sample in main_samples(trace))
    }
    assert len({trace.pid for trace in traces.values()}) == 3
    assert traces["child"].parent == traces["parent"].pid
    assert traces["grandchild"].parent == traces["child"].pid
    assert [traces[name].forked for name in traces] == [False, True, True]
    # The interpreter of a fork is there from its start.
    assert traces["child"].python == traces["child"].started > traces["parent"].started


def test_a_program_that_closes_all_descriptors_finds_nothing_of_ours_in_its_files(tmp_path: Path) -> None:
    text = """
import time, os
time.sleep(0.2)
os.closerange(3, 100)
files = [open(f"own-{index}", "w") for index in range(8)]
time.sleep(0.4)
for file in files:
    file.write("its own")
time.sleep(0.2)
"""
    ran = run_program(text, tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, b"", b"")
    assert [(tmp_path / f"own-{index}").read_text() for index in range(8)] == ["its own"] * 8
    trace = ran.trace
    assert main_samples(trace)[-1].when - main_samples(trace)[0].when > 0.5


def test_a_fork_while_threads_run_goes_on_in_both(tmp_path: Path) -> None:
    text = """
import time, os, threading, warnings
warnings.simplefilter("ignore")
def forks():
    for _ in range(10):
        if os.fork() == 0:
            os._exit(0)
threads = [threading.Thread(target=forks) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for _ in range(40): os.wait()
def afterwards(): time.sleep(0.3)
afterwards()
samplers = len(os.listdir("/proc/self/task")) - threading.active_count()
print(samplers)
"""
    ran = run_program(text, tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, b"1\n", b"")
    parent = ran.traces[0]
    assert len([sample for sample in main_samples(parent) if "afterwards" in functions(sample)]) >= 3


def test_a_sampler_that_fails_says_so_and_the_program_goes_on(tmp_path: Path) -> None:
    text = "import sys, time\ntime.sleep(0.15)\nkept, sys.modules = sys.modules, None\ntime.sleep(0.15)\nsys.modules = kept\nprint('on')\n"
    ran = run_program(text, tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, b"on\n", b"")
    assert ran.trace.lost.startswith("it was sampled no more: TypeError: ")


def test_a_sudden_end_leaves_all_but_the_last_moments(sudden: list[tuple[subprocess.Popen[bytes], Path]]) -> None:
    for (process, folder), (_, code) in zip(sudden, SUDDEN, strict=True):
        ran = ended(process, folder)
        assert (ran.code, ran.err) == (code, b"")
        last = main_samples(ran.trace)[-1].when
        assert float(ran.out) - last <= LOST + 0.2  # what a loaded host takes to let a thread run
        assert ran.trace.lost == ""
        assert len(main_samples(ran.trace)) >= 10
