"""What the probe writes of real interpreters."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart import probe
from pytest_coldstart.phases.trace import ProcessTrace
from tests.probe.running import (
    BUSY,
    VERSIONS,
    Ran,
    ended,
    environment,
    functions,
    interpreter,
    main_samples,
    run,
    run_program,
    start,
    within,
)

pytestmark = pytest.mark.timeout(120)

#: Each step tells when it began and ended, by the clock that the probe uses.
ALL_STEPS = (
    BUSY
    + """
import ctypes, json, sys, threading
times = {}
def step(name, work):
    begin = time.monotonic()
    work()
    times[name] = begin, time.monotonic()
def imports(): import burner.inner
def first_torch(): import torch; busy(0.2)
def held_in_c(): ctypes.PyDLL(None).usleep(500_000)
def spun(): busy(0.5)
def threads():
    stop = threading.Event()
    idle = threading.Thread(target=stop.wait, name="idle")
    works = threading.Thread(target=spun)
    idle.start(); works.start()
    times["idle"], times["works"] = idle.ident, works.ident
    works.join(); time.sleep(0.15); stop.set(); idle.join(); time.sleep(0.15)
step("loop", lambda: busy(1.0))
step("imports", imports)
step("torch", first_torch)
step("held", held_in_c)
step("threads", threads)
print(json.dumps(times))
"""
)


#: The trace, when each step began and ended, and when it all began.
Steps = tuple[ProcessTrace, dict[str, Any], float]


@pytest.fixture(scope="module")
def all_steps(tmp_path_factory: pytest.TempPathFactory) -> Steps:
    home = tmp_path_factory.mktemp("steps")
    (home / "burner").mkdir()
    (home / "burner" / "__init__.py").write_text("")
    (home / "burner" / "inner.py").write_text(BUSY + "busy(0.5)\n")
    (home / "torch.py").write_text("")
    before = time.monotonic()
    ran = run_program(ALL_STEPS, home)
    assert (ran.code, ran.err) == (0, b"")
    return ran.trace, json.loads(ran.out), before


class TestOneProcess:
    def test_stamps_come_in_order(self, all_steps: Steps) -> None:
        trace, times, before = all_steps
        assert trace.python is not None
        # The start is a tick of the kernel's clock.
        assert before - 0.02 <= trace.started <= trace.python <= trace.stamps["main"] <= times["loop"][1]
        assert trace.parent == os.getpid()
        assert trace.stamps["python"] == trace.python
        assert not trace.forked

    def test_first_import_of_torch_is_seen_soon(self, all_steps: Steps) -> None:
        trace, times, _ = all_steps
        assert times["torch"][0] <= trace.stamps["torch"] <= times["torch"][1]
        assert "cuda" not in trace.stamps

    def test_a_busy_loop_is_sampled_about_20_times_a_second(self, all_steps: Steps) -> None:
        trace, times, _ = all_steps
        samples = list(within(trace, *times["loop"]))
        assert 3 <= len(samples) <= 30
        for sample in samples[1:-1]:
            assert functions(sample)[0] == "<module>"
            assert functions(sample)[-1] == "busy"
            assert sample.stack[-1].module == "__main__"

    def test_import_time_belongs_to_the_package(self, all_steps: Steps) -> None:
        trace, times, _ = all_steps
        begin, end = times["imports"]
        samples = list(within(trace, begin, end))
        inner = [sample for sample in samples if sample.importing == "burner.inner"]
        assert len(inner) >= 3
        assert len(inner) >= len(samples) - 2
        assert inner[-1].when - inner[0].when >= 0.5 * 0.5
        assert inner[1].stack[-1].module == "burner.inner"

    def test_a_call_that_held_the_gil_is_a_gap_before_a_sample_in_its_frame(self, all_steps: Steps) -> None:
        trace, times, _ = all_steps
        begin, end = times["held"]
        gaps = [
            (a, b)
            for a, b in pairwise(main_samples(trace))
            if b.when > begin and a.when < end and b.when - a.when > 0.4
        ]
        assert len(gaps) == 1
        before, after = gaps[0]
        assert before.when <= begin + 0.1
        assert after.when >= end - 0.1
        assert "held_in_c" in functions(after)

    def test_other_threads_are_written_when_they_move(self, all_steps: Steps) -> None:
        trace, times, _ = all_steps
        of = {name: [sample for sample in trace.samples if sample.thread == times[name]] for name in ("works", "idle")}
        spun = [sample for sample in of["works"] if "spun" in functions(sample)]
        # A loop is always met at its jump back: it holds from its first sample until the thread's end.
        assert of["works"][-1].stack == ()
        assert of["works"][-1].when - spun[0].when >= 0.3
        # It may have been seen once on its way into the wait.
        waits = [sample for sample in of["idle"] if sample.stack]
        assert 1 <= len(waits) <= 2
        assert "wait" in functions(waits[-1])
        assert of["idle"][-1].stack == ()

    def test_it_says_what_it_costs(self, all_steps: Steps) -> None:
        trace, _, _ = all_steps
        assert trace.probe_cpu is not None
        assert 0 < trace.probe_cpu < 1.0
        assert trace.modules is not None
        assert trace.modules > 20
        assert trace.lost == ""


def test_a_thread_that_waits_in_one_place_for_two_callers_is_told_apart(tmp_path: Path) -> None:
    text = """
