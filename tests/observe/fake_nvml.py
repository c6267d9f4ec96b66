"""A stand-in for the module pynvml of a host with GPUs: the functions and the faults that are used here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, NO_LIBRARY, LOST = 3, 4, 9, 12, 15
UNINITIALISED, NOT_FOUND, TIMEOUT = 1, 6, 10
MIB, GIB = 2**20, 2**30


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"code {value}")
        self.value = value


class NVMLLibraryMismatchError(Exception):
    """As in nvidia-ml-py: no NVMLError, and without a code."""


@dataclass
class FakeDevice:
    """One GPU. ``codes``: function -> code of the error that it raises instead."""

    uuid: str
    name: str | bytes = "NVIDIA H200"
    total: int = 140 * GIB
    used: int = 4 * MIB
    reserved: int = 500 * MIB
    processes: dict[int, int | None] = field(default_factory=dict)
    graphics: dict[int, int | None] = field(default_factory=dict)
    persistence: int = 1
    gen: int = 5
    width: int = 16
    reasons: int = 0x1
    ecc: list[int] = field(default_factory=lambda: [0, 0])
    xids: list[int] = field(default_factory=list)
    remapped: tuple[int, int, int, int] = (0, 0, 0, 0)
    mig: int = 0
    lost: bool = False
    #: The error of asking for it at all.
    code: int = 0
    codes: dict[str, int] = field(default_factory=dict)


def _listed(processes: dict[int, int | None]) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in processes.items()]


def _memory(device: FakeDevice, version: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(total=device.total, used=device.used if version else device.used + device.reserved)


#: Function -> what it answers of one device.
ANSWERS: dict[str, Callable[..., Any]] = {
    "UUID": lambda device: device.uuid,
    "Name": lambda device: device.name,
    "MemoryInfo": _memory,
    "MigMode": lambda device: [device.mig, device.mig],
    "ComputeRunningProcesses": lambda device: _listed(device.processes),
    "ComputeRunningProcesses_v2": lambda device: _listed(device.processes),
    "GraphicsRunningProcesses": lambda device: _listed(device.graphics),
    "UtilizationRates": lambda device: SimpleNamespace(gpu=37, memory=12),
    "MaxPcieLinkGeneration": lambda device: 5,
    "CurrPcieLinkGeneration": lambda device: device.gen,
    "CurrPcieLinkWidth": lambda device: device.width,
    "MaxPcieLinkWidth": lambda device: 16,
    "PcieThroughput": lambda device, counter: {0: 11, 1: 2200}[counter],
    "ClockInfo": lambda device, kind: {1: 1980, 2: 3201}[kind],
    "PowerUsage": lambda device: 78125,
    "Temperature": lambda device, sensor: 31,
    "CurrentClocksEventReasons": lambda device: device.reasons,
    "CurrentClocksThrottleReasons": lambda device: device.reasons,
    "TotalEccErrors": lambda device, kind, counter: device.ecc[kind],
    "RemappedRows": lambda device: device.remapped,
    "RetiredPages": lambda device, cause: [1, 2][cause:],
    "PersistenceMode": lambda device: device.persistence,
}


class FakeNVML:
    """Put it into ``sys.modules["pynvml"]``. *lacking*: functions that this version of the module does not have."""

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    nvmlMemory_v2 = 0x02000028

    def __init__(self, *devices: FakeDevice, init_code: int = 0, lacking: tuple[str, ...] = ()) -> None:
        self.devices, self.init_code, self.lacking = list(devices), init_code, lacking
        #: How many hold it open now, and how often it was opened.
        self.open = self.opens = self.event_sets = 0

    def nvmlInit(self) -> None:
        if self.init_code:
            raise NVMLError(self.init_code)
        self.open += 1
        self.opens += 1

    def nvmlShutdown(self) -> None:
        self._check()
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        self._check()
        return b"570.148.08"

    def nvmlSystemGetProcessName(self, pid: int) -> bytes:
        raise NVMLError(NOT_FOUND)

    def nvmlDeviceGetCount(self) -> int:
        self._check()
        return len([device for device in self.devices if not device.uuid.startswith("MIG-")])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeDevice:
        return self._handle(self.devices[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeDevice:
        for device in self.devices:
            if device.uuid == uuid:
                return self._handle(device)
        raise NVMLError(NOT_FOUND)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, device: FakeDevice) -> FakeDevice:
        return self.devices[0]

    def nvmlDeviceGetIndex(self, device: FakeDevice) -> int:
        return self.devices.index(device)

    def nvmlEventSetCreate(self) -> list[FakeDevice]:
        self._check()
        self.event_sets += 1
        return []

    def nvmlDeviceRegisterEvents(self, device: FakeDevice, kinds: int, events: list[FakeDevice]) -> None:
        if "RegisterEvents" in device.codes:
            raise NVMLError(device.codes["RegisterEvents"])
        assert kinds == 0x8
        events.append(device)

    def nvmlEventSetWait_v2(self, events: list[FakeDevice], milliseconds: int) -> SimpleNamespace:
        for device in events:
            if device.xids:
                return SimpleNamespace(eventType=0x8, eventData=device.xids.pop(0))
        raise NVMLError(TIMEOUT)

    def nvmlEventSetFree(self, events: list[FakeDevice]) -> None:
        self._check()
        self.event_sets -= 1

    def _handle(self, device: FakeDevice) -> FakeDevice:
        self._check()
        if device.code or device.lost:
            raise NVMLError(device.code or LOST)
        return device

    def _check(self) -> None:
        if not self.open:
            raise NVMLError(UNINITIALISED)

    def __getattr__(self, function: str) -> Callable[..., Any]:
        short = function.removeprefix("nvmlDeviceGet")
        if short not in ANSWERS or short in self.lacking:
            raise AttributeError(function)

        def call(device: FakeDevice, *words: Any) -> Any:
            self._check()
            if device.lost or short in device.codes:
                raise NVMLError(LOST if device.lost else device.codes[short])
            return ANSWERS[short](device, *words)

        return call
