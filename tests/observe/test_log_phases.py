"""Phases read from logs that engines wrote. The numbers here were read in the logs by a person."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pytest

from pytest_coldstart.attribution import PHASES, Reading, Unmatched
from pytest_coldstart.observe.log_patterns import Pattern, load, parse_version
from pytest_coldstart.observe.log_phases import LogReading, read_log

LOGS = Path(__file__).parents[1] / "data" / "logs"
ENGINES = ("vllm", "sglang", "lmdeploy", "tensorrt-llm", "tgi", "triton", "llamacpp", "transformers")

#: Log, engine, version, and what it states: seconds by pattern.
STATED = [
    ("vllm-0.6.3", "vllm", "0.6.3.post1", {"graph_capture": 19}),
    (
        "vllm-0.8.5",
        "vllm",
        "0.8.5",
        {
            "weights": 0.69,
            "model_load": 0.902026,
            "dynamo": 7.51,
            "inductor": 21.15,
            "torch_compile": 28.66,
            "graph_capture": 17,
            "init_engine": 52.62,
        },
    ),
    (
        "vllm-0.11.0",
        "vllm",
        "0.11.0",
        {
            "weights": 5.02,
            "model_load": 5.980004,
            "dynamo": 16.12,
            "compiled_graph_load": 4.746,
            "torch_compile": 16.12,
            "graph_capture": 11,
            "init_engine": 38.84,
        },
    ),
    (
        "vllm-0.14.1",
        "vllm",
        "0.14.1",
        {
            "weights": 3.27,
            "model_load": 5.104433,
            "dynamo": 6.03,
            "inductor": 18.40,
            "torch_compile": 24.43,
            "graph_capture": 8,
            "init_engine": 38.08,
        },
    ),
    (
        "vllm-0.19.1",
        "vllm",
        "0.19.1",
        {
            "weights": 0.99,
            "model_load": 8.353895,
            "dynamo": 4.50,
            "inductor": 6.06,
            "torch_compile": 11.98,
            "profile": 1.67,
            "graph_capture": 3,
            "init_engine": 21.40,
        },
    ),
    (
        "vllm-0.25.1-cold",
        "vllm",
        "0.25.1",
        {
            "weights": 0.17,
            "model_load": 1.969394,
            "dynamo": 7.53,
            "inductor": 11.47,
            "torch_compile": 23.50,
            "profile": 0.31,
            "graph_capture": 4,
            "init_engine": 49.41,
        },
    ),
    (
        "vllm-0.25.1-warm",
        "vllm",
        "0.25.1",
        {
            "weights": 0.21,
            "model_load": 2.205033,
            "dynamo": 2.68,
            "compiled_graph_load": 1.299,
            "torch_compile": 4.29,
            "profile": 0.10,
            "graph_capture": 4,
            "init_engine": 30.66,
        },
    ),
    ("vllm-0.25.1-eager", "vllm", "0.25.1", {"weights": 0.19, "model_load": 1.755809, "init_engine": 2.71}),
    (
        "vllm-0.32.0-cpu-compiled",
        "vllm",
        "0.32.0",
        {"weights": 0.01, "model_init": 0.204870, "profile": 0.37, "init_engine": 45.14},
    ),
    ("vllm-0.32.0-cpu-dummy", "vllm", "0.32.0", {"model_init": 0.207397, "init_engine": 0.88}),
    (
        "vllm-0.33.0",
        "vllm",
        "0.33.0",
        {
            "weights": 3.56,  # model 3.04, draft model 0.52
            "model_init": 0.310211,
            "model_load": 4.203756,
            "dynamo": 11.63,
            "inductor": 15.65,
            "compiled_graph_load": 1.105,
            "torch_compile": 30.92,
            "profile": 1.87,
            "graph_capture": 6,
            "init_engine": 40.87,
        },
    ),
    (
        "sglang-0.4.6",
        "sglang",
        "0.4.6",
        # The slower rank of each: TP1, TP1, TP0 (29.25 to 30.06) and TP1.
        {"distributed_init": 1.89, "weights": 3.75, "kv_cache": 0.81, "graph_capture": 5.12, "server_warmup": 1.25},
    ),
    (
        "sglang-0.5.14-cached",
        "sglang",
        "0.5.14",
        {"distributed_init": 0.17, "weights": 0.27, "kv_cache": 0.508, "graph_capture": 3.07, "server_warmup": 1.126},
    ),
    (
        "sglang-0.5.14-empty",
        "sglang",
        "0.5.14",
        {"distributed_init": 0.16, "weights": 0.27, "kv_cache": 0.444, "graph_capture": 57.40, "server_warmup": 10.595},
    ),
    (
        "sglang-0.5.23",
        "sglang",
        "0.5.23",
        {
            "distributed_init": 0.21,
            "weights": 11.97,
            "kv_cache": 0.44,
            "graph_capture": 8.55,  # prefill 3.98, decode 4.57
            "late_compile": 1.31,
            "server_warmup": 1.40,
            "scheduler": 26.20,
        },
    ),
    ("lmdeploy-0.18.0", "lmdeploy", "0.18.0", {"weights": 0.370, "kv_cache": 0.245, "warmup": 0.35}),
    ("tensorrt-llm-1.1", "tensorrt-llm", "1.1.0rc3", {"model_init": 49.54, "autotune": 28.25}),  # 27 + 1.25
    ("tgi-3.3", "tgi", "3.3.7", {"shard": 18.018884257, "warmup": 3.25}),
    ("triton-2.51", "triton", "2.51.0", {"model_load": 2.220}),
    ("transformers-5.24", "transformers", "5.24.0", {"weights": 0.191, "model": 2.626}),
    ("llamacpp-terse", "llamacpp", None, {"model": 0.063127, "warmup": 0.031133, "slots": 0.005002}),
    (
        "llamacpp-wordy",
        "llamacpp",
        "b0-unknown",
        {
            "model": 0.018641,
            "weights": 0.011820,
            "tensors": 0.003301,
            "kv_cache": 0.002355,
            "warmup": 0.001283,
            "slots": 0.003159,
        },
    ),
]


def lines(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8").split("\n")


def by_name(log: LogReading) -> dict[str, Reading]:
    return {reading.text: reading for reading in log.readings}


def said(*texts: str) -> Iterable[str]:
    """Lines of a vLLM of our own, one a second from 10 s on."""
    return [
        f"[+{10 + i:9.3f}] (EngineCore pid=7) INFO 09-21 12:49:40 [core.py:1] {text}" for i, text in enumerate(texts)
    ]


@pytest.mark.parametrize(("name", "engine", "version", "stated"), STATED, ids=[row[0] for row in STATED])
def test_a_log_gives_the_phases_that_it_states_and_all_its_patterns_match(name, engine, version, stated):
    log = read_log(lines(name), engine, version)
    assert {reading.text: reading.seconds for reading in log.readings} == pytest.approx(stated, abs=1e-6)
    assert log.unmatched == ()
    assert all(reading.source == "log" for reading in log.readings)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_pattern_covers_known_phases_and_is_whole(engine):
    form = load(engine)
    assert form is not None
    for pattern in form.patterns:
        assert set(pattern.phases) <= set(PHASES) - {"unattributed", "first_request"}
        assert bool(pattern.regex) != bool(pattern.begin and pattern.end), pattern.name
        assert pattern.each in ("sum", "last", "max")


def test_a_duration_has_its_place_process_and_resolution():
    read = by_name(read_log(lines("vllm-0.25.1-cold"), "vllm", "0.25.1"))
    load_weights = read["weights"]
    assert (load_weights.process, load_weights.phases) == ("EngineCore", ("load_weights",))
    assert (load_weights.begin, load_weights.end) == (pytest.approx(47.342), 47.512)
    assert read["graph_capture"].resolution == 0.5  # "4 secs": four, or half a second more or less
    assert read["dynamo"].resolution == 0.005
    assert read["init_engine"].phases == ("profile", "kv_alloc", "compile", "graph_capture", "warmup")


def test_what_was_added_up_has_no_place():
    read = by_name(read_log(lines("vllm-0.33.0"), "vllm", "0.33.0"))
    assert (read["weights"].begin, read["weights"].end) == (None, None)
    assert read["torch_compile"].resolution == pytest.approx(0.01)
    old = by_name(read_log(lines("vllm-0.8.5"), "vllm", "0.8.5"))
    assert old["torch_compile"].end is None  # dynamo and inductor added up by vLLM itself
    assert old["dynamo"].end == 27.631


def test_of_several_ranks_the_slowest_is_read():
    read = by_name(read_log(lines("vllm-0.11.0"), "vllm", "0.11.0"))
    assert (read["weights"].seconds, read["weights"].process) == (5.02, "Worker_TP3_EP3")
    assert read["dynamo"].process == "Worker_TP2_EP2"
    assert by_name(read_log(lines("sglang-0.4.6"), "sglang", "0.4.6"))["graph_capture"].process == "TP1"
    assert by_name(read_log(lines("tgi-3.3"), "tgi", "3.3.7"))["shard"].process == "rank=1"


def test_two_workers_of_one_name_do_not_add_up():
    texts = [
        "[+   20.000] (VllmWorkerProcess pid=1) INFO [x] Loading weights took 4.00 seconds",
        "[+   21.000] (VllmWorkerProcess pid=2) INFO [x] Loading weights took 5.00 seconds",
    ]
    assert by_name(read_log(texts, "vllm", "0.8.5"))["weights"].seconds == 5.0


def test_the_slow_line_of_sglang_covers_compilation_too():
    """54 s more with empty JIT caches stand in the line of the graph capture; it may not be taken for capture alone."""
    read = by_name(read_log(lines("sglang-0.5.14-empty"), "sglang", "0.5.14"))
    assert read["graph_capture"].phases == ("graph_capture", "compile")
    assert read["server_warmup"].phases == ("warmup", "compile")


def test_llamacpps_clock_measures_and_our_offsets_place():
    """A pipe hands several lines on at once, late; the engine's clock knows their true distance."""
    model = by_name(read_log(lines("llamacpp-terse"), "llamacpp"))["model"]
    assert model.begin == pytest.approx(0.207 - 0.010360 + 0.012284, abs=0.002)  # of the line that came soonest
    assert model.end - model.begin == pytest.approx(0.063127)
    bare = [line.partition("] ")[2] for line in lines("llamacpp-terse")]
    unplaced = by_name(read_log(bare, "llamacpp"))["model"]
    assert (unplaced.seconds, unplaced.begin, unplaced.end) == (pytest.approx(0.063127), None, None)


