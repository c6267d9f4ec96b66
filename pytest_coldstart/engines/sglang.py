"""SGLang: ``python -m sglang.launch_server``, an HTTP parent with a scheduler for each rank and a detokenizer.

Facts this adapter rests on were read off the source of 0.5.14 and real boots of it on an H200; what differs between
versions is data in :mod:`pytest_coldstart.engines.sglang_facts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import checkpoint, flags
from pytest_coldstart.engines.base import Engine, EngineError, LaunchSpec, Model, Option, at_least_one
from pytest_coldstart.engines.facts import held
from pytest_coldstart.engines.sglang_facts import CACHE_VARIABLES, FLAGS, TTFT_HISTOGRAM
from pytest_coldstart.kv import KVReader
from pytest_coldstart.kv.sglang import SGLangKV

#: Distributions, by the beginning of their names, whose shared libraries a boot loads.
_LIBRARIES = (
    *("sglang", "sgl-kernel", "torch", "nvidia-", "triton", "flashinfer"),
    *("apache-tvm-ffi", "xgrammar", "tokenizers", "safetensors"),
)
#: Flags that no suite may give, and why.
_RESERVED: Mapping[str, str] = {
    **dict.fromkeys(
        ("host", "port", "model", "model_path", "served_model_name"),
        "is set by the boot itself; the suite's model= and port= decide it",
    ),
    **dict.fromkeys(
        ("api_key", "admin_api_key"), "would refuse the boot's own requests, which carry no key; leave it out"
    ),
    **dict.fromkeys(
        ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_keyfile_password", "enable_ssl_refresh"),
        "would serve HTTPS, and the boot's own requests are plain HTTP; leave it out",
    ),
    **{
        name: f"is called {short!r} here, so that its GPUs are counted"
        for short, names in {
            "tp_size": ("tensor_parallel_size", "tp"),
            "pp_size": ("pipeline_parallel_size", "pp"),
            "dp_size": ("data_parallel_size", "dp"),
        }.items()
        for name in names
    },
    "grpc_mode": "would serve gRPC, and the boot's own requests are plain HTTP; leave it out",
    "skip_tokenizer_init": "would refuse the boot's own requests, which are text; leave it out",
    "fastapi_root_path": "would move the endpoints that the boot watches; leave it out",
}
#: Flags whose names are so near to those of the table below that they would be taken for typing mistakes.
_NEAR: Mapping[str, Option] = {
    **dict.fromkeys(
        ("cuda_graph_max_bs_decode", "cuda_graph_max_bs_prefill"), Option("largest batch, or tokens, that is captured")
    ),
    **dict.fromkeys(
        ("cuda_graph_bs", "cuda_graph_bs_decode", "cuda_graph_bs_prefill"), Option("sizes that are captured", (list,))
    ),
    **dict.fromkeys(
        (
            *("disable_decode_cuda_graph", "disable_prefill_cuda_graph", "disable_cuda_graph_padding"),
            *("disable_piecewise_cuda_graph", "enable_profile_cuda_graph", "enable_mfu_metrics", "enable_mis"),
        ),
        Option("as SGLang names it", (bool,)),
    ),
    **dict.fromkeys(
        ("decode_attention_backend", "prefill_attention_backend", "mm_attention_backend"),
        Option("attention kernels of one kind of work", (str,)),
    ),
    "ep_size": Option("GPUs, among those of tp_size, that experts are split over"),
}
#: What a boot needs unless a suite says otherwise.
_DEFAULTS: Mapping[str, Any] = {"enable_metrics": True}


class SGLang(Engine):
    """SGLang's OpenAI-compatible server in its production topology."""

    name = "sglang"
    title = "SGLang"
    distributions = ("sglang", "sglang-kernel", "sgl-kernel", "torch", "transformers", "triton", "flashinfer-python")
    default_model = "random:qwen2-tiny"
    metrics_path = "/metrics"
    ttft_histogram = TTFT_HISTOGRAM
    cache_variables = CACHE_VARIABLES
    is_python = True
    passes_options = True
    sequence_option = "max_running_requests"
    install = "pip install sglang, or give --coldstart-python sglang=ENV/bin/python; it needs a GPU"
    options: ClassVar[Mapping[str, Option]] = {
        "mem_fraction_static": Option("share of the device's memory for weights and KV cache, 0 to 1", (float,)),
        "max_total_tokens": Option("tokens of the KV cache; overrides the share"),
        "page_size": Option("tokens in one page of the KV cache"),
        "max_running_requests": Option("most requests in one batch"),
        "context_length": Option("context length, tokens"),
        "disable_radix_cache": Option("do not reuse the KV cache of equal prefixes", (bool,)),
        "chunked_prefill_size": Option("most tokens of one prefill step; -1 splits none"),
        "max_prefill_tokens": Option("most tokens in one prefill batch"),
        "disable_cuda_graph": Option("no CUDA graphs, neither for decode nor for prefill", (bool,)),
        "cuda_graph_max_bs": Option("largest batch that a decode graph is captured for"),
        "cuda_graph_backend_decode": Option(
            "how decode is captured", choices=("full", "breakable", "tc_piecewise", "disabled")
        ),
        "cuda_graph_backend_prefill": Option(
            "how prefill is captured", choices=("breakable", "tc_piecewise", "disabled")
        ),
        "kv_cache_dtype": Option("type of the KV cache: auto, fp8_e5m2, fp8_e4m3, ...", (str,)),
        "load_format": Option("how weights are loaded: auto, safetensors, dummy, layered, ...", (str,)),
        "quantization": Option("quantisation method", (str,)),
        "dtype": Option("type of weights and activations", (str,)),
        "attention_backend": Option("attention kernels: fa3, flashinfer, triton, ...", (str,)),
        "enable_torch_compile": Option("compile the model with torch.compile", (bool,)),
        "tp_size": Option("GPUs that one layer is split over"),
        "pp_size": Option("stages that the layers are split over"),
        "dp_size": Option("engines side by side, each with all layers"),
        "enable_dp_attention": Option("data parallel attention within the tensor parallel ranks", (bool,)),
        "trust_remote_code": Option("run code that the checkpoint ships", (bool,)),
        "skip_server_warmup": Option("do not answer a request of its own before it is ready", (bool,)),
        "enable_metrics": Option("Prometheus text at /metrics; on unless you say otherwise", (bool,)),
        **_NEAR,
        "decode_log_interval": Option(
            "decode steps between two lines of its log and renewals of its gauges, 40 by default"
        ),
    }
    traps = (
        "Every other option is passed on as a flag.",
        "0.5.14 dies in the capture of prefill graphs where the model's context is below the chunked prefill size, with an "
        "advice about memory that misleads: set cuda_graph_backend_prefill='disabled'.",
        "Each 200 of /health generates a token: watch it from outside no more than you must.",
        "/v1/models says 200 seconds before the engine can answer.",
        "SIGTERM to the whole process group is taken for a crash; the parent alone is signalled here.",
        "A failed boot fills the kernel caches, so the next one is not cold unless they are emptied, as the tiers do.",
        "With page_size 1, its default on most GPUs, no block of the KV cache can be partly filled.",
        "After a burst its gauges stay as they were for 30 s; a decode_log_interval of 1 renews them at a cost to each step.",
    )

    def check(self, cell: Cell) -> None:
        super().check(cell)
        taken = sorted(set(cell.options) & set(_RESERVED))
        if taken:
            raise EngineError(f"engine 'sglang': option {taken[0]!r} {_RESERVED[taken[0]]}")
        share = cell.options.get("mem_fraction_static", 0.5)
        if not 0 < share < 1:
            raise EngineError(f"engine 'sglang', option 'mem_fraction_static': {share!r} is not above 0 and below 1")
        at_least_one(cell, "page_size", "tp_size", "pp_size", "dp_size", "decode_log_interval", "context_length")
        if cell.container:
            raise EngineError("engine 'sglang' cannot run in a container yet; use engine 'openai' with its command")

    def device(self, cell: Cell) -> str:
        if cell.command:
            return "any"  # whose build a command starts is not known
        return "cpu" if cell.options.get("device") == "cpu" else "gpu"

    def model(self, cell: Cell) -> Model:
        loads = cell.options.get("load_format") != "dummy"
        environ = checkpoint.effective_environ(cell.env)
        revision = str(cell.options.get("revision") or "main")
        found = checkpoint.find(cell.model or self.default_model, environ, loads, revision)
        return _named(found if loads else checkpoint.without_weights(found))

    def command(self, spec: LaunchSpec) -> list[str]:
        version = self.versions(spec.cell).get("sglang")
        words = list(spec.cell.command) or [spec.python, "-m", "sglang.launch_server"]
        words += ["--model-path", str(spec.model.path or spec.model.name), "--served-model-name", spec.model.served]
        words += ["--host", spec.host, "--port", str(spec.port)]
        for name, value in sorted({**_DEFAULTS, **spec.cell.options}.items()):
            words += _flag(name, value, version)
        return words

    def libraries(self, cell: Cell) -> list[Path]:
        return [] if cell.command else self.large_libraries(cell, _LIBRARIES)

    def impossible(self, cell: Cell) -> dict[str, str]:
        if self.device(cell) == "cpu":
            return dict.fromkeys(("fragmentation", "allocator_fragmentation"), "on a CPU it has no GPU memory")
        return {}

    def gpus(self, cell: Cell) -> int | None:
        """Replicas take GPUs of their own; with data parallel attention they share those of the tensor parallel ranks."""
        if self.device(cell) != "gpu":
            return super().gpus(cell)
        sizes = ["tp_size", "pp_size"] if cell.options.get("enable_dp_attention") else ["tp_size", "pp_size", "dp_size"]
        return math.prod(int(cell.options.get(name) or 1) for name in sizes)

    def kv_reader(self, spec: LaunchSpec, log: Path) -> KVReader | None:
        return SGLangKV(spec.host, spec.port, log)

    def context_limit(self, cell: Cell) -> int | None:
        limit = cell.options.get("context_length")
        return limit if isinstance(limit, int) else None

    def stop_grace(self, cell: Cell) -> float:
        return 30.0


def _flag(name: str, value: Any, version: str | None) -> list[str]:
    if name in FLAGS and value is not None and value is not False:
        return [word.format(value) for word in held(FLAGS[name], version).split()]
    return flags.words(name, value)


def _named(model: Model) -> Model:
    """Served by a name without a colon, which stands between a model and its adapter there."""
    pending = model.pending
    return replace(
        model,
        served=model.served.replace(":", "-"),
        pending=(lambda: _named(pending())) if pending else None,
    )
