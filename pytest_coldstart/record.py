"""What one boot leaves behind: plain data, written as one JSON line and read back the same.

Every offset is in seconds from the boot's start on the monotonic clock; every size is in
bytes. A value that was not measured is ``None`` with a reason beside it, never zero.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from pytest_coldstart.attribution import Attribution, Hint, known
from pytest_coldstart.memory import Memory, Series

#: Version of the JSON lines. A reader refuses lines of a newer version.
RECORD_VERSION = 5

INSTANTS = ("start", "python", "listen", "ready", "first_token", "first_text", "first_done", "warmed", "stopped")


@dataclass(frozen=True)
class Value:
    """One metric of one boot: a number with its source, or the reason there is none."""

    value: float | None
    source: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Request:
    """One streamed request. ``kind`` is first, warmup or warm; before, for what came before a wake,
    with offsets below zero."""

    kind: str
    index: int
    sent: float
    first_token: float | None = None
    first_text: float | None = None
    done: float | None = None
    prompt_digest: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    events: int = 0
    finish_reason: str | None = None
    attempts: int = 1
    error: str | None = None
    #: The engine's own time to first token of this request, seconds, from its metrics.
    engine_ttft: float | None = None

    def shifted(self, seconds: float) -> Request:
        """The same with every offset *seconds* later, for a start that is earlier by them."""

        def moved(offset: float | None) -> float | None:
            return None if offset is None else offset + seconds

        return dataclasses.replace(
            self,
            sent=self.sent + seconds,
            first_token=moved(self.first_token),
            first_text=moved(self.first_text),
            done=moved(self.done),
        )

    @property
    def ttft(self) -> float | None:
        """Time to first token, seconds: from just before connecting to the first token's event."""
        return None if self.first_token is None else self.first_token - self.sent


@dataclass(frozen=True)
class Phase:
    """A named interval of a boot; what no source explains is called ``unattributed``."""

    name: str
    begin: float
    end: float
    source: str
    process: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Inventory:
    """The content of one cache root: counts and a digest over path, size and mtime."""

    files: int
    bytes: int
    digest: str


@dataclass(frozen=True)
class Cache:
    """One cache root of a boot, before its start and after its stop."""

    name: str
    path: str
    before: Inventory
    after: Inventory | None = None
    new_files: int | None = None
    new_names: tuple[str, ...] = ()
    #: What the new files are and how much: kind -> files, and their bytes.
    new_kinds: dict[str, int] = field(default_factory=dict)
    new_bytes: int | None = None


@dataclass(frozen=True)
class FileResidency:
    """Page-cache state of one file. ``status``: proved, cannot_evict or cannot_tell."""

    path: str
    bytes: int
    resident_bytes: int | None
    filesystem: str
    status: str
    reason: str = ""


@dataclass(frozen=True)
class Evidence:
    """What was found about a boot's coldness, and what of the declared tier it contradicts."""

    weights: tuple[FileResidency, ...] = ()
    libraries: tuple[FileResidency, ...] = ()
    state: dict[str, str] = field(default_factory=dict)
    tree_read_bytes: int | None = None
    device_read_bytes: int | None = None
    unprovable: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()

    @property
    def weight_bytes(self) -> int:
        return sum(item.bytes for item in self.weights)

    @property
    def resident_fraction(self) -> float | None:
        """Share of the weight bytes in the page cache just before the start, 0 to 1."""
        total = self.weight_bytes
        known = [item.resident_bytes for item in self.weights]
        if not total or any(item is None for item in known):
            return None
        return sum(item or 0 for item in known) / total


@dataclass(frozen=True)
class Failure:
    """Why a boot failed: the kind, a sentence, the last instant reached and the log's end."""

    kind: str
    message: str
    instant: str
    log_tail: str = ""
    #: Of a hang or a missed deadline: which phase, process and stack, since when, what it waits for; one line each.
    diagnosis: tuple[str, ...] = ()


@dataclass(frozen=True)
class Usage:
    """What the process tree used from its start to first_done, from /proc.

    ``series``: the same over time: rss as it was, cpu_time, read_bytes and written_bytes since the start.
    """

    peak_rss: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    cpu_time: float | None = None
    read_bytes: int | None = None
    samples: int = 0
    series: Series = field(default_factory=Series)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Usage:
        """Read back what dataclasses.asdict wrote; keys of a later minor version are ignored."""
        return known(cls, {**data, "series": Series.from_dict(data.get("series", {}))})


