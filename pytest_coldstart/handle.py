"""What a test's body gets: the engine that is up, and what is known of its boots."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_coldstart.cell import Cell
from pytest_coldstart.client import Client
from pytest_coldstart.errors import BootFailed
from pytest_coldstart.plan import Plan
from pytest_coldstart.process import read_log_tail
from pytest_coldstart.record import BootRecord, Value
from pytest_coldstart.rounds import Rounds
from pytest_coldstart.slo import Bound, Verdict


class SLOBroken(AssertionError):
    """At least one bound does not hold; the message has the numbers."""


class ColdBoot:
    """The live last boot of a cell. Public API of the fixture ``cold_boot``."""

    def __init__(self, rounds: Rounds, bounds: Sequence[Bound]) -> None:
        self.rounds = rounds
        self.bounds = list(bounds)
        #: A fault of this tool after the body: an error of the test, raised at its teardown.
        self.fault = ""
        #: Bounds of tests on a shared boot that only its stop can judge.
        self.pending: list[Bound] = []
        #: Whether a test has been judged on these boots.
        self.judged = False

    @property
    def plan(self) -> Plan:
        return self.rounds.plan

    @property
    def cell(self) -> Cell:
        return self.plan.cell

    @property
    def client(self) -> Client:
        """Sends timed, streamed requests to the engine.

        :raises BootFailed: the boot failed, so there is nothing to talk to.
        """
        live = self.rounds.live
        if live is None or live.client is None:
            failed = self.rounds.failed
            raise BootFailed("down", failed.failure.message if failed and failed.failure else "the engine was stopped")
        return live.client

    @property
    def url(self) -> str:
        return f"http://{self.client.host}:{self.client.port}"

    @property
    def record(self) -> BootRecord:
        """The last boot so far; what is known only after its stop is unmeasured."""
        return self.records[-1]

    @property
    def records(self) -> list[BootRecord]:
        """Every counted boot of the cell in this run, those of earlier attempts first."""
        return self.rounds.counted

    @property
    def metrics(self) -> dict[str, Value]:
        return self.record.metrics

    def log_tail(self, lines: int = 30) -> str:
        live = self.rounds.live
        return read_log_tail(live.log_path, lines) if live else ""

    def assert_slos(self) -> None:
        """Judge now what is known now; the plugin judges everything after the body in any case.

        :raises SLOBroken: at least one bound does not hold.
        """
        __tracebackhide__ = True
        broken = [verdict for verdict in self.verdicts() if verdict.broken]
        if broken:
            from pytest_coldstart.report.explain import verdict_line

            raise SLOBroken("\n".join(verdict_line(verdict, self.records) for verdict in broken))

    def verdicts(self) -> list[Verdict]:
        return self.rounds.judge(self.bounds)
