"""NVML's states and readings. Without a GPU: the real absence, and a stand-in for the module that has devices."""

from __future__ import annotations

import os
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from pytest_coldstart import environment
from pytest_coldstart.devices import Devices, Lease
from pytest_coldstart.memory import GPUProcess
from pytest_coldstart.observe import nvml as module
from pytest_coldstart.observe import nvml_library
from pytest_coldstart.observe.nvml import NVML, Link
from tests.observe.fake_nvml import (
    DRIVER_NOT_LOADED,
    LOST,
    MIB,
    NO_LIBRARY,
    NO_PERMISSION,
    NOT_SUPPORTED,
    FakeDevice,
    FakeNVML,
    NVMLLibraryMismatchError,
)

A = "GPU-5f1c8b9a-0000-1111-2222-333344445555"
B = "GPU-5f2d0000-0000-1111-2222-333344445555"
MIG = "MIG-c6d4f1ef-0000-5555-8888-999900001111"


def install(monkeypatch: pytest.MonkeyPatch, *devices: FakeDevice, **settings: object) -> FakeNVML:
    fake = FakeNVML(*devices, **settings)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_without_the_module_there_are_no_devices_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import of it raises ImportError
    with NVML() as nvml:
        assert not nvml.opened
        assert nvml.missing.startswith("the module pynvml is not installed here")
        assert nvml.devices() == []
        assert nvml.driver() is None
        assert nvml.device(A).state == "unsupported"
        assert nvml.device(A).memory_used() is None
    assert module.visible({}).devices == []
    assert (environment.gpu_names(), environment.gpu_driver()) == ([], None)


def test_real_module_without_the_drivers_library_says_so() -> None:
    pytest.importorskip("pynvml")
    if any(Path("/proc/driver/nvidia").glob("*")):
        pytest.skip("this host has the driver")
    assert NVML().missing.startswith("there is no NVIDIA driver: libnvidia-ml.so.1 was not found")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (NO_LIBRARY, "there is no NVIDIA driver"),
        (DRIVER_NOT_LOADED, "the NVIDIA driver is not loaded"),
        (NO_PERMISSION, "this user may not open NVML"),
        (999, "NVML does not open: code 999"),
    ],
)
def test_why_nvml_does_not_open_is_one_sentence(monkeypatch: pytest.MonkeyPatch, code: int, words: str) -> None:
    install(monkeypatch, init_code=code)
    nvml = NVML()
    assert nvml.missing.startswith(words)
    assert nvml.visible({}) == ([], nvml.missing)


def test_devices_are_listed_with_their_states(monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        monkeypatch,
        FakeDevice(A, name=b"NVIDIA H200"),
        FakeDevice(B, mig=1),
        FakeDevice("GPU-c", code=NO_PERMISSION),
        FakeDevice("GPU-d", code=LOST),
        FakeDevice("GPU-e", codes={"MemoryInfo": NOT_SUPPORTED}),
    )
    with NVML() as nvml:
        found = nvml.devices()
        assert nvml.driver() == "570.148.08"
    assert [device.state for device in found] == ["ok", "mig", "no_permission", "vanished", "unsupported"]
    assert [device.index for device in found] == [0, 1, 2, 3, 4]
    assert (found[0].uuid, found[0].name, found[0].total_bytes) == (A, "NVIDIA H200", 140 * 2**30)


def test_every_reading_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getpid()
    name = Path("/proc/self/comm").read_text().strip()
    install(
        monkeypatch,
        FakeDevice(
            A,
            used=777,
            processes={own: 500, 2**22 + 7: None},
            graphics={own: 400},
            gen=1,
            reasons=0x1 | 0x4 | 0x40,
            ecc=[3, 1],
            remapped=(2, 1, 0, 0),
        ),
    )
    with NVML() as nvml:
        device = nvml.device(A)
        assert device.memory_used() == 777
        assert device.processes() == (GPUProcess(own, name, 500), GPUProcess(2**22 + 7, "?", None))
        assert device.utilisation() == (37, 12)
        assert device.link() == Link(gen=1, width=16, gen_max=5, width_max=16)
        assert device.pcie_throughput() == (2200, 11)
        assert device.clocks() == (1980, 3201)
        assert device.power() == 78.125
        assert device.temperature() == 31
        assert device.throttle() == ("idle", "power cap", "hardware thermal slowdown")
        assert device.errors() == {"ecc_corrected": 3, "ecc_uncorrected": 1, "remapped_rows": 3, "retired_pages": 3}
        assert device.persistence() is True


