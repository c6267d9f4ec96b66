"""The allocator's statistics on demand: a stand-in for torch in real processes, and files written by hand."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pytest_coldstart import probe
from pytest_coldstart.memory import Allocator
from pytest_coldstart.probe.read import read_allocators, read_file
from tests.probe.running import run_program, start

pytestmark = pytest.mark.timeout(60)

#: As much of torch as the probe asks for; peaks fall to what is current when they are reset.
TORCH = """
import sys, types
class _C:
    active, reset = {"current": 700, "peak": 900}, []
    def _cuda_getDeviceCount(): return DEVICES
    def _cuda_isInBadFork(): return FORKED
    def _cuda_memoryStats(device):
        if device == 1: return {"reserved_bytes": {"all": {"current": 0, "peak": 0, "allocated": 0}}}
        def of(current, peak): return {"all": {"current": current, "peak": peak}}
        return {
            "allocated_bytes": of(650, 850), "reserved_bytes": of(1000, 1200), "active_bytes": {"all": dict(_C.active)},
            "inactive_split_bytes": of(50, 60), "requested_bytes": of(600, 800), "segment": of(3, 4), "num_alloc_retries": 2,
        }
    def _cuda_resetPeakMemoryStats(device): _C.active["peak"] = _C.active["current"]; _C.reset.append(device)
    SNAPSHOT
DEVICES, FORKED = 2, False
cuda = sys.modules["torch.cuda"] = types.ModuleType("torch.cuda")
cuda._initialized = True
"""
SEGMENTS = """
        return {"segments": [
            {"device": 0, "total_size": 600, "segment_pool_id": (0, 0), "is_expandable": False},
            {"device": 0, "total_size": 300, "segment_pool_id": (0, 1), "is_expandable": True},
            {"device": 0, "total_size": 100, "segment_pool_id": (1, 0), "is_expandable": False},
        ]}
"""
#: torch before and since its snapshot takes a pool, and one that cannot tell.
SNAPSHOTS = {
    "new": "def _cuda_memorySnapshot(pool):" + SEGMENTS,
    "old": "def _cuda_memorySnapshot():" + SEGMENTS,
    "none": "",
}
#: It ends when it is told to, and prints on which devices peaks were reset.
PROGRAM = """
import os, sys, torch, torch.cuda
print("up", flush=True)
for line in sys.stdin:
    exec(line)
print(torch._C.reset)
"""

#: Name -> mode of the probe, torch's snapshot, and what comes before the program.
PROCESSES = {
    "full": ("full", "new", ""),
    "marks": ("marks", "old", ""),
    "untold": ("marks", "none", ""),
    "sleep mode": ("marks", "new", "import sys; sys.modules['vllm.device_allocator.cumem'] = sys\n"),
    "broken": ("marks", "new", ""),
    "fork": ("marks", "new", ""),
    "killed": ("marks", "new", ""),
}
POINTS = ("ready", "held", "after")

Process = subprocess.Popen[bytes]


@dataclass
class Boot:
    """Processes that used CUDA memory, were asked at each point, and run still; what was said of them."""

    folder: Path
    processes: dict[str, Process]
    missing: list[list[str]] = field(default_factory=list)

    def readings(self, name: str) -> list[Allocator]:
        return [item for item in read_allocators(self.folder)[0] if item.pid == self.processes[name].pid]

    def reasons(self, name: str) -> list[str]:
        return [why for why in read_allocators(self.folder)[1] if f"process {self.processes[name].pid} " in why]


@pytest.fixture(scope="module")
def boot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boot]:
    home = tmp_path_factory.mktemp("boot")
    boot = Boot(home / "out", {})
    boot.folder.mkdir()
    try:
        for name, (mode, snapshot, before) in PROCESSES.items():
            (home / snapshot).mkdir(exist_ok=True)
            (home / snapshot / "torch.py").write_text(TORCH.replace("SNAPSHOT", SNAPSHOTS[snapshot]))
            text = f"import sys; sys.path.insert(0, {str(home / snapshot)!r})\n{before}{PROGRAM}"
            boot.processes[name] = start(["-c", text], boot.folder, mode)
        for name, process in boot.processes.items():
            assert has_line(boot.folder, "U" if name == "sleep mode" else "G", process), name
        tell(boot.processes["broken"], "torch._C._cuda_memoryStats = lambda device: 1 / 0")
        tell(boot.processes["fork"], "torch.FORKED = os.fork() == 0")
        boot.processes["killed"].kill()
        boot.processes["killed"].wait()
        probe.finish(boot.folder)
        for point in POINTS:
            probe.ask(boot.folder, point)
            boot.missing.append(probe.wait_for(boot.folder, point, patience=20))
        yield boot
    finally:
        for process in boot.processes.values():
            process.kill()
            process.communicate()


def tell(process: Process, line: str) -> None:
    """Have it execute a line; returns once it has."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.stdin.write(f"{line}; os.write(1, b'done' + bytes([10]))\n".encode())
    process.stdin.flush()
    assert process.stdout.readline() == b"done\n"


