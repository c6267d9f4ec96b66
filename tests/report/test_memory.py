"""What a boot did with memory, in words: each number of the record is there, what is not known is said."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from pytest_coldstart.memory import GPU, Allocator, Burst, KVCache, Load, Memory, Series
from pytest_coldstart.record import BootRecord, Phase, Value
from pytest_coldstart.report import memory, show
from pytest_coldstart.report.columns import width_of
from pytest_coldstart.report.document import document
from tests.store.memory_sample import MEMORY
from tests.store.samples import FULL, record

MEASURED = {
    "fragmentation": Value(0.019, "probe"),
    "allocator_fragmentation": Value(0.012, "probe"),
    "kv_fragmentation": Value(0.019, "metrics"),
}


def boot(**changes: object) -> BootRecord:
    return record("b-1", memory=dataclasses.replace(MEMORY, **changes), metrics=MEASURED)  # type: ignore[arg-type]


def test_the_section_of_a_boot_with_everything() -> None:
    """Leaked: 900 - 600 MB. Slack: 1 - 95/100. KV: 776 tokens in 50 blocks of 16. Hits: 30 of 120."""
    assert memory.lines(boot(), 120) == [
        "  fragmentation 1.9 %: allocator 1.2 %, KV 1.9 %",
        "  GPU    idle  before   ready    peak   after  leaked",
        "    6  500 MB  600 MB  140 GB  145 GB  900 MB       -",
        "    7       -       -       -       -       -       -",
        "  GPU 6: NVIDIA H200, 150 GB, GPU-aaaa, its MIG instances share it, PCIe gen 3 x8, trained down from gen 5 x16,",
        "    persistence mode on",
        "  GPU 6: most that a process used: pid 71 120 GB (context 520 MB), pid 72 19 GB",
        "  GPU 6: numbers are suspect: pid 12 (trainer) held 315 MB, pid 13 (other) held an unknown size",
        "  GPU 6: throttled: sw_power_cap, hw_slowdown",
        "  GPU 6: errors: ecc_corrected 2, xid_79 1",
        "  GPU 6: not known: the memory bus could not be read",
        "  GPU 7: NVIDIA H200 NVL, GPU-bbbb, it vanished during the boot",
        "  the engine says: weights 15.3 GB, KV pool 110 GB",
        "  point  process     device  reserved    peak  active     peak  slack  retries",
        "  held   EngineCore       6    100 GB  102 GB   95 GB  96.9 GB    5 %        4",
        "  after  pid 72           7         -       -       -        -      -        -",
        "  EngineCore, device 6, held: 700 MB in pools of CUDA graphs, 1 MB in inactive splits, 33 segments",
        "  point  used blocks     of  tokens  fragmentation  capacity  hit rate  running  waiting",
        "  held            50  1,000     776            3 %    16,000      25 %        8        1",
        "  after            -      -       -              -         -         -        -        -",
        "  KV cache: blocks of 16 tokens, tokens counted by metrics, from vllm:kv_cache_usage_perc",
        "  burst b0257: 9 requests of 11 to 1,024 prompt tokens, 5 shared, 64 tokens each; all held at 2.50 s",
        "  burst: request 2: refused",
        *memory.lines(record("b-1", memory=Memory(load=dataclasses.replace(MEMORY.load, missing=())), metrics={}), 120),
        "  load: the link's speed is that of its best moment",
        "  not known: the probe saw no allocator in the server",
        "  stranded cannot exist here: it has no pool",
    ]


def test_the_load_is_said_in_one_sentence_and_its_reasons_once() -> None:
    """15.2 GB in 3.8 s."""
    found = memory.lines(record("b-1", memory=Memory(load=MEMORY.load), metrics={}), 400)
    assert "4 GB/s" in found[0]
    unknown = Load(missing=("no phase load_weights is on the critical path",))
    found = memory.lines(record("b-1", memory=Memory(load=unknown), metrics={}), 400)
    assert " ".join(found).count("no phase load_weights is on the critical path") == 1


@pytest.mark.parametrize(
    ("now", "most", "words"),
    [
        ((5, 16), (5, 16), "PCIe gen 5 x16"),
        ((1, 16), (5, 16), "PCIe gen 1 x16, trained down from gen 5 x16"),
        ((5, 8), (5, 16), "PCIe gen 5 x8, trained down from gen 5 x16"),
        ((4, None), (None, None), "PCIe gen 4"),
    ],
)
def test_a_link_that_trained_down_is_flagged(
    now: tuple[int, int | None], most: tuple[int | None, int | None], words: str
) -> None:
    gpu = GPU(0, "GPU-x", "A100", pcie_gen=now[0], pcie_width=now[1], pcie_gen_max=most[0], pcie_width_max=most[1])
    assert f"  GPU 0: A100, GPU-x, {words}" in memory.lines(boot(gpus=(gpu,)), 120)


def test_processes_are_named_as_elsewhere() -> None:
    """The sample's pid 7 is the server."""
    gpu = GPU(0, "u", "A", process_bytes={"7": 2_000_000_000})
    assert "  GPU 0: most that a process used: server 2 GB" in memory.lines(boot(gpus=(gpu,)), 120)


