"""The hooks of a run with --coldstart; registered by plugin.py, each delegates in a few lines."""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import Any

import pytest

from pytest_coldstart import collect, judge
from pytest_coldstart.report import terminal
from pytest_coldstart.session import Session


class Hooks:
    """One instance a run, registered under :data:`pytest_coldstart.session.NAME`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.notes: list[str] = []
        self.estimate = ""
        self.compared: list[str] = []

    def pytest_report_header(self) -> list[str]:
        return self.session.header()

    def pytest_sessionstart(self) -> None:
        end_on_sigterm()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["coldstart_run_id"] = self.session.run_id

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        collect.parametrize(metafunc, self.session)

    @pytest.hookimpl(trylast=True)  # other plugins reorder and deselect first
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        collect.select(self.session, items)
        judge.note_shared(self.session, items)
        self.estimate = collect.estimate(self.session, items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        judge.forget(item)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> None:
        judge.refuse_body(self.session, pyfuncitem)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        try:
            result = yield
        except BaseException as error:
            if not isinstance(error, (KeyboardInterrupt, SystemExit, pytest.exit.Exception)):
                # A skip in the body does not hide a broken SLO: the boots were made.
                skipped = isinstance(error, pytest.skip.Exception)
                judge.after_body(self.session, item, body_failed=not skipped)
            raise
        judge.after_body(self.session, item, body_failed=False)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        outcome = judge.outcome_for_report(item, report)
        if outcome is not None:
            report.coldstart = outcome  # type: ignore[attr-defined]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = getattr(report, "coldstart", None)
        if outcome is not None and not self.session.is_worker:
            self.session.outcomes = [row for row in self.session.outcomes if row["nodeid"] != report.nodeid]
            self.session.outcomes.append(outcome)

    @pytest.hookimpl(trylast=True)  # after the fixtures of an interrupted test have stopped its boot
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self.notes = self.session.close(int(exitstatus))
        judged = any(row["status"] == "judged" for row in self.session.outcomes)
        collect_only = session.config.getoption("collectonly")
        if judged and self.session.baseline is not None:
            self.compared, worse = self.session.baseline.result(self.session.home, self.session.run_id)
            if worse and exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if judged or collect_only or self.session.is_worker:
            return
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            empty = pytest.ExitCode.OK if self.session.settings.allow_empty else pytest.ExitCode.NO_TESTS_COLLECTED
            session.exitstatus = empty

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if config.getoption("collectonly"):
            terminalreporter.write_line(self.estimate)
            return
        terminal.summary(terminalreporter, self.session.outcomes, self.notes, self.session.begun)
        if self.compared:
            terminalreporter.section(f"compared with {self.session.settings.baseline}")
            for line in self.compared:
                terminalreporter.write_line(line)


def end_on_sigterm() -> None:
    """Make SIGTERM end the session as Ctrl-C does: boots are stopped, the run file is closed.

    Only where nobody else handles it. What an abrupt death leaves, the supervisors end.
    """

    def interrupt(number: int, frame: Any) -> None:
        pytest.exit("SIGTERM", returncode=int(pytest.ExitCode.INTERRUPTED))

    try:
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, interrupt)
    except ValueError:
        return  # not the main thread: the default action stays
