"""The command lines of ``coldstart gate`` that decide what the page Compare shows."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dashboard.compare_rows import Cell
from dashboard.data.sides import BOOTS, COMMITS, CONFIGS, Chosen
from pytest_coldstart.gate.comparison import GateReport
from pytest_coldstart.store.home import Home


def stored(base: Chosen, head: Chosen, cell: Cell | None, allow: Sequence[str], home: Home) -> tuple[str, str]:
    """The gate over boots of the store, and what it compares beside those of the page; or no command, and why there is none."""
    words = ["coldstart", "gate"]
    note = ""
    if base.kind in (BOOTS, CONFIGS):
        if cell is None or len(base.runs) != 1 or len(head.runs) != 1:
            return "", "A gate compares whole runs, commits or stores: for one over these boots choose one run of each."
        if base.kind == BOOTS:
            if base.runs == head.runs and cell.cells[0] == cell.cells[1]:
                return "", "Both boots are rounds of one cell in one run, between which no gate decides."
            note = "It compares all boots of these cells in these runs."
        words += ["--base", f"run:{base.runs[0]}", "--head", f"run:{head.runs[0]}"]
        words += ["--base-cell", cell.cells[0], "--head-cell", cell.cells[1]]
    else:
        words += ["--base", base.text, "--head", head.text]
        if base.kind == COMMITS:
            note = "Give it in a checkout of the repository. Runs of gates at these commits count there, too."
    words += [word for name in allow for word in ("--allow", name)]
    store = home.root if home == Home.at(home.root) else home.database
    return shlex.join([*words, "--store", str(store)]), note


def interleaved(report: GateReport | None, nodeids: Sequence[str]) -> str:
    """The gate that boots both commits now, in random order; empty where the sides are not of one commit each, or of the same."""
    if report is None or not report.base.commit or not report.head.commit or report.base.commit == report.head.commit:
        return ""
    sides = ["--base", f"git:{report.base.commit}", "--head", f"git:{report.head.commit}"]
    return shlex.join(["coldstart", "gate", *sides, *dict.fromkeys(nodeids)])
