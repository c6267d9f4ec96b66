"""What a boot does on its GPUs, by NVML, sampled beside the engine."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pytest_coldstart.memory import GPU, GPUProcess
from pytest_coldstart.observe.nvml import NVML, Device, Link
from pytest_coldstart.observe.samples import Samples

#: Seconds between two samples, and between two readings of what is dear to read or changes slowly.
EVERY, SELDOM = 0.05, 1.0
#: Share of one core that sampling may take; where a sample costs more, fewer are taken.
MOST_CPU = 0.05
#: Bytes and per cent, read at every sample; KB/s, MHz, watts and degrees Celsius, read once in SELDOM.
OFTEN_COLUMNS = ("memory_used", "gpu_utilisation", "memory_utilisation")
SELDOM_COLUMNS = ("pcie_rx", "pcie_tx", "sm_clock", "memory_clock", "power", "temperature")
#: A driver that has lost a device can take long to answer; a boot waits no longer for it than so many seconds.
STUCK = 5.0
#: The folder of the device files.
DEVICE_FILES = "/dev"


@dataclass
class _Use:
    """One process on one device."""

    name: str
    most: int | None = None
    samples: int = 0
    #: It is a process of this PID namespace.
    here: bool = False
    #: It was there before the start.
    before: bool = False


class _Watch:
    """All that is known of one device. ``device`` is None until NVML is open."""

    def __init__(self, uuid: str, idle: int | None, due: float) -> None:
        self.uuid, self.idle = uuid, idle
        self.device: Device | None = None
        self.before: int | None = None
        self.ready: int | None = None
        self.peak: int | None = None
        self.after: int | None = None
        self.persistence: bool | None = None
        self.link = Link()
        self.uses: dict[int, _Use] = {}
        self.throttle: set[str] = set()
        self.errors: dict[str, int] = {}
        self.samples = Samples((*OFTEN_COLUMNS, *SELDOM_COLUMNS))
        self.missing: list[str] = []
        self._errors_before: dict[str, int] = {}
        self._due = self._first_due = due

    @property
    def gone(self) -> bool:
        return self.device is not None and self.device.state == "vanished"

    def attach(self, device: Device) -> None:
        """NVML was opened, or opened again. What was known of a device that vanished meanwhile stays."""
        if self.device is not None and not device.name:
            device.index, device.name, device.total_bytes = self.device.index, self.device.name, self.device.total_bytes
        self.device = device
        device.listen()

    def renew(self) -> None:
        """Forget what was sampled, but not who was seen."""
        self.samples = Samples(self.samples.columns)
        self.peak, self.link, self._due = None, Link(), self._first_due
        self.throttle.clear()

    def read_before(self, device: Device) -> None:
        self.before = device.memory_used()
        self.persistence = device.persistence()
        self._errors_before = device.errors()
        processes = device.processes()
        self._note(processes or (), before=True)
        if self.before is None:
            self.missing.append("its memory in use cannot be read")
        if processes is None:
            self.missing.append("its processes cannot be read")

    def sample(self, device: Device, when: float, ready: bool) -> None:
        """One sample, *when* in seconds from the boot's start. *ready*: whether the engine is."""
        if device.state in ("vanished", "no_permission"):
            return
        used = device.memory_used()
        self.peak = _most(self.peak, used)
        if ready and self.ready is None:
            self.ready = used
        self._note(device.processes() or ())
        self._note_link(device)
        gpu, memory = device.utilisation()
        values: dict[str, float | None] = dict(zip(OFTEN_COLUMNS, (used, gpu, memory), strict=True))
        if when >= self._due:
            self._due = when + SELDOM
            values |= self._seldom(device)
        if device.state == "vanished":
            self.missing.append(f"it stopped answering {when:.1f} s after the start")
            return
        self.samples.add(when, values)

    def _seldom(self, device: Device) -> dict[str, float | None]:
        self._note_xids(device)
        rx, tx = device.pcie_throughput()
        sm, memory = device.clocks()
        self.throttle.update(word for word in device.throttle() or () if word != "idle")
        power, temperature = device.power(), device.temperature()
        values = (rx, tx, sm, memory, power, temperature)
        return dict(zip(SELDOM_COLUMNS, values, strict=True))

    def _note_xids(self, device: Device) -> None:
        """Critical errors of the driver: how many, and how many of each number."""
        found = device.xids()
        if found is None:
            return
        for name in ("xid", *(f"xid_{number}" for number in found)):
            self.errors[name] = self.errors.get(name, 0) + (len(found) if name == "xid" else 1)

    def _note_link(self, device: Device) -> None:
        """Keep the best: a link trains down while nothing crosses it."""
        best = self.link
        if best.gen is not None and (best.gen, best.width) == (best.gen_max, best.width_max):
            return
        now = device.link()
        self.link = Link(*(_most(old, new) for old, new in zip(best, now, strict=True)))

    def _note(self, processes: Sequence[GPUProcess], before: bool = False) -> None:
        for process in processes:
            use = self.uses.setdefault(process.pid, _Use(process.name, before=before))
            use.samples += 1
            use.here = use.here or os.path.exists(f"/proc/{process.pid}")  # noqa: PTH110 - 20 times a second
            use.most = _most(use.most, process.bytes)

    def settled(self, device: Device) -> bool:
        """Whether no more is in use than before the start, as far as that can be told."""
        used = device.memory_used()
        if used is not None:
            self.after = used
        return used is None or self.before is None or used <= self.before

    def count_errors(self, device: Device) -> None:
        """What the counters grew by. One that is smaller now began anew with the driver."""
        self._note_xids(device)
        for name, count in device.errors().items():
            earlier = self._errors_before.get(name)
            if earlier is not None:
                self.errors[name] = count - earlier if count >= earlier else count

    def gpu(self, tree: Collection[int], missing: Sequence[str]) -> GPU:
        ours = {pid: use for pid, use in self.uses.items() if pid in tree}
        others = {pid: use for pid, use in self.uses.items() if pid not in ours}
        foreign = {pid: use for pid, use in others.items() if use.before or use.here}
        # One that ended between two readings is seen once.
        hidden = [pid for pid, use in others.items() if pid not in foreign and use.samples > 1]
        device = self.device
        reasons = [*missing, *self.missing]
        if hidden:
            reasons.append("it has processes of another PID namespace: whose they are cannot be told")
        return GPU(
            index=-1 if device is None else device.index,
            uuid=self.uuid,
            name="" if device is None else device.name,
            state="unsupported" if device is None else device.state,
            total_bytes=None if device is None else device.total_bytes,
            idle_bytes=self.idle,
            before_bytes=self.before,
            ready_bytes=self.ready,
            peak_bytes=self.peak,
            after_bytes=self.after,
            process_bytes={str(pid): use.most for pid, use in ours.items() if use.most is not None},
            foreign=tuple(GPUProcess(pid, use.name, use.most) for pid, use in sorted(foreign.items())),
            persistence=self.persistence,
            pcie_gen=self.link.gen,
            pcie_gen_max=self.link.gen_max,
            pcie_width=self.link.width,
            pcie_width_max=self.link.width_max,
            throttle=tuple(sorted(self.throttle)),
            errors=dict(self.errors),
            missing=tuple(reasons),
            series=self.samples.series(),
        )


