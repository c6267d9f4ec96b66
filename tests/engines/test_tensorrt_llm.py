"""The adapter of TensorRT-LLM: command lines of its versions, its file of arguments, whole boots of a stand-in.

What the stand-in does, and the log lines, are as public sources say; no real TensorRT-LLM runs here.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.boot import Boot
from pytest_coldstart.cell import Cell, Container
from pytest_coldstart.engines import EngineError, EngineRegistry
from pytest_coldstart.engines.base import LaunchSpec
from pytest_coldstart.engines.families import family
from pytest_coldstart.engines.tensorrt_llm import LAUNCHER
from pytest_coldstart.observe.log_phases import read_log
from pytest_coldstart.plan import Plan
from tests.conftest import assert_nothing_left, eventually
from tests.engines.conftest import MakeEnvironment, checkpoint_at, plan_of, safetensors, stand_in

ENGINE = EngineRegistry().get("tensorrt_llm")
FAKE = Path(__file__).with_name("fake_trtllm.py")
MakeBoot = Callable[[Plan], Boot]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint_at(tmp_path / "tiny", "model.safetensors")


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    return checkpoint_at(tmp_path / "converted", "rank0.safetensors")


def spec(home: Path, model: Path, python: Path | None, **options: Any) -> LaunchSpec:
    cell = Cell("tensorrt_llm", str(model), "restart", options=options, python=python and str(python))
    ENGINE.check(cell)
    return LaunchSpec(cell, ENGINE.model(cell), "127.0.0.1", 8123, str(python), home / "caches")


def arguments(words: list[str]) -> Any:
    """What the file holds that the command line names."""
    flag = next(word for word in words if word in ("--config", "--extra_llm_api_options"))
    return json.loads(Path(words[words.index(flag) + 1]).read_text())


class TestCommand:
    @pytest.mark.parametrize(("version", "flag"), [("1.1.0", "--extra_llm_api_options"), ("1.3.0rc7", "--config")])
    def test_versions_name_their_file_of_arguments(
        self, environment: MakeEnvironment, tmp_path: Path, model: Path, version: str, flag: str
    ) -> None:
        python = environment(scripts=("trtllm-serve",), tensorrt_llm=version)
        words = ENGINE.command(spec(tmp_path, model, python, max_batch_size=8, tp_size=2, trust_remote_code=True))
        assert words[:6] == [
            *(str(python.with_name("trtllm-serve")), str(model)),
            *("--host", "127.0.0.1", "--port", "8123"),
        ]
        assert words[6:-2] == ["--max_batch_size", "8", "--tp_size", "2", "--trust_remote_code"]
        assert words[-2] == flag
        assert arguments(words) == {"return_perf_metrics": True, "enable_iter_perf_stats": True}

    def test_version_without_metrics_is_given_no_word_for_them(
        self, environment: MakeEnvironment, tmp_path: Path, model: Path
    ) -> None:
        python = environment(scripts=("trtllm-serve",), tensorrt_llm="0.20.0")
        words = ENGINE.command(spec(tmp_path, model, python, backend="tensorrt"))
        assert words[2:] == ["--host", "127.0.0.1", "--port", "8123"], "tensorrt runs where no backend is named"
        assert "no metrics" in ENGINE.impossible(spec(tmp_path, model, python).cell)["kv_fragmentation"]

    def test_module_where_there_is_no_script(self, environment: MakeEnvironment, tmp_path: Path, model: Path) -> None:
        python = environment(tensorrt_llm="1.1.0")
        words = ENGINE.command(spec(tmp_path, model, python, backend="pytorch"))
        assert words[:4] == [str(python), "-m", "tensorrt_llm.commands.serve", str(model)]
        assert words[words.index("--backend") + 1] == "pytorch"

    def test_options_of_the_kv_cache_and_of_graphs_are_in_the_file(
        self, environment: MakeEnvironment, tmp_path: Path, model: Path
    ) -> None:
        python = environment(scripts=("trtllm-serve",), tensorrt_llm="1.1.0")
        options = {
            "kv_cache_free_gpu_memory_fraction": 0.5,
            "kv_cache_dtype": "fp8",
            "enable_block_reuse": False,
            "tokens_per_block": 64,
            "cuda_graphs": False,
            "load_format": "dummy",
            "enable_attention_dp": True,
            "kv_cache_config": {"sink_token_length": 4},
        }
        words = ENGINE.command(spec(tmp_path, model, python, **options))
        assert not [word for word in words if "memory_fraction" in word], "the file may replace what a flag said"
        assert arguments(words) == {
            "cuda_graph_config": None,
            "enable_attention_dp": True,
            "enable_iter_perf_stats": True,
            "kv_cache_config": {
                "dtype": "fp8",
                "enable_block_reuse": False,
                "free_gpu_memory_fraction": 0.5,
                "sink_token_length": 4,
                "tokens_per_block": 64,
            },
            "load_format": "dummy",
            "return_perf_metrics": True,
        }
        assert ENGINE.command(spec(tmp_path, model, python, **options)) == words, "equal cells name the same file"
        assert ENGINE.command(spec(tmp_path, model, python, tokens_per_block=32))[-1] != words[-1]

    def test_build_comes_first_where_a_checkpoint_is_given(
        self, environment: MakeEnvironment, tmp_path: Path, model: Path, converted: Path
    ) -> None:
        python = environment(scripts=("trtllm-serve", "trtllm-build"), tensorrt_llm="1.1.0")
        made = spec(
            *(tmp_path, model, python),
            backend="tensorrt",
            checkpoint=str(converted),
            kv_cache_type="paged",
            context_fmha=True,
            use_paged_context_fmha=False,
            tokens_per_block=64,
            max_seq_len=512,
            tp_size=2,
        )
        words = ENGINE.command(made)
        assert [words[0], Path(words[1]).name] == [str(python), "trtllm_engine.py"]
        folder, first, second = Path(words[2]), words.index("--"), words.index("--", 4)
        assert folder.parent == made.cache_home / "engines"
        assert words[first + 1 : second] == [
            *(str(python.with_name("trtllm-build")), "--checkpoint_dir", str(converted)),
            *("--kv_cache_type", "paged", "--context_fmha", "enable", "--use_paged_context_fmha", "disable"),
            *("--max_seq_len", "512", "--tokens_per_block", "64", "--workers", "2"),
        ]
        serve = words[second + 1 :]
        assert serve[1] == str(folder)
        assert serve[serve.index("--backend") + 1] == "tensorrt"
        assert serve[serve.index("--tokenizer") + 1] == str(model)
        assert arguments(serve) == {"return_perf_metrics": True}, "its iterations are always told"
        assert made.model.files == ((converted / "rank0.safetensors").resolve(),)

    def test_engines_of_other_options_have_other_folders(
        self, environment: MakeEnvironment, tmp_path: Path, model: Path, converted: Path
    ) -> None:
        python = environment(scripts=("trtllm-serve", "trtllm-build"), tensorrt_llm="1.1.0")

        def folder(**options: Any) -> str:
            made = spec(tmp_path, model, python, backend="tensorrt", checkpoint=str(converted), **options)
            return ENGINE.command(made)[2]

        assert folder(context_fmha=True) == folder(context_fmha=True, enable_block_reuse=True)
        before = {folder(context_fmha=True), folder(context_fmha=False), folder(max_batch_size=4)}
        assert len(before) == 3
        (converted / "rank0.safetensors").write_bytes(safetensors(b"\x01" * 64))
        assert folder(context_fmha=True) not in before, "nor is an engine of other weights taken"


class TestEnvironment:
    def test_caches(self, environment: MakeEnvironment, tmp_path: Path, model: Path, converted: Path) -> None:
        python = environment(tensorrt_llm="1.1.0")
        plain = ENGINE.cache_roots(spec(tmp_path, model, python))
        variables = {name: path for root in plain for name, path in root.env.items()}
        home = tmp_path / "caches"
        assert variables == {
            "PYTHONPYCACHEPREFIX": f"{home}/bytecode",
            "PYTHONDONTWRITEBYTECODE": "",
            "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor",
            "TRITON_CACHE_DIR": f"{home}/triton",
            "FLASHINFER_WORKSPACE_BASE": f"{home}/flashinfer",
            "CUDA_CACHE_PATH": f"{home}/cuda",
            "TRTLLM_DG_CACHE_DIR": f"{home}/deep_gemm",
            "TLLM_LLMAPI_BUILD_CACHE_ROOT": f"{home}/llmapi_build",
        }
        more = spec(*(tmp_path, model, python), backend="tensorrt", checkpoint=str(converted), autotuner_cache=True)
        added = ENGINE.cache_roots(more)[len(plain) :]
        assert [(root.name, root.path, dict(root.env)) for root in added] == [
            ("engines", home / "engines", {}),
            ("autotuner", home / "autotuner", {"TLLM_AUTOTUNER_CACHE_PATH": f"{home}/autotuner/tuned.json"}),
        ]

    def test_gpus_are_those_of_tensor_times_pipeline(self, environment: MakeEnvironment) -> None:
        python = str(environment(tensorrt_llm="1.1.0"))
        assert ENGINE.gpus(Cell("tensorrt_llm", None, "restart", python=python)) == 1
        options = {"tp_size": 2, "pp_size": 4}
        assert ENGINE.gpus(Cell("tensorrt_llm", None, "restart", options=options, python=python)) == 8

    def test_version_whose_tensorrt_backend_was_removed_is_not_booted_with_it(
        self, environment: MakeEnvironment
    ) -> None:
        python = str(environment(tensorrt_llm="1.4.0rc4"))
        found = ENGINE.availability(Cell("tensorrt_llm", None, "restart", {"backend": "tensorrt"}, python=python))
        assert (found.ok, found.reason) == (False, "its TensorRT backend was removed")
        assert ENGINE.availability(Cell("tensorrt_llm", None, "restart", python=python)).ok

    def test_environment_without_it(self, environment: MakeEnvironment) -> None:
        found = ENGINE.availability(Cell("tensorrt_llm", None, "restart", python=str(environment(torch="2.9"))))
        assert "the distribution 'tensorrt-llm' is not installed in" in found.reason

    def test_its_log_is_read_by_the_patterns_of_its_family(self) -> None:
        assert family("tensorrt_llm", ()) == family("openai", ("trtllm-serve", "x")) == "tensorrt-llm"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "trt"}, "'trt' is not one of 'pytorch', 'tensorrt', '_autodeploy'"),
        ({"max_batch_sise": 1}, "did you mean 'max_batch_size'?"),
        ({"kv_cache_free_gpu_memory_fraction": 1.5}, "1.5 is not above 0 and at most 1"),
        ({"kv_cache_config": "x"}, "it is a dict of its fields"),
        ({"port": 1}, "is set by the boot itself"),
        ({"extra_llm_api_options": "x.yaml"}, "give its keys as options of their own"),
        ({"context_fmha": True}, "option 'context_fmha' needs backend='tensorrt'"),
        ({"context_fmha": True, "backend": "tensorrt"}, "option 'context_fmha' needs checkpoint="),
        ({"cuda_graphs": False, "cuda_graph_max_batch_size": 8}, "contradicts cuda_graphs=False"),
    ],
)
def test_refused_option(options: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError) as caught:
        ENGINE.check(Cell("tensorrt_llm", None, "restart", options=options))
    assert words in str(caught.value)


def test_refused_container_and_checkpoint(model: Path) -> None:
    with pytest.raises(EngineError, match="cannot run in a container yet"):
        ENGINE.check(Cell("tensorrt_llm", None, "restart", container=Container(("stop",), 8000)))
    options = {"backend": "tensorrt", "checkpoint": str(model)}
    with pytest.raises(EngineError, match="is no converted checkpoint"):
        ENGINE.model(Cell("tensorrt_llm", str(model), "restart", options=options))


def build_log() -> list[str]:
    """Our launcher's lines, and between them what ``commands/build.py`` of NVIDIA/TensorRT-LLM says at its end."""
    return [
        "[+    0.100] coldstart: trtllm-build begins",
        "[+   40.000] [TRT-LLM] [I] Total time of building all engines: 00:00:38",
        "[+   42.350] coldstart: trtllm-build ended with exit code 0",
    ]


