"""Memory of series as the page Fragmentation shows it: a real boot on an H200, rows with known values, and the page."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from dashboard import fragmentation_rows as view
from dashboard.charts.fragmentation import Row, by, points
from dashboard.data.fragmentation import Found, memories
from dashboard.data.series import all_series
from dashboard.source import opened
from pytest_coldstart import fragmentation as of
from pytest_coldstart.memory import Allocator, KVCache, Memory
from pytest_coldstart.record import BootRecord
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.boots import load
from pytest_coldstart.store.database import connect, migrate
from pytest_coldstart.store.home import Home
from tests.dashboard import hostile
from tests.dashboard.conftest import boot, failed, run, shown_on
from tests.store.memory_sample import MEMORY

H200 = BootRecord.from_dict(
    json.loads((Path(__file__).parents[1] / "data" / "h200-vllm-0.25.1-boot.json").read_text())
).memory
NOT_TORCH = "its allocator is not torch's"
BOUND = Verdict("fragmentation", "max", "<=", 0.02, "fraction", None, 1, "unmeasured", "marker")


def made(name: str, minute: int, memory: Memory, **changes: Any) -> BootRecord:
    options = {"block_size": 16, "gpu_memory_utilization": 0.9}
    fields = {"engine": "vllm", "cell": {"engine": "vllm", "options": options}, "memory": memory}
    return boot(name, minute, 1.0, **{**fields, **changes})


def asked(home: Home) -> tuple[Found, ...]:
    with opened(home) as con:
        return memories(con, tuple(item.id for item in all_series(con)))


def held(tokens: int, blocks: int = 100, size: int = 16) -> Memory:
    """The H200's boot with another reading of the KV cache while the burst is held."""
    reading = KVCache("held", block_size=size, used_blocks=blocks, tokens=tokens, source="metrics")
    return dataclasses.replace(H200, kv=(reading,))


# -- data


def test_the_memory_is_read_back_but_for_its_samples(home: Home) -> None:
    run(home, "r-1", [made("1", 1, MEMORY)], [])
    (one,) = asked(home)
    with opened(home) as con:
        whole = load(con, "1").memory
    assert one.memory
    assert one.memory.gpus[0].series.times == ()
    bare = tuple(dataclasses.replace(gpu, series=type(gpu.series)()) for gpu in whole.gpus)
    assert one.memory == dataclasses.replace(whole, gpus=bare)
    assert one.memory.allocators == MEMORY.allocators


def test_the_worst_boot_of_the_newest_run_is_shown(home: Home) -> None:
    run(home, "r-1", [made("1", 1, held(100))], [])
    run(home, "r-2", [made("2", 2, held(1500)), made("3", 3, held(1200)), made("4", 4, held(1590))], [BOUND])
    (one,) = asked(home)
    assert (one.boot_id, one.boots, one.failed, one.bounds) == ("3", 3, 0, (0.02,))
    assert one.memory
    assert of.fragmentation(one.memory).value == pytest.approx(0.25)  # 1200 tokens in 1600 places


def test_failed_boots_are_said_and_their_leaks_count(home: Home) -> None:
    leaky = dataclasses.replace(
        H200, gpus=(dataclasses.replace(H200.gpus[0], before_bytes=1_000, after_bytes=5_000, foreign=()),)
    )
    run(home, "r-1", [made("1", 1, H200), failed("2", 2, engine="vllm", memory=leaky)], [])
    run(home, "r-2", [failed("3", 3, cell_digest="x", memory=Memory())], [])
    all_failed, one = asked(home)
    assert (one.boot_id, one.failed, one.failure, one.leaked.value) == ("1", 1, "exited with 1", 4_000.0)
    assert (all_failed.memory, all_failed.boot_id, all_failed.failure) == (None, "3", "exited with 1")
    assert all_failed.leaked.reason == "no GPU is visible to this boot"


def test_series_without_boots_that_count_are_left_out(home: Home) -> None:
    run(home, "r-1", [made("1", 1, H200, role="prime")], [])
    assert asked(home) == ()


