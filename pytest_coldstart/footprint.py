"""One boot's view of memory: its GPUs, its ranks' allocators, its KV cache, and the burst that fills them.

Nothing in here may cost a boot: a fault of ours becomes a sentence in ``Memory.missing``.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_coldstart import probe
from pytest_coldstart.attribution import Process
from pytest_coldstart.burst import HeldBurst
from pytest_coldstart.client import Client
from pytest_coldstart.engines.base import LaunchSpec
from pytest_coldstart.engines.families import family
from pytest_coldstart.fragmentation import NO_GPU, PARTS
from pytest_coldstart.kv import KVReader
from pytest_coldstart.load import load_of
from pytest_coldstart.memory import GPU, Allocator, Burst, KVCache, Load, Memory
from pytest_coldstart.observe import scrape
from pytest_coldstart.observe.gpu import GPUObserver
from pytest_coldstart.observe.memory_log import read_sizes
from pytest_coldstart.plan import Plan
from pytest_coldstart.plausible import plausible
from pytest_coldstart.probe.read import read_allocators
from pytest_coldstart.record import Phase, Request
from pytest_coldstart.reference import UNTIMED

if TYPE_CHECKING:
    from pytest_coldstart.boot import Boot

T = TypeVar("T")

#: Tokens that a word of our prompts makes where no answer has told yet.
_TOKENS_PER_WORD = 1.5
#: Seconds for all of it, after which its requests are ended.
_PATIENCE = 300.0
#: Seconds for an engine to be idle again after a burst.
_IDLE_AGAIN = 3.0
#: No context is longer, in tokens, whatever an engine says.
_MOST_CONTEXT = 2**31


def impossible(plan: Plan) -> dict[str, str]:
    """Metrics that cannot exist for a boot of *plan*: what its engine says, and what needs a GPU where there is none.

    ``fragmentation`` can exist where one of its parts can. A GPU that cannot be read is no missing one. Without a GPU
    it is asked for by a burst alone, since the bound of every cell is meant for the memory of GPUs.
    """
    found = dict(plan.engine.impossible(plan.cell))
    if plan.foreign_gpus:
        found["leaked_gpu_memory"] = "others may use its GPUs, and what they take cannot be told from a leak"
    none = not plan.gpus and not plan.gpu_missing
    if none:
        found.setdefault("allocator_fragmentation", NO_GPU)
    if any(part not in found for part in PARTS) and not (none and plan.burst is None):
        found.pop("fragmentation", None)
    else:
        found.setdefault("fragmentation", NO_GPU if none else "; ".join(found[part] for part in PARTS if part in found))
    return found


class Footprint:
    """Made before the launch; :meth:`memory` tells what is known so far."""

    def __init__(self, plan: Plan, spec: LaunchSpec, log: Path, folder: Path, mode: str) -> None:
        self.plan, self.log, self.folder, self.mode = plan, log, folder, mode
        self.host, self.port = spec.host, spec.port
        self.missing: list[str] = [plan.gpu_unleased] if plan.gpu_unleased else []
        self.reader: KVReader | None = self._guarded(lambda: plan.engine.kv_reader(spec, log))
        self.observer: GPUObserver | None = None
        self.kv: list[KVCache] = []
        self.burst = Burst()
        self._held: HeldBurst | None = None
        #: Whether the allocators were read while the burst was surely held.
        self._outlasted = True
        self._closing = threading.Event()

    def _guarded(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except Exception as error:
            self.missing.append(f"memory could not be read, a fault of ours: {type(error).__name__}: {error}")
            return None

    # -- the devices

    def before(self, pids: Callable[[], set[int]]) -> None:
        """Just before the start; *pids*: the boot's tree."""
        if not self.plan.gpus:
            return
        self.observer = self._guarded(lambda: GPUObserver(self.plan.gpus, pids, self.plan.gpu_idle))
        if self.observer:
            self._guarded(self.observer.before)

    def begin(self, origin: float) -> None:
        """The boot starts, or begins anew with its wake; *origin*: second of the monotonic clock."""
        if self.observer:
            observer = self.observer
            self._guarded(lambda: observer.start(origin))

    def stopped(self) -> None:
        """The tree is gone: wait until its memory is back."""
        if self.observer:
            self._guarded(self.observer.settle)

    def close(self) -> None:
        if self.observer:
            self._guarded(self.observer.close)

    def abort(self) -> None:
        """End the requests from another thread, also those that are not sent yet."""
        self._closing.set()
        if self._held:
            self._held.abort()

    # -- under load

    def fill(self, client: Callable[[], Client], requests: list[Request], now: Callable[[], float]) -> None:
        """After the timed requests: first requests of four lengths, memory when ready, the burst, memory held and after."""
        timer = threading.Timer(_PATIENCE, self.abort)
        timer.daemon = True
        timer.start()
        try:
            self._fill(client, requests, now)
        finally:
            timer.cancel()

    def _fill(self, client: Callable[[], Client], requests: list[Request], now: Callable[[], float]) -> None:
        spec = self.plan.burst
        if spec is None:
            self._read_ready(now)
            return
        spec = replace(
            spec, requests=min(spec.requests, self.plan.engine.sequence_limit(self.plan.cell) or spec.requests)
        )
        ratio = tokens_per_word(requests, self.plan.prompt_words)
        limit = self._limit()
        patience = min(_PATIENCE, self.plan.boot_timeout)
        held = self._held = HeldBurst(spec, client, ratio, limit, self.reader, patience, self._closing)
        requests += self._guarded(held.shapes) or []
        self._read_ready(now)
        if self.reader:
            self._guarded(self.reader.begin)
        found = self._guarded(lambda: held.run(lambda: self._ask("held")))
        if found:
            self.burst, reading, sent = found
            requests += sent
            if reading:
                self.kv.append(reading)
            self._outlasted = held.outlasted
            if not self.burst.held and not self.burst.failed:
                told = held.ran is not None and held.ran < self.burst.requests
                count = f"{held.ran} of {self.burst.requests}" if told else "not all"
                self.missing.append(f"the burst was never held whole: {count} requests ran at once")
            if self.burst.held and not held.outlasted:
                self.missing.append(
                    "the burst had ended before every rank answered: no allocator was read while it was held"
                )
        self._idle_again()
        self._ask("after")
        self._read_kv("after", now)

    def _read_ready(self, now: Callable[[], float]) -> None:
        """Everything at the point ready, the devices with it: the engine is warm and nothing is asked of it."""
        if self.observer:
            self._guarded(self.observer.note_ready)
        self._ask("ready")
        self._read_kv("ready", now)

    def _limit(self) -> int | None:
        given = self.plan.engine.context_limit(self.plan.cell)
        return given if given is not None else self._guarded(lambda: served_limit(self.host, self.port))

    def _ask(self, point: str) -> None:
        """Have every rank write its allocator's statistics."""
        if self.mode == "off" or not (self.plan.gpus or self.plan.gpu_missing):
            return
        self._guarded(lambda: probe.ask(self.folder, point))
        self.missing += self._guarded(lambda: probe.wait_for(self.folder, point)) or []

    def _read_kv(self, point: str, now: Callable[[], float]) -> None:
        reader = self.reader
        reading = self._guarded(lambda: reader.read(point)) if reader else None
        if reading is None:
            return
        if reading.running:
            self.missing.append(
                f"the KV cache at {point}: nothing was asked of the engine, and it said that {reading.running} requests "
                "run: its numbers are old"
            )
            return
        self.kv.append(replace(reading, at=now() if reading.at is None else reading.at))

    def _idle_again(self) -> None:
        reader, deadline = self.reader, time.monotonic() + _IDLE_AGAIN
        while reader and time.monotonic() < deadline:
            reading = self._guarded(lambda: reader.read("after"))
            if reading is None or not reading.running:
                return
            time.sleep(0.05)

    # -- afterwards

    def memory(self, boot: Boot, phases: Sequence[Phase], processes: Sequence[Process]) -> Memory:
        """What is known so far. Never raises."""
        gpus = self._guarded(self._gpus)
        allocators, problems = self._allocators(boot.origin, processes)
        found = Memory(
            gpus=gpus or self._unread("it was not watched"),
            allocators=allocators,
            kv=tuple(self.kv),
            burst=self.burst,
            load=self._guarded(lambda: _load(boot, phases)) or Load(),
            sizes=self._guarded(self._sizes) or {},
            impossible=impossible(self.plan),
            missing=tuple(dict.fromkeys(boot.redactor.text(text) for text in (*self.missing, *problems))),
        )
        lost = Memory(gpus=self._unread("a fault of ours"), impossible=found.impossible)
        return self._guarded(lambda: plausible(found)) or replace(lost, missing=tuple(self.missing))

    def _unread(self, why: str) -> tuple[GPU, ...]:
        """The boot's devices, of which nothing is known: without them it would pass for a boot without a GPU."""
        return tuple(GPU(-1, uuid, "", state="unsupported", missing=(why,)) for uuid in self.plan.gpus)

    def _gpus(self) -> tuple[GPU, ...]:
        if self.plan.gpu_missing:
            return (GPU(-1, "", "", state="unsupported", missing=(self.plan.gpu_missing,)),)
        return self.observer.gpus() if self.observer else ()

    def _allocators(self, origin: float, processes: Sequence[Process]) -> tuple[tuple[Allocator, ...], list[str]]:
        if self.mode == "off":
            return (), []
        found, problems = self._guarded(lambda: read_allocators(self.folder)) or ((), [])
        names = {item.pid: item.name for item in processes}
        kept = (item for item in found if item.point != "held" or self._outlasted)
        return tuple(
            replace(
                item,
                process=names.get(item.pid, f"pid {item.pid}"),
                at=None if item.at is None else item.at - origin,
            )
            for item in kept
        ), problems

    def _sizes(self) -> dict[str, int]:
        try:
            with self.log.open("r", encoding="utf-8", errors="replace") as lines:
                found = read_sizes(lines, family(self.plan.engine.name, self.plan.cell.command))
                return {name: size for name, size in found.items() if name != "kv_tokens"}  # bytes alone
        except OSError:
            return {}


