"""The report header, progress lines and the verdict table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from pytest_coldstart import units
from pytest_coldstart.report import capacity
from pytest_coldstart.slo import Verdict, pass_rate_floor

#: The first progress line of a boot comes after this many seconds, the next ones this far apart.
PROGRESS_EVERY = 5.0


class ProgressLines:
    """Says what a long boot is doing, on the terminal in spite of capture; silent where there is none."""

    def __init__(self, config: pytest.Config) -> None:
        self.plugins = config.pluginmanager
        self.quiet = hasattr(config, "workerinput")
        self._next = PROGRESS_EVERY

    def begin(self) -> None:
        self._next = PROGRESS_EVERY

    def boot(self, name: str, elapsed: float, awaited: str, line: str) -> None:
        if elapsed >= self._next:
            self._next = elapsed + min(max(elapsed, PROGRESS_EVERY), 60.0)
            self.write(
                f"coldstart: {name}: {elapsed:.0f} s, waiting for {awaited}" + (f": {line[:120]}" if line else "")
            )

    def waiting(self, name: str, seconds: float) -> None:
        if seconds >= self._next:
            self._next = seconds * 2
            self.write(f"coldstart: {name}: waiting {seconds:.0f} s for another measured boot on this host to end")

    def write(self, text: str) -> None:
        # Looked up late: the reporter registers itself after this plugin is configured.
        reporter: Any = self.plugins.get_plugin("terminalreporter")
        capture: Any = self.plugins.get_plugin("capturemanager")
        if self.quiet or reporter is None:
            return
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            reporter.ensure_newline()
            reporter.write_line(text)


def header(store: str, gpus: str, engines: Sequence[str], tiers: Sequence[str]) -> list[str]:
    return [
        f"coldstart: store {store}; GPUs: {gpus}; tiers: {', '.join(tiers)}",
        f"coldstart: engines: {', '.join(engines)}",
    ]


def summary(reporter: Any, outcomes: Sequence[Mapping[str, Any]], notes: Sequence[str], begun: float) -> None:
    """One row a judged cell, then what was skipped and why, then notes on the store."""
    judged = [row for row in outcomes if row["status"] == "judged"]
    skipped = [row for row in outcomes if row["status"] == "skipped"]
    reporter.section("cold start")
    if judged:
        _table(reporter, judged)
        for row in judged:
            for note in row["notes"]:
                reporter.write_line(f"note: {row['name']} {row['tier']}: {note}")
            if row.get("memory"):
                reporter.write_line(f"memory: {row['name']} {row['tier']}: {row['memory']}")
        for line in capacity.differences(judged):
            reporter.write_line(f"memory: {line}")
        for line in _waterfall(judged):
            reporter.write_line(line)
        clean = [row for row in judged if row["verdict"] == "pass" and _every_round(row)]
        if clean:
            least = min(row["rounds"] for row in clean)
            reporter.write_line(
                f"each cell that passed did so in at least {least} of {least} rounds: at 95 %, that shows a pass rate of at "
                f"least {pass_rate_floor(least) * 100:.0f} %"
            )
    for line in _not_judged(skipped):
        reporter.write_line(line)
    for note in notes:
        reporter.write_line(note)
    if not judged:
        reporter.write_line("coldstart: no cell was judged")
    count = "1 cell" if len(judged) == 1 else f"{len(judged)} cells"
    reporter.write_line(f"coldstart: {count} judged, {len(skipped)} not, in {time.monotonic() - begun:.1f} s")


def _waterfall(judged: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where the time of one boot went: of the first cell with a failed boot, else with a broken bound, else the slowest."""
    drawn = [row for row in judged if row.get("path")]
    if not drawn:
        return []

    def rank(row: Mapping[str, Any]) -> tuple[bool, bool, float]:
        return bool(row["failed"]), row["verdict"] != "pass", float(row["seconds"])

    row = max(drawn, key=rank)
    title = f"where the time went: {row['name']} {row['tier']}, boot {row['boot']}"
    return [title, *(f"  {line}" for line in row["path"])]


def _not_judged(skipped: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line a reason: an engine that is missing would else be said for each of its cells."""
    names: dict[str, list[str]] = {}
    for row in skipped:
        names.setdefault(row["reason"], []).append(row["name"])
    return [
        f"not judged: {cells[0] if len(cells) == 1 else f'{len(cells)} cells, {cells[0]} and others'}: {reason}"
        for reason, cells in names.items()
    ]


def _every_round(row: Mapping[str, Any]) -> bool:
    """Whether its bounds held in every round: a median that holds says less."""
    return all(item["stat"] in ("max", "min") for item in row["verdicts"])


def _table(reporter: Any, judged: Sequence[Mapping[str, Any]]) -> None:
    columns: list[str] = []
    for row in judged:
        for verdict in row["verdicts"]:
            name = f"{verdict['metric']}.{verdict['stat']}"
            if name not in columns and verdict["verdict"] != "n/a":  # a column of n/a says nothing
                columns.append(name)
    titles = ["cell", "tier", "n", *columns, "verdict", "slowest part"]
    lines = [titles]
    for row in judged:
        cells: dict[str, str] = {}
        for item in row["verdicts"]:  # several bounds on one statistic stand side by side
            name, text = f"{item['metric']}.{item['stat']}", _cell(Verdict.from_dict(item), row)
            cells[name] = f"{cells[name]}, {text}" if name in cells else text
        rounds = f"{max(0, row['rounds'] - row['failed'])}/{row['rounds']}" if row["failed"] else str(row["rounds"])
        lines.append(
            [
                row["name"],
                row["tier"],
                rounds,
                *(cells.get(name, "") for name in columns),
                row["verdict"],
                row["slowest"],
            ]
        )
    widths = [max(len(line[index]) for line in lines) for index in range(len(titles))]
    for number, line in enumerate(lines):
        text = "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        if number == 0:
            reporter.write_line(text, bold=True)
        else:
            good = judged[number - 1]["verdict"] == "pass"
            reporter.write_line(text, green=good, red=not good)


def _cell(verdict: Verdict, row: Mapping[str, Any]) -> str:
    if verdict.verdict == "n/a":
        return "n/a"
    limit = f"{verdict.op} {units.show(verdict.bound, verdict.unit)}"
    if verdict.value is None:
        return f"failed ({limit})" if row["failed"] and verdict.verdict == "fail" else f"unmeasured ({limit})"
    mark = "" if verdict.verdict == "pass" else "!"
    return f"{mark}{units.show(verdict.value, verdict.unit)} {limit}"
