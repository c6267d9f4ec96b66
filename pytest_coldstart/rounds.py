"""The rounds of one cell in one run: priming, boots, the live last one, the verdicts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pytest_coldstart import environment, units
from pytest_coldstart.boot import Boot, Progress
from pytest_coldstart.coldness import TIERS, Coldness, TierContradicted
from pytest_coldstart.compared import compared
from pytest_coldstart.devices import DeviceBusy, Devices, Lease
from pytest_coldstart.engines.base import LaunchSpec
from pytest_coldstart.errors import HarnessFault
from pytest_coldstart.footprint import impossible
from pytest_coldstart.locks import HostLock
from pytest_coldstart.plan import Plan
from pytest_coldstart.ports import HOST
from pytest_coldstart.record import BootRecord
from pytest_coldstart.reference import References
from pytest_coldstart.slo import Bound, Verdict, judge

#: Told of every whole boot; it stores the record.
Keep = Callable[[BootRecord], None]


@dataclass
class Rounds:
    """Boots a cell ``plan.rounds`` times. The last boot stays up until :meth:`finish`.

    ``earlier`` are boots of the same cell that an earlier attempt of the same test made in this
    run: a rerun adds rounds and replaces none.
    """

    plan: Plan
    keep: Keep
    earlier: Sequence[BootRecord] = ()
    progress: Progress | None = None
    waiting: Callable[[float], None] | None = None
    devices: Devices | None = None
    references: References | None = None
    records: list[BootRecord] = field(default_factory=list)
    live: Boot | None = None
    #: A priming boot that failed: it fails the cell as a failed round does.
    failed_prime: BootRecord | None = None
    _lock: HostLock | None = None
    _lease: Lease | None = None
    #: Every boot of it, priming ones included.
    _made: list[BootRecord] = field(default_factory=list)

    def run(self) -> None:
        """Make every round; stops after a failed one, since a failed boot fails its cell anyway.

        :raises TierRefused, TierContradicted, DevicesMissing, DeviceBusy, HarnessFault: no verdict is possible.
        """
        first = len(self.earlier) + 1
        last = len(self.earlier) + self.plan.rounds
        try:
            self._take_lock()
            self._take_gpus()
            for number in range(first, last + 1):
                if not self._primed():
                    break
                boot = self._boot("measured", number)
                if boot.failure or number < last:
                    self._stop(boot)
                else:
                    self.live = boot
                if boot.failure:
                    break
            if self.live is None:
                self._drop_lock()
        except BaseException:
            self._drop_lock()
            raise

    def finish(self) -> None:
        """Stop the live boot and let the next one on this host begin."""
        try:
            if self.live is not None:
                boot, self.live = self.live, None
                self._stop(boot)
        finally:
            self._drop_lock()

    @property
    def counted(self) -> list[BootRecord]:
        """The boots that count, earlier attempts included, the live one as far as it is known."""
        live = [self.live.snapshot()] if self.live else []
        return [record for record in (*self.earlier, *self.records, *live) if record.counted]

    @property
    def failed(self) -> BootRecord | None:
        return self.failed_prime or next((record for record in self.counted if record.failed), None)

    def judge(self, bounds: Sequence[Bound]) -> list[Verdict]:
        return judge(bounds, self.counted, impossible(self.plan), stopped=self.live is None)

    def _boot(self, role: str, number: int) -> Boot:
        hold = [self._lock.fileno()] if self._lock else []
        if self.devices and self._lease:
            hold += self._lease.filenos()
            self._wait_until_idle(self.devices, self._lease)
        # A priming boot fills caches; nobody judges its warm requests or its burst.
        plan = replace(self.plan, requests=0, burst=None) if role == "prime" else self.plan
        boot = Boot(plan, role, number, self.progress, hold)
        try:
            boot.run()
        except TierContradicted:
            if boot.record is not None:
                self.keep(boot.record)
            raise
        return boot

    def _stop(self, boot: Boot) -> None:
        record = boot.stop()
        try:
            if self.references:
                record = compared(record, self.plan, self.references)
        finally:  # an interrupted reference costs no record
            self._made.append(record)
            if record.role == "measured":
                self.records.append(record)
            self.keep(record)

    def _primed(self) -> bool:
        """A tier that keeps caches needs a boot that filled them; it is stored and marked as prime.

        False where that boot failed.
        """
        plan = self.plan
        tier = TIERS[plan.cell.tier]
        spec = LaunchSpec(plan.cell, plan.model, HOST, 1, plan.python, plan.cache_home)
        roots = plan.engine.cache_roots(spec)
        coldness = Coldness(tier, plan.cache_home, roots, (), (), plan.cell.env)
        if not coldness.roots or not coldness.needs_priming(plan.engine.versions(plan.cell)):
            return True
        boot = self._boot("prime", 0)
        self._stop(boot)
        if boot.failure:
            self.failed_prime = boot.record
        return boot.failure is None

    def _take_lock(self) -> None:
        if self.plan.parallel:
            # Boots of one cell share its cache folders, which some tiers empty.
            self._lock = HostLock(f"caches-{hashlib.sha256(str(self.plan.cache_home).encode()).hexdigest()[:12]}")
            self._lock.acquire(self.waiting)
        else:
            if HostLock.held_here("measured-boot"):
                raise HarnessFault(
                    "this process has another measured boot up, which would wait for itself: a test can use "
                    "cold_boot or shared_cold_boot, not both (shared_cold_boot.client sends requests)"
                )
            self._lock = HostLock("measured-boot")
            self._lock.acquire(self.waiting)

    def _take_gpus(self) -> None:
        """Lease as many GPUs as a boot takes, for all rounds."""
        plan = self.plan
        if self.devices is None:
            return
        environ = {**plan.environ, **plan.cell.env}
        count = plan.engine.gpus(plan.cell) if plan.gpu_count is None else plan.gpu_count
        if plan.cell.container:
            # Its processes cannot be told from foreign ones, and it sees the devices that its command gives it.
            self.plan = replace(plan, gpu_unleased="the engine runs in a container, where no GPU is watched")
            return
        self.devices.idle_once(plan.environ)  # only now: while others boot, none is idle
        self._lease = self.devices.lease(count, environ, self.waiting)
        unseen = self._lease.missing if not self._lease.uuids and count != 0 else ""
        known = bool(unseen) and self._lease.unread and environment.can_open_gpu(amd=bool(count))
        asked = bool(unseen) and not known and bool(plan.gpu_count)
        self.plan = replace(
            plan,
            gpus=self._lease.uuids,
            gpu_missing=unseen if known else "",
            gpu_unleased=f"GPUs asked for: {count}, and none could be leased: {unseen}" if asked else "",
            gpu_environ=self._lease.environment(),
            gpu_idle=self.devices.idle_bytes,
        )

    def _wait_until_idle(self, devices: Devices, lease: Lease) -> None:
        """:raises DeviceBusy: it stays in use; what an earlier boot of the cell left is named."""
        try:
            devices.wait_until_idle(lease, self.plan.gpu_wait, self.plan.foreign_gpus, self.waiting)
        except DeviceBusy as error:
            left = [
                f"{units.show(gpu.leaked_bytes, 'B')} since boot {record.boot_id} of this cell"
                for record in self._made
                for gpu in record.memory.gpus
                if gpu.leaked_bytes
            ]
            raise DeviceBusy(f"{error}. Leaked: {', '.join(left)}" if left else str(error)) from None

    def _drop_lock(self) -> None:
        if self._lease:
            self._lease.release()
            self._lease = None
        if self._lock:
            self._lock.release()
            self._lock = None