def tokens_per_word(requests: Sequence[Request], words: Sequence[int]) -> float:
    """How many tokens a word of our prompts makes, by the answers to the timed requests."""
    counted = [
        (item.prompt_tokens, words[item.index % len(words)])
        for item in requests
        if item.kind == "warm" and item.prompt_tokens
    ]
    return sum(tokens for tokens, _ in counted) / sum(count for _, count in counted) if counted else _TOKENS_PER_WORD


def served_limit(host: str, port: int) -> int | None:
    """The longest context by /v1/models, tokens; None where the engine does not say."""
    body = scrape.fetch(host, port, "/v1/models")
    try:
        models = json.loads(body or b"{}").get("data") or [{}]
        limit = models[0].get("max_model_len")
    except (ValueError, AttributeError, TypeError, KeyError, IndexError):
        return None
    if not isinstance(limit, int) or isinstance(limit, bool):
        return None
    return limit if 0 < limit <= _MOST_CONTEXT else None


def _load(boot: Boot, phases: Sequence[Phase]) -> Load:
    """How fast the weights came, as far as the boot itself tells; beside the machine in :mod:`.compared`."""
    if "first_done" not in boot.instants:
        return Load(missing=("the boot did not come so far that its load is known to be whole",))
    return load_of(phases, boot.evidence.weight_bytes or None, UNTIMED, None, None, None, boot.plan.cell.tier)
