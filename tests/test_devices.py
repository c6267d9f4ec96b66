"""Leases of GPUs among real processes, and the wait for an idle one, on devices of a stand-in for pynvml."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_coldstart.devices import DeviceBusy, Devices, DevicesMissing
from pytest_coldstart.errors import HarnessFault
from pytest_coldstart.locks import HostLock
from tests.conftest import eventually
from tests.observe.fake_nvml import DRIVER_NOT_LOADED, GIB, MIB, FakeDevice, FakeNVML

pytestmark = pytest.mark.timeout(60)

A, B, C = "GPU-aaaa", "GPU-bbbb", "GPU-cccc"

#: Leases the GPUs that its first argument counts, tells which, and keeps them until its input ends. With "child" a
#: process of its own inherits the locks; with "tell" it says each second that it waits.
HOLD = """
import subprocess, sys
from tests.observe.fake_nvml import FakeDevice, FakeNVML
from pytest_coldstart.devices import Devices
sys.modules["pynvml"] = FakeNVML(*map(FakeDevice, sys.argv[2].split(",")))
tell = lambda seconds: print("waiting", flush=True)
lease = Devices().lease(int(sys.argv[1]), {}, tell if sys.argv[3:] == ["tell"] else None)
if sys.argv[3:] == ["child"]:
    child = subprocess.Popen(["sleep", "60"], pass_fds=lease.filenos(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
print(",".join(lease.uuids), flush=True)
sys.stdin.read()
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNVML:
    """A host with two GPUs, and a folder of locks of its own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(HostLock, "_held", set())
    nvml = FakeNVML(FakeDevice(A), FakeDevice(B))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


@pytest.fixture
def start(fake: FakeNVML, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def run(count: int, *words: str, uuids: str = f"{A},{B}") -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", HOLD, str(count), uuids, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[1],
                env={**os.environ, "TMPDIR": str(tmp_path)},
            )
            stack.callback(process.communicate)  # called after the kill
            stack.callback(process.kill)
            return process

        yield run


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def last_line(process: subprocess.Popen[str]) -> str:
    """The first line that is no wait."""
    while (word := line(process)) == "waiting":
        pass
    return word


def test_lease_is_an_environment_with_the_uuids(fake: FakeNVML) -> None:
    lease = Devices().lease(2, {})
    assert lease.uuids == (A, B)
    assert lease.environment() == {"CUDA_VISIBLE_DEVICES": "GPU-aaaa,GPU-bbbb"}
    assert len(set(lease.filenos())) == 2
    lease.release()
    assert lease.filenos() == []
    lease = Devices().lease(1, {"CUDA_VISIBLE_DEVICES": "1"})
    assert lease.environment() == {"CUDA_VISIBLE_DEVICES": B}
    lease.release()
    assert fake.open == 0


def test_visible_devices_are_asked_once(fake: FakeNVML) -> None:
    devices = Devices()
    assert devices.visible({}) == (A, B)
    assert devices.visible({"CUDA_VISIBLE_DEVICES": "1"}) == (B,)
    assert devices.visible({"CUDA_VISIBLE_DEVICES": ""}) == ()
    opens = fake.opens
    assert devices.visible({}) == (A, B)
    assert fake.opens == opens


def test_none_leases_nothing_and_lists_all(fake: FakeNVML) -> None:
    lease = Devices().lease(None, {"CUDA_VISIBLE_DEVICES": "1,0"})
    assert (lease.uuids, lease.environment(), lease.filenos()) == ((B, A), {}, [])
    lease = Devices().lease(0, {})
    assert (lease.uuids, lease.environment(), lease.filenos()) == ((), {}, [])
    everything = Devices().lease(2, {})  # nothing was locked
    everything.release()


def test_more_gpus_than_are_visible_is_refused(fake: FakeNVML) -> None:
    with pytest.raises(DevicesMissing, match=r"^3 GPUs asked for and 2 are visible$"):
        Devices().lease(3, {})
    with pytest.raises(DevicesMissing, match=r"^2 GPUs asked for and 1 is visible \(CUDA_VISIBLE_DEVICES=1\)$"):
        Devices().lease(2, {"CUDA_VISIBLE_DEVICES": "1"})
    with pytest.raises(
        DevicesMissing, match=r"^1 GPU asked for and 0 are visible \(CUDA_VISIBLE_DEVICES='' shows none"
    ):
        Devices().lease(1, {"CUDA_VISIBLE_DEVICES": ""})


def test_without_nvml_nothing_is_leased_and_the_lease_says_why(fake: FakeNVML) -> None:
    fake.init_code = DRIVER_NOT_LOADED
    devices = Devices()
    assert devices.idle({}) == {}
    lease = devices.lease(2, {})
    assert (lease.uuids, lease.environment(), lease.filenos()) == ((), {}, [])
    assert lease.missing.startswith("the NVIDIA driver is not loaded")
    assert devices.wait_until_idle(lease, 5) < 5
    lease.release()


def test_two_processes_never_have_the_same_gpu(fake: FakeNVML, start: Start) -> None:
    first, second = start(1), start(1)
    had = line(first)
    assert {had, line(second)} == {A, B}
    waited: list[float] = []

    def waiting(seconds: float) -> None:
        waited.append(seconds)
        first.kill()  # the kernel drops its locks

    lease = Devices().lease(1, {}, waiting)
    assert waited
    assert second.poll() is None
    assert lease.uuids == (had,)
    lease.release()


def test_boot_that_needs_all_gpus_waits_for_all_and_is_not_passed(fake: FakeNVML, start: Start) -> None:
    one = start(1)
    assert line(one) == A
    both = start(2, "tell")
    assert line(both) == "waiting"
    queue = start(1, "tell")
    assert line(queue) == "waiting"  # though one is free: nobody who sees the same devices comes before the other
    one.kill()
    assert last_line(both) == f"{A},{B}"
    both.kill()
    assert last_line(queue) == A


def test_runs_that_see_different_gpus_do_not_wait_for_each_other(fake: FakeNVML, start: Start) -> None:
    assert line(start(1, uuids=A)) == A
    waits = start(1, uuids=A)
    assert line(start(1, uuids=B)) == B
    assert waits.poll() is None


def test_process_that_inherits_the_locks_keeps_the_gpus(fake: FakeNVML, start: Start) -> None:
    holder = start(2, "child")
    child = int(line(holder))
    assert line(holder) == f"{A},{B}"
    holder.kill()
    holder.wait()

    def waiting(seconds: float) -> None:
        os.kill(child, 9)

    lease = Devices().lease(2, {}, waiting)
    assert not Path(f"/proc/{child}/cmdline").exists() or not Path(f"/proc/{child}/cmdline").read_bytes()
    lease.release()


def test_process_that_would_wait_for_itself_is_told(fake: FakeNVML) -> None:
    devices = Devices()
    lease = devices.lease(1, {})
    other = devices.lease(1, {})
    assert (lease.uuids, other.uuids) == ((A,), (B,))
    other.release()
    with pytest.raises(HarnessFault, match="another boot of this process has 1 of the 2 that are visible"):
        devices.lease(2, {})
    lease.release()


def test_idle_memory_is_read_once_and_not_of_devices_that_others_use(fake: FakeNVML, start: Start) -> None:
    holder = start(1, uuids=A)
    assert line(holder) == A
    devices = Devices()
    fake.devices[0].used = 9 * GIB
    assert devices.idle({}) == {B: 4 * MIB}
    holder.kill()
    holder.wait()
    fake.devices[0].used, fake.devices[1].used = 5 * MIB, 7 * GIB
    lease = devices.lease(2, {})
    assert devices.idle_bytes == {A: 5 * MIB, B: 4 * MIB}
    lease.release()


@pytest.fixture
def other() -> Iterator[int]:
    """The pid of a process of somebody else's."""
    with subprocess.Popen(["sleep", "60"]) as process:
        # The kernel closes what exec closes before it renames the process.
        assert eventually(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
        yield process.pid
        process.kill()


def test_boot_waits_until_its_gpu_is_idle_again(fake: FakeNVML, other: int) -> None:
    devices = Devices()
    devices.idle({})
    lease = devices.lease(1, {})
    fake.devices[0].used = (4 + 32) * MIB
    assert devices.wait_until_idle(lease, 0) < 1  # as much as a driver's own use may differ
    fake.devices[0].used, fake.devices[0].processes = 2004 * MIB, {other: 2000 * MIB}
    told: list[float] = []

    def waiting(seconds: float) -> None:
        told.append(seconds)
        fake.devices[0].used, fake.devices[0].processes = 4 * MIB, {}

    assert devices.wait_until_idle(lease, 30, waiting=waiting) >= told[0] >= 1
    lease.release()


def test_gpu_that_stays_in_use_is_refused_with_its_owners(fake: FakeNVML, other: int) -> None:
    devices = Devices()
    devices.idle({})
    lease = devices.lease(1, {})
    device = fake.devices[0]
    device.used, device.processes = 2048 * MIB, {other: 1024 * MIB, 2**22 + 1: None}
    with pytest.raises(DeviceBusy) as caught:
        devices.wait_until_idle(lease, 0.2)
    text = str(caught.value)
    assert text.startswith(
        "GPU 0 (NVIDIA H200, GPU-aaaa) has 2048 MiB in use, 4 MiB of it since before the first boot: "
    )
    assert f"pid {other} (sleep, 1024 MiB), pid {2**22 + 1} (?, unknown size)" in text
    assert "--coldstart-gpu-wait" in text
    # What living processes own is allowed; memory that nobody owns is not.
    with pytest.raises(DeviceBusy):
        devices.wait_until_idle(lease, 0, allow_foreign=True)
    device.used = 1024 * MIB + 20 * MIB
    devices.wait_until_idle(lease, 0, allow_foreign=True)
    device.processes = {}
    with pytest.raises(DeviceBusy, match="no process that can be seen here has it"):
        devices.wait_until_idle(lease, 0)
    lease.release()


def test_large_foreign_process_from_before_the_first_boot_is_refused(fake: FakeNVML, other: int) -> None:
    device = fake.devices[0]
    device.used, device.processes = 300 * MIB, {other: 256 * MIB}
    devices = Devices()
    lease = devices.lease(1, {})
    with pytest.raises(DeviceBusy, match=rf"300 MiB of it since before the first boot: pid {other} \(sleep, 256 MiB\)"):
        devices.wait_until_idle(lease, 0)
    devices.wait_until_idle(lease, 0, allow_foreign=True)
    # Once it has gone, the device without it is what is idle.
    device.used, device.processes = 4 * MIB, {}
    devices.wait_until_idle(lease, 0)
    assert devices.idle_bytes == {A: 4 * MIB}
    lease.release()
    device.used, device.processes = 259 * MIB, {other: 255 * MIB}
    devices = Devices()
    lease = devices.lease(1, {})
    devices.wait_until_idle(lease, 0)
    lease.release()
