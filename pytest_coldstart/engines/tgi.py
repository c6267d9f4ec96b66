"""Text Generation Inference: ``text-generation-launcher``, its router and its shards.

Not yet run on the real engine. Read off public sources of huggingface/text-generation-inference (``launcher/src/main.rs``,
``router/src/server.rs``, ``backends/v3/src/lib.rs``, its documentation) of 2.4 to 3.3.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pytest_coldstart.cell import Cell
from pytest_coldstart.client import Dialect, Event
from pytest_coldstart.engines import checkpoint
from pytest_coldstart.engines.base import (
    Availability,
    CacheRoot,
    Engine,
    EngineError,
    LaunchSpec,
    Model,
    Option,
    at_least_one,
)
from pytest_coldstart.engines.interpreter import console_script
from pytest_coldstart.readiness import Endpoint

_LAUNCHER = "text-generation-launcher"
#: Options that are variables and no flags: the launcher looks for them.
_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "attention": ("ATTENTION",),
    # 2.3 turns it off where both say so (its issue #2676).
    "prefix_caching": ("PREFIX_CACHING", "USE_PREFIX_CACHING"),
}
_RESERVED: Mapping[str, str] = {
    **dict.fromkeys(
        ("model_id", "hostname", "port", "shard_uds_path"),
        "is set by the boot itself; the suite's model= and port= decide it",
    ),
    "api_key": "would refuse the boot's own requests, which carry no key; leave it out",
    "json_output": "would make the log one that no pattern reads; leave it out",
}


class TGI(Engine):
    """The launcher starts one Python process a shard, waits for their sockets, then starts the router."""

    name = "tgi"
    title = "TGI"
    default_model = "random:qwen2-tiny"
    metrics_path = "/metrics"
    #: Those of torch and of the kernels in its shards. The hub's cache holds models, so it is none.
    cache_variables: ClassVar[Mapping[str, str]] = {
        "inductor": "TORCHINDUCTOR_CACHE_DIR",
        "triton": "TRITON_CACHE_DIR",
        "flashinfer": "FLASHINFER_WORKSPACE_BASE",
        "cuda": "CUDA_CACHE_PATH",
    }
    endpoints = (Endpoint("health", "/health", trusted=True), Endpoint("info", "/info"))
    is_python = True
    passes_options = True
    sequence_option = "max_batch_size"
    install = (
        "give the suite's marker command=[...] and container={...} of its image huggingface/text-generation-inference, put "
        "text-generation-launcher on PATH, or give --coldstart-python tgi=ENV/bin/python; it needs a GPU"
    )
    options: ClassVar[Mapping[str, Option]] = {
        "num_shard": Option("GPUs that one layer is split over"),
        "sharded": Option("whether it is split over several GPUs", (bool,)),
        "quantize": Option("quantisation method of the weights", (str,)),
        "dtype": Option("type of weights and activations", choices=("float16", "bfloat16")),
        "kv_cache_dtype": Option("type of the KV cache", choices=("fp8_e4m3fn", "fp8_e5m2")),
        "max_input_tokens": Option("longest prompt, tokens"),
        "max_total_tokens": Option("longest prompt and answer together, tokens"),
        "max_batch_prefill_tokens": Option("most tokens in one prefill"),
        "max_batch_total_tokens": Option("most tokens in one batch; flash attention infers it"),
        "max_batch_size": Option("most requests in one batch"),
        "max_concurrent_requests": Option("most requests in the router; more are refused"),
        "cuda_graphs": Option("batch sizes to capture CUDA graphs for, such as [1, 2, 4]; [0] is eager", (list, tuple)),
        "cuda_memory_fraction": Option("share of the device's memory that it may use, 0 to 1", (float,)),
        "attention": Option(
            "attention kernels; they decide the block size", choices=("flashinfer", "flashdecoding", "paged")
        ),
        "prefix_caching": Option("reuse the KV cache of equal prefixes; paged attention cannot", (bool,)),
        "trust_remote_code": Option("run code that the checkpoint ships", (bool,)),
        "revision": Option("revision of a model of the hub", (str,)),
        "disable_custom_kernels": Option("do without its own CUDA kernels", (bool,)),
    }
    traps = (
        "Not yet run on the real engine: flags, endpoints and events are as its public sources say.",
        "Every other option is passed on as a flag (speculate=2 becomes --speculate 2).",
        "It cannot be told to go on after its end-of-sequence token: a shorter answer passes, and says so in its tokens.",
        "It warms up before it opens its port, so a boot is refused connections for most of its time.",
        "It tells its batch and its queue, and never how much of its KV cache is in use.",
        "Its launcher gives shards 90 s to end.",
        "Two boots of several shards at once need master_port= of their own.",
    )

    def check(self, cell: Cell) -> None:
        super().check(cell)
        options = cell.options
        if taken := sorted(set(options) & set(_RESERVED)):
            raise EngineError(f"engine 'tgi': option {taken[0]!r} {_RESERVED[taken[0]]}")
        share = options.get("cuda_memory_fraction", 0.5)
        if not 0 < share <= 1:
            raise EngineError(f"engine 'tgi', option 'cuda_memory_fraction': {share!r} is not above 0 and at most 1")
        at_least_one(cell, "num_shard", "max_total_tokens")
        graphs = options.get("cuda_graphs", ())
        if not all(type(size) is int and size >= 0 for size in graphs):
            raise EngineError(f"engine 'tgi', option 'cuda_graphs': {graphs!r} is no list of batch sizes")
        if options.get("attention") == "paged" and options.get("prefix_caching"):
            raise EngineError("engine 'tgi': prefix_caching=True contradicts attention='paged', which has none")
        for name, variables in _VARIABLES.items() if cell.container else ():
            if name in options and (lost := [variable for variable in variables if variable not in cell.command]):
                raise EngineError(
                    f"engine 'tgi': option {name!r} is a variable, which the container does not see; add '-e', {lost[0]!r} to command="
                )
        if cell.container and not cell.command:
            raise EngineError("engine 'tgi': container= needs command=[...], the command that runs its image")

    def availability(self, cell: Cell) -> Availability:
        if cell.command:
            return super().availability(cell)
        launcher = _launcher(cell)
        if launcher is None:
            where = f" beside {cell.python} or" if cell.python else ""
            return Availability(False, reason=f"{_LAUNCHER} is not{where} on PATH", enable=self.install)
        return Availability(True, _version(launcher))

    def versions(self, cell: Cell) -> dict[str, str]:
        launcher = None if cell.command else _launcher(cell)
        version = _version(launcher) if launcher else None
        return {_LAUNCHER: version} if version else {}

    def device(self, cell: Cell) -> str:
        return "any" if cell.command else "gpu"

    def model(self, cell: Cell) -> Model:
        environ = checkpoint.effective_environ(cell.env)
        revision = str(cell.options.get("revision") or "main")
        return _by_path(checkpoint.find(cell.model or str(self.default_model), environ, True, revision))

    def command(self, spec: LaunchSpec) -> list[str]:
        cell = spec.cell
        host, port = ("0.0.0.0", cell.container.port) if cell.container else (spec.host, spec.port)
        words = list(cell.command) or [_launcher(cell) or _LAUNCHER]
        words += ["--model-id", spec.model.served, "--hostname", host, "--port", str(port)]
        if not cell.container:
            # Boots side by side would meet at the socket that it has by default.
            words += ["--shard-uds-path", str(Path(tempfile.gettempdir()) / f"coldstart-tgi-{spec.port}")]
        for name, value in sorted(cell.options.items()):
            if name not in _VARIABLES and not (name == "revision" and spec.model.path):
                words += _flag(name, value)
        return words

    def environment(self, spec: LaunchSpec) -> dict[str, str]:
        options, found = spec.cell.options, {"USAGE_STATS": "off"}  # it would report each start to its makers
        for name, variables in _VARIABLES.items():
            if name in options:
                value = options[name]
                found |= dict.fromkeys(variables, str(int(value)) if isinstance(value, bool) else str(value))
        if spec.cell.python and not spec.cell.command:
            # The launcher finds text-generation-server on PATH.
            path = checkpoint.effective_environ(spec.cell.env).get("PATH", os.defpath)
            folder = Path(shutil.which(spec.cell.python) or spec.cell.python).parent
            found["PATH"] = os.pathsep.join([str(folder), path])
        return found

    def cache_roots(self, spec: LaunchSpec) -> list[CacheRoot]:
        return [] if spec.cell.container else super().cache_roots(spec)

    def dialect(self, spec: LaunchSpec) -> Dialect:
        return TGIDialect(ignore_eos=False)

    def impossible(self, cell: Cell) -> dict[str, str]:
        found = {"kv_fragmentation": "it does not tell how much of its KV cache is in use"}
        if cell.container:
            found["allocator_fragmentation"] = "the engine runs in a container, where the probe is not"
            found["fragmentation"] = "neither its allocator nor its KV cache can be read"
        return found

    def gpus(self, cell: Cell) -> int | None:
        if self.device(cell) != "gpu":
            return super().gpus(cell)
        shards = cell.options.get("num_shard")
        return int(shards) if shards else (None if cell.options.get("sharded") else 1)

    def context_limit(self, cell: Cell) -> int | None:
        limit = cell.options.get("max_total_tokens")
        return limit if isinstance(limit, int) else None

    def stop_grace(self, cell: Cell) -> float:
        return 100.0


@dataclass(frozen=True)
class TGIDialect(Dialect):
    """Its own streaming API, which needs no chat template and ends with the counts of prompt and answer.

    No API of its takes ``ignore_eos``, or a least number of tokens.
    """

    @property
    def path(self) -> str:
        return "/generate_stream"

    def body(self, model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
        parameters = {"max_new_tokens": max_tokens, "do_sample": False, "details": True, **self.extra}
        return {"inputs": prompt, "parameters": parameters}

    def read(self, data: Mapping[str, Any]) -> Event:
        """An event a token; the last one has details."""
        token, details = data.get("token") or {}, data.get("details") or {}
        reason = details.get("finish_reason")
        return Event(
            token=bool(token),
            text=bool(token.get("text")) and not token.get("special"),
            finish_reason="stop" if reason in ("eos_token", "stop_sequence") else reason,
            completion_tokens=details.get("generated_tokens"),
            prompt_tokens=details.get("input_length"),  # since 3
        )


def _launcher(cell: Cell) -> str | None:
    """The launcher beside the cell's interpreter, else on PATH."""
    return (console_script(cell.python, _LAUNCHER) if cell.python else None) or shutil.which(_LAUNCHER)


@lru_cache(maxsize=16)
def _version(launcher: str) -> str | None:
    """What ``--version`` says, such as ``text-generation-launcher 3.3.7``."""
    try:
        done = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\b\d+\.\d+\.\d+\S*", done.stdout) if done.returncode == 0 else None
    return found[0] if found else None


def _by_path(model: Model) -> Model:
    """A checkpoint that is here is served by its path: a name would be asked of the hub."""
    pending = model.pending
    served = str(model.path) if model.path else model.served
    return replace(model, served=served, pending=(lambda: _by_path(pending())) if pending else None)


def _flag(name: str, value: Any) -> list[str]:
    """One option as the launcher takes it: ``--sharded`` takes a word, other switches stand alone."""
    flag = "--" + name.replace("_", "-")
    if name == "sharded":
        return [flag, str(value).lower()]
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    return [flag, ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)]
