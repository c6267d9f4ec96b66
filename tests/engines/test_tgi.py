"""The adapter of TGI: its command line, its variables, its own streaming API, whole boots of a stand-in.

What the stand-in does is as public sources say; no real TGI runs here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.boot import Boot
from pytest_coldstart.cell import Cell, Container
from pytest_coldstart.engines import EngineError, EngineRegistry
from pytest_coldstart.plan import Plan
from tests.conftest import assert_nothing_left
from tests.engines.conftest import checkpoint_at, plan_of, spec_of, stand_in

ENGINE = EngineRegistry().get("tgi")
FAKE = Path(__file__).with_name("fake_tgi.py")
NAMES = ("text-generation-launcher", "text-generation-server")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint_at(tmp_path / "tiny", "model.safetensors")


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "env", FAKE, NAMES)


def cell(model: Path | None, python: Path | None, **options: Any) -> Cell:
    return Cell("tgi", model and str(model), "restart", options=options, python=python and str(python))


class TestCommand:
    def test_options_as_flags(self, model: Path, python: Path) -> None:
        sharding = {"num_shard": 2, "sharded": True, "trust_remote_code": True, "prefix_caching": True, "speculate": 2}
        sizes = {"max_total_tokens": 512, "cuda_memory_fraction": 0.5, "cuda_graphs": [1, 2]}
        options = {**sharding, **sizes, "kv_cache_dtype": "fp8_e5m2"}
        words = ENGINE.command(spec_of(ENGINE, cell(model, python, **options)))
        assert words[:7] == [
            *(str(python.with_name(NAMES[0])), "--model-id", str(model)),
            *("--hostname", "127.0.0.1", "--port", "8123"),
        ]
        assert words[7] == "--shard-uds-path"
        assert words[8].endswith("coldstart-tgi-8123"), "boots side by side must not meet"
        assert words[9:] == [
            *("--cuda-graphs", "1,2", "--cuda-memory-fraction", "0.5", "--kv-cache-dtype", "fp8_e5m2"),
            *("--max-total-tokens", "512", "--num-shard", "2", "--sharded", "true", "--speculate", "2"),
            "--trust-remote-code",
        ]

    def test_attention_and_prefix_caching_are_variables(self, model: Path, python: Path) -> None:
        spec = spec_of(ENGINE, cell(model, python, attention="flashdecoding", prefix_caching=False))
        env = ENGINE.environment(spec)
        assert env.pop("PATH").split(os.pathsep)[0] == str(python.parent), "there it finds its shards"
        assert env == {
            "ATTENTION": "flashdecoding",
            "PREFIX_CACHING": "0",
            "USE_PREFIX_CACHING": "0",
            "USAGE_STATS": "off",
        }

    def test_eager_is_a_graph_size_of_zero(self, model: Path, python: Path) -> None:
        words = ENGINE.command(spec_of(ENGINE, cell(model, python, cuda_graphs=[0])))
        assert words[-2:] == ["--cuda-graphs", "0"]

    def test_container_listens_inside_and_has_no_caches_here(self, model: Path) -> None:
        run = ("docker", "run", "--name", "{name}", "-p", "{port}:{inside_port}", "-v", f"{model}:/model", "image")
        container = Container(("docker", "kill", "{name}"), 80, {str(model): "/model"})
        made = Cell("tgi", str(model), "restart", command=run, container=container)
        spec = spec_of(ENGINE, made)
        words = ENGINE.command(spec)
        assert words[len(run) :] == ["--model-id", str(model), "--hostname", "0.0.0.0", "--port", "80"]
        assert ENGINE.cache_roots(spec) == []
        assert set(ENGINE.impossible(made)) == {"fragmentation", "allocator_fragmentation", "kv_fragmentation"}

    def test_variable_that_a_container_would_not_see_is_refused(self) -> None:
        container = Container(("docker", "kill", "{name}"), 80)
        for words, passes in (
            (("-e", "PREFIX_CACHING"), False),
            (("-e", "PREFIX_CACHING", "-e", "USE_PREFIX_CACHING"), True),
        ):
            made = Cell(
                "tgi", None, "restart", {"prefix_caching": False}, {}, None, ("run", *words), container=container
            )
            if passes:
                ENGINE.check(made)
            else:
                with pytest.raises(EngineError, match="add '-e', 'USE_PREFIX_CACHING' to command="):
                    ENGINE.check(made)

    def test_caches_are_those_of_its_shards_and_not_the_hub(self, model: Path, python: Path) -> None:
        roots = ENGINE.cache_roots(spec_of(ENGINE, cell(model, python)))
        assert [root.name for root in roots] == ["bytecode", "inductor", "triton", "flashinfer", "cuda"]
        assert not [name for root in roots for name in root.env if "HUB" in name or "HF_" in name]


class TestFacts:
    def test_version_is_what_the_launcher_says(self, python: Path) -> None:
        found = ENGINE.availability(cell(None, python))
        assert (found.ok, found.version) == (True, "3.3.7")
        assert ENGINE.versions(cell(None, python)) == {"text-generation-launcher": "3.3.7"}

    def test_without_a_launcher_it_says_how_to_have_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        found = ENGINE.availability(cell(None, None))
        assert found.reason == "text-generation-launcher is not on PATH"
        assert "container={...}" in found.enable

    def test_gpus_and_what_cannot_be_measured(self) -> None:
        assert [ENGINE.gpus(cell(None, None, **options)) for options in ({}, {"num_shard": 4}, {"sharded": True})] == [
            *(1, 4),
            None,
        ]
        assert set(ENGINE.impossible(cell(None, None))) == {"kv_fragmentation"}

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"num_shards": 2}, "did you mean 'num_shard'?"),
            ({"kv_cache_dtype": "fp8"}, "'fp8' is not one of 'fp8_e4m3fn', 'fp8_e5m2'"),
            ({"cuda_memory_fraction": 0.0}, "0.0 is not above 0 and at most 1"),
            ({"cuda_graphs": ["1"]}, "is no list of batch sizes"),
            ({"attention": "paged", "prefix_caching": True}, "contradicts attention='paged'"),
            ({"hostname": "x"}, "is set by the boot itself"),
            ({"api_key": "x"}, "would refuse the boot's own requests"),
        ],
    )
    def test_refused_option(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(EngineError) as caught:
            ENGINE.check(cell(None, None, **options))
        assert words in str(caught.value)


class TestRequest:
    """Events as ``router/src/server.rs`` of huggingface/text-generation-inference builds them."""

    def test_body_is_that_of_its_own_api(self, model: Path, python: Path) -> None:
        dialect = ENGINE.dialect(spec_of(ENGINE, cell(model, python)))
        assert dialect.path == "/generate_stream"
        assert dialect.body("m", "hello", 16) == {
            "inputs": "hello",
            "parameters": {"max_new_tokens": 16, "do_sample": False, "details": True},
        }

    @pytest.mark.parametrize(
        ("token", "details", "expected"),
        [
            ({"id": 5, "text": "a", "special": False}, None, (True, True, None, None, None)),
            ({"id": 5, "text": "", "special": False}, None, (True, False, None, None, None)),
            (
                {"id": 2, "text": "</s>", "special": True},
                {"finish_reason": "eos_token", "generated_tokens": 3, "input_length": 9},
                (True, False, "stop", 3, 9),
            ),
            (
                {"id": 5, "text": "z", "special": False},
                {"finish_reason": "length", "generated_tokens": 16},
                (True, True, "length", 16, None),
            ),
        ],
    )
    def test_events(self, model: Path, python: Path, token: Any, details: Any, expected: Any) -> None:
        event = ENGINE.dialect(spec_of(ENGINE, cell(model, python))).read({"token": token, "details": details})
        assert (
            *(event.token, event.text, event.finish_reason),
            *(event.completion_tokens, event.prompt_tokens),
        ) == expected


@pytest.mark.timeout(60)
def test_boot(boots: Callable[[Plan], Boot], tmp_path: Path, python: Path, model: Path) -> None:
    journal = tmp_path / "journal"
    made = cell(model, python, prefix_caching=True, max_total_tokens=512)
    made = Cell(**{**vars(made), "env": {"FAKE_JOURNAL": str(journal)}})
    boot = boots(plan_of(ENGINE, made, tmp_path))
    boot.run()
    record = boot.stop()
    assert_nothing_left(boot)  # nor of its shard, which has a process group of its own
    assert record.failure is None, record.failure
    assert 0 < record.instants["listen"] <= record.instants["ready"]
    first = record.requests[0]  # asked while /health is 503, it would have failed
    assert (first.completion_tokens, first.prompt_tokens, first.finish_reason) == (5, 9, "stop")
    assert first.attempts == 1
    assert json.loads(journal.read_text())["env"] == {"PREFIX_CACHING": "1", "USAGE_STATS": "off"}
    readings = {item.text: item.seconds for item in record.attribution.readings}
    assert readings["shard"] >= 0.4
    assert "warmup" in readings
