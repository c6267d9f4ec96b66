"""The adapter of LMDeploy's TurboMind: command lines, versions, its one cache; real interpreters, no LMDeploy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.cell import Cell, Container
from pytest_coldstart.engines import EngineError, EngineRegistry
from pytest_coldstart.engines.families import family
from pytest_coldstart.kv.turbomind import TurboMindKV
from tests.engines.conftest import MakeEnvironment, checkpoint_at, spec_of

TURBOMIND = EngineRegistry().get("turbomind")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint_at(tmp_path / "tiny", "model.safetensors")


def cell(model: Path | None = None, python: Path | None = None, **fields: Any) -> Cell:
    return Cell("turbomind", model and str(model), "restart", python=python and str(python), **fields)


class TestCommand:
    def test_launcher_model_and_place(self, environment: MakeEnvironment, model: Path) -> None:
        python = environment(lmdeploy="0.18.0")
        assert TURBOMIND.command(spec_of(TURBOMIND, cell(model, python))) == [
            *(str(python), "-m", "lmdeploy", "serve", "api_server", str(model), "--backend", "turbomind"),
            *("--model-name", str(model), "--server-name", "127.0.0.1", "--server-port", "8123"),
            *("--log-level", "INFO"),
        ]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"cache_max_entry_count": 0.5}, ["--cache-max-entry-count", "0.5"]),
            ({"cache_block_seq_len": 128}, ["--cache-block-seq-len", "128"]),
            ({"enable_prefix_caching": True}, ["--enable-prefix-caching"]),
            ({"enable_prefix_caching": False}, []),
            ({"quant_policy": 8}, ["--quant-policy", "8"]),
            ({"quant_policy": "fp8"}, ["--quant-policy", "fp8"]),
            ({"session_len": 4096, "tp": 2}, ["--session-len", "4096", "--tp", "2"]),
            ({"hf_overrides": {"b": 1, "a": 2}}, ["--hf-overrides", '{"a": 2, "b": 1}']),
            ({"gemm_tune": True}, []),
        ],
    )
    def test_option_as_a_flag(self, model: Path, options: dict[str, Any], words: list[str]) -> None:
        made = TURBOMIND.command(spec_of(TURBOMIND, cell(model, options={**options, "log_level": "DEBUG"})))
        at = made.index("--log-level")
        assert made[made.index("--server-port") + 2 : at] + made[at + 2 :] == words
        assert made[at + 1] == "DEBUG"

    def test_command_of_a_suite_stands_for_the_launcher_alone(self, model: Path) -> None:
        made = cell(model, command=("lmdeploy", "serve", "api_server"))
        assert TURBOMIND.command(spec_of(TURBOMIND, made))[:4] == ["lmdeploy", "serve", "api_server", str(model)]
        assert (TURBOMIND.device(made), TURBOMIND.gpus(made), TURBOMIND.libraries(made)) == ("any", None, [])


class TestVersions:
    @pytest.mark.parametrize("version", ["0.9.2", "0.14.0"])
    def test_number_of_blocks_is_accepted_before_0_15(
        self, environment: MakeEnvironment, model: Path, version: str
    ) -> None:
        made = cell(model, environment(lmdeploy=version), options={"cache_max_entry_count": 1280})
        words = TURBOMIND.command(spec_of(TURBOMIND, made))
        assert words[words.index("--cache-max-entry-count") + 1] == "1280"

    @pytest.mark.parametrize("version", ["0.15.0", "0.18.0"])
    def test_number_of_blocks_is_refused_from_0_15_on(self, environment: MakeEnvironment, version: str) -> None:
        made = cell(python=environment(lmdeploy=version), options={"cache_max_entry_count": 1280})
        with pytest.raises(EngineError) as caught:
            TURBOMIND.check(made)
        assert str(caught.value) == (
            "engine 'turbomind', option 'cache_max_entry_count': 1280 is a number of blocks, which LMDeploy accepts "
            f"before 0.15.0 alone, and this is {version}; give a share of free memory between 0 and 1"
        )

    def test_number_of_blocks_is_refused_where_no_version_is_known(self, environment: MakeEnvironment) -> None:
        made = cell(python=environment(torch="2.11.0"), options={"cache_max_entry_count": 1})
        with pytest.raises(EngineError, match=r"before 0\.15\.0 alone, and no version was found here"):
            TURBOMIND.check(made)

    @pytest.mark.parametrize("share", [0.0, 1.0, 1.5, -1, 0])
    def test_share_that_is_none_is_refused_by_every_version(self, environment: MakeEnvironment, share: float) -> None:
        made = cell(python=environment(lmdeploy="0.14.0"), options={"cache_max_entry_count": share})
        with pytest.raises(EngineError, match=f"'cache_max_entry_count': {share} is not between 0 and 1"):
            TURBOMIND.check(made)

    @pytest.mark.parametrize(
        ("version", "options", "kv"),
        [
            ("0.18.0", {}, None),
            ("0.15.0", {"enable_prefix_caching": False}, None),
            (
                "0.18.0",
                {"enable_prefix_caching": True},
                "with prefix caching its log counts blocks that no request holds",
            ),
            ("0.14.0", {}, "before 0.15 it does not tell how many blocks are in use"),
        ],
    )
    def test_fragmentation_that_can_be_measured(
        self, environment: MakeEnvironment, version: str, options: dict[str, Any], kv: str | None
    ) -> None:
        """Its allocator is never torch's; its blocks are told by its log from 0.15 on."""
        found = TURBOMIND.impossible(cell(python=environment(lmdeploy=version), options=options))
        assert "its allocator is its own" in found["allocator_fragmentation"]
        assert "fragmentation" not in found
        assert (found.get("kv_fragmentation") or "").startswith(kv or "")
        assert ("kv_fragmentation" in found) is (kv is not None)


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"cache_block_len": 64}, "did you mean 'cache_block_seq_len'?"),
            ({"quant_policy": 0.5}, "option 'quant_policy': 0.5 is not of type int or str"),
            ({"dtype": "fp16"}, "'fp16' is not one of 'auto', 'float16', 'bfloat16'"),
            ({"tp": 0}, "option 'tp': 0 is not at least 1"),
            ({"server_port": 1}, "option 'server_port' is set by the boot itself"),
            ({"backend": "pytorch"}, "option 'backend' is always turbomind here; use engine 'openai'"),
            ({"api_keys": ["x"]}, "option 'api_keys' would refuse the boot's own requests, which carry no key"),
            ({"ssl": True}, "option 'ssl' would serve HTTPS"),
        ],
    )
    def test_option(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(EngineError) as caught:
            TURBOMIND.check(cell(options=options))
        assert words in str(caught.value)

    def test_container_is_refused_with_what_can(self) -> None:
        with pytest.raises(EngineError, match="cannot run in a container yet; use engine 'openai'"):
            TURBOMIND.check(cell(container=Container(("stop",), 8000)))


class TestTuneFile:
    """The only cache beside bytecode, and only where a suite asks for it."""

    def test_without_it_the_log_alone_is_set(self, model: Path) -> None:
        spec = spec_of(TURBOMIND, cell(model))
        assert TURBOMIND.environment(spec) == {"TM_CACHE_LOG_INTERVAL": "1"}
        assert [root.name for root in TURBOMIND.cache_roots(spec)] == ["bytecode", "inductor"]

    def test_it_is_written_where_there_is_none_and_read_where_there_is_one(self, model: Path, tmp_path: Path) -> None:
        """Named for import and missing, it would be taken for no tuning and no warm-up."""
        spec = replace(spec_of(TURBOMIND, cell(model, options={"gemm_tune": True})), cache_home=tmp_path)
        root = TURBOMIND.cache_roots(spec)[-1]
        assert (root.name, root.path) == ("gemm_tune", tmp_path / "gemm_tune")
        file = root.path / "gemm.txt"
        written, read = {"TM_GEMM_EXPORT": str(file)}, {"TM_GEMM_IMPORT": str(file)}
        assert TURBOMIND.environment(spec) == {"TM_CACHE_LOG_INTERVAL": "1", **written}
        root.path.mkdir()
        file.write_text("")  # of a boot that died
        assert TURBOMIND.environment(spec) == {"TM_CACHE_LOG_INTERVAL": "1", **written}
        file.write_text("records")
        assert TURBOMIND.environment(spec) == {"TM_CACHE_LOG_INTERVAL": "1", **read}

    def test_what_a_suite_sets_stays(self, model: Path) -> None:
        env = {"TM_GEMM_IMPORT": "/tune.txt", "TM_CACHE_LOG_INTERVAL": "50"}
        assert TURBOMIND.environment(spec_of(TURBOMIND, cell(model, env=env, options={"gemm_tune": True}))) == {}


class TestWatched:
    def test_health_is_trusted_for_http_is_up_after_the_engine(self) -> None:
        found = TURBOMIND.endpoints_for(cell())
        assert [(endpoint.path, endpoint.trusted) for endpoint in found] == [("/health", True), ("/v1/models", False)]

    @pytest.mark.parametrize(
        ("options", "gpus"), [({}, 1), ({"tp": 2}, 2), ({"tp": 2, "dp": 2}, 4), ({"tp": 4, "ep": 4, "cp": 2}, 8)]
    )
    def test_gpus_of_a_boot(self, options: dict[str, Any], gpus: int) -> None:
        assert TURBOMIND.gpus(cell(options=options)) == gpus

    def test_kv_cache_is_read_and_the_context_known(self, model: Path) -> None:
        made = cell(model, options={"session_len": 2048, "cache_block_seq_len": 128})
        assert isinstance(TURBOMIND.kv_reader(spec_of(TURBOMIND, made), Path("x.log")), TurboMindKV)
        assert TURBOMIND.context_limit(made) == 2048

    def test_version_and_what_is_missing(self, environment: MakeEnvironment) -> None:
        found = TURBOMIND.availability(cell(python=environment(lmdeploy="0.18.0")))
        assert (found.ok, found.version) == (True, "0.18.0")
        missing = TURBOMIND.availability(cell(python=environment("other", torch="2.11.0")))
        assert missing.reason.startswith("the distribution 'lmdeploy' is not installed in ")

    def test_family_names_its_log_patterns_and_rules(self) -> None:
        assert family("turbomind", ()) == family("openai", ("lmdeploy", "serve")) == "lmdeploy"