def has_line(folder: Path, kind: str, process: Process) -> bool:
    """Whether the probe of *process* comes to write a line of this kind."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        files = folder.glob(f"{process.pid}-*.probe")
        if any(line.startswith(f"{kind}\t") for path in files for line in path.read_text().split("\n")):
            return True
        time.sleep(0.05)
    return False


def test_everybody_answers_that_lives(boot: Boot) -> None:
    assert boot.missing == [[], [], []]
    assert boot.readings("killed") == []


@pytest.mark.parametrize("mode", ["full", "marks"])
def test_each_point_is_answered_and_peaks_count_from_ready_on(mode: str, boot: Boot) -> None:
    found = boot.readings(mode)
    assert all(one.at is not None for one in found)
    assert [one.at for one in found] == sorted(one.at or 0.0 for one in found)
    ready, held, after = (replace(one, at=None) for one in found)
    # 300 and 100 bytes are in pools of graphs; one of the three segments is expandable.
    known = {"allocated": 650, "allocated_peak": 850, "reserved": 1000, "reserved_peak": 1200, "active": 700}
    known |= {"inactive_split": 50, "requested": 600, "retries": 2, "segments": 3}
    snapshot = {"graph_pools": 400, "expandable": True}
    pid = boot.processes[mode].pid
    assert ready == Allocator("ready", pid, 0, active_peak=900, **known, **snapshot)
    assert held == Allocator("held", pid, 0, active_peak=700, **known), "the segments are not looked at"
    assert after == Allocator("after", pid, 0, active_peak=700, **known, **snapshot)
    # The same file is a trace still, and nothing of it is taken for damaged.
    (path,) = boot.folder.glob(f"{pid}-*.probe")
    trace = read_file(path)
    assert trace is not None
    assert trace.lost == ""


def test_what_this_torch_does_not_tell_is_not_known_and_never_zero(boot: Boot) -> None:
    for reading in boot.readings("untold"):
        assert (reading.reserved, reading.graph_pools, reading.expandable) == (1000, None, None)


def test_an_allocator_that_calls_back_into_python_is_left_alone_and_the_reason_is_given_once(boot: Boot) -> None:
    assert boot.readings("sleep mode") == []
    (reason,) = boot.reasons("sleep mode")
    assert "was not read: vllm.device_allocator.cumem is loaded" in reason


def test_an_allocator_that_fails_is_a_reason(boot: Boot) -> None:
    assert boot.readings("broken") == []
    (reason,) = boot.reasons("broken")
    assert reason.endswith("was not read: ZeroDivisionError: division by zero")


def test_a_fork_answers_with_nothing_of_its_parents(boot: Boot) -> None:
    assert len(boot.readings("fork")) == 3
    lived = set(map(str, (process.pid for process in boot.processes.values())))
    (child,) = [path for path in boot.folder.glob("*.probe") if path.name.partition("-")[0] not in lived]
    assert not any(line[:2] in ("G\t", "M\t", "U\t") for line in child.read_text().split("\n"))


def test_a_process_that_does_not_answer_is_named(boot: Boot) -> None:
    """Nobody was asked for another point: each that has memory has nothing to say of it."""
    said = probe.wait_for(boot.folder, "later", patience=0.2)
    alive = sorted(process.pid for name, process in boot.processes.items() if name != "killed")
    assert sorted(said) == sorted(
        f"the allocator of process {pid} was not read at the point 'later': no answer within 0.2 s" for pid in alive
    )


def test_the_engine_goes_on_and_peaks_were_reset_once_on_the_device_in_use(boot: Boot) -> None:
    assert boot.processes["full"].communicate(b"") == (b"up\n[0]\n", b"")
    assert boot.processes["broken"].communicate(b"") == (b"[]\n", b"")


def test_nobody_is_waited_for_where_nothing_uses_cuda(tmp_path: Path) -> None:
    folder = run_program("", tmp_path).folder
    probe.ask(folder, "ready")
    assert probe.wait_for(folder, "ready", patience=20) == []
    assert read_allocators(folder) == ((), [])
    probe.ask(tmp_path / "nowhere", "ready")
    assert probe.wait_for(tmp_path / "nowhere", "ready") == []


HEAD = "P\t1\tfull\t42\t7\t1000000\t1250000\tsite\t3.11.7\n"
LINE = "M\t2000000\tafter\t0\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t0\n"


def test_lines_that_are_not_whole_are_passed_over(tmp_path: Path) -> None:
    whole = Allocator("after", 42, 0, "", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, False, 2.0)
    path = tmp_path / "42-1250000.probe"
    for cut in range(len(LINE) - 1):
        path.write_text(HEAD + LINE + LINE.replace("after", "held")[:cut])
        assert read_allocators(tmp_path) == ((whole,), []), cut
    bad = [
        "M\n",
        "M\t1\tafter\t0\t1\n",
        LINE.replace("\t7\t", "\tx\t"),
        LINE.replace("\n", "\0\n"),
        "U\t1\tafter\n",
        "G\n",
    ]
    path.write_text(HEAD + "".join(bad) + LINE.replace("\t10\t11\t0", "\t\t\t"))
    ((reading,), missing) = read_allocators(tmp_path)
    assert (reading.retries, reading.segments, reading.graph_pools, reading.expandable) == (9, None, None, None)
    assert missing == []
    (tmp_path / "note.probe").write_text(LINE)
    os.mkfifo(tmp_path / "43-1.probe")
    assert len(read_allocators(tmp_path)[0]) == 1


def test_a_program_that_was_executed_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    pid = os.getpid()
    (tmp_path / f"{pid}-900.probe").write_text(HEAD + "G\t1\t0\t1\t1\t1\t1\t1\n")
    assert len(probe.wait_for(tmp_path, "ready", patience=0)) == 1
    (tmp_path / f"{pid}-1000.probe").write_text(HEAD)
    assert probe.wait_for(tmp_path, "ready", patience=0) == []
