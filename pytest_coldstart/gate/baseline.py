"""``pytest --coldstart-baseline SIDE``: the boots of a run, compared at its end with those of a stored side."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_coldstart.gate.comparison import EXIT_INCONCLUSIVE, EXIT_REGRESSED, FAIL, GateReport, Side
from pytest_coldstart.gate.errors import GateError, require_extra
from pytest_coldstart.gate.policy import Policies, find, load
from pytest_coldstart.stats.decision import INCONCLUSIVE
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.home import Home


@dataclass(frozen=True)
class Baseline:
    """The base, read before the first boot so that ``run:last`` is not the run that is being judged."""

    base: Side
    policies: Policies

    @classmethod
    def of(cls, text: str, home: Home, here: Path, suites: Sequence[Path]) -> Baseline:
        """Read the side *text*, and the policy beside *suites* or in *here*.

        :raises GateError: the extra is missing, the side is none, unknown, empty or cannot be read, or the policy is wrong.
        """
        require_extra("--coldstart-baseline")
        from pytest_coldstart.gate.sides import load as side

        try:
            return cls(side("base", text, home, here), load(find(suites, here)))
        except (GateError, StoreError) as error:
            raise GateError(f"--coldstart-baseline: {error}") from None

    def compare(self, home: Home, run_id: str) -> GateReport | None:
        """The run's boots as the head; None where it has none. Its run files are read, so a held store does not matter.

        :raises StoreError: a run file of it cannot be read.
        """
        from pytest_coldstart.gate.judge import compare
        from pytest_coldstart.gate.sides import of_runs
        from pytest_coldstart.store.runfile import read_run

        files = sorted(home.runs.glob(f"{run_id}.*.jsonl"))
        head = of_runs("head", f"run:{run_id}", map(read_run, files))
        return compare(self.base, head, self.policies, history=home) if head.boots else None

    def result(self, home: Home, run_id: str) -> tuple[list[str], bool]:
        """The comparison in lines, and whether the run does not pass because of it."""
        from pytest_coldstart.report.gate_text import text

        try:
            report = self.compare(home, run_id)
        except StoreError as error:
            return [f"coldstart: not compared: {error}"], self.policies.default.inconclusive == FAIL
        if report is None:
            return ["coldstart: not compared: this run has no boot that counts"], False
        lines, failed = text(report, shutil.get_terminal_size((100, 24)).columns), fails(report)
        if failed and report.exit_code == EXIT_INCONCLUSIVE:
            lines.append('coldstart: the run does not pass: the policy says inconclusive = "fail"')
        return lines, failed


def fails(report: GateReport) -> bool:
    """Whether a run with this report does not pass: regressed, or undecided where the policy of the cell fails that."""
    if report.exit_code != EXIT_INCONCLUSIVE:
        return report.exit_code == EXIT_REGRESSED
    if any(cell.outcome == INCONCLUSIVE and cell.verdict == FAIL for cell in report.cells):
        return True
    return report.on_inconclusive == FAIL and (not report.cells or bool(report.refused))
