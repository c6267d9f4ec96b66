"""One boot on one clock: prepare, prove, launch, watch, first request, warm up, stop, sweep.

Can be used from a script without pytest::

    boot = Boot(plan)
    boot.run()            # start -> warmed; a failure of the engine is data, see boot.failure
    record = boot.stop()  # the tree is gone, the record is whole
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from pytest_coldstart import metrics
from pytest_coldstart.assemble import record_of, stop_of
from pytest_coldstart.cause import explained
from pytest_coldstart.client import Client, RequestFailed
from pytest_coldstart.coldness import TIERS, Coldness, TierContradicted
from pytest_coldstart.engines.base import LaunchSpec
from pytest_coldstart.errors import BootFailed, HarnessFault
from pytest_coldstart.exchange import Exchange
from pytest_coldstart.footprint import Footprint
from pytest_coldstart.hints import hints
from pytest_coldstart.insight import Insight
from pytest_coldstart.launch import launch_of
from pytest_coldstart.observe import proc
from pytest_coldstart.observe.scrape import TTFTScraper
from pytest_coldstart.plan import Plan
from pytest_coldstart.ports import HOST, Port, PortTaken, is_free
from pytest_coldstart.process import Ended, SupervisorLost, Tree, exit_words, printable, read_log_tail
from pytest_coldstart.readiness import Endpoint, Readiness
from pytest_coldstart.record import INSTANTS, BootRecord, Evidence, Failure, Request, Usage
from pytest_coldstart.redact import Redactor
from pytest_coldstart.shm import SharedMemory
from pytest_coldstart.wake import calls_of, plan_wakes, put_to_sleep, wake_up
from pytest_coldstart.watch import Watch

#: Called while a boot runs: seconds since the start, what is awaited, the engine's last line.
Progress = Callable[[float, str, str], None]

#: Beginnings of variables that are kept with a boot though its caller had them too.
_OBSERVED = tuple("PYTHON CUDA NCCL VLLM SGLANG TRT TM_ HF_ OMP_ GGML LLAMA LD_ TORCH TRITON".split())


class Boot:
    """One launch of one cell. After :meth:`run` either ``failure`` is set or the engine is up."""

    def __init__(
        self,
        plan: Plan,
        role: str = "measured",
        round: int = 1,
        progress: Progress | None = None,
        hold: Sequence[int] = (),
    ) -> None:
        self.plan, self.role, self.round, self.hold = plan, role, round, hold
        self.progress = progress
        self.boot_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        self.log_path = plan.logs / f"{self.boot_id}.log"
        self.failure: Failure | None = None
        self.record: BootRecord | None = None
        self.client: Client | None = None
        self.port: Port | None = None
        self.tree: Tree | None = None
        self.readiness: Readiness | None = None
        self.observer: proc.TreeObserver | None = None
        self.watch: Watch | None = None
        self.evidence = Evidence()
        self.usage = Usage()
        self.requests: list[Request] = []
        self.instants: dict[str, float] = {}
        self.started_at = datetime.now(UTC)
        self.redactor = Redactor({**plan.environ, **plan.cell.env})
        self.contradicted = False
        self.exchange: Exchange | None = None
        self.scraper: TTFTScraper | None = None
        self.insight: Insight | None = None
        self.footprint: Footprint | None = None
        self.origin = 0.0
        self._created = time.monotonic()
        #: Seconds from the start at which it was known to have failed.
        self.failed_at: float | None = None
        self._log_until: float | None = None
        self._ended: list[str] = []
        self._before_start = 0.0
        self.command: tuple[str, ...] = ()
        self.environment: dict[str, str] = {}
        self._device_before: int | None = None
        self.load_average: float | None = None

    # -- start to warmed

    def run(self) -> None:
        """Boot the engine to its warmed state, or until it fails (``failure`` is set, all is stopped).

        :raises TierRefused: the host cannot be made as cold as the tier says.
        :raises TierContradicted: the evidence contradicts the tier; ``record`` keeps it.
        :raises HarnessFault: the port is taken, or a fault of this tool.
        """
        try:
            self._prepare()
            self._launch()
            if plan_wakes(self.plan):
                self._in_thread(lambda: put_to_sleep(self), "the answer before its sleep")
                self._wake()
            self._first_request()
            self._confirm()
            self._in_thread(self._warm, "the warm-up and the timed requests")
            assert self.watch is not None
            self.watch.timed = False
            self._in_thread(self._fill, "the burst of requests")
        except (BootFailed, RequestFailed) as error:
            try:
                self._fail(error)
            except BaseException:
                self._abandon()
                raise
        except (SupervisorLost, PortTaken) as error:
            self._abandon()
            raise HarnessFault(str(error)) from error
        except BaseException:
            self._abandon()
            raise

    def _prepare(self) -> None:
        plan = self.plan
        plan.logs.mkdir(parents=True, exist_ok=True)  # somebody may have deleted the store meanwhile
        self.port = Port(plan.port)
        spec = LaunchSpec(plan.cell, plan.model, HOST, self.port.number, plan.python, plan.cache_home)
        roots = plan.engine.cache_roots(spec)
        libraries = plan.engine.libraries(plan.cell)
        tier = TIERS[plan.cell.tier]
        self.coldness = Coldness(tier, plan.cache_home, roots, plan.model.files, libraries, plan.cell.env)
        self.model = plan.model.describe()  # reads the weights, so before they are evicted
        self.versions = plan.engine.versions(plan.cell)
        self.shared_memory = SharedMemory.now()
        self.coldness.prepare()
        self.insight = Insight(plan, self.boot_id)
        self.footprint = Footprint(plan, spec, self.log_path, self.insight.folder, self.insight.mode)
        launch = launch_of(plan, spec, roots, self.boot_id, self.log_path, self.insight)
        self.redactor.learn(launch.argv)
        self.command = self.redactor.command(launch.argv)
        differs = {k: v for k, v in launch.env.items() if plan.environ.get(k) != v or k.startswith(_OBSERVED)}
        self.environment = self.redactor.environment(differs)
        self.dialect = plan.engine.dialect(spec)
        if plan.engine.ttft_histogram and plan.engine.metrics_path:
            histogram = plan.engine.ttft_histogram
            self.scraper = TTFTScraper(HOST, self.port.number, plan.engine.metrics_path, histogram)
        launch = replace(launch, unlink=(self.port.lock.path,))
        self.tree = Tree(launch, hold=[*self.hold, self.port.lock.fileno()])

    def _launch(self) -> None:
        tree, port, plan = self.tree, self.port, self.plan
        assert tree is not None
        assert port is not None
        self.evidence = self.coldness.prove()
        if self.evidence.contradictions:
            self._contradict()
        self.observer = proc.TreeObserver(tree.supervisor_pid, mask=self.redactor.command)
        self._note_host()
        assert self.footprint is not None
        self.footprint.before(lambda: set(proc.tree(tree.supervisor_pid)))
        tree.start()
        assert tree.start_time is not None
        self._before_start = tree.start_time - self._created
        self.instants["start"] = 0.0
        if tree.exec_errno is not None:
            raise BootFailed(
                "exec", f"the engine could not be executed: {self.command[0]}: {os.strerror(tree.exec_errno)}"
            )
        if plan.observe:
            self.observer.start()
        # Deadlines are of the timed boot: what comes before a wake has the boot timeout alone.
        deadlines = {} if plan_wakes(plan) else plan.deadlines
        self._begin(tree.start_time, plan.engine.endpoints_for(plan.cell), deadlines)

    def _note_host(self) -> None:
        """What is known of the host just before a start."""
        if self.plan.model.files:
            self._device_before = proc.device_read_bytes(self.plan.model.files[0])
        self.load_average = os.getloadavg()[0]
        self.started_at = datetime.now(UTC)

    def _begin(self, origin: float, endpoints: tuple[Endpoint, ...], deadlines: Mapping[str, float]) -> None:
        """Count every instant from *origin*, a second of the monotonic clock."""
        plan, port, tree, observer = self.plan, self.port, self.tree, self.observer
        assert port is not None
        assert tree is not None
        assert observer is not None
        self.origin = origin
        self.readiness = Readiness(HOST, port.number, endpoints, origin)
        self.client = Client(HOST, port.number, plan.model.served, self.dialect, origin)
        self.exchange = Exchange(plan, self.client, self.readiness, self.scraper, self.requests)
        mask = self.redactor.text
        self.watch = Watch(
            plan, tree, self.exchange, observer, port.number, self.instants, self._tell, origin, deadlines, mask
        )
        if self.footprint:
            self.footprint.begin(origin)
        self.readiness.start()

    def _wake(self) -> None:
        """From here on everything counts from the request that wakes the engine."""
        assert self.readiness is not None
        self.readiness.close()
        self.instants.clear()
        self.instants["start"] = 0.0
        evidence = self.coldness.prove()  # of this start: the boot before the sleep has read and written
        self.evidence = replace(evidence, state={**evidence.state, "process": "resident and asleep"})
        self._note_host()
        plain = tuple(replace(item, trusted=False) for item in self.plan.engine.endpoints_for(self.plan.cell))
        earlier = self.origin
        self._begin(time.monotonic(), (calls_of(self.plan).awake, *plain), self.plan.deadlines)
        self.requests[:] = [request.shifted(earlier - self.origin) for request in self.requests]

    def _tell(self, elapsed: float, awaited: str, line: str) -> None:
        if self.progress:
            which = "the priming boot" if self.role == "prime" else f"round {self.round}"
            shown = "" if "first_done" in self.instants else self.redactor.text(line)
            self.progress(elapsed, f"{awaited} of {which}", shown)

    def _first_request(self) -> None:
        self._in_thread(self._send_first, "the first answer")
        assert self.readiness is not None
        self._note_readiness()

    def _send_first(self) -> None:
        assert self.exchange is not None
        wakes = plan_wakes(self.plan)
        if wakes:
            wake_up(self)
        request = self.exchange.pinned("first", self.instants.__setitem__)
        # A container's client is not the engine, and an engine that was woken had run before its boot.
        if self.observer and self.plan.observe and not self.plan.cell.container and not wakes:
            self.usage = self.observer.usage(self.origin)
        assert request.done is not None
        assert self.insight is not None
        self.instants["first_done"] = request.done
        self.insight.answered()
        self.exchange.keep(request)

    def _confirm(self) -> None:
        device = None
        if self._device_before is not None:
            now = proc.device_read_bytes(self.plan.model.files[0])
            device = None if now is None else now - self._device_before
        # What a container reads is not read by the client that started it.
        read = None if self.plan.cell.container else self.usage.read_bytes
        self.evidence = self.coldness.confirm(self.evidence, read, device)
        if self.evidence.contradictions:
            self._contradict()

    def _warm(self) -> None:
        assert self.exchange is not None
        self.exchange.warm(self.instants.__setitem__)

    def _fill(self) -> None:
        """Fill the engine's memory with a burst, and read it."""
        assert self.client is not None
        assert self.footprint is not None
        self.footprint.fill(self.client.another, self.requests, self.client.now)

    def _in_thread(self, work: Callable[[], None], awaited: str) -> None:
        """Run *work* on a thread and watch the boot meanwhile; the thread's error is raised here."""
        assert self.watch is not None
        errors: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=run, daemon=True, name="coldstart-requests")
        thread.start()
        try:
            self.watch.until(done, awaited)
        except BaseException:
            if self.exchange:
                self.exchange.abort()
            if self.footprint:
                self.footprint.abort()
            thread.join(2)
            raise
        thread.join()
        if errors:
            self.watch.give_exit_a_moment()  # a dying engine breaks the request first
            raise errors[0]

    # -- endings

    def _note_readiness(self) -> None:
        if self.readiness:
            for name, value in (("listen", self.readiness.listen), ("ready", self.readiness.ready)):
                if value is not None:
                    self.instants[name] = value

    def _fail(self, error: BootFailed | RequestFailed) -> None:
        kind = error.kind if isinstance(error, BootFailed) else "request"
        self.failed_at = time.monotonic() - self.origin if self.origin else None
        if self.observer and self.tree:
            self._ended = self.observer.ended(but=self.tree.pid)
        if kind not in ("exit", "exec") and self.tree and self.tree.start_time is not None:
            # What a living engine prints from now on comes of its being stopped.
            self._log_until = time.monotonic() - self.tree.start_time
        diagnosis: tuple[str, ...] = ()
        if kind in ("hang", "timeout", "deadline") and self.tree and self.tree.exit_code is None:
            if self.insight:
                diagnosis = self.insight.diagnosis(self, time.monotonic())
            self.tree.dump_stacks()
        if self.readiness:
            self.readiness.close()  # what answers while the tree is being stopped is no instant of the boot
        self._note_readiness()
        if kind == "foreign_port":
            self._forget_answers()
        reached = [name for name in INSTANTS if name in self.instants]
        message = printable(self.redactor.text(str(error)))  # bodies of answers are in it
        self.failure = Failure(kind, message, reached[-1] if reached else "", diagnosis=diagnosis)
        self.stop()

    def _forget_answers(self) -> None:
        """Another server's answers are not this boot's."""
        if self.readiness:
            self.readiness.close()
            self.readiness = None
        self.requests.clear()
        self.instants = {"start": 0.0}

    def _contradict(self) -> None:
        self.contradicted = True
        self.stop()
        raise TierContradicted("; ".join(self.evidence.contradictions))

    def _abandon(self) -> None:
        """Stop everything after an error that is not the engine's; keep no record."""
        try:
            if self.tree and self.tree.ended is None:
                self.tree.stop()
        except SupervisorLost:
            pass  # its stop has already killed what carries the boot's tag
        except BaseException:
            if self.tree:
                self.tree.kill()
            raise
        finally:
            self._release()
            if self.insight and self.record is None:
                self.insight.discard()

    def _release(self) -> None:
        if self.readiness:
            self.readiness.close()
        if self.observer:
            self.observer.close()
        if self.insight:
            self.insight.close()
        if self.footprint:
            self.footprint.close()
        if self.port:
            self.port.release()

    def stop(self) -> BootRecord:
        """End the whole tree and return the record of the boot; a second call returns the same.

        :raises HarnessFault: the supervisor was lost; the tree was killed by its tag.
        """
        if self.record is not None:
            return self.record
        if self.tree is None:
            raise HarnessFault("there is nothing to stop: the engine was not launched")
        self._note_early_end()
        if self.insight and self.port and "first_done" in self.instants and self.tree.exit_code is None:
            self.insight.scrape(self.port.number)
        try:
            ended = self.tree.stop()
            if self.footprint:
                self.footprint.stopped()
        except SupervisorLost as error:
            self._release()
            raise HarnessFault(str(error)) from error
        except BaseException:
            self._abandon()
            raise
        port_free = self.port is None or is_free(self.port.number)
        self._note_readiness()
        self._release()
        self.record = self._write(ended, port_free)
        return self.record

    def _note_early_end(self) -> None:
        """An engine that ended by itself after it was up has failed, whoever had stopped looking."""
        assert self.tree is not None
        code = self.tree.exit_code
        if code is not None and not self.failure and not self.contradicted and "warmed" in self.instants:
            self.failure = Failure(
                "exit", f"the engine ended by itself with {exit_words(code)} after it was up", "warmed"
            )

    def _write(self, ended: Ended, port_free: bool) -> BootRecord:
        if self.tree and self.tree.start_time is not None:
            self.instants["stopped"] = ended.end - self.origin
        if self.failure:
            self.failure = self._explained(self.failure)
        caches = self.coldness.caches()
        record = replace(
            record_of(self),
            caches=caches,
            stop=stop_of(self, ended, port_free),
            log_bytes=ended.log_bytes,
            log_path=self._keep_log(),
        )
        if self.insight:
            record = self.insight.kept(record, keep=record.log_path is not None)
        if record.outcome == "ok":
            self.coldness.mark_filled(self.boot_id, self.versions)
        record = replace(record, harness_time=self._before_start + time.monotonic() - ended.end)
        record = replace(record, hints=hints(record))
        return replace(record, metrics=metrics.measure(record))

    def _explained(self, failure: Failure) -> Failure:
        """The failure with what the engine itself said of it."""
        # Masked before it is cut: half a secret is one too.
        log = self.redactor.text(read_log_tail(self.log_path, 400, width=None))
        ended = f"processes that had ended: {', '.join(self._ended)}" if self._ended else ""
        return explained(failure, log.splitlines(), self._log_until, ended)

    def snapshot(self) -> BootRecord:
        """The record so far, of a boot that is up: what is known only after the stop is unmeasured."""
        if self.record is not None:
            return self.record
        self._note_readiness()
        record = record_of(self)
        return replace(record, metrics=metrics.measure(record))

    @property
    def outcome(self) -> str:
        return "error" if self.contradicted else "failed" if self.failure else "ok"

    def _keep_log(self) -> str | None:
        keep = self.plan.keep_logs
        if keep == "all" or (keep == "failed" and self.outcome != "ok"):
            self.redactor.file(self.log_path)
            return str(self.log_path)
        with suppress(OSError):
            self.log_path.unlink()
        return None
