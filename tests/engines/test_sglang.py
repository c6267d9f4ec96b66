"""The adapter of SGLang: command lines of its versions, caches, what a suite may say; real interpreters, no SGLang."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.cell import Cell, Container
from pytest_coldstart.engines import EngineError, EngineRegistry
from pytest_coldstart.engines.families import family
from pytest_coldstart.kv.sglang import SGLangKV
from tests.engines.conftest import MakeEnvironment, checkpoint_at, spec_of

SGLANG = EngineRegistry().get("sglang")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint_at(tmp_path / "tiny", "model.safetensors")


def cell(model: Path | None = None, python: Path | None = None, **fields: Any) -> Cell:
    return Cell("sglang", model and str(model), "restart", python=python and str(python), **fields)


def flags(model: Path, python: Path | None, **options: Any) -> list[str]:
    """What of the command line the options made."""
    words = SGLANG.command(spec_of(SGLANG, cell(model, python, options=options)))
    return words[words.index("--port") + 2 :]


class TestCommand:
    def test_launcher_model_and_place_and_the_metrics_that_a_boot_reads(
        self, environment: MakeEnvironment, model: Path
    ) -> None:
        python = environment(sglang="0.5.14")
        assert SGLANG.command(spec_of(SGLANG, cell(model, python))) == [
            *(str(python), "-m", "sglang.launch_server", "--model-path", str(model)),
            *("--served-model-name", str(model), "--host", "127.0.0.1", "--port", "8123", "--enable-metrics"),
        ]

    def test_command_of_a_suite_stands_for_the_launcher_alone(self, model: Path) -> None:
        made = cell(model, command=("sglang", "serve"), options={"page_size": 16})
        words = SGLANG.command(spec_of(SGLANG, made))
        assert words[:4] == ["sglang", "serve", "--model-path", str(model)]
        assert words[-3:] == ["--enable-metrics", "--page-size", "16"]
        assert SGLANG.device(made) == "any"
        assert SGLANG.gpus(made) is None
        assert SGLANG.libraries(made) == []

    @pytest.mark.parametrize(
        ("option", "words"),
        [
            ({"mem_fraction_static": 0.5}, ["--mem-fraction-static", "0.5"]),
            ({"disable_radix_cache": True}, ["--disable-radix-cache"]),
            ({"disable_radix_cache": False}, []),
            ({"page_size": 64, "max_running_requests": 8}, ["--max-running-requests", "8", "--page-size", "64"]),
            ({"cuda_graph_backend_prefill": "disabled"}, ["--cuda-graph-backend-prefill", "disabled"]),
            ({"kv_cache_dtype": "fp8_e5m2"}, ["--kv-cache-dtype", "fp8_e5m2"]),
            ({"json_model_override_args": {"b": 1, "a": 2}}, ["--json-model-override-args", '{"a": 2, "b": 1}']),
            ({"cuda_graph_bs_decode": [1, 2, 4]}, ["--cuda-graph-bs-decode", "1", "2", "4"]),
            ({"reasoning_parser": None}, []),
        ],
    )
    def test_option_as_a_flag(self, model: Path, option: dict[str, Any], words: list[str]) -> None:
        assert flags(model, None, **option, enable_metrics=False) == words

    @pytest.mark.parametrize(
        ("version", "largest", "none"),
        [
            ("0.4.6.post5", ["--cuda-graph-max-bs", "8"], ["--disable-cuda-graph"]),
            *(
                (
                    version,
                    ["--cuda-graph-max-bs-decode", "8"],
                    ["--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"],
                )
                for version in ("0.5.14", "0.5.23")
            ),
        ],
    )
    def test_flags_that_differ_between_versions(
        self, environment: MakeEnvironment, model: Path, version: str, largest: list[str], none: list[str]
    ) -> None:
        python = environment(sglang=version)
        assert flags(model, python, enable_metrics=False, cuda_graph_max_bs=8) == largest
        assert flags(model, python, enable_metrics=False, disable_cuda_graph=True) == none
        assert flags(model, python, enable_metrics=False, disable_cuda_graph=False) == []


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"mem_fraction_statc": 0.5}, "did you mean 'mem_fraction_static'?"),
            ({"disable_radix_cache": 1}, "option 'disable_radix_cache': 1 is not of type bool"),
            ({"cuda_graph_backend_prefill": "full"}, "'full' is not one of 'breakable', 'tc_piecewise', 'disabled'"),
            ({"mem_fraction_static": 1.0}, "option 'mem_fraction_static': 1.0 is not above 0 and below 1"),
            ({"page_size": 0}, "option 'page_size': 0 is not at least 1"),
            ({"port": 1}, "option 'port' is set by the boot itself; the suite's model= and port= decide it"),
            ({"served_model_name": "x"}, "option 'served_model_name' is set by the boot itself"),
            ({"tensor_parallel_size": 2}, "option 'tensor_parallel_size' is called 'tp_size' here"),
            ({"api_key": "x"}, "option 'api_key' would refuse the boot's own requests, which carry no key"),
            ({"ssl_keyfile": "x"}, "option 'ssl_keyfile' would serve HTTPS"),
            ({"grpc_mode": True}, "option 'grpc_mode' would serve gRPC"),
        ],
    )
    def test_option(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(EngineError) as caught:
            SGLANG.check(cell(options=options))
        assert words in str(caught.value)

    def test_container_is_refused_with_what_can(self) -> None:
        with pytest.raises(EngineError, match="cannot run in a container yet; use engine 'openai'"):
            SGLANG.check(cell(container=Container(("stop",), 8000)))

    def test_options_that_the_adapter_does_not_name_pass(self) -> None:
        """Flags of 0.5.14, some of whose names are near to others."""
        options = {"schedule_policy": "lpm", "enable_mixed_chunk": True, "ep_size": 2, "cuda_graph_bs_decode": [1, 2]}
        SGLANG.check(cell(options={**options, "disable_prefill_cuda_graph": True, "decode_attention_backend": "fa3"}))


class TestEnvironment:
    def test_every_cache_is_below_its_own_folder(self, environment: MakeEnvironment, model: Path) -> None:
        spec = spec_of(SGLANG, cell(model, environment(sglang="0.5.14")))
        assert {name: path for root in SGLANG.cache_roots(spec) for name, path in root.env.items()} == {
            "PYTHONPYCACHEPREFIX": "/caches/x/bytecode",
            "PYTHONDONTWRITEBYTECODE": "",
            "SGLANG_CACHE_DIR": "/caches/x/sglang",
            "TVM_FFI_CACHE_DIR": "/caches/x/tvm_ffi",
            "FLASHINFER_WORKSPACE_BASE": "/caches/x/flashinfer",
            "SGLANG_DG_CACHE_DIR": "/caches/x/deep_gemm",
            "TORCHINDUCTOR_CACHE_DIR": "/caches/x/inductor",
            "TRITON_CACHE_DIR": "/caches/x/triton",
            "CUDA_CACHE_PATH": "/caches/x/cuda",
        }

    def test_version_and_device(self, environment: MakeEnvironment, model: Path) -> None:
        made = cell(model, environment(sglang="0.5.14", torch="2.11.0"))
        assert (SGLANG.availability(made).ok, SGLANG.availability(made).version) == (True, "0.5.14")
        assert SGLANG.device(made) == "gpu"
        assert SGLANG.device(cell(model, options={"device": "cpu"})) == "cpu"

    def test_environment_without_it(self, environment: MakeEnvironment) -> None:
        found = SGLANG.availability(cell(python=environment(torch="2.11.0")))
        assert found.reason.startswith("the distribution 'sglang' is not installed in ")
        assert "pip install sglang" in found.enable

    @pytest.mark.parametrize(
        ("options", "gpus"),
        [
            ({}, 1),
            ({"tp_size": 4, "pp_size": 2}, 8),
            ({"tp_size": 2, "dp_size": 2}, 4),
            ({"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}, 4),
            ({"device": "cpu", "tp_size": 2}, 0),
        ],
    )
    def test_gpus_of_a_boot(self, options: dict[str, Any], gpus: int) -> None:
        assert SGLANG.gpus(cell(options=options)) == gpus

    def test_dummy_weights_need_no_files(self, tmp_path: Path) -> None:
        empty = checkpoint_at(tmp_path / "empty")
        assert SGLANG.model(cell(empty, options={"load_format": "dummy"})).files == ()
        with pytest.raises(EngineError):
            SGLANG.model(cell(empty))


class TestWatched:
    def test_health_is_trusted_and_the_model_list_is_not(self) -> None:
        """/v1/models says 200 seconds before the engine can answer."""
        found = SGLANG.endpoints_for(cell())
        assert [(endpoint.path, endpoint.trusted) for endpoint in found] == [("/health", True), ("/v1/models", False)]

    def test_memory_is_read_and_nothing_of_it_is_impossible_on_a_gpu(self, model: Path) -> None:
        made = cell(model, options={"context_length": 2048})
        assert isinstance(SGLANG.kv_reader(spec_of(SGLANG, made), Path("x.log")), SGLangKV)
        assert SGLANG.impossible(made) == {}
        assert SGLANG.context_limit(made) == 2048
        assert SGLANG.context_limit(cell(model)) is None
        assert set(SGLANG.impossible(cell(options={"device": "cpu"}))) == {"fragmentation", "allocator_fragmentation"}

    def test_family_names_its_log_patterns_and_rules(self) -> None:
        assert family("sglang", ()) == family("openai", ("python", "-m", "sglang.launch_server")) == "sglang"
