"""One boot of the demo: a record as a real boot leaves one."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pytest_coldstart.attribution import UNATTRIBUTED, Attribution, HotFrame, Process, Reading
from pytest_coldstart.demo.cells import REQUESTS, WAKE, Cache, DemoCell, Step
from pytest_coldstart.demo.failures import Kind
from pytest_coldstart.demo.history import DemoRun, changed, recompiles, versions
from pytest_coldstart.demo.memory import COPY, DISK, PID, memory, reads
from pytest_coldstart.hints import hints
from pytest_coldstart.memory import Series
from pytest_coldstart.metrics import measure
from pytest_coldstart.record import BootRecord, Evidence, FileResidency, Inventory, Phase, Request, Stop, Usage, Value
from pytest_coldstart.record import Cache as CacheRecord

_SERVER = 4101
#: Tokens of each request, and seconds between two of them.
_TOKENS, _PACE = 16, 0.0085
#: Imports take so many times as long where their files are evicted, and where their bytecode is compiled too.
_EVICTED, _BYTECODE = 1.12, 1.35
_EMPTY = Inventory(0, 0, "e3b0c44298fc1c14")


@dataclass(frozen=True)
class Place:
    """Which boot it is: of which run and cell, when, and the how manyth; ``role`` as a record has it.

    ``evicted``: its weights were not where its tier says, so that it does not count.
    """

    run: DemoRun
    item: DemoCell
    at: datetime
    round: int = 1
    role: str = "measured"
    evicted: bool = False


def boot(place: Place, failure: Kind | None, order: random.Random) -> BootRecord:
    """The record of one boot, with metrics and hints; *failure* is how it fails, if it does."""
    run, item = place.run, place.item
    path = _path(item, run.day, failure, order)
    end = path[-1].end
    requests = () if failure else _requests(item, path[-1].begin, end, order)
    warmed = end + 0.002
    instants = _instants(item, path, requests, failure)
    attribution = _attribution(item, path, failure)
    record = BootRecord(
        boot_id=f"{place.at:%Y%m%dT%H%M%S}-{order.getrandbits(32):08x}",
        run_id=run.id,
        nodeid=item.nodeid,
        cell_id=item.name,
        cell=item.content,
        cell_digest=item.digest,
        base_digest=item.base_digest,
        engine=item.engine.name,
        tier=item.tier,
        role=place.role,
        round=place.round,
        outcome="failed" if failure else "error" if place.evicted else "ok",
        started_at=place.at.isoformat(timespec="milliseconds"),
        instants=instants,
        endpoints={} if failure else {"models": instants["ready"] - 0.004, "health": instants["ready"]},
        poll_delay=None if failure else round(order.uniform(0.004, 0.02), 4),
        phases=path,
        attribution=attribution,
        requests=requests,
        caches=_caches(item, run.day),
        evidence=_evidence(item, place.evicted),
        usage=_usage(item, end, order),
        stop=Stop(round(order.uniform(0.8, 2.4), 3), False, 1 if failure else 0, (), (), 0, True),
        failure=failure.failure() if failure else None,
        references=_references(item, order),
        versions=versions(item, run.day),
        model={"name": item.engine.model, "path": f"/demo/models/{item.engine.model}", "bytes": item.engine.weights},
        command=(*item.engine.command, "--port", "8000"),
        environment={"HF_HUB_OFFLINE": "1", "COLDSTART_PROBE": "full"},
        load_average=round(order.uniform(0.4, 2.2), 2),
        harness_time=round(order.uniform(1.1, 2.6), 3),
    )
    if not failure:
        record = replace(record, memory=memory(item, run.host, path, warmed, run.day, order))
    record = replace(record, hints=hints(record))
    return replace(record, metrics=measure(record))


def _path(item: DemoCell, day: float, failure: Kind | None, order: random.Random) -> tuple[Phase, ...]:
    """The critical path, up to where it fails. A boot is slower or faster as a whole, and each step a little by itself."""
    whole = order.lognormvariate(0, 0.012)
    found, at = [], 0.0
    for step in WAKE if item.tier == "wake" else item.engine.steps:
        seconds = _seconds(item, step, day) * whole * order.lognormvariate(0, 0.025)
        source = "proc" if step.phase in ("spawn", "first_request") else "probe"
        found.append(Phase(step.phase, at, at + seconds, source, step.process, _detail(item, step, day)))
        at += seconds
        if failure and step.phase == failure.phase:
            break
    return tuple(found)


def _seconds(item: DemoCell, step: Step, day: float) -> float:
    empty, evicted = item.tier == "pristine", item.tier in ("pristine", "redeploy")
    if item.eager and step.phase in ("compile", "graph_capture"):
        return 0.02
    seconds = step.cold if empty and step.cold is not None else step.seconds
    if step.phase == "load_weights" and evicted:
        seconds = max(seconds, item.engine.weights / DISK)
    if step.phase == "imports":
        seconds *= (_EVICTED if evicted else 1.0) * (_BYTECODE if empty else 1.0)
    return seconds * changed(item, step, day)


def _detail(item: DemoCell, step: Step, day: float) -> str:
    if step.phase == "imports" and item.tier == "pristine":
        return f"{step.detail} (bytecode)"
    if step.phase == "compile" and (item.tier == "pristine" or recompiles(item, day)):
        return "inductor" if item.engine.name == "vllm" else "kernel JIT"
    return step.detail


def _requests(item: DemoCell, sent: float, done: float, order: random.Random) -> tuple[Request, ...]:
    """The first request, which ends the path, and those after the warm-up, of which a few are slow."""
    token = done - (_TOKENS - 1) * _PACE if done - sent > 0.15 else sent + 0.7 * (done - sent)
    found = [_request("first", 0, sent, token - sent, done - token)]
    at = done + 0.003
    for index in range(REQUESTS):
        ttft = item.engine.ttft * order.lognormvariate(0, 0.06)
        if order.random() < 0.06:
            ttft *= 1 + order.expovariate(1) * 4 * item.engine.tail
        found.append(_request("warm", index, at, ttft, (_TOKENS - 1) * _PACE))
        at += ttft + _TOKENS * _PACE
    return tuple(found)


def _request(kind: str, index: int, sent: float, ttft: float, rest: float) -> Request:
    first, done = round(sent + ttft, 5), round(sent + ttft + rest, 5)
    digest = hashlib.sha256(f"{kind} {index}".encode()).hexdigest()[:16]
    engine = round(max(0.001, ttft - 0.004), 5) if kind == "warm" else None
    return Request(
        kind, index, round(sent, 5), first, first, done, digest, 16, _TOKENS, _TOKENS, "length", 1, None, engine
    )


def _instants(
    item: DemoCell, path: Sequence[Phase], requests: Sequence[Request], failure: Kind | None
) -> dict[str, float]:
    end = path[-1].end
    found = {"start": 0.0}
    if item.tier != "wake":
        found["python"] = path[0].end
        server = next((phase for phase in path if phase.name == "server_start"), None)
        if server:
            found["listen"] = server.begin
    if failure:
        if failure.instant == "ready":
            found["ready"] = end
        return {**found, "stopped": end + 1.5}
    first = requests[0]
    assert first.first_token is not None
    token = {"first_token": first.first_token, "first_text": first.first_token, "first_done": end}
    return {**found, "ready": path[-1].begin, **token, "warmed": end + 0.002, "stopped": end + 14.0}


def _attribution(item: DemoCell, path: Sequence[Phase], failure: Kind | None) -> Attribution:
    end = path[-1].end
    names = dict.fromkeys(phase.process for phase in path)
    processes = []
    for name in sorted(names, key=lambda name: name != "server"):
        mine = [phase for phase in path if phase.process == name]
        own = [phase for phase in mine if phase.name == "imports"]
        pid = PID if name == item.engine.processes[-1] else _SERVER
        took = sum(phase.end - phase.begin for phase in own)
        start = -42.0 if item.tier == "wake" else mine[0].begin
        processes.append(
            Process(
                *(pid, _SERVER if pid == PID and name != "server" else 1, name, start),
                end=end if failure else None,
                exit_code=1 if failure else None,
                command=" ".join(item.engine.command),
                probe="full",
                instants={"python": start + 0.04, "main": start + 0.06},
                imports={"torch": took * 0.44, "transformers": took * 0.27, "numpy": took * 0.05} if own else {},
                modules=4180 if item.engine.used else 113,
                samples=int(20 * (end - max(0.0, start))),
                probe_cpu=round(0.004 * end, 4),
                gaps=round(0.01 * end, 3),
            )
        )
    return Attribution(
        probe="full",
        end=end,
        processes=tuple(processes),
        readings=tuple(
            Reading(("load_weights",), phase.end - phase.begin, "log", "weights", phase.process, phase.begin, phase.end)
            for phase in path
            if phase.name == "load_weights"
        ),
        hottest=tuple(
            HotFrame(phase.process, phase.detail, phase.end - phase.begin)
            for phase in path
            if phase.name == UNATTRIBUTED
        ),
    )


def _caches(item: DemoCell, day: float) -> tuple[CacheRecord, ...]:
    return tuple(_cache(item, cache, day) for cache in item.engine.caches)


def _cache(item: DemoCell, cache: Cache, day: float) -> CacheRecord:
    """Filled by a boot with empty caches, else found full; the regression makes one of them grow."""
    path = f"/demo/caches/{item.base_digest}/{cache.name}"
    digest = hashlib.sha256(path.encode()).hexdigest()[:16]
    full = Inventory(cache.files, cache.bytes, digest)
    names = tuple(f"{cache.kind.replace(' ', '_')}/{number}" for number in range(3))
    if item.tier == "pristine":
        return CacheRecord(cache.name, path, _EMPTY, full, cache.files, names, {cache.kind: cache.files}, cache.bytes)
    if cache.name == "vllm" and recompiles(item, day):
        grown = Inventory(cache.files + 14, cache.bytes + (23 << 20), digest[::-1])
        return CacheRecord(cache.name, path, full, grown, 14, names, {"AOT models": 2, "graphs": 12}, 23 << 20)
    return CacheRecord(cache.name, path, full, full, 0, (), {}, 0)


def _evidence(item: DemoCell, contradicted: bool) -> Evidence:
    evicted, empty = item.tier in ("pristine", "redeploy"), item.tier == "pristine"
    weights, found = item.engine.weights, reads(item)
    state = {
        "weights": "evicted" if evicted else "resident",
        "libraries": "evicted" if evicted else "any",
        "caches": "empty" if empty else "kept",
    }
    file = FileResidency(
        f"/demo/models/{item.engine.model}/model.safetensors",
        weights,
        0 if evicted or contradicted else weights,
        "ext4",
        "proved",
    )
    against = ("the weights have to be resident, and 0 % of them were in the page cache",) if contradicted else ()
    library = FileResidency("/demo/lib/libtorch_cuda.so", 3_900_000_000, None if not evicted else 0, "ext4", "proved")
    read = sum(found.values())
    return Evidence((file,), (library,), state, read, read, contradictions=against)


def _usage(item: DemoCell, end: float, order: random.Random) -> Usage:
    if item.tier == "wake":
        return Usage()
    peak = int((6.2e9 if item.engine.used else 0.31e9) * order.lognormvariate(0, 0.01))
    read = sum(reads(item).values())
    times = tuple(round(end * place / 16, 3) for place in range(1, 17))
    grown = [min(1.0, place / 11) for place in range(1, 17)]
    columns: dict[str, tuple[float | None, ...]] = {
        "rss": tuple(float(int(peak * share)) for share in grown),
        "cpu_time": tuple(round(1.4 * when, 2) for when in times),
        "read_bytes": tuple(float(int(read * share)) for share in grown),
        "written_bytes": tuple(float(int(4e6 * share)) for share in grown),
    }
    return Usage(peak, 410_000, 12, round(1.4 * end, 2), read, 16, Series(times, columns))


def _references(item: DemoCell, order: random.Random) -> dict[str, Value]:
    noise = order.lognormvariate(0, 0.02)
    copy = Value(COPY * noise, "cuda") if item.engine.used else Value(None, None, "no GPU of this boot is known")
    return {
        "reference_import": Value(0.021 * noise, "python 3.12.11"),
        "reference_read": Value(1.15e10 / noise, "client"),
        "reference_copy": copy,
        "reference_time": Value(0.11 * noise, "client"),
    }


def later(at: datetime, record: BootRecord) -> datetime:
    """When the next boot begins after *record*."""
    return at + timedelta(seconds=record.instants["stopped"] + 9.0)