FUTURE = said(
    "Initializing a V1 LLM engine (v0.40.0) with config: load_format=auto, enforce_eager=False, device_config=cuda",
    "Weights loaded: 3.27s elapsed",
    "Model ready, 14.99 GiB in 5104.433 milliseconds",
    "torch.compile finished after 24.43 s",
    "Graph capture: 8 s",
    "engine initialised in 38.08",
    "Application startup complete.",
)


def test_a_future_format_is_unmatched_and_neither_zero_nor_a_wrong_number():
    log = read_log(FUTURE, "vllm", "0.40.0")
    assert log.readings == ()
    assert log.unmatched == tuple(
        Unmatched("vllm", "0.40.0", name)
        for name in ("weights", "model_load", "torch_compile", "graph_capture", "init_engine")
    )


@pytest.mark.parametrize(
    "text",
    [
        "Loading weights took 3.1 minutes",
        "Loading weights took 3,270.5 seconds",
        "Loading weights took -3.27 seconds",
        "Loading weights took 0:03.27",
        "Loading weights took nan seconds",
        "Loading weights took 327 seconds",  # at 11 s after the start: no unit makes that true
        "Loading weights took 3270 us",
    ],
)
def test_a_number_that_cannot_be_is_unmatched(text):
    log = read_log(said("load_format=auto", text), "vllm", "0.25.1")
    assert "weights" not in by_name(log)
    assert "weights" in {item.pattern for item in log.unmatched}