def test_log_says_how_long_the_build_was() -> None:
    found = read_log(build_log(), "tensorrt-llm", "1.1.0", {"backend": "tensorrt"})
    assert [(item.text, item.phases, item.seconds) for item in found.readings] == [
        ("engine_build", ("compile",), pytest.approx(42.25))
    ]
    assert found.unmatched == (), "the lines of the PyTorch backend are not missed"


class TestBoot:
    @pytest.fixture
    def python(self, tmp_path: Path) -> Path:
        names = ("trtllm-serve", "trtllm-build")
        return stand_in(tmp_path / "env", FAKE, names, tensorrt_llm="1.1.0")

    def cell(self, python: Path, model: Path, **options: Any) -> Cell:
        env = {"FAKE_JOURNAL": str(python.parents[1] / "journal")}
        return Cell("tensorrt_llm", str(model), "restart", options=options, python=str(python), env=env)

    def journal(self, python: Path) -> list[Any]:
        return [json.loads(line) for line in (python.parents[1] / "journal").read_text().splitlines()]

    @pytest.mark.timeout(60)
    def test_health_is_what_is_trusted_and_its_metrics_are_read(
        self, boots: MakeBoot, tmp_path: Path, python: Path, model: Path
    ) -> None:
        """Its models are listed at once and its requests fail before it is healthy."""
        plan = plan_of(ENGINE, self.cell(python, model, enable_block_reuse=False), tmp_path)
        boot = boots(plan)
        boot.run()
        assert boot.port is not None
        reader = ENGINE.kv_reader(
            LaunchSpec(plan.cell, plan.model, "127.0.0.1", boot.port.number, str(python), tmp_path), tmp_path / "none"
        )
        cache = reader.read("held") if reader else None
        record = boot.stop()
        assert_nothing_left(boot)
        assert record.failure is None, record.failure
        seen = record.instants
        assert 0 < seen["listen"] <= seen["ready"] < seen["first_token"]
        assert record.requests[0].completion_tokens == 16  # asked while /health is 503, it would have failed
        assert record.requests[0].attempts == 1
        assert record.requests[-1].engine_ttft == pytest.approx(0.001)
        assert cache is not None
        assert (cache.used_blocks, cache.total_blocks, cache.block_size) == (4, 100, 32)
        started = self.journal(python)
        assert len(started) == 1
        assert started[0]["arguments"]["kv_cache_config"] == {"enable_block_reuse": False}

    @pytest.mark.timeout(60)
    def test_engine_is_built_once_and_its_build_is_a_phase(
        self, boots: MakeBoot, tmp_path: Path, python: Path, model: Path, converted: Path
    ) -> None:
        options = {"backend": "tensorrt", "checkpoint": str(converted), "kv_cache_type": "paged", "context_fmha": True}
        cell = self.cell(python, model, **options)
        # Long enough for the launcher's probe to have written of it, on a machine that starves its thread for a while.
        cell = dataclasses.replace(cell, env={**cell.env, "FAKE_BUILD_SECONDS": "3"})
        records = []
        for _ in range(2):
            boot = boots(plan_of(ENGINE, cell, tmp_path))
            boot.run()
            records.append(boot.stop())
            assert_nothing_left(boot)
        assert [record.failure for record in records] == [None, None]
        names = [entry["words"][0] for entry in self.journal(python)]
        assert names == ["trtllm-build", "trtllm-serve", "trtllm-serve"]
        built, kept = ([p for p in record.phases if "trtllm-build" in p.detail] for record in records)
        assert {phase.name for phase in built} == {"compile"}
        assert sum(phase.end - phase.begin for phase in built) >= 0.5, "of the 3 s that the build slept"
        assert kept == []
        assert not [why for why in records[0].attribution.missing if "trtllm-build" in why], (
            "nobody has to look into it"
        )
        readings = {item.text: item for item in records[0].attribution.readings}
        assert readings["engine_build"].seconds >= 2.9

    def launcher(self, tmp_path: Path, python: Path, **env: str) -> subprocess.Popen[str]:
        """The launcher alone, before a server that says "served"."""
        build = [str(python.with_name("trtllm-build")), "--checkpoint_dir", "c"]
        return subprocess.Popen(
            [
                sys.executable,
                "-S",
                str(LAUNCHER),
                str(tmp_path / "engines" / "x"),
                "--",
                *build,
                "--",
                "echo",
                "served",
            ],
            env={**os.environ, "FAKE_JOURNAL": str(python.parents[1] / "journal"), **env},
            stdout=subprocess.PIPE,
            text=True,
        )

    def test_build_that_fails_ends_the_launcher_and_leaves_no_engine(self, tmp_path: Path, python: Path) -> None:
        with self.launcher(tmp_path, python, FAKE_BUILD_FAILS="1", FAKE_BUILD_SECONDS="0") as launcher:
            said = launcher.communicate(timeout=30)[0]
        assert launcher.returncode == 7
        assert "trtllm-build ended with exit code 7" in said
        assert "served" not in said
        assert not (tmp_path / "engines" / "x").exists()

    def test_stop_in_the_middle_of_the_build_ends_the_builder(self, tmp_path: Path, python: Path) -> None:
        with self.launcher(tmp_path, python, FAKE_BUILD_SECONDS="100") as launcher:
            assert eventually((python.parents[1] / "journal").exists, 30)
            launcher.send_signal(signal.SIGTERM)
            launcher.communicate(timeout=30)
        assert launcher.returncode == 128 + signal.SIGTERM
        (begun,) = self.journal(python)
        assert not Path(f"/proc/{begun['pid']}").exists()
        assert not (tmp_path / "engines" / "x").exists()
