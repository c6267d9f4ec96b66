"""Tokens that the KV cache can hold, cold against warm: said where they differ, and only there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_coldstart.memory import KVCache, Memory
from pytest_coldstart.record import BootRecord
from pytest_coldstart.report import terminal
from pytest_coldstart.report.capacity import difference, differences, readings
from tests.report.test_path import Lines, row
from tests.store.samples import record


def boot(tier: str, tokens: int | None, role: str = "measured", family: str = "f") -> BootRecord:
    kv = () if tokens is None else (KVCache("ready", capacity_tokens=tokens),)
    return record("b", tier=tier, role=role, base_digest=family, memory=Memory(kv=kv))


@pytest.mark.parametrize(
    ("boots", "said"),
    [
        # 7,600,000 / 7,654,321 = 0.99290.
        (
            [boot("restart", 7_600_000), boot("pristine", 7_654_321)],
            "KV capacity differs: 7,654,321 tokens at pristine, 7,600,000 at restart (-0.71 %)",
        ),
        (
            [boot("restart", 1000, "prime"), boot("restart", 1250), boot("restart", 1250)],
            "KV capacity differs: 1,000 tokens at restart (priming), 1,250 at restart (+25 %)",
        ),
        (
            [boot("pristine", 800), boot("redeploy", 800), boot("wake", 600)],
            "KV capacity differs: 800 tokens at pristine, 800 at redeploy, 600 at wake (-25 %)",
        ),
        (
            [boot("restart", 500), boot("restart", 400)],
            "KV capacity differs: 400 to 500 tokens at restart",
        ),
        ([boot("pristine", 800), boot("restart", 800)], ""),
        ([boot("pristine", None), boot("restart", 800)], ""),
        ([], ""),
    ],
    ids=["two tiers", "priming", "three tiers", "one tier", "the same", "unknown", "none"],
)
def test_what_differs_is_said_coldest_first(boots: list[BootRecord], said: str) -> None:
    assert difference(readings(boots)) == said


def test_readings_are_plain_data_of_the_boots_that_tell() -> None:
    found = readings([boot("wake", None), boot("restart", 64)])
    assert json.loads(json.dumps(found)) == [{"family": "f", "tier": "restart", "role": "measured", "tokens": 64}]


def test_families_are_compared_apart_and_over_all_cells_of_a_run() -> None:
    def judged(name: str, *boots: BootRecord) -> dict[str, Any]:
        return {"name": name, "capacity": readings(boots)}

    rows = [
        judged("vllm a", boot("restart", 90)),
        judged("vllm b", boot("restart", 50, family="g")),
        judged("vllm a", boot("pristine", 100), boot("restart", 90)),
        {"name": "of an earlier version"},
    ]
    assert differences(rows) == ["vllm a: KV capacity differs: 100 tokens at pristine, 90 at restart (-10 %)"]


def test_the_summary_of_a_run_has_a_line_a_cell_and_one_a_difference() -> None:
    found = row("vllm a", "pass", 0, boot("restart", 90)) | {"memory": "fragmentation 1 %: allocator 1 %, KV 0 %"}
    written = Lines()
    cells = [
        found | {"capacity": readings([boot("restart", 90), boot("pristine", 100)])},
        row("x", "pass", 0, boot("restart", 1)),
    ]
    terminal.summary(written, cells, [], 0.0)
    assert [line for line in written if line.startswith("memory")] == [
        "memory: vllm a restart: fragmentation 1 %: allocator 1 %, KV 0 %",
        "memory: vllm a: KV capacity differs: 100 tokens at pristine, 90 at restart (-10 %)",
    ]
