"""GPUs of a session: who has which, and whether nothing else uses them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_coldstart.errors import HarnessFault
from pytest_coldstart.locks import HostLock
from pytest_coldstart.memory import GPUProcess
from pytest_coldstart.observe.nvml import NVML, Device, visible

MIB = 2**20
#: A device is idle again when no more than this is in use beyond its idle memory.
TOLERANCE = 32 * MIB
#: A process that was there before the first boot makes numbers suspect from this size on.
FOREIGN_BYTES = 256 * MIB

Waiting = Callable[[float], None]


class DevicesMissing(ValueError):
    """A boot asks for more GPUs than a process here would see."""


class DeviceBusy(RuntimeError):
    """GPU memory that a boot needs is in use by others; the message names them."""


@dataclass
class Lease:
    """Devices of one boot. ``missing``: why none can be told; then nothing is locked and the engine sees what it sees."""

    uuids: tuple[str, ...] = ()
    missing: str = ""
    #: Whether that is since NVML could not be opened: the host may have GPUs all the same.
    unread: bool = False
    _locks: list[HostLock] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """What makes the engine see the leased devices and no others; empty where none are leased."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.uuids)} if self._locks else {}

    def filenos(self) -> list[int]:
        """Descriptors of the locks: a process that inherits them keeps the devices, however we end."""
        return [lock.fileno() for lock in self._locks if lock.held]

    def release(self) -> None:
        for lock in self._locks:
            lock.release()


