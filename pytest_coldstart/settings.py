"""Command line and ini -> one frozen Settings, or an error that lists what is valid."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from pytest_coldstart import units
from pytest_coldstart.attribution import PROBE_MODES
from pytest_coldstart.coldness import TIERS
from pytest_coldstart.engines import EngineRegistry
from pytest_coldstart.options import dest
from pytest_coldstart.plan import DEADLINES
from pytest_coldstart.slo import DEFAULTS, Bound, SLOError, parse_bound

T = TypeVar("T")

KEEP_LOGS = ("all", "failed", "none")
BURST = ("auto", "on", "off")
FOREIGN_GPU = ("refuse", "allow")


@dataclass(frozen=True)
class Settings:
    """Durations in seconds. ``rounds_override`` is what the command line said, if anything."""

    store: Path
    engines: tuple[str, ...]
    tiers: tuple[str, ...]
    rounds: int
    rounds_override: int | None
    budget: float | None
    boot_timeout: float
    deadlines: Mapping[str, float]
    hang_timeout: float
    require: tuple[str, ...]
    pythons: Mapping[str, str]
    cpu: bool
    slo_command_line: tuple[Bound, ...]
    slo_ini: tuple[Bound, ...]
    slo_default: tuple[Bound, ...]
    probe: str
    spans: bool
    burst: str
    gpu_wait: float
    foreign_gpu: str
    baseline: str | None
    keep_logs: str
    parallel: bool
    allow_empty: bool

    @classmethod
    def of(cls, config: pytest.Config, engines: EngineRegistry) -> Settings:
        """Read and check every option.

        :raises pytest.UsageError: the first option that is wrong, where it was written and what is valid.
        """
        reader = _Reader(config)
        names = engines.names()
        store = reader.one("store", _path)
        return cls(
            store=store if store.is_absolute() else config.invocation_params.dir / store,
            engines=reader.many("engine", lambda text: _one_of(text, names)),
            tiers=reader.many("tier", lambda text: _one_of(text, list(TIERS))),
            rounds=reader.one("rounds", _count),
            rounds_override=reader.command_line("rounds", _count),
            budget=reader.optional("budget", units.parse_duration),
            boot_timeout=reader.one("boot-timeout", units.parse_duration),
            deadlines=dict(reader.many("phase-deadline", _deadline)),
            hang_timeout=reader.one("hang-timeout", units.parse_duration),
            require=reader.many("require", lambda text: _one_of(text, names)),
            pythons=dict(reader.many("python", lambda text: _python(text, names, config.invocation_params.dir))),
            cpu=reader.flag("cpu"),
            slo_command_line=reader.bounds("command line"),
            slo_ini=reader.bounds("ini"),
            slo_default=tuple(parse_bound(text, "default", TIERS) for text in DEFAULTS),
            probe=reader.one("probe", lambda text: _one_of(text, PROBE_MODES)),
            spans=_spans(reader),
            burst=reader.one("burst", lambda text: _one_of(text, BURST)),
            gpu_wait=reader.one("gpu-wait", units.parse_duration),
            foreign_gpu=reader.one("foreign-gpu", lambda text: _one_of(text, FOREIGN_GPU)),
            baseline=reader.optional("baseline", _given),
            keep_logs=reader.one("keep-logs", lambda text: _one_of(text, list(KEEP_LOGS))),
            parallel=reader.flag("parallel"),
            allow_empty=reader.flag("allow-empty"),
        )


class _Reader:
    """Takes an option from the command line, else from the ini file, and names the place in errors."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def _parse(self, name: str, text: str, parse: Callable[[str], T], ini: bool) -> T:
        try:
            return parse(text)
        except (ValueError, SLOError) as error:
            where = f"ini option {dest(name)}" if ini else f"--coldstart-{name}"
            raise pytest.UsageError(f"{where}: {error}") from None

    def command_line(self, name: str, parse: Callable[[str], T]) -> T | None:
        given = self.config.getoption(dest(name))
        return None if given is None else self._parse(name, given, parse, ini=False)

    def one(self, name: str, parse: Callable[[str], T]) -> T:
        given = self.command_line(name, parse)
        return self._parse(name, self.config.getini(dest(name)), parse, ini=True) if given is None else given

    def optional(self, name: str, parse: Callable[[str], T]) -> T | None:
        given = self.command_line(name, parse)
        text = self.config.getini(dest(name))
        return self._parse(name, text, parse, ini=True) if given is None and text else given

    def many(self, name: str, parse: Callable[[str], T]) -> tuple[T, ...]:
        """Values of a repeatable option; commas separate too. The command line replaces the ini."""
        given = self.config.getoption(dest(name))
        words: Sequence[str] = self.config.getini(dest(name)) if given is None else given
        split = [part.strip() for word in words for part in word.split(",") if part.strip()]
        if given is not None and not split:
            raise pytest.UsageError(f"--coldstart-{name}: the value is empty; leave the option out to have no limit")
        return tuple(self._parse(name, part, parse, ini=given is None) for part in split)

    def flag(self, name: str) -> bool:
        return bool(self.config.getoption(dest(name)) or self.config.getini(dest(name)))

    def bounds(self, source: str) -> tuple[Bound, ...]:
        ini = source == "ini"
        words = self.config.getini(dest("slo")) if ini else self.config.getoption(dest("slo")) or []
        return tuple(self._parse("slo", text, lambda text: parse_bound(text, source, TIERS), ini) for text in words)


def _spans(reader: _Reader) -> bool:
    """Whether spans are received.

    :raises pytest.UsageError: they are asked for, and what receives them is not installed.
    """
    if not reader.flag("spans"):
        return False
    from pytest_coldstart.observe import spans  # only here: no other run needs it

    if problem := spans.available():
        where = "--coldstart-spans" if reader.config.getoption(dest("spans")) else f"ini option {dest('spans')}"
        raise pytest.UsageError(f"{where}: {problem}")
    return True


def _path(text: str) -> Path:
    if not text:
        raise ValueError("the path is empty")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{text!r}: {error}") from None


def _one_of(text: str, valid: Sequence[str]) -> str:
    if text not in valid:
        raise ValueError(f"unknown value {text!r}; valid values: {', '.join(valid)}")
    return text


def _given(text: str) -> str:
    if not text.strip():
        raise ValueError("the value is empty")
    return text.strip()


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ValueError(f"{text!r} is not a whole number from 1")
    return number


def _python(text: str, engines: Sequence[str], here: Path) -> tuple[str, str]:
    """``vllm=env/bin/python`` -> the engine and an absolute path, links kept: a venv is found by its link."""
    name, equals, path = text.partition("=")
    if not equals or not path.strip():
        raise ValueError(f"{text!r} is not of the form ENGINE=PATH, such as vllm=env/bin/python")
    engine = _one_of(name.strip(), engines)
    found = shutil.which(path.strip()) if "/" not in path else str(here / _path(path.strip()))
    if found is None or not Path(found).is_file() or not os.access(found, os.X_OK):
        inner = here / path.strip() / "bin" / "python"
        hint = f"did you mean {inner}?" if inner.is_file() else "give the interpreter of the engine's environment"
        raise ValueError(f"{path.strip()!r} is no executable file; {hint}")
    return engine, str(here / found)


def _deadline(text: str) -> tuple[str, float]:
    name, equals, duration = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not of the form INSTANT=DURATION, such as listen=30s")
    return _one_of(name.strip(), DEADLINES), units.parse_duration(duration)
