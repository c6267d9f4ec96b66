"""A gate's report with known numbers, and the same with hostile text in every field."""

from __future__ import annotations

import dataclasses
from typing import Any

from pytest_coldstart.gate.comparison import (
    CellComparison,
    Difference,
    GateReport,
    MetricChange,
    PhaseChange,
    Refusal,
    SideSummary,
    Summary,
)

BASE_BOOTS, HEAD_BOOTS = tuple(f"b-{n}" for n in range(5)), tuple(f"h-{n}" for n in range(5))

COLD_START = MetricChange(
    metric="cold_start",
    unit="s",
    kind="time",
    outcome="regressed",
    base=Summary((1.7, 1.71, 1.72, 1.73, 1.74), median=1.72),
    head=Summary((2.01, 2.02, 2.03, 2.05, 2.1), median=2.03),
    change=0.182,
    low=0.121,
    high=0.25,
    p=0.008,
    floor=0.03,
    margin=0.1,
)
WARM = MetricChange(
    metric="warm_first_token",
    unit="s",
    kind="time",
    outcome="inconclusive",
    base=Summary((0.02, 0.03), median=0.025),
    head=Summary((0.021, 0.033), median=0.027),
    change=0.04,
    low=-0.2,
    high=0.31,
    p=0.4,
    reason="the budget of 5 boots a side is spent",
    needs=14,
)
KERNELS = MetricChange(
    metric="kernels_compiled",
    unit="count",
    kind="counter",
    outcome="regressed",
    base=Summary((0.0,), median=0.0),
    head=Summary((41.0,), median=41.0),
    policy="warn",
)
MODULES = MetricChange(
    metric="modules_imported",
    unit="count",
    kind="counter",
    outcome="same",
    base=Summary((812.0,), median=812.0),
    head=Summary((812.0,), median=812.0),
    change=0.0,
    policy="warn",
)
REGRESSED = CellComparison(
    cell_id="mmap:true-restart",
    cell_digest="c0ffee000001",
    engine="llamacpp",
    tier="restart",
    nodeid="suites/test_llamacpp.py::test_cold_start[mmap:true-restart]",
    outcome="regressed",
    verdict="fail",
    changes=(COLD_START, WARM, KERNELS, MODULES),
    phases=(
        PhaseChange(
            "load_weights",
            "server",
            0.34,
            0.65,
            1.0,
            "most by tensors: +302 ms; 884 MB/s on the base, 434 MB/s on the head",
        ),
        PhaseChange("imports", "server", 0.21, 0.212, 0.006),
    ),
    caches=("triton: hit on the base, grew although full on the head: 41 kernels",),
    differences=(Difference("options.mmap", "true", "false"), Difference("versions.xllamacpp", "0.2.1", "0.2.2")),
    notes=("the reference reads of 1 boot strayed",),
    reproduce="pytest --coldstart 'suites/test_llamacpp.py::test_cold_start[mmap:true-restart]' --coldstart-rounds=1",
    interleaved=True,
    base_boots=BASE_BOOTS,
    head_boots=HEAD_BOOTS,
)
SAME = CellComparison(
    cell_id="fit:true-pristine",
    cell_digest="c0ffee000002",
    engine="llamacpp",
    tier="pristine",
    nodeid="suites/test_llamacpp.py::test_cold_start[fit:true-pristine]",
    outcome="same",
    verdict="pass",
    changes=(
        dataclasses.replace(
            COLD_START, outcome="same", head=Summary((1.73,), median=1.73), change=0.004, low=-0.02, high=0.03, p=0.7
        ),
    ),
    base_boots=BASE_BOOTS[:4],
    head_boots=HEAD_BOOTS[:4],
)
REFUSED = Refusal("enforce_eager:true-restart", "restart", "the base ran on a NVIDIA H200, the head on a NVIDIA L4")
BROKEN = "llamacpp fit:true-pristine: cold_start.max = 12.1 s breaks <= 10.0 s"

REPORT = GateReport(
    base=SideSummary("git:main", "0123abcdef0123456789", ("r-1", "r-2"), 9, 0, "2026-11-02T08:00:00+00:00", "h200"),
    head=SideSummary("git:topic", "fedcba9876543210fedc", ("r-3",), 9),
    cells=(SAME, REGRESSED),
    refused=(REFUSED,),
    notes=("boots were made in random order, seed 7",),
    seconds=63.4,
    made_at="2026-11-02T09:00:00+00:00",
)

HOSTILE = (
    "<script>a|b`c`\n::error::pwn\r\n##[error]x\x1b[31m\x00 ]]>&amp; **b** [l](u) @octocat #1 \ud800 %0A,file=x:y -->"
)


def hostile(value: Any, text: str = HOSTILE) -> Any:
    """*value* with *text* behind every string that comes from outside: the words that formats decide by are kept."""
    kept = ("kind", "outcome", "verdict", "policy", "unit", "better", "on_inconclusive")
    if isinstance(value, str):
        return f"{value} {text}"
    if isinstance(value, tuple):
        return tuple(hostile(item, text) for item in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    fields = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    changed = {name: item if name in kept else hostile(item, text) for name, item in fields.items()}
    if isinstance(value, GateReport):
        changed["policy"] = hostile(value.policy, text)
    return dataclasses.replace(value, **changed)
