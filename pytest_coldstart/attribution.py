"""Where a boot's time went: plain data beside its critical path, written as JSON and read back the same.

All offsets are seconds from the boot's start, all durations seconds. The critical path itself is
:attr:`BootRecord.phases`; here is what it was made from, and what it could not explain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

#: Every phase a boot can have; what no source explains is the last one.
PHASES = (
    "spawn",
    "imports",
    "device_init",
    "distributed_init",
    "load_weights",
    "kv_alloc",
    "profile",
    "compile",
    "graph_capture",
    "warmup",
    "tokenizer",
    "server_start",
    "first_request",
    "unattributed",
)

UNATTRIBUTED = "unattributed"

#: What runs inside an engine: nothing, instants alone, or stack samples too.
PROBE_MODES = ("off", "marks", "full")

#: Two sources of one phase disagree when they differ by more than this: seconds, or the share of the larger one.
DISAGREE_SECONDS, DISAGREE_SHARE = 0.2, 0.05


def known(kind: type[T], item: dict[str, Any]) -> T:
    """*kind* made of what *item* holds for it; what another version has beyond that is passed over."""
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return kind(**{name: value for name, value in item.items() if name in names})


@dataclass(frozen=True)
class Process:
    """One process of the engine's tree.

    ``name`` is unique in its boot ("EngineCore", "python", "ninja 2"). ``instants`` are those that the probe
    stamped: python (interpreter up), main (its main module starts), torch (first import), cuda (initialised).
    ``imports``: top-level package -> seconds that importing it took by samples, each second counted once, for
    the innermost package. ``missing`` says why the probe told nothing, or less than it should.
    """

    pid: int
    parent: int
    name: str
    start: float
    end: float | None = None
    exit_code: int | None = None
    command: str = ""
    probe: str = "off"
    missing: str = ""
    instants: dict[str, float] = field(default_factory=dict)
    imports: dict[str, float] = field(default_factory=dict)
    modules: int | None = None
    samples: int = 0
    #: CPU seconds of the sampler itself, and seconds in gaps between samples of over 0.1 s.
    probe_cpu: float | None = None
    gaps: float = 0.0
    #: Cache variables as the process itself had set them: name -> path.
    cache_paths: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """What a source other than the critical path says one or several phases took together.

    ``phases``: those that the number covers. ``text``: the span's or pattern's name. ``resolution``: how far
    the true value may be from ``seconds``, since a source rounds ("4 secs" is 3.5 to 4.5 s: 0.5).
    """

    phases: tuple[str, ...]
    seconds: float
    source: str
    text: str
    process: str = ""
    begin: float | None = None
    end: float | None = None
    resolution: float = 0.0


@dataclass(frozen=True)
class Disagreement:
    """Two sources that differ on one quantity by more than the limits above; both are kept."""

    phases: tuple[str, ...]
    first: str
    first_seconds: float
    second: str
    second_seconds: float
    text: str = ""


@dataclass(frozen=True)
class Unmatched:
    """A pattern of an engine's log that should have matched a line and matched none."""

    engine: str
    version: str
    pattern: str


@dataclass(frozen=True)
class Spread:
    """Several ranks that one process waited for: name -> when each was done. The last one is on the critical path."""

    begin: float
    end: float
    done: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class HotFrame:
    """Where unattributed time was spent: ``module:function`` as sampled, in one process."""

    process: str
    frame: str
    seconds: float


@dataclass(frozen=True)
class Hint:
    """What would help: a rule over evidence, with the measured seconds at stake."""

    rule: str
    text: str
    seconds: float


@dataclass(frozen=True)
class Attribution:
    """What a boot's critical path was made from. ``end``: where it ends, first_done or the failure."""

    probe: str = "off"
    end: float | None = None
    processes: tuple[Process, ...] = ()
    readings: tuple[Reading, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()
    spreads: tuple[Spread, ...] = ()
    hottest: tuple[HotFrame, ...] = ()
    #: Why some of it is not known, one sentence each.
    missing: tuple[str, ...] = ()
    #: Folder of the probe's files, where they were kept.
    samples_path: str | None = None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Attribution:
        """Read back what dataclasses.asdict wrote; keys of a later minor version are ignored."""
        data = {name: value for name, value in data.items() if name in cls.__dataclass_fields__}
        data["processes"] = tuple(known(Process, item) for item in data.get("processes", ()))
        for name, kind in (("readings", Reading), ("disagreements", Disagreement)):
            items = ({**item, "phases": tuple(item["phases"])} for item in data.get(name, ()))
            data[name] = tuple(known(kind, item) for item in items)
        data["unmatched"] = tuple(known(Unmatched, item) for item in data.get("unmatched", ()))
        data["spreads"] = tuple(known(Spread, item) for item in data.get("spreads", ()))
        data["hottest"] = tuple(known(HotFrame, item) for item in data.get("hottest", ()))
        data["missing"] = tuple(data.get("missing", ()))
        return cls(**data)