def test_reading_that_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ("UtilizationRates", "PcieThroughput", "PowerUsage", "TotalEccErrors", "RetiredPages", "MaxPcieLinkWidth")
    install(monkeypatch, FakeDevice(A, codes=dict.fromkeys(broken, NOT_SUPPORTED)), lacking=("PersistenceMode",))
    with NVML() as nvml:
        device = nvml.device(A)
        assert device.utilisation() == (None, None)
        assert device.pcie_throughput() == (None, None)
        assert device.power() is None
        assert device.persistence() is None
        assert device.errors() == {"remapped_rows": 0}
        assert device.link() == Link(5, 16, 5, None)
        assert (device.memory_used(), device.temperature(), device.state) == (4 * MIB, 31, "ok")


def test_module_and_driver_of_different_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(
        monkeypatch,
        FakeDevice(A, processes={7: 2**64 - 1}),
        lacking=("CurrentClocksEventReasons", "ComputeRunningProcesses"),
    )

    def mismatched(device: FakeDevice) -> None:
        raise NVMLLibraryMismatchError

    fake.nvmlDeviceGetComputeRunningProcesses = mismatched  # type: ignore[attr-defined]
    monkeypatch.setattr(FakeNVML, "nvmlMemory_v2", None)
    with NVML() as nvml:
        device = nvml.device(A)
        assert [(item.pid, item.bytes) for item in device.processes() or ()] == [(7, None)]
        assert device.throttle() == ("idle",)
        assert device.memory_used() == 504 * MIB  # version 1 counts what the driver keeps for itself


def test_vanished_device_is_noticed_by_the_reading_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, FakeDevice(A), FakeDevice(B))
    with NVML() as nvml:
        device = nvml.device(A)
        fake.devices[0].lost = True
        assert device.state == "ok"
        assert device.memory_used() is None
        assert device.state == "vanished"
        assert nvml.device("GPU-none").state == "vanished"


@pytest.mark.parametrize(
    ("value", "uuids"),
    [
        (None, [A, B]),
        ("", []),
        ("-1", []),
        ("1", [B]),
        ("1,0", [B, A]),
        (" 1 , 0", [B, A]),
        ("0,-1,1", [A]),
        ("0,2,1", [A]),
        ("1gpu", [B]),
        ("none", []),
        ("0,0", []),
        ("GPU-5f2", [B]),
        (f"{B},{A}", [B, A]),
        ("GPU-5f", []),  # both begin so
        (f"{A},GPU-9,{B}", [A]),
        (MIG, [MIG]),
        ("MIG-unknown", []),
    ],
)
def test_visible_devices_follow_cudas_rules(
    monkeypatch: pytest.MonkeyPatch, value: str | None, uuids: list[str]
) -> None:
    install(monkeypatch, FakeDevice(A), FakeDevice(B), FakeDevice(MIG))
    found = module.visible({} if value is None else {"CUDA_VISIBLE_DEVICES": value})
    assert [device.uuid for device in found.devices] == uuids
    assert bool(found.missing) == (not uuids)


def test_numbers_pass_over_devices_that_may_not_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeDevice(A, code=NO_PERMISSION), FakeDevice(B))
    assert [device.uuid for device in module.visible({"CUDA_VISIBLE_DEVICES": "0"}).devices] == [B]
    install(monkeypatch, FakeDevice(A, code=NO_PERMISSION))
    assert module.visible({}) == ([], "no GPU can be opened (GPU 0: no_permission)")
    install(monkeypatch)
    assert module.visible({}) == ([], "NVML shows no GPU")


def test_names_and_driver_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, FakeDevice(A, name=b"NVIDIA H200"), FakeDevice(B, name="NVIDIA L4"))
    assert environment.gpu_names() == ["NVIDIA H200", "NVIDIA L4"]
    assert environment.gpu_driver() == "570.148.08"
    assert environment.has_gpu()
    assert fake.open == 0