def test_units_are_read_with_their_number():
    assert by_name(read_log(said("Loading weights took 170 ms"), "vllm", "0.40"))["weights"].seconds == 0.17
    assert by_name(read_log(said("Loading weights took 3 secs"), "vllm", "0.40"))["weights"].seconds == 3
    took = "Model loading took -0.10 GiB and 1.5 seconds"
    assert by_name(read_log(said(took), "vllm", "0.25"))["model_load"].seconds == 1.5


def test_a_version_of_the_future_is_read_with_the_newest_patterns():
    assert by_name(read_log(lines("vllm-0.33.0"), "vllm", "1.2.0"))["torch_compile"].seconds == pytest.approx(30.92)


@pytest.mark.parametrize("version", [None, "", "dev", "0.1.dev7+g1d642872a"])
def test_without_a_version_every_pattern_is_tried(version):
    log = read_log(lines("vllm-0.8.5"), "vllm", version)
    assert by_name(log)["torch_compile"].seconds == 28.66
    assert log.unmatched == ()


def test_options_say_what_is_not_printed():
    texts = list(
        said("Loading weights took 1.00 seconds", "init engine (profile, create kv cache, warmup model) took 2 s")
    )
    named = {item.pattern for item in read_log(texts, "vllm", "0.25.1", {"enforce_eager": False}).unmatched}
    assert named == {"model_load", "torch_compile", "graph_capture"}
    named = {item.pattern for item in read_log(texts, "vllm", "0.25.1", {"enforce_eager": True}).unmatched}
    assert named == {"model_load"}
    named = {item.pattern for item in read_log(texts[1:], "vllm", "0.25.1", {"load_format": "dummy"}).unmatched}
    assert "weights" not in named


