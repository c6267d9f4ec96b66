"""One boot's view of memory: what it asks of its engine, in which order, and what becomes of faults."""

from __future__ import annotations

import json
import re
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_coldstart.boot import Boot
from pytest_coldstart.burst import BurstSpec
from pytest_coldstart.cell import Cell
from pytest_coldstart.engines.base import LaunchSpec
from pytest_coldstart.engines.openai import OpenAI
from pytest_coldstart.footprint import NO_GPU, served_limit, tokens_per_word
from pytest_coldstart.kv import KVReader
from pytest_coldstart.memory import KVCache
from pytest_coldstart.observe import scrape
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord, Request
from pytest_coldstart.warmup import create
from tests.fake_engine import __file__ as FAKE

pytestmark = pytest.mark.timeout(120)


class Blocks(KVReader):
    """What the fake engine says of its requests, as if each held four blocks of 16 tokens."""

    asked: ClassVar[list[str]] = []

    def begin(self) -> None:
        self.asked.append("begin")

    def read(self, point: str) -> KVCache | None:
        self.asked.append(point)
        text = (scrape.fetch(self.host, self.port, "/metrics") or b"").decode()
        running, waiting = (int(re.search(rf"fake:{name} (\d+)", text)[1]) for name in ("running", "waiting"))  # type: ignore[index]
        return KVCache(
            point, None, 16, 100, 4 * running, 1600, 60 * running, "metrics", running, waiting, source="metrics"
        )


class Faulty(KVReader):
    def read(self, point: str) -> KVCache | None:
        raise ZeroDivisionError("a bug")


class OneLess(Blocks):
    """Of an engine that leaves one request waiting, and counts more blocks than it has."""

    def read(self, point: str) -> KVCache | None:
        found = super().read(point)
        return found and replace(found, running=max(0, (found.running or 0) - 1), used_blocks=101)


class Engine(OpenAI):
    reader: ClassVar[type[KVReader]] = Blocks

    def impossible(self, cell: Cell) -> dict[str, str]:
        return {"allocator_fragmentation": "it has none", "fragmentation": "it has none"}

    def kv_reader(self, spec: LaunchSpec, log: Path) -> KVReader | None:
        return self.reader(spec.host, spec.port, log)

    def context_limit(self, cell: Cell) -> int | None:
        return 600


class FaultyEngine(Engine):
    reader = Faulty


def booted(home: Path, engine: Engine, burst: BurstSpec | None, **more: Any) -> BootRecord:
    more = {"boot_timeout": 60.0, **more}
    (home / "logs").mkdir()
    command = (sys.executable, "-S", str(FAKE), "--port", "{port}", "--gap", "0.05")
    cell = Cell("openai", "fake", "restart", command=command)
    plan = Plan(
        *(cell, "cell", "nodeid", engine, engine.model(cell), create("none")),
        requests=3,
        prompt_words=(10,),
        burst=burst,
        cwd=home,
        caches=home / "caches",
        logs=home / "logs",
        **more,
    )
    boot = Boot(plan)
    boot.run()
    return boot.stop()


def test_a_burst_is_held_between_the_points_ready_and_after(tmp_path: Path) -> None:
    Blocks.asked.clear()
    record = booted(tmp_path, Engine(), BurstSpec(requests=3, shortest=20, longest=40, tokens=8))
    memory = record.memory
    assert record.outcome == "ok"
    assert [item.point for item in memory.kv] == ["ready", "held", "after"]
    assert Blocks.asked[:2] == ["ready", "begin"]
    assert (memory.burst.held, memory.burst.failed) == (True, ())
    held = memory.kv_at("held")
    assert held is not None
    assert (held.running, held.used_blocks, held.tokens) == (3, 12, 180)
    # 1 - 180 / (12 x 16), by hand.
    assert record.metrics["kv_fragmentation"].value == pytest.approx(0.0625)
    after = memory.kv_at("after")
    assert after is not None
    assert after.used_blocks == 0


def test_each_of_the_lengths_that_fit_is_sent_twice_before_the_burst(tmp_path: Path) -> None:
    record = booted(tmp_path, Engine(), BurstSpec(requests=2, shortest=20, longest=40, tokens=8))
    pairs = [item for item in record.requests if item.kind == "shape"]
    assert [item.index for item in pairs] == list(range(6))  # 16, 128 and 512 of 600 tokens; 1024 do not fit
    # The fake engine counts words as tokens.
    assert [item.prompt_tokens for item in pairs] == [16, 16, 128, 128, 512, 512]
    burst = [item for item in record.requests if item.kind == "burst"]
    assert max(item.sent for item in pairs) < min(item.sent for item in burst)
    assert len({item.prompt_digest for item in record.requests}) == len(record.requests)


def test_without_a_burst_the_cache_is_read_once_and_nothing_more_is_sent(tmp_path: Path) -> None:
    record = booted(tmp_path, Engine(), None)
    assert [item.point for item in record.memory.kv] == ["ready"]
    assert {item.kind for item in record.requests} == {"first", "warm"}
    assert record.metrics["kv_fragmentation"].value is None