#: What may lie under the name of the module, and the beginning of the sentence that says so.
BROKEN = {
    "raise OSError('bad disk')": "the module pynvml cannot be imported: OSError: bad disk",
    "raise SystemExit(3)": "the module pynvml cannot be imported: SystemExit: 3",
    "import no_such_part": "the module pynvml cannot be imported: ModuleNotFoundError: No module named 'no_such_part'",
    "def (": "the module pynvml cannot be imported: SyntaxError: ",
    "x = 1": "NVML does not open: AttributeError: ",
    "def nvmlInit(): raise OSError('libnvidia-ml')": "NVML does not open: OSError: libnvidia-ml",
    "def nvmlInit(): pass": "NVML does not tell how many GPUs there are",
    "def nvmlInit(): pass\ndef nvmlDeviceGetCount(): return 'many'": "NVML does not tell how many GPUs there are",
    "def nvmlInit(): pass\ndef nvmlDeviceGetCount(): return 10**12": "NVML does not tell how many GPUs there are",
}


@pytest.mark.parametrize("source", BROKEN)
def test_broken_module_is_a_sentence_and_no_exception(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    put(monkeypatch, tmp_path, source)
    assert NVML().missing.startswith(BROKEN[source])
    assert (environment.gpu_names(), environment.gpu_driver()) == ([], None)
    devices = Devices()
    assert (devices.visible({}), devices.idle({})) == ((), {})
    lease = devices.lease(1, {})
    assert (lease.uuids, lease.missing) == ((), NVML().missing)
    assert devices.wait_until_idle(Lease((A,)), 0.1) < 5


def put(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    """Have *source* imported as the module."""
    (folder / "pynvml.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(sys.modules, "pynvml", None)  # so that what is imported is taken out again
    del sys.modules["pynvml"]
    monkeypatch.setattr(nvml_library, "_failed", None)


@pytest.mark.parametrize(
    "answer", ["object()", "'nonsense'", "-1", "10**30", "None", "1 / 0", "open('/no/such/file')", "[None] * 9"]
)
def test_nonsense_answers_are_no_readings_and_no_exceptions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str
) -> None:
    put(
        monkeypatch,
        tmp_path,
        f"""
        def nvmlInit(): pass
        def nvmlDeviceGetCount(): return 1
        def nvmlDeviceGetHandleByIndex(index): return "handle"
        def nvmlDeviceGetHandleByUUID(uuid): return "handle"
        def nvmlDeviceGetUUID(handle): return "GPU-1"
        def __getattr__(name):
            if not name.startswith("nvml"):
                raise AttributeError(name)
            return lambda *words: {answer}
        """,
    )
    with NVML() as nvml:
        device = nvml.device("GPU-1")
        device.listen()
        readings = (device.memory_used(), device.total_bytes, device.power(), device.temperature(), device.throttle())
        assert readings == (None,) * 5
        assert device.utilisation() == device.pcie_throughput() == device.clocks() == (None, None)
        assert device.link() == Link()
        assert not device.processes()
        assert not device.xids()
        assert set(device.errors()) <= {"retired_pages"}
        device.persistence()
    devices = Devices()
    assert devices.visible({}) == ("GPU-1",)
    assert devices.idle({}) == {}
    assert environment.gpu_names() == ([answer.strip("'")] if answer.startswith("'") else [])


def test_nvml_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, end = install(monkeypatch, FakeDevice(A)), threading.Event()
    opens: list[int] = []
    monkeypatch.setattr(fake, "nvmlInit", lambda: (opens.append(1), end.wait(30)))
    monkeypatch.setattr(nvml_library, "_PATIENCE", 0.3)
    try:
        begin = time.monotonic()
        assert [NVML().missing for _ in range(3)] == ["NVML does not answer within 0.3 s"] * 3
        assert time.monotonic() - begin < 20
        assert opens == [1]
    finally:
        end.set()


def test_what_failed_to_open_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, FakeDevice(A), init_code=DRIVER_NOT_LOADED)
    first = NVML().missing
    fake.init_code = 0
    assert (NVML().missing, fake.opens) == (first, 0)