@dataclass(frozen=True)
class Stop:
    """How the boot ended: time from the first signal to an empty tree, and what was left."""

    duration: float | None = None
    forced: bool = False
    exit_code: int | None = None
    leaked_processes: tuple[str, ...] = ()
    leaked_shm: tuple[str, ...] = ()
    leaked_bytes: int | None = None
    port_free: bool | None = None


@dataclass(frozen=True)
class BootRecord:
    """One boot of one cell. ``role`` is measured or prime; ``outcome`` is ok, failed or error.

    ``outcome`` error means the boot says nothing about its cell: its evidence contradicts
    the declared tier. Such a boot is kept and never counted.
    """

    boot_id: str
    run_id: str
    nodeid: str
    cell_id: str
    cell: dict[str, Any]
    cell_digest: str
    base_digest: str
    engine: str
    tier: str
    role: str
    round: int
    outcome: str
    started_at: str
    instants: dict[str, float] = field(default_factory=dict)
    endpoints: dict[str, float] = field(default_factory=dict)
    poll_delay: float | None = None
    #: The critical path: from the start to first_done (or the failure) without a gap or an overlap.
    phases: tuple[Phase, ...] = ()
    attribution: Attribution = field(default_factory=Attribution)
    memory: Memory = field(default_factory=Memory)
    hints: tuple[Hint, ...] = ()
    requests: tuple[Request, ...] = ()
    caches: tuple[Cache, ...] = ()
    evidence: Evidence = Evidence()
    usage: Usage = Usage()
    stop: Stop = Stop()
    failure: Failure | None = None
    #: What small fixed work took after the stop, by the names of :mod:`pytest_coldstart.workload`; empty where none was timed.
    references: dict[str, Value] = field(default_factory=dict)
    metrics: dict[str, Value] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    log_path: str | None = None
    log_bytes: int = 0
    load_average: float | None = None
    harness_time: float | None = None

    @property
    def failed(self) -> bool:
        return self.outcome == "failed"

    @property
    def counted(self) -> bool:
        """Whether the boot is one of its cell's rounds in every statistic."""
        return self.role == "measured" and self.outcome != "error"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BootRecord:
        """Read back what :meth:`to_dict` wrote; keys of a later minor version are ignored."""
        data = {name: value for name, value in data.items() if name in cls.__dataclass_fields__}
        data["phases"] = tuple(known(Phase, item) for item in data.get("phases", ()))
        data["requests"] = tuple(known(Request, item) for item in data.get("requests", ()))
        data["caches"] = tuple(_cache(item) for item in data.get("caches", ()))
        data["evidence"] = _evidence(data.get("evidence", {}))
        data["usage"] = Usage.from_dict(data.get("usage", {}))
        stop = dict(data.get("stop", {}))
        for name in ("leaked_processes", "leaked_shm"):
            stop[name] = tuple(stop.get(name, ()))
        data["stop"] = Stop(**stop)
        data["failure"] = _failure(data["failure"]) if data.get("failure") else None
        data["attribution"] = Attribution.from_dict(data.get("attribution", {}))
        data["memory"] = Memory.from_dict(data.get("memory", {}))
        data["hints"] = tuple(known(Hint, item) for item in data.get("hints", ()))
        for name in ("references", "metrics"):
            data[name] = {key: known(Value, item) for key, item in data.get(name, {}).items()}
        data["command"] = tuple(data.get("command", ()))
        return cls(**data)


def _cache(item: dict[str, Any]) -> Cache:
    after = item.get("after")
    return Cache(
        name=item["name"],
        path=item["path"],
        before=Inventory(**item["before"]),
        after=Inventory(**after) if after else None,
        new_files=item.get("new_files"),
        new_names=tuple(item.get("new_names", ())),
        new_kinds=dict(item.get("new_kinds", {})),
        new_bytes=item.get("new_bytes"),
    )


def _failure(item: dict[str, Any]) -> Failure:
    return Failure(**{**item, "diagnosis": tuple(item.get("diagnosis", ()))})


def _evidence(item: dict[str, Any]) -> Evidence:
    item = dict(item)
    for name in ("weights", "libraries"):
        item[name] = tuple(FileResidency(**entry) for entry in item.get(name, ()))
    for name in ("unprovable", "contradictions"):
        item[name] = tuple(item.get(name, ()))
    return Evidence(**item)