import threading, time
gate = threading.Semaphore(0)
def one(): gate.acquire()
def other(): gate.acquire()
def both(): one(); other()
thread = threading.Thread(target=both)
thread.start()
for _ in range(2):
    time.sleep(0.25)
    gate.release()
thread.join()
"""
    samples = [sample for sample in run_program(text, tmp_path).trace.samples if sample.thread]
    callers = [name for sample in samples for name in functions(sample) if name in ("one", "other")]
    assert callers == ["one", "other"]


def test_marks_have_stamps_and_no_samples(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    trace = run_program(BUSY + "busy(0.1)\nimport torch\nbusy(0.2)\n", tmp_path, mode="marks").trace
    assert trace.mode == "marks"
    assert trace.samples == []
    assert set(trace.stamps) == {"python", "main", "torch"}


def test_threads_without_a_gil_are_not_looked_into(tmp_path: Path) -> None:
    # Where no free-threaded build is found, below, at least what one says of itself.
    text = f"import sys, time; sys._is_gil_enabled = lambda: False; sys.path.insert(0, {str(probe.INSIDE)!r})\n"
    trace = run(
        ["-I", "-c", text + "import coldstart_probe; coldstart_probe.plugin(); time.sleep(0.2)"], tmp_path
    ).trace
    assert (trace.mode, trace.samples) == ("marks", [])
    assert "plugin" in trace.stamps


def test_without_its_variable_nothing_is_started(tmp_path: Path) -> None:
    env = environment(tmp_path / "out")
    del env["COLDSTART_PROBE_OUT"]
    text = "import os, coldstart_probe as c; print(len(os.listdir('/proc/self/task')), c._probe)"
    ran = ended(start(["-c", text], tmp_path / "out", "off", PYTHONPATH=env["PYTHONPATH"]), tmp_path / "out")
    assert ran.out == b"1 None\n"
    assert not (tmp_path / "out").exists()


def test_what_changes_is_written_and_done_ends_the_sampling(tmp_path: Path) -> None:
    text = """
