"""The adapter of transformers serve: its command line, its names, the request it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.cell import Cell, Container
from pytest_coldstart.client import Client, RequestFailed
from pytest_coldstart.engines import EngineError, EngineRegistry
from pytest_coldstart.record import Request
from tests.engines.conftest import MakeEnvironment, checkpoint_at, spec_of

ENGINE = EngineRegistry().get("transformers")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint_at(tmp_path / "tiny", "model.safetensors")


def words_of(model: Path, python: Path, **options: Any) -> list[str]:
    cell = Cell("transformers", str(model), "restart", options=options, python=str(python))
    return ENGINE.command(spec_of(ENGINE, cell))


class TestCommand:
    def test_model_is_named_at_the_start(self, environment: MakeEnvironment, model: Path) -> None:
        python = environment(scripts=("transformers",), transformers="5.24.0")
        assert words_of(model, python) == [
            *(str(python.with_name("transformers")), "serve", str(model)),
            *("--host", "127.0.0.1", "--port", "8123", "--log-level", "info"),
        ]

    def test_without_preload_the_first_request_names_it(self, environment: MakeEnvironment, model: Path) -> None:
        python = environment(scripts=("transformers",), transformers="5.24.0")
        assert str(model) not in words_of(model, python, preload=False)
        assert words_of(model, python, preload=True) == words_of(model, python)
        assert not [word for word in words_of(model, python, preload=False) if word.endswith("-preload")]

    def test_module_where_there_is_no_script(self, environment: MakeEnvironment, model: Path) -> None:
        python = environment(transformers="5.24.0")
        words = words_of(model, python)
        assert words[:5] == [str(python), "-m", "transformers.cli.transformers", "serve", str(model)]

    def test_options_as_flags(self, environment: MakeEnvironment, model: Path) -> None:
        options = {"continuous_batching": True, "compile": False, "cb_block_size": 32, "device": "cpu"}
        words = words_of(model, environment(transformers="5.24.0"), **options, log_level="debug")
        assert words[words.index("--port") + 2 :] == [
            *("--cb-block-size", "32", "--no-compile", "--continuous-batching"),
            *("--device", "cpu", "--log-level", "debug"),
        ]

    def test_command_of_a_suite_stands_for_the_launcher_alone(self, model: Path) -> None:
        cell = Cell("transformers", str(model), "restart", command=("wrapper", "serve"))
        assert ENGINE.command(spec_of(ENGINE, cell))[:3] == ["wrapper", "serve", str(model)]


class TestModel:
    def test_local_checkpoint_is_served_by_its_path(self, model: Path) -> None:
        found = ENGINE.model(Cell("transformers", str(model), "restart"))
        assert (found.name, found.served, found.path) == (str(model), str(model), model)

    def test_random_model_is_served_by_the_path_that_it_is_made_at(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        found = ENGINE.model(Cell("transformers", "random:qwen2-tiny,layers=1,vocab=320", "restart")).made()
        assert found.path is not None
        assert found.served == str(found.path)
        assert found.name == "random:qwen2-tiny,layers=1,vocab=320"
        assert len(found.files) == 1

    def test_name_of_the_hub_that_is_not_cached_keeps_its_name(self, tmp_path: Path) -> None:
        cell = Cell("transformers", "a/b", "restart", env={"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "0"})
        assert ENGINE.model(cell).served == "a/b"

    def test_missing_model_says_what_is_valid(self) -> None:
        with pytest.raises(EngineError, match=r"model './none': no such folder; valid models: 'random:qwen2-tiny'"):
            ENGINE.model(Cell("transformers", "./none", "restart"))


class TestRequest:
    def test_length_is_asked_for_through_the_generation_config(self, model: Path) -> None:
        """It refuses ``ignore_eos`` with 422, and min = max is what gives exactly so many tokens."""
        cell = Cell("transformers", str(model), "restart")
        body = ENGINE.dialect(spec_of(ENGINE, cell)).body(str(model), "hello", 16)
        assert "ignore_eos" not in body
        assert json.loads(body["generation_config"]) == {
            "max_new_tokens": 16,
            "min_new_tokens": 16,
            "do_sample": False,
        }
        assert body["model"] == str(model)

    def test_shorter_answer_is_no_answer(self, model: Path) -> None:
        """It stops when it says ``stop``: a cold start is 16 tokens of every engine."""
        dialect = ENGINE.dialect(spec_of(ENGINE, Cell("transformers", str(model), "restart")))
        client = Client("127.0.0.1", 1, "m", dialect, 0)
        short = Request("first", 0, 1.0, 2.0, 2.0, 3.0, completion_tokens=9, finish_reason="stop")
        with pytest.raises(RequestFailed, match="stopped by itself after 9 of 16 tokens"):
            client._validate(short, 16)


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"preload": 1}, "option 'preload': 1 is not one of True, False"),
            ({"continous_batching": True}, "did you mean 'continuous_batching'?"),
            ({"max_model_len": 1}, "has no option 'max_model_len'; valid options: attn_implementation"),
            ({"log_level": "loud"}, "'loud' is not one of 'debug', 'info'"),
            ({"device": 0}, "option 'device': 0 is not of type str"),
        ],
    )
    def test_option(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(EngineError) as caught:
            ENGINE.check(Cell("transformers", None, "restart", options=options))
        assert words in str(caught.value)

    def test_tier_wake(self) -> None:
        with pytest.raises(EngineError, match=r"valid tiers: pristine, redeploy, restart, scale_out$"):
            ENGINE.check(Cell("transformers", None, "wake"))

    def test_container(self) -> None:
        with pytest.raises(EngineError, match="cannot run in a container yet"):
            ENGINE.check(Cell("transformers", None, "restart", container=Container(("stop",), 8000)))


class TestEnvironment:
    def test_either_device_will_do_and_caches_are_those_of_torch(
        self, environment: MakeEnvironment, model: Path
    ) -> None:
        cell = Cell("transformers", str(model), "restart", python=str(environment(transformers="5.24.0", torch="2.13")))
        found = ENGINE.availability(cell)
        assert (found.ok, found.version) == (True, "5.24.0")
        assert ENGINE.device(cell) == "any"
        assert ENGINE.versions(cell)["torch"] == "2.13"
        variables = {
            name: path for root in ENGINE.cache_roots(spec_of(ENGINE, cell)) for name, path in root.env.items()
        }
        assert variables == {
            "PYTHONPYCACHEPREFIX": "/caches/x/bytecode",
            "PYTHONDONTWRITEBYTECODE": "",
            "TORCHINDUCTOR_CACHE_DIR": "/caches/x/inductor",
            "TRITON_CACHE_DIR": "/caches/x/triton",
            "CUDA_CACHE_PATH": "/caches/x/cuda",
        }

    def test_environment_without_it(self, environment: MakeEnvironment) -> None:
        python = environment(torch="2.13")
        found = ENGINE.availability(Cell("transformers", None, "restart", python=str(python)))
        assert found.reason == f"the distribution 'transformers' is not installed in {python}"
        assert "pip install 'transformers[serving]' torch" in found.enable