def test_nothing_is_missed_in_the_log_of_a_boot_that_failed_or_in_one_that_was_cut():
    fails = read_log(lines("sglang-0.5.14-fails"), "sglang", "0.5.14", complete=False)
    assert by_name(fails)["weights"].seconds == 0.42
    assert fails.unmatched == ()
    cut = [*FUTURE, "[output over the limit was left out here]", "more"]
    assert read_log(cut, "vllm", "0.40.0").unmatched == ()


def test_an_engine_that_prints_warnings_alone_is_not_complained_of():
    quiet = ["[+    5.000] INFO:     Application startup complete.", "[+    6.000] WARNING 09-21 [x.py:1] something"]
    assert read_log(quiet, "vllm", "0.25.1") == LogReading()


def test_an_engine_without_patterns_gives_nothing_and_no_complaint():
    for engine in ("openai", "../vllm", "", "__init__"):
        assert read_log(lines("vllm-0.25.1-cold"), engine, "1.0") == LogReading()


def test_colours_and_parts_of_a_progress_bar_are_read_as_lines():
    coloured = "[+   20.000] \x1b[0;36m(EngineCore pid=5)\x1b[0;0m INFO 11-30 [x.py:1] Loading weights took \x1b[1m4.00\x1b[0m seconds"
    bar = "[+   30.000] Loading:  50%|##  | 1/2\rLoading: 100%|####| 2/2\r(EngineCore pid=5) INFO Model loading took 1 GiB and 2.5 s"
    read = by_name(read_log([coloured, bar], "vllm", "0.25.1"))
    assert (read["weights"].seconds, read["weights"].process) == (4.0, "EngineCore")
    assert read["model_load"].seconds == 2.5


def test_garbage_is_read_in_time_that_its_length_bounds():
    megabyte = 1 << 20
    garbage = [
        "9" * megabyte,
        "(" * megabyte,
        "(a pid=" * (megabyte // 7),
        "\r" * megabyte,
        "\x1b[" * (megabyte // 2),
        "Capture " * (megabyte // 8),
        "Compiling a graph for compile range " * (megabyte // 36),
        "Engine startup timings (s): " * (megabyte // 28),
        "Loading weights took " + "1" * megabyte + " seconds",
        "[+ " + "1" * 50 + ".0] x",
        bytes(range(256)).decode("utf-8", "replace") * 4096,
        "\ud800\x00",
        "",
    ]
    begin = time.perf_counter()
    for engine in ENGINES:
        assert read_log(garbage, engine, "0.25.1").readings == ()
    assert time.perf_counter() - begin < 30  # a regex that backtracks takes hours


def test_versions_are_read_as_numbers():
    assert parse_version("v0.11.1rc2") == (0, 11, 1)
    assert parse_version("0.6.3.post1") == (0, 6, 3)
    assert parse_version("b6123") is None


def test_the_documented_pattern_is_one_and_every_tested_version_is_named():
    page = (LOGS.parents[2] / "docs" / "log-patterns.md").read_text(encoding="utf-8")
    [pattern] = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])["pattern"]
    assert set(pattern) < {field.name for field in fields(Pattern)}
    assert set(pattern["phases"]) <= set(PHASES)
    for name, engine, _, _ in STATED:
        if engine != "llamacpp":
            assert re.sub(r"-[a-z].*", "", name.removeprefix(f"{engine}-")) in page