def test_a_fault_of_ours_costs_the_memory_and_not_the_boot(tmp_path: Path) -> None:
    record = booted(tmp_path, FaultyEngine(), BurstSpec(requests=2, shortest=20, longest=40, tokens=8))
    assert record.outcome == "ok"
    assert any("a fault of ours: ZeroDivisionError: a bug" in text for text in record.memory.missing)
    assert record.memory.kv == ()
    assert record.metrics["kv_fragmentation"].value is None


def test_a_burst_that_was_never_whole_and_numbers_that_cannot_be_are_told(tmp_path: Path) -> None:
    class Slow(Engine):
        reader = OneLess

    spec = BurstSpec(requests=3, shortest=20, longest=40, tokens=8)
    memory = booted(
        tmp_path, Slow(), spec, gpu_unleased="GPUs asked for: 1, and none could be leased: no driver"
    ).memory
    assert (memory.burst.held, memory.burst.failed) == (False, ())
    assert memory.missing == (
        "GPUs asked for: 1, and none could be leased: no driver",
        "the burst was never held whole: 2 of 3 requests ran at once",
        "KV cache at ready: used_blocks=101 is more than total_blocks=100",
        "KV cache at after: used_blocks=101 is more than total_blocks=100",
    )
    assert {item.used_blocks for item in memory.kv} == {None}


def test_fragmentation_is_judged_by_the_parts_that_can_exist(tmp_path: Path) -> None:
    """An engine whose allocator is its own has the KV part alone, and a bound on the whole is one on that."""
    record = booted(tmp_path, Engine(), BurstSpec(requests=3, shortest=20, longest=40, tokens=8))
    assert "fragmentation" not in record.memory.impossible
    assert record.metrics["fragmentation"].value == pytest.approx(0.0625)


def test_a_gpu_that_cannot_be_read_is_unmeasured_and_not_missing(tmp_path: Path) -> None:
    class Plain(Engine):
        def impossible(self, cell: Cell) -> dict[str, str]:
            return {}

    record = booted(tmp_path, Plain(), None, gpu_missing="the module pynvml is not installed")
    assert record.memory.impossible == {}
    (gpu,) = record.memory.gpus
    assert (gpu.state, gpu.missing) == ("unsupported", ("the module pynvml is not installed",))
    for name in ("fragmentation", "leaked_gpu_memory", "gpu_memory_peak"):
        assert record.metrics[name].value is None
    assert "pynvml is not installed" in (record.metrics["leaked_gpu_memory"].reason or "")


def test_a_burst_is_no_larger_than_what_runs_at_once(tmp_path: Path) -> None:
    class Two(Engine):
        def sequence_limit(self, cell: Cell) -> int | None:
            return 2

    record = booted(tmp_path, Two(), BurstSpec(requests=5, shortest=20, longest=40, tokens=8))
    assert (record.memory.burst.requests, record.memory.burst.held) == (2, True)


def test_a_burst_that_outlasts_the_boot_timeout_fails_no_boot(tmp_path: Path) -> None:
    record = booted(tmp_path, Engine(), BurstSpec(requests=2, shortest=20, longest=40, tokens=90), boot_timeout=3.5)
    assert record.outcome == "ok"
    assert record.metrics["cold_start"].value is not None
    assert record.memory.burst.failed, record.memory.burst


def test_a_boot_without_a_gpu_says_so_where_a_gpu_is_needed(tmp_path: Path) -> None:
    class Plain(Engine):
        def impossible(self, cell: Cell) -> dict[str, str]:
            return {}

    record = booted(tmp_path, Plain(), None)
    assert record.memory.impossible == {"fragmentation": NO_GPU, "allocator_fragmentation": NO_GPU}
    assert record.memory.gpus == ()


def test_a_word_makes_as_many_tokens_as_the_answers_say() -> None:
    warm = [Request("warm", index, 0.0, prompt_tokens=tokens) for index, tokens in enumerate((30, 130))]
    assert tokens_per_word(warm, (10, 40)) == pytest.approx(160 / 50)
    assert tokens_per_word([Request("first", 0, 0.0, prompt_tokens=99)], (10,)) == 1.5


@pytest.mark.parametrize(
    ("answer", "limit"),
    [
        ({"data": [{"id": "m", "max_model_len": 2048}]}, 2048),
        *(
            ({"data": [{"id": "m"}]}, None),
            ({"data": []}, None),
            ([], None),
            ({"data": [{"max_model_len": True}]}, None),
        ),
        *(({"data": [{"max_model_len": 2**31}]}, 2**31), ({"data": [{"max_model_len": 2**31 + 1}]}, None)),
        *(({"data": {"max_model_len": 5}}, None), ({"data": [7]}, None), ({"data": [{"max_model_len": 0}]}, None)),
    ],
)
def test_the_longest_context_is_what_the_engine_says_of_its_model(answer: object, limit: int | None) -> None:
    class Models(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        assert served_limit("127.0.0.1", server.server_port) == limit
        server.shutdown()