@pytest.mark.parametrize(
    ("metrics", "impossible", "words"),
    [
        ({}, {}, ""),
        ({"kv_fragmentation": Value(None, None, "no burst")}, {}, ""),
        (
            {**MEASURED, "fragmentation": Value(None, None, "x"), "kv_fragmentation": Value(None, None, "no burst")},
            {},
            "fragmentation unmeasured: allocator 1.2 %, KV unmeasured (no burst)",
        ),
        (
            {**MEASURED, "allocator_fragmentation": Value(None, None, "not torch's")},
            {"allocator_fragmentation": "not torch's"},
            "fragmentation 1.9 %: allocator n/a (not torch's), KV 1.9 %",
        ),
    ],
    ids=["no metric", "nothing measured", "a part unmeasured", "a part impossible"],
)
def test_fragmentation_is_said_with_its_parts(
    metrics: dict[str, Value], impossible: dict[str, str], words: str
) -> None:
    assert memory.fragmentation_words(record("b", metrics=metrics, memory=Memory(impossible=impossible))) == words


def test_a_burst_that_was_not_held_says_so() -> None:
    burst = Burst("d", requests=4, tokens=8, prompt_tokens=(5, 6, 7, 8))
    found = memory.lines(boot(burst=burst), 120)
    assert "  burst d: 4 requests of 5 to 8 prompt tokens, 8 tokens each; not all held at once" in found


def test_kv_rows_of_what_was_not_told() -> None:
    """More tokens than blocks hold, since prefixes are shared, is 0 and not less; no blocks in use has no ratio."""
    shared = KVCache("held", block_size=16, used_blocks=2, tokens=40)
    idle = KVCache("after", block_size=16, used_blocks=0, tokens=0, hits=0.0, queries=0.0)
    found = memory.lines(record("b", memory=Memory(kv=(shared, idle)), metrics={}), 120)
    assert [line.split() for line in found[1:3]] == [
        ["held", "2", "-", "40", "0", "%", "-", "-", "-", "-"],
        ["after", "0", "-", "0", "-", "-", "-", "-", "-"],
    ]


def test_a_boot_without_any_of_it_has_no_section() -> None:
    bare = record("b-1", memory=Memory(impossible={"fragmentation": "a CPU build"}), metrics={})
    assert memory.lines(bare, 100) == []
    assert "memory" not in show.lines(bare, {}, 100)
    assert "memory" in show.lines(FULL, {}, 100)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_wider_than_asked_and_no_number_is_cut(width: int) -> None:
    odd = Allocator("held", 1, 0, "モデル\x1b[31m" * 3, reserved=123_456_789_012, active=98_765_432_109)
    gpu = GPU(0, "u" * 90, "模" * 50, ready_bytes=99_900_000_000, throttle=("\x07" * 80,))
    found = memory.lines(boot(allocators=(odd,), gpus=(gpu,), missing=("x" * 300,)), width)
    assert max(map(width_of, found)) <= width
    assert all(line.isprintable() for line in found)
    text = " ".join(" ".join(found).split())
    for words in ("123 GB", "98.8 GB", "99.9 GB", "776", "16,000"):
        assert words in text


def test_the_page_shows_the_section_as_it_is_printed() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "show.md").read_text("utf-8")
    shown = page.partition("<!-- memory -->\n```text\n")[2].partition("\n```\n<!-- /memory -->")[0]
    assert shown.splitlines() == memory.lines(boot(), 100)


# -- over time


def test_memory_over_time_is_drawn_below_the_path() -> None:
    """A path of 10 s: 15 GB of 150 GB to 5 s, then 145 GB; a sample after the path is not drawn, nor one that failed."""
    series = Series((0.0, 2.5, 5.0, 7.5, 9.9, 12.0), {"memory_used": (15e9, 15e9, 1.45e11, None, 1.45e11, 1.5e11)})
    gpu = GPU(0, "u", "H200", total_bytes=150_000_000_000, series=series)
    found = record("b-1", phases=(Phase("imports", 0.0, 10.0, "probe", "server"),), memory=Memory(gpus=(gpu,)))
    (line,) = [line for line in show.lines(found, {}, 100) if "in tenths of" in line]
    name, drawn, words = line[2:9], line[10:50], line[51:]
    assert name.strip() == "GPU 0"
    assert words == "used, in tenths of 150 GB; at most 150 GB"
    assert {at: digit for at, digit in enumerate(drawn) if digit != "."} == {0: "1", 10: "1", 20: "9", 39: "9"}


def test_a_device_without_samples_or_size_is_not_drawn() -> None:
    assert (
        memory.tracks(boot(gpus=(GPU(0, "u", "n", total_bytes=5), GPU(1, "v", "n", series=MEMORY.gpus[0].series))))
        == []
    )


# -- as JSON, and in the summary of a run


def test_the_json_has_the_memory_whole() -> None:
    found = json.loads(json.dumps(document(FULL, {}), allow_nan=False))
    assert Memory.from_dict(found["memory"]) == MEMORY
    assert found["memory"]["gpus"][0]["series"]["columns"]["memory_used"] == [1e9, None, 9.5e10]


def test_the_line_of_a_cell_is_of_its_worst_boot() -> None:
    worse = {**MEASURED, "fragmentation": Value(0.04, "probe"), "kv_fragmentation": Value(0.04, "metrics")}
    boots = [
        boot(),
        record("b-2", metrics=worse, memory=dataclasses.replace(MEMORY, gpus=())),
        record("b-3", metrics={}, memory=Memory(gpus=MEMORY.gpus)),
    ]
    assert memory.cell_line(boots) == (
        "fragmentation 4 %: allocator 1.2 %, KV 4 %; suspect: pid 12 (trainer) was on GPU 6 too; "
        "suspect: pid 13 (other) was on GPU 6 too; suspect: the PCIe link of GPU 6 had trained down"
    )
    line = memory.cell_line(boots[:1])
    assert line.startswith("fragmentation 1.9 %: allocator 1.2 %, KV 1.9 %; weights came at 4 GB/s")
    assert "\n" not in line
    assert memory.cell_line([]) == memory.cell_line([record("b", metrics={}, memory=Memory())]) == ""