import multiprocessing, os, time
os.environ["TRITON_CACHE_DIR"] = "/caches\\ttriton"
multiprocessing.current_process().name = "EngineCore"
print("begun", flush=True)
input()
time.sleep(1.7)
"""
    folder = tmp_path / "out"
    folder.mkdir()
    process = start(["-c", text], folder)
    assert process.stdout is not None
    process.stdout.readline()
    probe.finish(folder)
    at = time.monotonic()
    trace = ended(process, folder, b"\n").trace
    assert 0 < len(main_samples(trace))
    assert main_samples(trace)[-1].when - at < 1.5
    assert trace.last - at > 1.5, "the process itself is still seen"
    assert trace.lost == ""
    assert trace.names[-1][1] == "EngineCore"
    assert trace.cache_paths == {"TRITON_CACHE_DIR": "/caches\ttriton"}


def test_of_the_command_only_the_program_is_written(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("")
    ran = run(["-X", "utf8", "program.py", "--api-key", "geheim"], tmp_path)
    assert ran.trace.argv[1:] == ("-X", "utf8", "program.py")
    assert b"geheim" not in b"".join(file.read_bytes() for file in ran.folder.iterdir())
    ran = run(["-um", "timeit", "-n1", "geheim=1"], tmp_path / "module")
    assert ran.trace.argv[1:] == ("-um", "timeit")
    ran = run(["-c", "token = 'geheim'"], tmp_path / "code")
    assert ran.trace.argv[1:] == ("-c", "...")
    assert b"geheim" not in b"".join(file.read_bytes() for file in ran.folder.iterdir())
    code = "from multiprocessing.resource_tracker import main; print(main)"
    assert run(["-c", code], tmp_path / "helper").trace.argv[1:] == ("-c", code)


def test_a_lazy_module_is_not_loaded_by_looking_at_it(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    (tmp_path / "torch" / "cuda.py").write_text("print('loaded')\n")
    text = """
import importlib.util, sys, time, torch
spec = importlib.util.find_spec("torch.cuda")
spec.loader = importlib.util.LazyLoader(spec.loader)
module = sys.modules["torch.cuda"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
time.sleep(0.3)
"""
    ran = run_program(text, tmp_path)
    assert (ran.out, ran.err) == (b"", b"")
    assert "torch" in ran.trace.stamps


EVERY_VERSION = """
import ctypes, multiprocessing, os, sys, time, warnings
warnings.simplefilter("error")
def held_in_c(): ctypes.PyDLL(None).usleep(300_000)
def child():
    out, begin = os.environ.get("COLDSTART_PROBE_OUT"), time.monotonic()
    # A loaded host may take its time until it runs a new thread.
    while out and time.monotonic() < begin + 10 and not any(n.startswith("%d-" % os.getpid()) for n in os.listdir(out)):
        time.sleep(0.01)
    time.sleep(0.1)
if __name__ == "__main__":
    import slow_package
    held_in_c()
    time.sleep(0.1)
    if os.fork() == 0:
        child()
        os._exit(0)
    os.wait()
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    print("done", multiprocessing.active_children())
"""


@pytest.fixture(scope="module")
def of_versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[tuple[Ran, Ran]] | None]]:
    """The same program in every interpreter, without and with the probe; most of its time it waits."""

    def one(python: str, home: Path) -> tuple[Ran, Ran]:
        (home / "slow_package.py").write_text("import time\nfor _ in range(30): time.sleep(0.01)\n")
        (home / "program.py").write_text(EVERY_VERSION)
        folder = home / "out"
        folder.mkdir()
        bare, full = (start(["program.py"], folder, mode, python) for mode in ("off", "full"))
        return ended(bare, folder), ended(full, folder)

    with ThreadPoolExecutor(3) as pool:
        yield {
            version: pool.submit(one, python, tmp_path_factory.mktemp("v"))
            if (python := interpreter(version))
            else None
            for version in VERSIONS
        }


@pytest.mark.parametrize("version", VERSIONS)
def test_every_interpreter(version: str, of_versions: dict[str, Future[tuple[Ran, Ran]] | None]) -> None:
    future = of_versions[version]
    if future is None:
        pytest.skip(f"no python{version} on PATH or in ~/.pyenv/versions; 'pyenv install {version}' puts one there")
    bare, ran = future.result()
    assert (ran.code, ran.out, ran.err) == (bare.code, bare.out, bare.err) == (0, b"done []\n", b"")
    first, *forked = ran.traces
    assert [trace.forked for trace in forked] == [True, True]
    assert all(trace.parent == first.pid for trace in forked)
    assert {"python", "main"} <= set(first.stamps)
    if version.endswith("t"):
        assert first.mode == "marks"
        assert first.samples == []
        return
    assert len([sample for sample in first.samples if sample.importing == "slow_package"]) >= 2
    pairs = [(a, b) for a, b in pairwise(main_samples(first)) if "held_in_c" in functions(b)]
    assert any(b.when - a.when > 0.2 for a, b in pairs)
    for trace in forked:
        assert any("child" in functions(sample) for sample in main_samples(trace))
