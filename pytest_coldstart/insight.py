"""What a boot learns of the inside of its engine: the probe's files, spans, the log, the engine's own metrics."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pytest_coldstart import probe
from pytest_coldstart.attribution import Attribution, Reading
from pytest_coldstart.diagnose import diagnose
from pytest_coldstart.engines.base import LaunchSpec
from pytest_coldstart.engines.families import family
from pytest_coldstart.observe.log_phases import LogReading, read_log
from pytest_coldstart.observe.spans import SpanReceiver
from pytest_coldstart.observe.startup_metrics import PATHS, fetch, read_startup
from pytest_coldstart.phases.attribute import Inputs, attribute
from pytest_coldstart.phases.classify import classify_sample
from pytest_coldstart.phases.rules import ALL_RULES
from pytest_coldstart.phases.trace import ProcessTrace
from pytest_coldstart.plan import Plan
from pytest_coldstart.probe.read import read_folder
from pytest_coldstart.record import BootRecord, Phase

if TYPE_CHECKING:
    from pytest_coldstart.boot import Boot

T = TypeVar("T")

#: Seconds to wait for the engine's metrics: it is up, and nothing hangs on them.
_METRICS_TIMEOUT = 5.0


class Insight:
    """One boot's view into its engine. Everything here is optional: without it the boot is timed all the same."""

    def __init__(self, plan: Plan, boot_id: str) -> None:
        self.plan = plan
        self.folder = plan.logs / f"{boot_id}.probe"
        # A container sees neither the probe's code nor its folder.
        self.mode = plan.probe if plan.observe and not plan.cell.container else "off"
        self.missing: list[str] = []
        if plan.cell.container and plan.probe != "off":
            self.missing.append("the engine runs in a container, where the probe is not")
        self.spans = self._receiver() if plan.spans and not plan.cell.container else None
        if plan.spans and plan.cell.container:
            self.missing.append("the engine runs in a container, from where spans do not come here")
        self._metrics: tuple[Reading, ...] = ()
        self._found: tuple[tuple[float, int, int, int], tuple[Phase, ...], Attribution] | None = None
        if self.mode != "off":
            self._make_folder()

    def _receiver(self) -> SpanReceiver | None:
        try:
            return SpanReceiver()
        except (ImportError, OSError) as error:
            self.missing.append(f"no spans are received: {error}")
            return None

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.mode = "off"
            self.missing.append(f"the probe has no folder to write to: {error}")

    # -- the launch

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """The engine's environment, with the probe in it."""
        return {**env, **(probe.environment(self.folder, self.mode, env) if self.mode != "off" else {})}

    def tracing(self, spec: LaunchSpec) -> tuple[list[str], dict[str, str]]:
        """Words and variables that make the engine send its spans here."""
        if self.spans is None:
            return [], {}
        return self.plan.engine.tracing(spec, self.spans.endpoint)

    # -- while it runs

    def answered(self) -> None:
        """The first answer is whole: what comes after it is timed without a sampler."""
        if self.mode != "off":
            probe.finish(self.folder)

    def scrape(self, port: int) -> None:
        """The engine's own account of its start, from its metrics while it still answers."""
        path = PATHS.get(self._family())
        if not path or self._metrics:
            return
        try:
            text = fetch(self.plan.engine.metrics_host, port, path, _METRICS_TIMEOUT)
            self._metrics = read_startup(text, self._family()) if text else ()
        except Exception as error:  # the engine still has to be stopped
            self.missing.append(f"its metrics could not be read: {type(error).__name__}: {error}")

    def diagnosis(self, boot: Boot, now: float) -> tuple[str, ...]:
        """Why a boot that goes nowhere does not; call while its tree lives."""
        if boot.tree is None:
            return ()
        try:
            traces = self.traces()
        except Exception:  # whatever a file of the probe holds: what failed still has to be told, and all be stopped
            traces = []
        return diagnose(
            boot.tree.supervisor_pid,
            boot.tree.pid,
            now,
            boot.origin,
            traces,
            boot.log_path,
            classify_sample,
            mask=boot.redactor.text,
            log_origin=boot.tree.start_time,
        )

    def traces(self) -> list[ProcessTrace]:
        return read_folder(self.folder) if self.mode != "off" else []

    # -- afterwards

    def path(self, boot: Boot) -> tuple[tuple[Phase, ...], Attribution]:
        """The boot's critical path, from its start to its first whole answer, or to its failure.

        Never raises: a fault in here costs the path, and says so, but neither the boot nor its record.
        """
        end = boot.instants.get("first_done", boot.failed_at)
        if end is None or end <= 0 or boot.tree is None:
            return (), Attribution(probe=self.mode, missing=tuple(self.missing))
        try:
            size = sum(file.stat().st_size for file in self.folder.glob("*.probe"))
            # Spans and metrics come as late as the stop, when a file of the probe need not have grown.
            state = (end, size, len(self.spans.spans) if self.spans else 0, len(self._metrics))
            if self._found is None or self._found[0] != state:
                self._found = (state, *self._attribute(boot, end))
            return self._found[1], self._found[2]
        except Exception as error:
            why = boot.redactor.text(f"its time was not attributed, a fault of ours: {type(error).__name__}: {error}")
            return (), Attribution(probe=self.mode, missing=(*self.missing, why))

    def _attribute(self, boot: Boot, end: float) -> tuple[tuple[Phase, ...], Attribution]:
        assert boot.tree is not None
        log = self._log(boot)
        traces = self.traces()
        missing = list(self.missing)
        if self.mode != "off" and not traces:
            missing.append("no process of the engine left a file of the probe")
        spans: tuple[Reading, ...] = ()
        if self.spans is not None:
            spans = self.spans.readings(boot.origin, self._family(), {t.pid: f"pid {t.pid}" for t in traces})
            missing += self.spans.missing()
            missing += [
                f"span {name!r} is not known, and explains no phase" for name in self.spans.unknown(self._family())
            ]
        readings = (*spans, *self._metrics, *log.readings)
        if self.plan.cell.tier in ("wake", "restore"):
            # Log and metrics tell of the start before its sleep, on the clock of that one.
            readings = tuple(item for item in spans if item.begin is not None and item.begin >= 0)
        for trace in traces:  # the code after -c may hold a secret
            trace.argv = boot.redactor.command(trace.argv)
        phases, found = attribute(
            Inputs(
                mode=self.mode,
                origin=boot.origin,
                leader=boot.tree.pid,
                end=end,
                instants=dict(boot.instants),
                poll_delay=boot.readiness.poll_delay if boot.readiness else None,
                traces=traces,
                lives=boot.observer.lives() if boot.observer and self.plan.observe else (),
                readings=readings,
                unmatched=log.unmatched,
                rules=(*ALL_RULES, *self.plan.engine.phase_rules),
                missing=missing,
            )
        )
        mask = boot.redactor.text  # names, paths and spans are the engine's own words
        return tuple(_masked(item, mask) for item in phases), _masked(found, mask)

    def _log(self, boot: Boot) -> LogReading:
        engine = self.plan.engine
        names = engine.one_of or engine.distributions[:1]  # the CPU build of vLLM has a name of its own
        version = next((boot.versions[name] for name in names if name in boot.versions), None)
        try:
            with boot.log_path.open("r", encoding="utf-8", errors="replace") as lines:
                # A boot that failed, or was woken, does not print what a whole start prints.
                # Which version's lines are due is not known of a plain command's engine.
                whole = (
                    "first_done" in boot.instants
                    and self.plan.cell.tier not in ("wake", "restore")
                    and version is not None
                )
                return read_log(lines, self._family(), version, self.plan.cell.options, complete=whole)
        except OSError:
            return LogReading()

    def _family(self) -> str:
        """The engine whose log and metrics these are: the generic one runs any of them."""
        return family(self.plan.engine.name, self.plan.cell.command)

    def kept(self, record: BootRecord, keep: bool) -> BootRecord:
        """The record with the folder of samples, which is kept with the log or goes."""
        if self.mode == "off":
            return record
        if keep:
            return replace(record, attribution=replace(record.attribution, samples_path=str(self.folder)))
        with suppress(OSError):
            shutil.rmtree(self.folder)
        return record

    def discard(self) -> None:
        """Leave no samples of a boot that has no record."""
        if self.mode != "off":
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """End what listens."""
        if self.spans is not None:
            self.spans.close()


def _masked(value: T, mask: Callable[[str], str]) -> T:
    """The same plain data with every text in it masked."""
    made: Any = value
    if isinstance(value, str):
        made = mask(value)
    elif isinstance(value, tuple):
        made = tuple(_masked(item, mask) for item in value)
    elif isinstance(value, dict):
        made = {name: _masked(item, mask) for name, item in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        made = replace(made, **{item.name: _masked(getattr(value, item.name), mask) for item in fields(value)})
    return cast(T, made)