def test_a_record_that_others_wrote_wrong_is_unmeasured(home: Home) -> None:
    gpu = dataclasses.replace(H200.gpus[0], process_bytes={"no pid": 5 << 30})
    run(home, "r-1", [made("1", 1, dataclasses.replace(H200, gpus=(gpu,)))], [])
    (one,) = asked(home)
    assert one.memory
    value = view.ratio(one.memory, "burst", "allocator")
    assert (value.reason or "").startswith("the record of its memory cannot be read: invalid literal")
    assert view.ratio(one.memory, "burst", "KV").value == pytest.approx(1 - 7796 / (497 * 16))


# -- ratios


def test_what_is_judged_is_what_the_metrics_are() -> None:
    found = view.ratios(H200)
    assert found["burst", "allocator"] == of.allocator_fragmentation(H200)
    assert found["burst", "KV"].value == pytest.approx(1 - 7796 / (497 * 16))
    assert found["burst", "combined"] == of.fragmentation(H200)
    assert found["ready", "allocator"].value == pytest.approx((122340.0 - 121309.3) / 122340.0, abs=1e-5)
    assert found["held", "KV"].value == found["burst", "KV"].value


def test_at_a_point_the_combined_ratio_is_the_worst_part_that_can_exist() -> None:
    memory = Memory(
        gpus=H200.gpus,
        allocators=(Allocator("held", H200.allocators[0].pid, 0, reserved=100, active=90),),
        kv=(KVCache("held", block_size=10, used_blocks=10, tokens=70),),
    )
    assert view.ratio(memory, "held", "allocator").value == pytest.approx(0.1)
    assert view.ratio(memory, "held", "KV").value == pytest.approx(0.3)
    assert view.ratio(memory, "held", "combined").value == pytest.approx(0.3)
    assert view.ratio(memory, "ready", "combined").reason == (
        "allocator: no allocator was read at the point 'ready'; KV: the KV cache was not read at the point 'ready'"
    )
    cannot = dataclasses.replace(memory, impossible={"kv_fragmentation": "it does not tell"})
    assert view.ratio(cannot, "held", "combined").value == pytest.approx(0.1)
    neither = dataclasses.replace(memory, impossible=dict.fromkeys(view.JUDGED.values(), "why"))
    assert view.ratio(neither, "held", "combined").reason == "why"


def test_an_idle_kv_cache_has_no_ratio() -> None:
    idle = Memory(kv=(KVCache("after", block_size=16, used_blocks=0, tokens=0),))
    assert view.ratio(idle, "after", "KV").reason == "no block of the KV cache was in use at the point 'after'"
    mute = Memory(kv=(KVCache("after", block_size=16, used_blocks=3),))
    assert "does not tell" in (view.ratio(mute, "after", "KV").reason or "")


def test_what_cannot_exist_is_no_unmeasured() -> None:
    memory = dataclasses.replace(H200, impossible={"allocator_fragmentation": NOT_TORCH})
    ratio = view.ratio(memory, "burst", "allocator")
    assert view.said(ratio, "allocator_fragmentation", memory) == f"n/a: {NOT_TORCH}"
    assert view.said(of.inactive_split(memory), "inactive_split", memory) == f"n/a: {NOT_TORCH}"
    assert view.said(of.kv_fragmentation(Memory()), "kv_fragmentation", Memory()).startswith("unmeasured: no burst")
    assert view.said(of.kv_fragmentation(H200), "kv_fragmentation", H200) == "1.96 %"


def test_settings_are_the_engines_reading_and_else_its_option() -> None:
    assert view.setting(H200, {"block_size": 99, "mem_fraction_static": 0.5}) == view.Setting(
        "16", "0.5 (mem_fraction_static)"
    )
    assert view.setting(None, {"cache_block_seq_len": 64, "cache_max_entry_count": 0.8}) == view.Setting(
        "64", "0.8 (cache_max_entry_count)"
    )
    assert view.setting(Memory(), {}) == view.Setting("not set", "not set")
    assert view.BOUND == 0.05