class GPUObserver:
    """Watches the devices *uuids* for one boot; never raises, whatever becomes of them.

    In order: :meth:`before`, :meth:`start`, :meth:`note_ready`, :meth:`settle`, :meth:`close`; each may be left out, and
    :meth:`gpus` may be asked at any time. *pids* tells the processes of the boot's tree as they are now. *idle*: UUID ->
    bytes in use before anything of ours ran.

    Where a device's persistence mode is off, the driver comes up with the first process that opens the device, and that
    time is the boot's. NVML is not held open then until a process of the tree holds the device itself.
    """

    def __init__(
        self, uuids: Sequence[str], pids: Callable[[], Collection[int]], idle: Mapping[str, int] | None = None
    ) -> None:
        self._watches = [
            _Watch(uuid, (idle or {}).get(uuid), SELDOM * number / len(uuids)) for number, uuid in enumerate(uuids)
        ]
        self._pids = pids
        self._tree: set[int] = set()
        self._nvml: NVML | None = None
        self._no_nvml = ""
        self._origin = time.monotonic()
        #: NVML is held open only while a process of the tree holds a device.
        self._aloof = False
        #: Since when nothing is sampled for that reason, and for how long in all before that.
        self._dark: float | None = None
        self._unsampled = 0.0
        self._looked = 0.0
        self._ready = False
        self._settle_until: float | None = None
        self._settled = False
        self._faults: list[str] = []
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="coldstart-gpu")

    def before(self) -> None:
        """Read, just before the start, what is in use, by whom, and the counters of errors."""
        with self._lock:
            for watch, device in self._devices():
                watch.read_before(device)
            self._aloof = any(watch.persistence is False for watch in self._watches)
            if self._aloof:
                self._shut()

    def start(self, origin: float) -> None:
        """Begin to sample. *origin*: the monotonic second of the boot's start.

        Called once more where a boot begins anew, by waking what was put to sleep: what was sampled until then is dropped.
        """
        with self._lock:
            self._origin = origin
            if self._thread.ident is not None:
                self._unsampled = 0.0
                for watch in self._watches:
                    watch.renew()
            if self._aloof and self._nvml is None:
                self._dark = origin
        if self._watches and not self._no_nvml and self._thread.ident is None:
            self._thread.start()

    def note_ready(self) -> None:
        """The engine is ready: the next sample tells what is in use then. From here on NVML stays open. Waits for nothing."""
        self._aloof = False
        self._ready = True

    def settle(self, patience: float = 5.0) -> None:
        """After the stop: wait up to *patience* seconds until no more is in use than before, and end the sampling."""
        self._aloof = False
        self._settle_until = time.monotonic() + patience
        if self._thread.is_alive():
            self._thread.join(patience + STUCK)
        if self._thread.is_alive():
            self._closed.set()
            return
        while not self._settled:  # nothing was sampled, or no longer
            with self._lock:
                self._settle()
            if not self._settled:
                time.sleep(EVERY)

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(STUCK)
        if not self._thread.is_alive():
            with self._lock:
                self._light()
                self._shut()

    def gpus(self) -> tuple[GPU, ...]:
        """The devices, as far as they are known now."""
        answers = self._lock.acquire(timeout=STUCK)
        try:
            missing = [*filter(None, [self._no_nvml]), *self._faults]
            if not answers:
                missing.append(f"NVML has not answered for {STUCK:g} s")
            unsampled = self._unsampled + (0.0 if self._dark is None else time.monotonic() - self._dark)
            if unsampled:
                missing.append(
                    f"{unsampled:.1f} s were not sampled: persistence mode is off, and whoever holds NVML open "
                    "would spare the boot the start of the driver"
                )
            return tuple(watch.gpu(self._tree, missing) for watch in self._watches)
        finally:
            if answers:
                self._lock.release()

    def _devices(self) -> list[tuple[_Watch, Device]]:
        """The watches with their devices, NVML opened where it is not; none where it cannot be."""
        if self._nvml is None and self._watches and not self._no_nvml and not self._closed.is_set():
            nvml = NVML()
            if not nvml.opened:
                self._no_nvml = nvml.missing
                return []
            self._nvml = nvml
            self._light()
            for watch in self._watches:
                if not watch.gone:
                    watch.attach(nvml.device(watch.uuid))
        if self._nvml is None:
            return []
        return [(watch, watch.device) for watch in self._watches if watch.device is not None]

    def _shut(self) -> None:
        if self._nvml is not None:
            for _, device in self._devices():
                device.unlisten()
            self._nvml.close()
            self._nvml = None

    def _light(self) -> None:
        """Count the time without samples that ends now."""
        if self._dark is not None:
            self._unsampled += time.monotonic() - self._dark
            self._dark = None

    def _run(self) -> None:
        pause = 0.0
        try:
            while not self._closed.wait(pause) and not self._no_nvml:
                begin, cpu = time.monotonic(), time.thread_time()
                self._take()
                if self._settled:
                    break
                stride = max((watch.samples.stride for watch in self._watches), default=1)
                spent = time.monotonic() - begin
                pause = max(0.005, EVERY * stride - spent, (time.thread_time() - cpu) / MOST_CPU - spent)
        except Exception as error:  # whatever the driver or the caller's pids do, the boot goes on
            self._faults.append(f"sampling ended {time.monotonic() - self._origin:.1f} s after the start: {error!r}")

    def _take(self) -> None:
        """One sample of every device."""
        with self._lock:
            if self._aloof and not self._may_hold():
                if self._nvml is not None:
                    self._dark = time.monotonic()
                self._shut()
                return
            for watch, device in self._devices():
                watch.sample(device, time.monotonic() - self._origin, self._ready)
            # After the processes of the devices: a new one is in the tree by now.
            self._tree.update(self._pids())
            if self._settle_until is not None:
                self._settle()

    def _settle(self) -> None:
        settled = [watch.settled(device) for watch, device in self._devices()]
        if all(settled) or self._settle_until is None or time.monotonic() >= self._settle_until:
            self._settled = True
            for watch, device in self._devices():
                watch.count_errors(device)

    def _may_hold(self) -> bool:
        """Whether a process of the tree holds a device: looked up once in SELDOM while NVML is open, else each time."""
        now = time.monotonic()
        if self._nvml is not None and now - self._looked < SELDOM:
            return True
        self._looked = now
        return any(holds_device(pid) for pid in self._pids())


def holds_device(pid: int) -> bool:
    """Whether the process has a device open through CUDA, which keeps it, and /dev/nvidia-uvm, as long as it lives.

    A client of NVML alone, which opens neither for long, does not count.
    """
    try:
        folder = f"/proc/{pid}/fd"
        names = {os.readlink(f"{folder}/{number}") for number in os.listdir(folder)}
    except OSError:
        return False
    numbered = re.compile(re.escape(DEVICE_FILES) + r"/nvidia\d+")
    return f"{DEVICE_FILES}/nvidia-uvm" in names and any(map(numbered.fullmatch, names))


def _most(old: int | None, new: int | None) -> int | None:
    return max((value for value in (old, new) if value is not None), default=None)
