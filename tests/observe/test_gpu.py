"""The observer of a boot's GPUs, of real processes on devices of a stand-in for pynvml."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_coldstart.memory import GPU, GPUProcess
from pytest_coldstart.observe import gpu
from pytest_coldstart.observe.gpu import GPUObserver
from pytest_coldstart.observe.samples import Samples
from tests.conftest import eventually
from tests.observe.fake_nvml import GIB, MIB, NOT_SUPPORTED, FakeDevice, FakeNVML

pytestmark = pytest.mark.timeout(60)

A, B = "GPU-aaaa", "GPU-bbbb"
#: Opens the files named by its arguments one by one, each on a line of its input.
OPEN = """
import sys
files = []
for name in sys.argv[1:]:
    print(flush=True); sys.stdin.readline()
    files.append(open(name))
print(flush=True); sys.stdin.readline()
"""


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", OPEN, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        step(process, ask=False)
        yield process
    finally:
        process.kill()
        process.communicate()


def step(process: subprocess.Popen[str], ask: bool = True) -> None:
    """Let it go one line on, and wait until it has."""
    assert process.stdin
    assert process.stdout
    if ask:
        process.stdin.write("\n")
        process.stdin.flush()
    process.stdout.readline()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNVML:
    """A host with two GPUs."""
    nvml = FakeNVML(FakeDevice(A), FakeDevice(B))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


@contextmanager
def observing(*uuids: str, pids: set[int], idle: dict[str, int] | None = None) -> Iterator[GPUObserver]:
    observer = GPUObserver(uuids, lambda: pids, idle)
    try:
        yield observer
    finally:
        observer.close()


def samples(observer: GPUObserver) -> int:
    return min(len(device.series.times) for device in observer.gpus())


def test_memory_of_a_boot_from_before_the_start_to_after_the_stop(fake: FakeNVML) -> None:
    device = fake.devices[0]
    device.gen, device.reasons, device.ecc = 1, 0x1 | 0x4, [0, 5]
    with child() as engine, child() as other, observing(A, B, pids={engine.pid}, idle={A: 4 * MIB}) as observer:
        device.used, device.processes = 10 * MIB, {other.pid: 6 * MIB}
        observer.before()
        observer.start(time.monotonic())
        device.processes = {other.pid: 6 * MIB, engine.pid: 0}
        assert eventually(lambda: samples(observer) >= 2)
        device.processes[engine.pid], device.used = 500 * MIB, 510 * MIB
        count = samples(observer)
        assert eventually(lambda: samples(observer) >= count + 2)
        device.processes[engine.pid], device.used, device.gen, device.ecc = 90 * GIB, 91 * GIB, 5, [2, 5]
        count = samples(observer)
        assert eventually(lambda: samples(observer) >= count + 2)
        device.processes[engine.pid], device.used, device.gen = 80 * GIB, 81 * GIB, 2
        observer.note_ready()
        assert eventually(lambda: observer.gpus()[1].ready_bytes is not None)
        device.processes, device.used = {other.pid: 6 * MIB}, 10 * MIB
        observer.settle(patience=30)
        found, second = observer.gpus()
        assert (found.index, found.uuid, found.name, found.state) == (0, A, "NVIDIA H200", "ok")
        assert (found.total_bytes, found.idle_bytes, found.before_bytes) == (140 * GIB, 4 * MIB, 10 * MIB)
        assert (found.ready_bytes, found.peak_bytes, found.after_bytes) == (81 * GIB, 91 * GIB, 10 * MIB)
        assert found.leaked_bytes is None, "what others took or gave back cannot be told from a leak"
        assert found.process_bytes == {str(engine.pid): 90 * GIB}
        name = Path(f"/proc/{other.pid}/comm").read_text().strip()
        assert found.foreign == (GPUProcess(other.pid, name, 6 * MIB),)
        assert (found.pcie_gen, found.pcie_gen_max, found.pcie_width, found.pcie_width_max) == (5, 5, 16, 16)
        assert not found.trained_down
        assert found.throttle == ("power cap",)
        none = {"xid": 0, "ecc_uncorrected": 0, "remapped_rows": 0, "retired_pages": 0}
        assert found.errors == {**none, "ecc_corrected": 2}
        assert (found.persistence, found.missing) == (True, ())
        assert (second.index, second.idle_bytes, second.peak_bytes, second.process_bytes) == (1, None, 4 * MIB, {})
    assert fake.open == 0


def test_series_has_what_is_dear_to_read_once_a_second(fake: FakeNVML) -> None:
    with observing(A, pids=set()) as observer:
        observer.start(time.monotonic())
        assert eventually(lambda: samples(observer) >= 6)
        (found,) = observer.gpus()
    columns = found.series.columns
    assert columns["memory_used"] == (4 * MIB,) * len(found.series.times)
    assert columns["gpu_utilisation"][0] == 37
    first = {name: values[0] for name, values in columns.items()}
    assert (
        first.items() >= {"pcie_rx": 2200, "pcie_tx": 11, "sm_clock": 1980, "power": 78.125, "temperature": 31}.items()
    )
    assert columns["power"][1] is None
    seconds = found.series.times[-1] - found.series.times[0]
    assert sum(value is not None for value in columns["power"]) <= 1 + seconds
    assert list(found.series.times) == sorted(found.series.times)


def test_critical_errors_of_the_driver_are_counted(fake: FakeNVML) -> None:
    fake.devices[1].codes["RegisterEvents"] = NOT_SUPPORTED
    with observing(A, B, pids=set()) as observer:
        observer.before()
        observer.start(time.monotonic())
        fake.devices[0].xids = [31, 43, 31]
        observer.settle(patience=10)
        first, second = observer.gpus()
    assert {name: count for name, count in first.errors.items() if name.startswith("xid")} == {
        "xid": 3,
        "xid_31": 2,
        "xid_43": 1,
    }
    assert "xid" not in second.errors
    assert (fake.open, fake.event_sets) == (0, 0)


def test_boot_that_begins_anew_is_sampled_anew(fake: FakeNVML) -> None:
    with observing(A, pids=set()) as observer:
        observer.before()
        observer.start(time.monotonic() - 1000)
        fake.devices[0].used = 90 * GIB
        assert eventually(lambda: samples(observer) >= 2)
        fake.devices[0].used = 20 * GIB
        time.sleep(0.1)
        observer.start(time.monotonic())
        assert eventually(lambda: samples(observer) >= 2)
        (found,) = observer.gpus()
    assert (found.before_bytes, found.peak_bytes) == (4 * MIB, 20 * GIB)
    assert 0 <= found.series.times[0] < 60
    assert found.series.columns["power"][0] is not None


def test_memory_that_stays_after_the_stop_is_leaked(fake: FakeNVML) -> None:
    with observing(A, pids=set()) as observer:
        observer.before()
        observer.start(time.monotonic())
        fake.devices[0].used += 7 * MIB
        observer.settle(patience=0.1)
        assert observer.gpus()[0].leaked_bytes == 7 * MIB


def test_device_that_vanishes_keeps_what_was_read(fake: FakeNVML) -> None:
    with observing(A, B, pids=set()) as observer:
        observer.before()
        observer.start(time.monotonic())
        assert eventually(lambda: samples(observer) >= 2)
        fake.devices[0].lost = True
        assert eventually(lambda: observer.gpus()[0].state == "vanished")
        observer.settle(patience=10)
        lost, other = observer.gpus()
    assert (lost.before_bytes, lost.peak_bytes, lost.after_bytes) == (4 * MIB, 4 * MIB, None)
    assert len(lost.missing) == 1
    assert lost.missing[0].startswith("it stopped answering ")
    assert (other.state, other.after_bytes, other.missing) == ("ok", 4 * MIB, ())


def test_driver_is_left_to_the_boot_where_persistence_mode_is_off(
    fake: FakeNVML, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu, "DEVICE_FILES", str(tmp_path))
    names = [str(tmp_path / name) for name in ("nvidiactl", "nvidia0", "nvidia-uvm")]
    for name in names:
        Path(name).touch()
    fake.devices[0].persistence = 0
    with child(*names) as engine, observing(A, pids={engine.pid}) as observer:
        observer.before()
        assert (fake.open, fake.opens) == (0, 1)
        observer.start(time.monotonic() - 3)
        step(engine)
        step(engine)  # a client of NVML has as much open, and closes it again
        time.sleep(0.2)
        assert (fake.open, fake.opens) == (0, 1)
        step(engine)
        assert eventually(lambda: samples(observer) >= 1)
        (found,) = observer.gpus()
        assert found.persistence is False
        assert found.series.times[0] > 3
        seconds = float(found.missing[0].split()[0])
        assert found.missing[0].startswith(f"{seconds:.1f} s were not sampled: persistence mode is off")
        assert 3 < seconds <= found.series.times[0] + 0.1
        engine.kill()
        engine.wait()
        assert eventually(lambda: fake.open == 0)  # its driver may go down again with it
        observer.settle(patience=10)
        assert observer.gpus()[0].after_bytes == 4 * MIB


def test_engine_that_is_ready_is_sampled_whatever_it_holds_open(fake: FakeNVML) -> None:
    fake.devices[0].persistence = 0
    with observing(A, pids=set()) as observer:
        observer.before()
        observer.start(time.monotonic())
        observer.note_ready()
        assert eventually(lambda: observer.gpus()[0].ready_bytes == 4 * MIB)


def test_processes_of_another_pid_namespace_are_nobodys(fake: FakeNVML) -> None:
    with observing(A, pids=set()) as observer:
        observer.before()
        fake.devices[0].processes = {2**22 + 1: GIB}
        observer.start(time.monotonic())
        assert eventually(lambda: samples(observer) >= 3)
        (found,) = observer.gpus()
    assert (found.foreign, found.process_bytes) == ((), {})
    assert found.missing == ("it has processes of another PID namespace: whose they are cannot be told",)


def test_what_cannot_be_read_is_none_with_a_reason(fake: FakeNVML) -> None:
    dead = ("MemoryInfo", "ComputeRunningProcesses", "GraphicsRunningProcesses", "CurrPcieLinkGeneration")
    fake.devices[0].codes = dict.fromkeys(dead, NOT_SUPPORTED)
    with observing(A, pids=set()) as observer:
        observer.before()
        observer.start(time.monotonic())
        assert eventually(lambda: samples(observer) >= 1)
        observer.settle(patience=10)
        (found,) = observer.gpus()
    assert (found.state, found.before_bytes, found.peak_bytes, found.leaked_bytes) == ("unsupported", None, None, None)
    assert (found.pcie_gen, found.trained_down, "memory_used" in found.series.columns) == (None, False, False)
    assert found.missing == ("its memory in use cannot be read", "its processes cannot be read")


def test_without_nvml_each_device_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with observing(A, pids=set()) as observer:
        observer.before()
        observer.start(time.monotonic())
        observer.note_ready()
        observer.settle(patience=10)
        (found,) = observer.gpus()
    assert found == GPU(-1, A, "", "unsupported", missing=found.missing)
    assert found.missing[0].startswith("the module pynvml is not installed here")
    with observing(pids=set()) as observer:
        observer.before()
        observer.start(time.monotonic())
        observer.settle(patience=10)
        assert observer.gpus() == ()


def test_driver_that_does_not_answer_holds_nobody_up(fake: FakeNVML, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "STUCK", 0.1)
    stuck = threading.Event()
    with observing(A, pids=set()) as observer:
        observer.before()
        observer.start(time.monotonic())
        assert eventually(lambda: samples(observer) >= 1)
        monkeypatch.setattr(fake, "nvmlDeviceGetUtilizationRates", lambda device: stuck.wait(60), raising=False)
        time.sleep(0.2)
        observer.note_ready()
        observer.settle(patience=0.1)
        observer.close()
        (found,) = observer.gpus()
        assert found.before_bytes == 4 * MIB
        assert found.missing == ("NVML has not answered for 0.1 s",)
        stuck.set()


def test_pids_that_cannot_be_told_end_the_sampling_alone(fake: FakeNVML) -> None:
    def pids() -> set[int]:
        raise RuntimeError("no tree")

    observer = GPUObserver([A], pids)
    observer.before()
    observer.start(time.monotonic())
    assert eventually(lambda: observer.gpus()[0].missing)
    observer.settle(patience=10)
    observer.close()
    (found,) = observer.gpus()
    assert found.missing[0].startswith("sampling ended ")
    assert "no tree" in found.missing[0]
    assert (found.before_bytes, found.after_bytes) == (4 * MIB, 4 * MIB)


def test_long_series_is_thinned_and_keeps_seldom_values() -> None:
    series = Samples(("often", "seldom", "never"), most=8)
    for number in range(8):
        series.add(number / 10, {"often": number, "seldom": {1: 50.0, 4: 60.0}.get(number)})
    found = series.series()
    assert found.times == (0.0, 0.2, 0.4, 0.6)
    assert found.columns == {"often": (0, 2, 4, 6), "seldom": (50.0, None, 60.0, None)}
    assert series.stride == 2
    for number in range(8, 16, 2):
        series.add(number / 10, {"often": number})
    assert series.series().times == (0.0, 0.4, 0.8, 1.2)
    assert series.series().columns["seldom"] == (50.0, 60.0, None, None)
    assert series.stride == 4