def test_retries_are_of_the_last_reading_of_every_rank() -> None:
    ranks = (
        Allocator("ready", 1, 0, retries=1),
        Allocator("after", 1, 0, retries=3),
        Allocator("after", 2, 1, retries=4),
    )
    assert view.retries(Memory(allocators=ranks)) == "7"
    assert view.retries(Memory(allocators=(*ranks, Allocator("after", 3, 0)))) == "unmeasured"
    assert view.retries(Memory()) == "unmeasured"


# -- charts

ROWS = [
    Row(
        "vllm a",
        "vllm",
        "16",
        "0.9",
        {("ready", "allocator"): 0.01, ("burst", "KV"): 0.06, ("burst", "combined"): 0.06},
    ),
    Row("vllm b", "vllm", "128", "0.5", {("burst", "KV"): 0.3}),
]


def drawn(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [
        spec["datasets"][layer["data"]["name"]] if "name" in layer["data"] else layer["data"]["values"]
        for layer in spec["layer"]
    ]


def test_points_have_a_line_for_each_place_and_a_rule_for_each_bound() -> None:
    spec = points(ROWS, [0.05]).to_dict()
    rules, parts, whole, names = drawn(spec)
    assert rules == [{"percent": 5.0, "SLO": "<= 5 %"}]
    assert [(row["line"], row["part"], row["ratio"]) for row in parts] == [
        ("000|ready", "allocator", "1 %"),
        ("000|burst", "KV", "6 %"),
        ("001|burst", "KV", "30 %"),
    ]
    assert [row["line"] for row in whole] == ["000|burst"]
    assert [row["name"] for row in names] == ["vllm a", "vllm b"]
    assert spec["layer"][1]["encoding"]["shape"]["scale"]["range"] == ["circle", "square", "diamond"]
    assert "SLO at 5 %. Over the burst: vllm a: KV 6 %, combined 6 %; vllm b: KV 30 %" in spec["description"]


def test_settings_stand_in_the_order_of_numbers() -> None:
    spec = by(ROWS, "block", [0.05]).to_dict()
    assert spec["layer"][1]["encoding"]["x"]["sort"] == ["vllm 16", "vllm 128"]
    assert [row["place"] for row in drawn(spec)[1]] == ["vllm 16", "vllm 128"]
    assert by(ROWS, "share", [0.05]).to_dict()["layer"][1]["encoding"]["x"]["sort"] == ["vllm 0.5", "vllm 0.9"]


# -- the page


def test_the_page_of_a_real_boot_on_a_gpu(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "r-1", [made("1", 1, H200)], [])
    page = shown_on(page, "fragmentation", home.root, monkeypatch)
    assert len(page.get("vega_lite_chart")) == 3
    (row,) = page.dataframe[0].value.to_dict("records")
    assert (row["block size"], row["share of memory"]) == ("16", "0.9 (gpu_memory_utilization)")
    assert (row["allocator over the burst"], row["KV over the burst"], row["combined over the burst"]) == (
        "0.664 %",
        "1.96 %",
        "1.96 %",
    )
    assert row["boot"] == "boot?boot=1"
    (row,) = page.dataframe[1].value.to_dict("records")
    assert row["leaked_gpu_memory"] == "0 B"
    assert row["burst"] == H200.burst.digest


def test_the_page_of_an_engine_without_gpu_says_what_cannot_exist(
    page: AppTest, booted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = shown_on(page, "fragmentation", booted, monkeypatch)
    assert page.info[0].value == "Nothing of these series' memory is measured; the table says why."
    cannot = page.dataframe[0].value.to_dict("records")
    assert {"engine": "llamacpp", "part": "allocator", "why": NOT_TORCH} in cannot
    ratios = page.dataframe[1].value.to_dict("records")
    assert {row["allocator over the burst"].split(":")[0] for row in ratios} == {"n/a", "failed"}


def test_a_store_full_of_attacks_is_shown(page: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = shown_on(page, "fragmentation", hostile.store(tmp_path).root, monkeypatch)
    assert page.dataframe


def test_a_store_without_boots_is_a_message(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(home.database) as con:
        migrate(con)
    page = shown_on(page, "fragmentation", home.root, monkeypatch)
    assert page.text[0].value == "The store holds no boots yet."
