"""The state of one pytest run with --coldstart, and the decisions over its cells."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_coldstart import environment
from pytest_coldstart.burst import BurstSpec, spec_from
from pytest_coldstart.coldness import TIERS
from pytest_coldstart.devices import Devices
from pytest_coldstart.engines import EngineRegistry
from pytest_coldstart.engines.base import Engine, EngineError, Model, ModelMissing
from pytest_coldstart.handle import ColdBoot
from pytest_coldstart.markers import ColdstartMark
from pytest_coldstart.matrix import MatrixCell
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord
from pytest_coldstart.reference import References
from pytest_coldstart.report import capacity
from pytest_coldstart.report.terminal import ProgressLines
from pytest_coldstart.rounds import Rounds
from pytest_coldstart.settings import Settings
from pytest_coldstart.slo import Bound, Verdict, effective
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.runfile import RunFile
from pytest_coldstart.warmup import WARMUPS

if TYPE_CHECKING:
    from pytest_coldstart.gate.baseline import Baseline

NAME = "coldstart-session"

#: Options without which another run would make other boots or judge them otherwise.
_FLAGS = ("--coldstart-parallel", "--coldstart-cpu", "--coldstart-spans")
_REPEATED = (
    *_FLAGS,
    *(
        f"--coldstart-{name}"
        for name in (
            "slo",
            "rounds",
            "store",
            "boot-timeout",
            "hang-timeout",
            "phase-deadline",
            "python",
            "burst",
            "foreign-gpu",
        )
    ),
    *("-c", "--config-file", "--rootdir", "-o", "--override-ini", "-p"),
)


@dataclass(frozen=True)
class CellParam:
    """What collection decided about one parametrised test: the parameter of ``coldstart_cell``."""

    matrix: MatrixCell
    mark: ColdstartMark
    engine: Engine
    #: The model, or why it is missing and what enables it.
    model: Model | None
    missing: tuple[str, str] = ("", "")


def register_extensions(config: pytest.Config, engines: EngineRegistry) -> None:
    """Engines, metrics and warm-ups that other plugins give through our hooks."""
    for kinds in config.hook.pytest_coldstart_engines(config=config):
        for kind in kinds:
            engines.add(kind)
    for metrics in config.hook.pytest_coldstart_metrics(config=config):
        for metric in metrics:
            METRICS.add(metric)
    for warmups in config.hook.pytest_coldstart_warmups(config=config):
        for warmup in warmups:
            WARMUPS.add(warmup)


class Session:
    """One run: its settings, its store, its boots so far."""

    def __init__(self, config: pytest.Config, settings: Settings, engines: EngineRegistry) -> None:
        self.config = config
        self.settings = settings
        self.engines = engines
        self.begun = time.monotonic()
        self.started_at = datetime.now(UTC)
        worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.worker = worker["workerid"] if worker else "main"
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
        self.run_id = worker["coldstart_run_id"] if worker else stamp
        self.home = Home.at(settings.store)
        self.home.prepare()
        self._run_file: RunFile | None = None
        self.devices = Devices()
        self.references = References()
        self.progress = ProgressLines(config)
        self.boots: dict[tuple[str, str], list[BootRecord]] = {}
        #: What the KV caches of each family of cells held, priming boots included, by the digest without the tier.
        self.capacities: dict[str, list[dict[str, Any]]] = {}
        self.outcomes: list[dict[str, Any]] = []
        self.shared: dict[tuple[str, str], ColdBoot] = {}
        self.estimates: dict[str, float] = {}
        #: What the run's boots are compared with at its end.
        self.baseline: Baseline | None = None
        #: For each shared boot, the tests on it that have not run yet.
        self.users: dict[tuple[str, str], list[str]] = {}

    @property
    def is_worker(self) -> bool:
        return self.worker != "main"

    # -- from a collected parameter to boots

    def engine(self, param: CellParam) -> Engine:
        """The engine, or a skip that says why and how to enable it; a failure under --coldstart-require."""
        cell = param.matrix.cell
        if not environment.is_linux():
            pytest.skip(
                "coldstart boots engines on Linux only: this platform has no /proc, subreaper or page-cache control"
            )
        found = param.engine.availability(cell)
        reason, enable = (found.reason, found.enable) if not found.ok else param.missing
        if not reason:
            reason, enable = self._wrong_device(param.engine.device(cell))
        if reason:
            self.refuse(param.engine, reason, enable)
        return param.engine

    def _wrong_device(self, device: str) -> tuple[str, str]:
        """Why a build for *device* is not booted here, and what enables it; empty where it is."""
        if device == "gpu" and not environment.has_gpu():
            return (
                "its build is for GPUs and no NVIDIA GPU is visible here",
                "run it on a GPU host, or give a CPU build",
            )
        if device == "cpu" and not self.settings.cpu:
            return "its build is for CPUs, whose times say nothing of a GPU's", "--coldstart-cpu"
        return "", ""

    def refuse(self, engine: Engine, reason: str, enable: str) -> NoReturn:
        """Skip, or fail where the engine is required."""
        text = f"engine {engine.name!r}: {reason}; to enable: {enable}"
        if engine.name in self.settings.require:
            pytest.fail(f"{text} (it is required by --coldstart-require)", pytrace=False)
        pytest.skip(text)

    def plan(self, param: CellParam) -> Plan:
        settings, mark, cell = self.settings, param.mark, param.matrix.cell
        assert param.model is not None
        try:
            model = param.model.made()
        except ModelMissing as error:
            self.refuse(param.engine, str(error), error.enable)
        except (EngineError, OSError) as error:
            pytest.fail(f"engine {param.engine.name!r}: its model could not be made: {error}", pytrace=False)
        return Plan(
            cell=cell,
            cell_id=param.matrix.id,
            nodeid="",
            engine=param.engine,
            model=model,
            warmup=param.matrix.warmup,
            rounds=settings.rounds_override or mark.rounds or settings.rounds,
            requests=mark.requests,
            prompt_words=tuple(mark.prompt_words),
            boot_timeout=settings.boot_timeout,
            deadlines=settings.deadlines,
            hang_timeout=settings.hang_timeout,
            probe=settings.probe,
            spans=settings.spans,
            burst=self._burst(param),
            gpu_count=mark.gpus,
            gpu_wait=settings.gpu_wait,
            foreign_gpus=settings.foreign_gpu == "allow",
            port=mark.port,
            parallel=settings.parallel,
            cwd=self.config.invocation_params.dir,
            caches=self.home.caches,
            logs=self.home.logs,
            run_id=self.run_id,
            keep_logs=settings.keep_logs,
        )

    def _burst(self, param: CellParam) -> BurstSpec | None:
        """The burst of a cell: its suite's, none where that makes no sense, else the default one."""
        mode, given = self.settings.burst, param.mark.burst
        if mode == "off" or given is False:
            return None
        spec = spec_from(given) if given is not None else BurstSpec()
        if given is not None:
            return spec
        cell = param.matrix.cell
        if not {"allocator_fragmentation", "kv_fragmentation"} - set(param.engine.impossible(cell)):
            return None  # nothing could be read of it
        # A GPU that NVML does not show here still has an engine's allocator and KV cache on it.
        on_gpu = param.engine.device(cell) != "cpu" and (
            bool(self.devices.visible(os.environ)) or environment.can_open_gpu(amd=False)
        )
        return spec if mode == "on" or on_gpu else None

    def bounds(self, marker_levels: Sequence[Sequence[Bound]], tier: str) -> list[Bound]:
        settings = self.settings
        levels = [settings.slo_command_line, *marker_levels, settings.slo_ini, settings.slo_default]
        return effective(levels, tier)

    def rounds(self, plan: Plan) -> Rounds:
        """The rounds of a cell, not yet booted.

        Skips where the time budget would not hold them.
        """
        self._check_budget(plan)
        name = f"{plan.engine.name} {plan.cell_id}"
        self.progress.begin()
        return Rounds(
            plan,
            keep=self.keep,
            earlier=tuple(self.boots.get((plan.nodeid, plan.cell.digest), ())),  # a copy: keep() adds to the list
            progress=lambda elapsed, awaited, line: self.progress.boot(name, elapsed, awaited, line),
            waiting=lambda seconds: self.progress.waiting(name, seconds),
            devices=self.devices,
            references=self.references,
        )

    def _check_budget(self, plan: Plan) -> None:
        budget = self.settings.budget
        if budget is None:
            return
        used = time.monotonic() - self.begun
        expected = self.estimates.get(plan.cell.digest, 0.0) * plan.rounds
        if used + expected > budget:
            about = f" and this cell takes about {expected:.0f} s" if expected else ""
            pytest.skip(
                f"time budget of {budget:g} s: {used:.0f} s are used{about}; raise --coldstart-budget to run it"
            )

    def keep(self, record: BootRecord) -> None:
        """Store a whole boot and tell the hook."""
        self.progress.begin()
        if record.counted:
            self.boots.setdefault((record.nodeid, record.cell_digest), []).append(record)
        self.capacities.setdefault(record.base_digest, []).extend(capacity.readings([record]))
        self.run_file.boot(record)
        self.config.hook.pytest_coldstart_boot_finished(record=record)

    def keep_verdicts(self, plan: Plan, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self.run_file.verdict(plan.cell.digest, plan.cell_id, plan.cell.tier, plan.nodeid, verdict)

    @property
    def run_file(self) -> RunFile:
        if self._run_file is None:
            header = environment.collect(self.config.rootpath, ["pytest", *self.config.invocation_params.args])
            header["started_at"] = self.started_at.isoformat(timespec="milliseconds")
            self._run_file = RunFile(self.home, self.run_id, self.worker, header)
        return self._run_file

    def read_baseline(self) -> None:
        """Read what the run's boots will be compared with, where that is asked for.

        :raises GateError: it is unknown, empty or cannot be read, or the extra gate is missing.
        """
        if self.settings.baseline:
            from pytest_coldstart.gate.baseline import Baseline  # only here: no other run needs it

            here = self.config.invocation_params.dir
            suites = [here / word.partition("::")[0] for word in self.config.args]
            self.baseline = Baseline.of(self.settings.baseline, self.home, here, suites)

    # -- the end

    def last_user(self, key: tuple[str, str], nodeid: str) -> bool:
        """Whether no other test of this run waits for the shared boot *key*."""
        waiting = self.users.get(key, [])
        if nodeid in waiting:
            waiting.remove(nodeid)
        return not waiting

    def here(self, item: pytest.Item) -> str:
        """The test as it is named from where pytest was called, and not from the root directory."""
        path = os.path.relpath(item.path, self.config.invocation_params.dir)
        _, separator, rest = item.nodeid.partition("::")
        return path + separator + rest

    def reproduce_options(self) -> list[str]:
        """The options of this run that another run needs to get the same boots and bounds."""
        words = list(self.config.invocation_params.args)
        kept: list[str] = []
        for index, word in enumerate(words):
            name, equals, _ = word.partition("=")
            if name in _REPEATED:
                kept.append(word)
                if name not in _FLAGS and not equals and index + 1 < len(words):
                    kept.append(words[index + 1])
        return kept

    def close(self, exit_status: int | None) -> list[str]:
        """Close the run file; the controller also ingests. Returns notes for the terminal."""
        from pytest_coldstart.store.errors import StoreError
        from pytest_coldstart.store.ingest import ingest

        notes: list[str] = []
        if self._run_file is not None:
            with suppress(StoreError):
                self._run_file.close(exit_status)
        if self.is_worker or environment.gate_place(os.environ):
            return notes  # a gate merges what its children wrote
        if not any(self.home.runs.glob("*.jsonl")):
            return notes
        try:
            report = ingest(self.home)
        except StoreError as error:
            return [f"coldstart: {error}"]
        notes += [f"coldstart: {problem}" for problem in report.problems]
        if report.boots_added:
            where = self._short(self.home.database)
            notes.append(
                f"coldstart: {report.boots_added} boots, priming ones included, added to {where} (run {self.run_id})"
            )
        return notes

    def _short(self, path: Path) -> str:
        """*path* from where pytest was called, where that is shorter."""
        here = self.config.invocation_params.dir
        return str(path.relative_to(here) if path.is_relative_to(here) else path)

    def header(self) -> list[str]:
        from pytest_coldstart.doctor import engine_line
        from pytest_coldstart.report.terminal import header

        engines = [engine_line(engine, self.settings.pythons.get(engine.name)) for engine in self.engines.all()]
        names = environment.gpu_names()
        possible = [tier for tier in TIERS if any(tier in engine.tiers for engine in self.engines.all())]
        return header(
            self._short(self.home.database), ", ".join(names) or "none", engines, self.settings.tiers or possible
        )


def session_of(config: pytest.Config) -> Session | None:
    """The run's session, or None without --coldstart."""
    found = config.pluginmanager.get_plugin(NAME)
    return found.session if found is not None else None
