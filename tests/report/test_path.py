"""The critical path in failure texts, notes and the terminal's summary."""

from __future__ import annotations

import dataclasses
from typing import Any

from pytest_coldstart.attribution import Attribution, Disagreement, Hint, Unmatched
from pytest_coldstart.record import BootRecord, Failure, Phase
from pytest_coldstart.report import terminal
from pytest_coldstart.report.explain import broken_slo, failed_boot, slowest_part
from pytest_coldstart.report.path import has_path, of_cell, path_lines, source_notes
from pytest_coldstart.slo import judge, parse_bound
from tests.store.samples import record

PATH = (
    Phase("imports", 0.0, 3.0, "probe", "server", "torch"),
    Phase("imports", 3.0, 8.0, "probe", "EngineCore", "torch"),
    Phase("compile", 8.0, 14.0, "probe", "EngineCore"),
    Phase("first_request", 14.0, 15.0, "client"),
)
HINTS = tuple(Hint(f"rule{n}", f"do number {n}", float(n)) for n in (2, 4, 1, 3))


def boot(boot_id: str = "b-1", **changes: Any) -> BootRecord:
    base: dict[str, Any] = {"phases": PATH, "attribution": Attribution("full", 15.0), "hints": HINTS}
    return record(boot_id, **{**base, **changes})


OUTSIDE = (Phase("unattributed", 0.0, 1.25, "client"), Phase("first_request", 1.25, 2.0, "client"))


def test_the_slowest_part_is_the_phase_that_kept_one_process_longest() -> None:
    """Imports are 8 s in all, 5 s of them in one process; compile is 6 s of one."""
    assert slowest_part(boot()) == "compile 6.00 s (EngineCore)"
    silent = (*PATH[:1], Phase("unattributed", 3.0, 14.0, "probe"), PATH[-1])
    assert slowest_part(boot(phases=silent)) == "unattributed 11.00 s"


def test_without_a_look_inside_it_is_the_longest_stretch_between_instants() -> None:
    """start 0, listen 0.5, ready 1.25, first token 1.5, first answer 2.0."""
    assert not has_path(boot(phases=OUTSIDE))
    assert slowest_part(boot(phases=OUTSIDE)) == "listen to ready 750 ms"
    assert path_lines(boot(phases=OUTSIDE, hints=())) == []


def test_the_waterfall_comes_with_the_three_hints_that_have_most_at_stake() -> None:
    lines = path_lines(boot())
    assert [line.split()[0] for line in lines[:5]] == ["phase", "imports", "imports", "compile", "first_request"]
    assert lines[5:] == [
        "what would help:",
        *(f"  {n}.00 s at stake: do number {n}" for n in (4, 3, 2)),
    ]


def test_a_broken_bound_and_a_failed_boot_show_where_the_time_went() -> None:
    found = judge([parse_bound("cold_start<=1s", "marker", ("restart",))], [boot()], {})
    broken = broken_slo(found, [boot()], "t.py::t", ())
    assert "  compile       " in broken
    assert "4.00 s at stake: do number 4" in broken
    failure = Failure(
        "hang", "no sign of life", "start", "last", ("phase compile of EngineCore since 8.0 s", "  \x1b[1mf")
    )
    failed = failed_boot(boot(outcome="failed", failure=failure), "t.py::t", (), False)
    assert "  phase compile of EngineCore since 8.0 s\n" in failed
    assert "\x1b" not in failed
    assert "  compile       " in failed


def test_unmatched_patterns_and_disagreements_are_noted_once_and_at_most_three_a_cell() -> None:
    unmatched = tuple(Unmatched("vllm", "0.34", name) for name in ("weights", "compile"))
    differing = Disagreement(("load_weights",), "probe", 2.0, "log", 3.5, "Loading weights took")
    one = boot("b-1", attribution=Attribution("full", 15.0, unmatched=unmatched[:1]))
    two = boot("b-2", attribution=Attribution("full", 15.0, unmatched=unmatched[:1], disagreements=(differing,)))
    assert source_notes([one, two]) == [
        "vllm 0.34: no line matched 'weights'",
        "round 2: load_weights: probe says 2.00 s, log says 3.50 s (Loading weights took)",
    ]
    many = dataclasses.replace(two.attribution, unmatched=unmatched, disagreements=(differing,) * 1)
    more = dataclasses.replace(many, disagreements=(differing, dataclasses.replace(differing, second="span")))
    notes = source_notes([boot(attribution=more)])
    assert len(notes) == 3
    assert notes[-1] == "2 more such notes: see `coldstart show`"


class Lines(list[str]):
    """What the summary writes, as a terminal reporter takes it."""

    def section(self, title: str) -> None:
        self.append(f"== {title}")

    def write_line(self, line: str, **_: bool) -> None:
        self.append(line)


def row(name: str, verdict: str, failed: int, found: BootRecord) -> dict[str, Any]:
    """What the controller gets of one cell."""
    verdicts = judge([parse_bound("cold_start<=10s", "marker", ("restart",))], [found], {})
    return {
        "status": "judged",
        "name": name,
        "nodeid": "n",
        "tier": "restart",
        "rounds": 1,
        "failed": failed,
        "verdict": verdict,
        "verdicts": [item.to_dict() for item in verdicts],
        "slowest": "-",
        "notes": [],
        **of_cell(found),
    }


def titles(*rows: dict[str, Any]) -> list[str]:
    written = Lines()
    terminal.summary(written, rows, [], 0.0)
    return [line for line in written if line.startswith("where the time went")]


def test_the_summary_draws_one_cell_the_failed_one_else_the_broken_one_else_the_slowest() -> None:
    fast = row("fast", "pass", 0, boot("b-fast", attribution=Attribution("full", 5.0)))
    slow = row("slow", "pass", 0, boot("b-slow"))
    broken = row("broken", "fail", 0, boot("b-broken", attribution=Attribution("full", 5.0)))
    failed = row("failed", "failed", 1, boot("b-failed", attribution=Attribution("full", 1.0)))
    bare = row("bare", "fail", 0, boot("b-bare", phases=OUTSIDE, hints=()))
    assert titles(fast, slow, bare) == ["where the time went: slow restart, boot b-slow"]
    assert titles(fast, broken, slow) == ["where the time went: broken restart, boot b-broken"]
    assert titles(broken, failed, slow) == ["where the time went: failed restart, boot b-failed"]
    assert titles(bare) == []
