"""transformers serve: the reference server of Hugging Face transformers.

Facts this adapter rests on were read off real boots of 5.24: the HTTP server begins before any
weight is read when no model is forced, so /health and /v1/models say 200 with nothing loaded;
with a forced model they answer once it is loaded. JSON fields it does not know are refused
with 422, ``ignore_eos`` among them, so the length of the answer is asked for through
``generation_config``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pytest_coldstart.cell import Cell
from pytest_coldstart.client import Dialect
from pytest_coldstart.engines import checkpoint
from pytest_coldstart.engines.base import Engine, EngineError, LaunchSpec, Model, Option
from pytest_coldstart.engines.interpreter import console_script


class TransformersServe(Engine):
    """One process: HTTP, tokenizer and model."""

    name = "transformers"
    title = "transformers serve"
    distributions = ("transformers", "torch", "tokenizers", "accelerate", "triton")
    default_model = "random:qwen2-tiny"
    #: Those of torch that a compiled or a GPU boot fills.
    cache_variables: ClassVar[Mapping[str, str]] = {
        "inductor": "TORCHINDUCTOR_CACHE_DIR",
        "triton": "TRITON_CACHE_DIR",
        "cuda": "CUDA_CACHE_PATH",
    }
    is_python = True
    install = (
        "pip install 'transformers[serving]' torch, or give --coldstart-python transformers=ENV/bin/python "
        "(coldstart env transformers DIR makes one)"
    )
    options: ClassVar[Mapping[str, Option]] = {
        "preload": Option("name the model at start; without, the first request loads it", choices=(True, False)),
        "continuous_batching": Option("paged attention with continuous batching", (bool,)),
        "compile": Option("torch.compile", (bool,)),
        "attn_implementation": Option("attention implementation, such as sdpa or flash_attention_2", (str,)),
        "dtype": Option("type of the weights, such as bfloat16", (str,)),
        "device": Option("device, such as cpu or cuda:0", (str,)),
        "quantization": Option("bnb-4bit or bnb-8bit", (str,)),
        "trust_remote_code": Option("run code that the checkpoint ships", (bool,)),
        "model_timeout": Option("seconds until an idle model is unloaded; later requests are cold again"),
        "cb_block_size": Option("tokens in one block of the KV cache, continuous batching"),
        "cb_num_blocks": Option("blocks of the KV cache, continuous batching"),
        "cb_max_batch_tokens": Option("most tokens in one step, continuous batching"),
        "cb_use_cuda_graph": Option("CUDA graphs, continuous batching", (bool,)),
        "log_level": Option("log level", choices=("debug", "info", "warning", "error")),
    }
    traps = (
        "Without preload, /health and /v1/models say 200 with nothing loaded: watch ready_gap, not ready.",
        "Without preload, a model that idles for model_timeout (300 s) is unloaded and its next request is cold.",
        "It has no /metrics: the client's times are the only ones.",
    )

    def check(self, cell: Cell) -> None:
        super().check(cell)
        if cell.container:
            raise EngineError(
                "engine 'transformers' cannot run in a container yet; use engine 'openai' with its command"
            )

    def model(self, cell: Cell) -> Model:
        found = checkpoint.find(cell.model or str(self.default_model), checkpoint.effective_environ(cell.env))
        pending = found.pending
        return replace(_by_path(found), pending=(lambda: _by_path(pending())) if pending else None)

    def command(self, spec: LaunchSpec) -> list[str]:
        options = dict(spec.cell.options)
        words = [*self._launcher(spec)]
        if options.pop("preload", True):
            words.append(spec.model.served)
        words += ["--host", spec.host, "--port", str(spec.port)]
        for name, value in sorted({"log_level": "info", **options}.items()):
            words += _flag(name, value)
        return words

    def _launcher(self, spec: LaunchSpec) -> list[str]:
        if spec.cell.command:
            return list(spec.cell.command)
        if script := console_script(spec.python, "transformers"):
            return [script, "serve"]
        return [spec.python, "-m", "transformers.cli.transformers", "serve"]

    def dialect(self, spec: LaunchSpec) -> Dialect:
        return _Dialect()

    def impossible(self, cell: Cell) -> dict[str, str]:
        found = {"kv_fragmentation": "it has no metrics, so it does not tell how full its KV cache is"}
        if self.gpus(cell) == 0:
            found |= dict.fromkeys(("fragmentation", "allocator_fragmentation"), "it runs on the CPU")
        return found

    def gpus(self, cell: Cell) -> int | None:
        return 0 if str(cell.options.get("device", "")).startswith("cpu") else None

    def libraries(self, cell: Cell) -> list[Path]:
        return (
            []
            if cell.command
            else self.large_libraries(cell, ("torch", "nvidia-", "triton", "tokenizers", "safetensors"))
        )


class _Dialect(Dialect):
    """Asks for exactly as many tokens as are allowed, in its own way; a shorter answer fails as everywhere."""

    def body(self, model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
        body = super().body(model, prompt, max_tokens)
        del body["ignore_eos"]
        lengths = {"max_new_tokens": max_tokens, "min_new_tokens": max_tokens, "do_sample": False}
        body["generation_config"] = json.dumps(lengths)
        return body


def _by_path(model: Model) -> Model:
    """A local checkpoint is served by its path: transformers knows no other name for it."""
    return replace(model, served=str(model.path)) if model.path else model


def _flag(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]