class Devices:
    """What is known of the host's GPUs from before the first boot on. ``idle_bytes``: UUID -> bytes in use then."""

    def __init__(self) -> None:
        self.idle_bytes: dict[str, int] = {}
        #: UUID -> the processes that were there then.
        self.idle_processes: dict[str, tuple[GPUProcess, ...]] = {}
        self._idle_read = False
        self._visible: dict[str | None, tuple[str, ...]] = {}

    def visible(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """UUIDs of the devices that a process with *environ* sees, asked once a session."""
        limit = environ.get("CUDA_VISIBLE_DEVICES")
        if limit not in self._visible:
            self._visible[limit] = tuple(device.uuid for device in visible(environ).devices)
        return self._visible[limit]

    def idle_once(self, environ: Mapping[str, str]) -> None:
        """As :meth:`idle`, at the first call alone. Call it while no boot of this host can have begun."""
        if not self._idle_read:
            self._idle_read = True
            self.idle(environ)

    def idle(self, environ: Mapping[str, str]) -> dict[str, int]:
        """Read, before the first boot, what is in use of each device that a process with *environ* sees.

        A device that another boot of this tool has now is read when it is leased.
        """
        with NVML() as nvml:
            for device in nvml.visible(environ).devices:
                lock = HostLock(_lock_name(device.uuid))
                if not HostLock.held_here(lock.name) and lock.try_acquire():
                    self._read_idle(device)
                    lock.release()
        return dict(self.idle_bytes)

    def lease(self, count: int | None, environ: Mapping[str, str], waiting: Waiting | None = None) -> Lease:
        """Take *count* of the devices that *environ* shows for one boot; wait until as many are free.

        None takes none and lists all. *waiting* is told the seconds waited, about once a second. Where NVML cannot be
        opened nothing can be leased, and the lease says why: an engine may run all the same.

        :raises DevicesMissing: fewer are visible.
        :raises HarnessFault: this process holds them itself, and would wait for itself.
        """
        if count == 0:
            return Lease()
        with NVML() as nvml:
            if not nvml.opened:
                return Lease(missing=nvml.missing, unread=True)
            shown = nvml.visible(environ)
            uuids = [device.uuid for device in shown.devices if device.uuid]
        if count is None:
            return Lease(tuple(uuids), shown.missing)
        if count > len(uuids):
            raise DevicesMissing(_missing(count, len(uuids), shown.missing, environ))
        mine = sum(HostLock.held_here(_lock_name(uuid)) for uuid in uuids)
        if len(uuids) - mine < count:
            raise HarnessFault(
                f"{count} GPUs are asked for while another boot of this process has {mine} of the {len(uuids)} "
                "that are visible: it would wait for itself"
            )
        taken = _take(count, uuids, waiting)
        self._read_new(list(taken))
        return Lease(tuple(taken), _locks=list(taken.values()))

    def wait_until_idle(
        self, lease: Lease, patience: float, allow_foreign: bool = False, waiting: Waiting | None = None
    ) -> float:
        """Wait up to *patience* seconds until no more is in use of each device than before the first boot.

        With *allow_foreign*, what living processes have on it does not count. Returns the seconds waited.

        :raises DeviceBusy: it stays in use, or a foreign process stays that had much of it before the first boot.
        """
        begin = told = time.monotonic()
        with NVML() as nvml:
            devices = [nvml.device(uuid) for uuid in lease.uuids] if nvml.opened else []
            while True:
                busy = [words for device in devices if (words := self._busy(device, allow_foreign))]
                now = time.monotonic()
                if not busy:
                    return now - begin
                if now - begin >= patience:
                    raise DeviceBusy(
                        f"{'; '.join(busy)} (after {now - begin:.0f} s of waiting). End what uses it, wait longer with "
                        "--coldstart-gpu-wait, or allow other processes with --coldstart-foreign-gpu=allow"
                    )
                if waiting and now - told >= 1:
                    told = now
                    waiting(now - begin)
                time.sleep(min(0.1, patience))

    def _busy(self, device: Device, allow_foreign: bool) -> str:
        """Why *device* is not idle, in words; "" where it is, or where that cannot be told."""
        used, idle = device.memory_used(), self.idle_bytes.get(device.uuid)
        if used is None or idle is None:
            return ""
        processes = device.processes() or ()
        earlier = {process.pid: process.bytes or 0 for process in self.idle_processes.get(device.uuid, ())}
        excess = used - idle
        large = []
        if allow_foreign:
            excess -= sum(max(0, (process.bytes or 0) - earlier.get(process.pid, 0)) for process in processes)
        else:
            # Where the driver does not tell whose the memory is, it may all be theirs.
            large = [
                item
                for item in processes
                if item.pid in earlier and (used if item.bytes is None else item.bytes) >= FOREIGN_BYTES
            ]
        if excess <= TOLERANCE and not large:
            self.idle_bytes[device.uuid] = min(used, idle)  # who was there before may have gone meanwhile
            return ""
        name = f"GPU {device.index} ({device.name}, {device.uuid})"
        return f"{name} has {_mib(used)} in use, {_mib(idle)} of it since before the first boot: {_owners(processes)}"

    def _read_new(self, uuids: Sequence[str]) -> None:
        new = [uuid for uuid in uuids if uuid not in self.idle_bytes]
        if new:
            with NVML() as nvml:
                for uuid in new:
                    self._read_idle(nvml.device(uuid))

    def _read_idle(self, device: Device) -> None:
        used = device.memory_used()
        if used is not None:
            self.idle_bytes.setdefault(device.uuid, used)
            self.idle_processes.setdefault(device.uuid, device.processes() or ())


def _take(count: int, uuids: Sequence[str], waiting: Waiting | None) -> dict[str, HostLock]:
    """Locks of *count* devices: all at once or none, so that two who wait never hold what the other one lacks.

    Who sees the same devices waits in one line: a boot that needs many is not passed by boots that need one.
    """
    digest = hashlib.sha256(" ".join(sorted(uuids)).encode()).hexdigest()[:12]
    line = HostLock(f"gpus-{digest}")
    begin = told = time.monotonic()
    line.acquire(waiting)
    try:
        while True:
            taken: dict[str, HostLock] = {}
            for uuid in uuids:
                lock = HostLock(_lock_name(uuid))
                if len(taken) < count and not HostLock.held_here(lock.name) and lock.try_acquire():
                    taken[uuid] = lock
            if len(taken) == count:
                return taken
            for lock in taken.values():
                lock.release()
            now = time.monotonic()
            if waiting and now - told >= 1:
                told = now
                waiting(now - begin)
            time.sleep(0.05)
    finally:
        line.release()


def _lock_name(uuid: str) -> str:
    return f"gpu-{uuid.replace('/', '-')}"  # the older UUIDs of MIG instances have slashes


def _missing(count: int, seen: int, why: str, environ: Mapping[str, str]) -> str:
    limit = environ.get("CUDA_VISIBLE_DEVICES")
    shown = f" (CUDA_VISIBLE_DEVICES={limit})" if limit is not None and seen else f" ({why})" if why else ""
    noun = "GPU" if count == 1 else "GPUs"
    verb = "is" if seen == 1 else "are"
    return f"{count} {noun} asked for and {seen} {verb} visible{shown}"


def _owners(processes: Sequence[GPUProcess]) -> str:
    if not processes:
        return "no process that can be seen here has it"
    return ", ".join(
        f"pid {item.pid} ({item.name}, {'unknown size' if item.bytes is None else _mib(item.bytes)})"
        for item in processes
    )


def _mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB"
