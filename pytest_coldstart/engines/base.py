"""The contract between a boot and an engine. Nothing here knows pytest.

An adapter answers questions about one engine: how it is launched, where it keeps caches,
which endpoint tells the truth, how it wants a request. It holds no state of a boot.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pytest_coldstart import residency
from pytest_coldstart.cell import Cell
from pytest_coldstart.client import Dialect
from pytest_coldstart.engines.interpreter import large_libraries, versions_of
from pytest_coldstart.kv import KVReader
from pytest_coldstart.phases.rules.rule import Rule
from pytest_coldstart.ports import HOST
from pytest_coldstart.readiness import Endpoint

#: Tiers that need nothing of the engine but a launch.
PLAIN_TIERS = frozenset({"pristine", "scale_out", "redeploy", "restart"})


class EngineError(ValueError):
    """A mistake in how an engine is configured; the message lists what is valid."""


@dataclass(frozen=True)
class Option:
    """One named engine option: the Python types it takes, or its choices, and what it does."""

    help: str
    types: tuple[type, ...] = (int,)
    choices: tuple[Any, ...] = ()
    flag: str = ""

    def problem(self, value: Any) -> str:
        """Why *value* is not valid, or an empty string."""
        if self.choices:
            if any(type(value) is type(choice) and value == choice for choice in self.choices):
                return ""
            return f"{value!r} is not one of {', '.join(map(repr, self.choices))}"
        if type(value) not in self.types:
            return f"{value!r} is not of type {' or '.join(kind.__name__ for kind in self.types)}"
        return ""


@dataclass(frozen=True)
class Model:
    """The weights of a boot: the name in a suite, the name the engine serves it by, its files.

    ``pending`` makes the model: it is called once its cell is about to boot, not at collection.
    """

    name: str
    served: str
    files: tuple[Path, ...] = ()
    path: Path | None = None
    pending: Callable[[], Model] | None = None

    def made(self) -> Model:
        """The model with its files.

        :raises ModelMissing: what makes it is not installed.
        """
        return self.pending() if self.pending else self

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    def describe(self) -> dict[str, Any]:
        """Name, bytes, digest and file system type; the digest is over the content of every file."""
        return {
            "name": self.name,
            "path": str(self.path) if self.path else None,
            "bytes": self.bytes if self.files else None,
            "digest": _content_digest(tuple((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in self.files)),
            "filesystem": residency.filesystem(self.files[0]) if self.files else None,
        }


@lru_cache(maxsize=64)
def _content_digest(files: tuple[tuple[str, int, int], ...]) -> str | None:
    """SHA-256 over the files' content, once a session for each state of a file."""
    if not files:
        return None
    digest = hashlib.sha256()
    for path, _, _ in files:
        with open(path, "rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Availability:
    """Whether an engine can be launched here. ``reason`` and ``enable`` say why not and what to do."""

    ok: bool
    version: str | None = None
    reason: str = ""
    enable: str = ""


@dataclass(frozen=True)
class CacheRoot:
    """One folder that an engine fills and finds again: its name, its path and the variables that place it there."""

    name: str
    path: Path
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchSpec:
    """What a boot gives an adapter: the cell, the model, where to listen, where caches may be."""

    cell: Cell
    model: Model
    host: str
    port: int
    python: str
    cache_home: Path


@dataclass(frozen=True)
class Call:
    """A path that is POSTed, with a body in JSON if it has one."""

    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class SleepCalls:
    """How an engine is put to sleep and, call by call, woken; endpoints that tell which it is."""

    sleep: Call
    wake: tuple[Call, ...]
    asleep: Endpoint
    awake: Endpoint


class Engine(ABC):
    """One serving system. Subclass it, name it in the entry point group ``pytest_coldstart.engines``."""

    #: The name in suites, on the command line and in the store.
    name: ClassVar[str]
    title: ClassVar[str]
    #: Distributions whose metadata tells the engine's version, the first one names it.
    distributions: ClassVar[tuple[str, ...]] = ()
    #: Any one of these is the engine; empty: the first of ``distributions``.
    one_of: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[Mapping[str, Option]] = {}
    #: The model of a cell that names none.
    default_model: ClassVar[str | None] = None
    tiers: ClassVar[frozenset[str]] = PLAIN_TIERS
    #: Endpoints in order of trust, the trusted one first.
    endpoints: ClassVar[tuple[Endpoint, ...]] = (
        Endpoint("health", "/health", trusted=True),
        Endpoint("models", "/v1/models"),
    )
    #: Where the engine exposes Prometheus text, if anywhere.
    metrics_path: ClassVar[str | None] = None
    #: The address it exposes that on, where it serves on another one.
    metrics_host: ClassVar[str] = HOST
    #: The engine's own histogram of the time to first token, seconds, if it has one there.
    ttft_histogram: ClassVar[str | None] = None
    #: Whether options that are not named above are passed to the engine as they are.
    passes_options: ClassVar[bool] = False
    #: What a user of this engine should know, one sentence each.
    traps: ClassVar[tuple[str, ...]] = ()
    #: Its caches beside bytecode: name -> the environment variable that places one.
    cache_variables: ClassVar[Mapping[str, str]] = {}
    #: Whether its processes are Python: then bytecode is one of its caches.
    is_python: ClassVar[bool] = False
    #: Which of its frames mean which phase, beside the rules that this package has.
    phase_rules: ClassVar[tuple[Rule, ...]] = ()
    #: The option that limits how many requests run at once, if one does.
    sequence_option: ClassVar[str] = ""
    #: What a person installs to have it.
    install: ClassVar[str] = ""

    # -- before anything boots

    def check(self, cell: Cell) -> None:
        """Check everything that can be known without a launch.

        :raises EngineError: an unknown option, a wrong value, a model that cannot be.
        """
        problems = []
        for name, value in cell.options.items():
            option = self.options.get(name)
            if option is None:
                problems += self._unknown(name)
                if not _is_plain(value):
                    problems.append(
                        f"engine {self.name!r}, option {name!r}: {value!r} is no plain data: text, a number, a bool, None, or a "
                        "list or dict of them"
                    )
            elif problem := option.problem(value):
                problems.append(f"engine {self.name!r}, option {name!r}: {problem}")
        if cell.tier not in self.tiers:
            problems.append(
                f"engine {self.name!r} cannot boot at tier {cell.tier!r}; valid tiers: {', '.join(sorted(self.tiers))}"
            )
        if cell.python is not None and shutil.which(cell.python) is None:
            problems.append(
                f"python={cell.python!r} is no executable file and not on PATH; give the interpreter's path"
            )
        if problems:
            raise EngineError("; ".join(problems))

    def _unknown(self, name: str) -> list[str]:
        """What is wrong with an option that the adapter does not name."""
        near = difflib.get_close_matches(name, self.options, n=1, cutoff=0.8)
        if self.passes_options and not near and re.fullmatch(r"[a-z][a-z0-9_]*", name):
            return []
        flag = name.strip("-").replace("-", "_").lower()
        if self.passes_options and not near and re.fullmatch(r"[a-z][a-z0-9_]*", flag):
            near = [flag]  # a flag as it stands on a command line
        hint = f"did you mean {near[0]!r}? " if near else ""
        valid = ", ".join(sorted(self.options)) or "none"
        return [f"engine {self.name!r} has no option {name!r}; {hint}valid options: {valid}"]

    def availability(self, cell: Cell) -> Availability:
        """Whether this cell's interpreter or command has the engine. Imports nothing of it."""
        if cell.command:
            return command_availability(cell.command)
        python = cell.python or sys.executable
        versions = versions_of(python, self.distributions, cell.env.get("PYTHONPATH"))
        if versions is None:
            return Availability(
                False, reason=f"the interpreter {python} does not exist or does not run", enable="fix python="
            )
        wanted = self.one_of or self.distributions[:1]
        found = next((name for name in wanted if name in versions), None)
        if wanted and found is None:
            where = f" in {cell.python}" if cell.python else ""
            return Availability(
                False,
                reason=f"the distribution {wanted[0]!r} is not installed{where}",
                enable=self.install,
            )
        return Availability(True, versions.get(found) if found else None)

    def versions(self, cell: Cell) -> dict[str, str]:
        """Versions of the engine's distributions and of its interpreter, asked of that interpreter."""
        if cell.command:
            return {}
        return versions_of(cell.python or sys.executable, self.distributions, cell.env.get("PYTHONPATH")) or {}

    def device(self, cell: Cell) -> str:
        """``gpu`` or ``cpu`` where the engine's build is meant for one of them, else ``any``."""
        return "any"

    @abstractmethod
    def model(self, cell: Cell) -> Model:
        """Find the cell's model.

        :raises EngineError: a path that does not exist, or a file that is no such model.
        :raises ModelMissing: a model that would have to be installed first.
        """

    # -- a boot

    @abstractmethod
    def command(self, spec: LaunchSpec) -> list[str]:
        """The command line that serves the model on ``spec.host``:``spec.port``."""

    def environment(self, spec: LaunchSpec) -> dict[str, str]:
        """Variables on top of the caller's environment."""
        return {}

    def tracing(self, spec: LaunchSpec, endpoint: str) -> tuple[list[str], dict[str, str]]:
        """What makes the engine send the spans of its boot to *endpoint*, OTLP over HTTP/protobuf.

        Words for the end of :meth:`command`'s line and variables on top of :meth:`environment`'s. None of either
        where the engine has no spans, cannot send them here, or its cell already sends them somewhere else.
        """
        return [], {}

    def cache_roots(self, spec: LaunchSpec) -> list[CacheRoot]:
        """Every cache that outlives a boot, isolated below ``spec.cache_home``."""
        homes = {name: spec.cache_home / name for name in ("bytecode", *self.cache_variables)}
        roots = [CacheRoot(name, homes[name], {key: str(homes[name])}) for name, key in self.cache_variables.items()]
        if not self.is_python or spec.cell.command:
            return roots
        # A caller's PYTHONDONTWRITEBYTECODE would keep this cache empty; a suite may still set it in env=.
        env = {"PYTHONPYCACHEPREFIX": str(homes["bytecode"]), "PYTHONDONTWRITEBYTECODE": ""}
        return [CacheRoot("bytecode", homes["bytecode"], env), *roots]

    def libraries(self, cell: Cell) -> list[Path]:
        """Large library files of the engine, evicted where the tier says so."""
        return []

    def large_libraries(self, cell: Cell, prefixes: Sequence[str]) -> list[Path]:
        """Shared libraries of at least 1 MB in the cell's environment, of distributions by the beginning of their names."""
        found = large_libraries(cell.python or sys.executable, tuple(prefixes), cell.env.get("PYTHONPATH"))
        return [Path(path) for path in found]

    def sleep_calls(self, cell: Cell) -> SleepCalls | None:
        """How the engine sleeps and wakes, for the tier ``wake``."""
        return None

    def endpoints_for(self, cell: Cell) -> tuple[Endpoint, ...]:
        """The endpoints of this cell, where an option may move them."""
        return self.endpoints

    def dialect(self, spec: LaunchSpec) -> Dialect:
        return Dialect()

    def impossible(self, cell: Cell) -> dict[str, str]:
        """Metrics that cannot exist for this engine on this device: name -> reason.

        ``allocator_fragmentation`` and ``kv_fragmentation`` are the parts of ``fragmentation``: a part that is named
        here is left out of it, and ``fragmentation`` itself cannot exist where neither part can. Metrics of GPUs need not be named where a boot has none.
        """
        return {
            "fragmentation": "neither its allocator nor its KV cache can be read",
            "allocator_fragmentation": "its allocator is not torch's",
            "kv_fragmentation": "it does not tell how full its KV cache is",
        }

    def gpus(self, cell: Cell) -> int | None:
        """How many GPUs a boot of the cell takes: tensor parallel times pipeline parallel size.

        0 for a build for CPUs, None where it is not known: then every visible device is watched and none is assigned.
        """
        return {"gpu": 1, "cpu": 0}.get(self.device(cell))

    def kv_reader(self, spec: LaunchSpec, log: Path) -> KVReader | None:
        """What tells of the KV cache of one boot; None where nothing does."""
        return None

    def context_limit(self, cell: Cell) -> int | None:
        """Most tokens of one request, prompt and answer, where an option of the cell says so."""
        return None

    def sequence_limit(self, cell: Cell) -> int | None:
        """Most requests that run at once, where an option of the cell says so: a burst holds no more."""
        limit = cell.options.get(self.sequence_option) if self.sequence_option else None
        return limit if isinstance(limit, int) and limit > 0 else None

    def stop_grace(self, cell: Cell) -> float:
        """Seconds from SIGTERM to the leader until harsher signals."""
        return 10.0


class ModelMissing(EngineError):
    """A model that is not installed here: a reason to skip, with what enables it."""

    def __init__(self, reason: str, enable: str) -> None:
        super().__init__(reason)
        self.enable = enable


def at_least_one(cell: Cell, *names: str) -> None:
    """Check options that count something, whether the adapter names them or passes them on.

    :raises EngineError: one of them is set and is no whole number of at least 1.
    """
    for name in names:
        value = cell.options.get(name)
        if value is not None and (type(value) is not int or value < 1):
            raise EngineError(f"engine {cell.engine!r}, option {name!r}: {value!r} is not at least 1")


def _is_plain(value: Any) -> bool:
    """Whether a value is the same in every process and in JSON; a set, for one, has another order in each."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, (str, int, float))


def command_availability(command: Sequence[str]) -> Availability:
    if shutil.which(command[0]):
        return Availability(True)
    return Availability(
        False, reason=f"the command {command[0]!r} is not on PATH and is no executable file", enable="fix command="
    )
