"""NVML, NVIDIA's management library: which devices there are and what they do now.

A reading that a device, a driver or a version of ``nvidia-ml-py`` does not have is None and never an exception, so that
one missing counter costs only itself.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from pytest_coldstart.memory import GPUProcess
from pytest_coldstart.observe.nvml_library import (
    GPU_NOT_FOUND,
    LOST,
    NO_FUNCTION,
    NO_PERMISSION,
    NOT_FOUND,
    call,
    opened,
    text,
    whole,
)

#: Bits of the clock event reasons.
_THROTTLE = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}
_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_TX, _RX = 0, 1
_XID_EVENT = 0x8
#: No host has more devices.
_MOST_DEVICES = 1024


class Link(NamedTuple):
    """A PCIe link: generation and width (lanes) now, and the most that device and slot can have together."""

    gen: int | None = None
    width: int | None = None
    gen_max: int | None = None
    width_max: int | None = None


class Visible(NamedTuple):
    """The devices that a process would see, in its order; ``missing`` says why there are none."""

    devices: list[Device]
    missing: str = ""


class Device:
    """One device. ``state`` is one of :attr:`memory.GPU.state`, and ``vanished`` from the reading on that found so."""

    def __init__(self, module: Any, handle: Any, index: int, uuid: str = "", code: int = 0) -> None:
        """*code*: the error that came instead of a *handle*."""
        self._module, self._handle = module, handle
        self._events: Any = None
        self._code = 0
        self.state = "ok"
        self.index, self.uuid = index, uuid
        self.name, self.total_bytes = "", None
        if handle is None:
            gone = code in (LOST, NOT_FOUND, GPU_NOT_FOUND)
            self.state = "no_permission" if code == NO_PERMISSION else "vanished" if gone else "unsupported"
            return
        self.uuid = self._ask("nvmlDeviceGetUUID", read=text) or uuid
        self.name = self._ask("nvmlDeviceGetName", read=text) or ""
        found = self._memory()
        if found is not None:
            self.total_bytes = found[0]
        elif self.state == "ok":
            self.state = "no_permission" if self._code == NO_PERMISSION else "unsupported"
        divided = self._ask("nvmlDeviceGetMigMode", read=lambda mode: mode[0] == 1)
        if self.state == "ok" and (self.uuid.startswith("MIG-") or divided):
            self.state = "mig"

    def _ask(self, function: str, *words: Any, read: Callable[[Any], Any] = whole) -> Any:
        """What *read* makes of what *function* says of this device; None where either cannot tell."""
        if self._handle is None or self.state == "vanished":
            return None
        found, self._code = call(self._module, function, self._handle, *words, read=read)
        if self._code in (LOST, GPU_NOT_FOUND):
            self.state = "vanished"
        return found

    def _memory(self) -> tuple[int, int] | None:
        """Bytes in all, and in use.

        Version 2 leaves out what the driver keeps for itself, as nvidia-smi does; old drivers have version 1 alone.
        """
        version = getattr(self._module, "nvmlMemory_v2", None)
        found: tuple[int, int] | None = (
            self._ask("nvmlDeviceGetMemoryInfo", version, read=_total_used) if version else None
        )
        return self._ask("nvmlDeviceGetMemoryInfo", read=_total_used) if found is None else found

    def memory_used(self) -> int | None:
        """Bytes in use by all processes and their contexts."""
        found = self._memory()
        return None if found is None else found[1]

    def processes(self) -> tuple[GPUProcess, ...] | None:
        """Every process with a context on the device, for computing or graphics, by pid."""
        found: dict[int, int | None] = {}
        readable = False
        for kind in ("Compute", "Graphics"):
            listed = self._ask(f"nvmlDeviceGet{kind}RunningProcesses", read=_sums)
            if listed is None and self._code == NO_FUNCTION:  # an older driver than the module is made for
                listed = self._ask(f"nvmlDeviceGet{kind}RunningProcesses_v2", read=_sums)
            if listed is None:
                continue
            readable = True
            for pid, used in listed.items():
                found[pid] = max((size for size in (used, found.get(pid)) if size is not None), default=None)
        if not readable:
            return None
        return tuple(GPUProcess(pid, self._process_name(pid), used) for pid, used in sorted(found.items()))

    def _process_name(self, pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            pass
        found, _ = call(self._module, "nvmlSystemGetProcessName", pid, read=text)
        return os.path.basename(found) if found else "?"

    def utilisation(self) -> tuple[int | None, int | None]:
        """Per cent of the time in which a kernel ran, and in which memory was read or written."""
        found = self._ask("nvmlDeviceGetUtilizationRates", read=lambda now: (whole(now.gpu), whole(now.memory)))
        return found or (None, None)

    def link(self) -> Link:
        most = self._ask("nvmlDeviceGetMaxPcieLinkGeneration") or self._ask("nvmlDeviceGetGpuMaxPcieLinkGeneration")
        return Link(
            self._ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            self._ask("nvmlDeviceGetCurrPcieLinkWidth"),
            most,
            self._ask("nvmlDeviceGetMaxPcieLinkWidth"),
        )

    def pcie_throughput(self) -> tuple[int | None, int | None]:
        """KB/s that the device receives and sends. Each of the two blocks for the 20 ms it is measured over."""
        return self._ask("nvmlDeviceGetPcieThroughput", _RX), self._ask("nvmlDeviceGetPcieThroughput", _TX)

    def clocks(self) -> tuple[int | None, int | None]:
        """MHz of the multiprocessors and of the memory."""
        return self._ask("nvmlDeviceGetClockInfo", _SM_CLOCK), self._ask("nvmlDeviceGetClockInfo", _MEMORY_CLOCK)

    def power(self) -> float | None:
        """Watts."""
        found = self._ask("nvmlDeviceGetPowerUsage")
        return None if found is None else found / 1000

    def temperature(self) -> int | None:
        """Degrees Celsius."""
        found: int | None = self._ask("nvmlDeviceGetTemperature", 0)
        return found

    def throttle(self) -> tuple[str, ...] | None:
        """Why the clocks are not higher, ``idle`` among the reasons."""
        found = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if found is None:
            found = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if found is None else tuple(word for bit, word in _THROTTLE.items() if found & bit)

    def errors(self) -> dict[str, int]:
        """Counters of memory errors, those that can be read: ECC since the driver came up, rows and pages ever given up."""
        found = {
            "ecc_corrected": self._ask("nvmlDeviceGetTotalEccErrors", _CORRECTED, _VOLATILE),
            "ecc_uncorrected": self._ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE),
        }
        rows = self._ask("nvmlDeviceGetRemappedRows", read=lambda found: whole(found[0]) + whole(found[1]))
        if rows is not None:
            found["remapped_rows"] = rows
        pages = [self._ask("nvmlDeviceGetRetiredPages", cause, read=len) for cause in (0, 1)]
        if None not in pages:
            found["retired_pages"] = sum(pages)
        return {name: count for name, count in found.items() if count is not None}

    def listen(self) -> None:
        """Collect the critical errors that the driver reports (Xid) from now on, for :meth:`xids`."""
        if self._handle is None or self._events is not None:
            return
        events, _ = call(self._module, "nvmlEventSetCreate")
        if events is None:
            return
        self._events = events
        self._ask("nvmlDeviceRegisterEvents", _XID_EVENT, events, read=bool)
        if self._code:
            self.unlisten()

    def xids(self) -> tuple[int, ...] | None:
        """Numbers of the Xid errors since the last call; None where the driver does not report them here."""
        if self._events is None:
            return None
        found: list[int] = []
        while len(found) < 100:
            event, code = call(self._module, "nvmlEventSetWait_v2", self._events, 0, read=_event)
            if event is None:
                if code in (LOST, GPU_NOT_FOUND):
                    self.state = "vanished"
                break
            if event[0] == _XID_EVENT:
                found.append(event[1])
        return tuple(found)

    def unlisten(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            call(self._module, "nvmlEventSetFree", events)

    def persistence(self) -> bool | None:
        """Whether the driver stays up for the device while nobody has it open."""
        found = self._ask("nvmlDeviceGetPersistenceMode")
        return None if found is None else bool(found)


class NVML:
    """NVML, opened; where it cannot be, ``missing`` says why in one sentence and there are no devices.

    While it is open and a device was asked for, the driver is up for that device, persistence mode or not.
    """

    def __init__(self) -> None:
        self._module, self.missing = opened()
        if self._module is not None and self._count() is None:
            self.close()
            self.missing = "NVML does not tell how many GPUs there are"

    @property
    def opened(self) -> bool:
        return self._module is not None

    def close(self) -> None:
        module, self._module = self._module, None
        if module is not None:
            self.missing = "NVML was closed"
            call(module, "nvmlShutdown")

    def driver(self) -> str | None:
        """The driver's version."""
        found: str | None = self._call("nvmlSystemGetDriverVersion", read=text)[0]
        return found

    def _count(self) -> int | None:
        count = self._call("nvmlDeviceGetCount", read=whole)[0]
        return count if count is not None and count <= _MOST_DEVICES else None

    def devices(self) -> list[Device]:
        """Every device of the host that the driver shows, also those that may not be opened."""
        found = []
        for index in range(self._count() or 0):
            handle, code = self._call("nvmlDeviceGetHandleByIndex", index)
            found.append(Device(self._module, handle, index, code=code))
        return found

    def device(self, uuid: str) -> Device:
        """The device or MIG instance of that whole UUID; its ``state`` says where there is none."""
        handle, code = self._call("nvmlDeviceGetHandleByUUID", uuid)
        index = None
        if handle is not None:
            # A MIG instance counts within its device: the device's own index is what nvidia-smi shows.
            parent = self._call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)[0] if _is_mig(uuid) else handle
            index = self._call("nvmlDeviceGetIndex", parent, read=whole)[0] if parent is not None else None
        return Device(self._module, handle, -1 if index is None else index, uuid, code)

    def visible(self, environ: Mapping[str, str]) -> Visible:
        """What a process with *environ* sees, by CUDA's rules for CUDA_VISIBLE_DEVICES.

        The list ends at the first entry that names no device, and one that names a device twice shows none. Numbers
        count as ``nvidia-smi`` does; CUDA counts so too unless the models of GPUs differ.
        """
        if not self.opened:
            return Visible([], self.missing)
        everyone = self.devices()
        usable = [device for device in everyone if device.state not in ("no_permission", "vanished")]
        if not usable:
            states = ", ".join(f"GPU {device.index}: {device.state}" for device in everyone)
            return Visible([], f"no GPU can be opened ({states})" if states else "NVML shows no GPU")
        text = environ.get("CUDA_VISIBLE_DEVICES")
        if text is None:
            return Visible(usable)
        found: list[Device] = []
        for word in text.split(","):
            device = self._named(word.strip(), usable)
            if device is None:
                break
            if device.uuid in [other.uuid for other in found]:
                return Visible([], f"CUDA_VISIBLE_DEVICES={text} names a device twice, so that CUDA shows none")
            found.append(device)
        return Visible(found, "" if found else f"CUDA_VISIBLE_DEVICES={text!r} shows none of {len(usable)} GPUs")

    def _named(self, word: str, usable: list[Device]) -> Device | None:
        if _is_mig(word):
            device = self.device(word)
            return device if device.total_bytes is not None else None
        if word.startswith("GPU-"):
            fitting = [device for device in usable if device.uuid.startswith(word)]
            return fitting[0] if len(fitting) == 1 else None
        number = re.match(r"\+?(\d+)", word)  # strtoul: what follows the digits does not matter
        return usable[int(number[1])] if number and int(number[1]) < len(usable) else None

    def _call(self, function: str, *words: Any, read: Callable[[Any], Any] = lambda answer: answer) -> tuple[Any, int]:
        return call(self._module, function, *words, read=read)

    def __enter__(self) -> NVML:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def visible(environ: Mapping[str, str]) -> Visible:
    """As :meth:`NVML.visible`; of the devices only what is fixed can be read, since NVML is closed again."""
    with NVML() as nvml:
        return nvml.visible(environ)


def _total_used(found: Any) -> tuple[int, int]:
    return whole(found.total), whole(found.used)


def _event(found: Any) -> tuple[int, int]:
    return whole(found.eventType), whole(found.eventData)


def _sums(listed: Any) -> Mapping[int, int | None]:
    """Bytes of each pid. A process in several MIG instances is listed for each; one of unknown size stays unknown."""
    sums: Counter[int] = Counter()
    unknown: set[int] = set()
    for item in listed:
        used = item.usedGpuMemory
        if used is None or used >= 2**63:  # some versions hand out the library's "not available"
            unknown.add(whole(item.pid))
        else:
            sums[whole(item.pid)] += whole(used)
    return {**sums, **dict.fromkeys(unknown)}


def _is_mig(uuid: str) -> bool:
    return uuid.startswith("MIG-")
