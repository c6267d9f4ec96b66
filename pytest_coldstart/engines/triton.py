"""Triton Inference Server: a model repository, served by ``tritonserver`` and asked through its generate extension.

Facts this adapter rests on were read off real boots of 2.51, from nvidia-pytriton 0.7.0: the HTTP port opens once
every model is loaded; an event of ``generate_stream`` does not say that it is the last one; SIGTERM waits for
connections, requests and models, for as long as ``--exit-timeout-secs`` says.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from pytest_coldstart.cell import Cell
from pytest_coldstart.client import Dialect, Event
from pytest_coldstart.engines import triton_bundle, triton_repository
from pytest_coldstart.engines.base import (
    Availability,
    Engine,
    EngineError,
    LaunchSpec,
    Model,
    Option,
    command_availability,
)
from pytest_coldstart.engines.checkpoint import effective_environ
from pytest_coldstart.engines.triton_bundle import Bundle
from pytest_coldstart.readiness import Endpoint

#: Where NVIDIA's containers have it.
_INSTALLED = Path("/opt/tritonserver/bin/tritonserver")
_EXIT_TIMEOUT = 5
#: Flags that the adapter gives itself.
_OWN_FLAGS = frozenset(
    "model_repository model_store allow_http http_address http_port allow_grpc allow_metrics metrics_address metrics_port "
    "exit_timeout_secs disable_auto_complete_config backend_directory".split()
)


class Triton(Engine):
    """One server process, and one for each instance of a model on the Python backend."""

    name = "triton"
    title = "Triton Inference Server"
    distributions = (triton_bundle.DISTRIBUTION,)
    default_model = triton_repository.BUILT_IN
    metrics_path = "/metrics"
    #: The same port number as its service, on another address of the loopback: one lease keeps both.
    metrics_host = "127.0.0.2"
    passes_options = True
    install = (
        "coldstart env triton DIR and --coldstart-python triton=DIR/bin/python (the server of pip install nvidia-pytriton), "
        "or put tritonserver on PATH"
    )
    options: ClassVar[Mapping[str, Option]] = {
        "model_name": Option("the model of the repository that requests go to", (str,)),
        "prompt_name": Option("name of the input that takes the prompt, default text_input", (str,)),
        "answer_name": Option("name of the output that holds the answer, default text_output", (str,)),
        "tokens_name": Option("name of what takes the number of tokens, default max_tokens", (str,)),
        "tokens_as": Option(
            "whether that is an input or a request parameter; default by the model's backend",
            choices=("input", "parameter"),
        ),
        "counts_events": Option(
            "whether each event is one token, so that they are counted; default for 'words'", (bool,)
        ),
        "request": Option("what else is in the body of a request, name -> value", (dict,)),
        "auto_complete_config": Option(
            "let the backends complete config.pbtxt, for which a Python model is started once more", (bool,)
        ),
        "exit_timeout": Option(f"seconds that SIGTERM waits for connections and models, default {_EXIT_TIMEOUT}"),
    }
    traps = (
        "The Python of its Python backend is an isolated one: no probe, and no cache variable, reaches it.",
        "Bytecode of a Python model is written beside it, in the repository, where no tier empties it.",
        "A Python model whose process died answers with errors, or not at all, while /v2/health/ready says 200.",
        "SIGTERM waits for connections that clients keep open, at most exit_timeout; then it exits with status 1 and leaves "
        "shared memory.",
    )

    def check(self, cell: Cell) -> None:
        super().check(cell)
        if cell.container:
            raise EngineError("engine 'triton' cannot run in a container yet; use engine 'openai' with its command")
        own = sorted(_OWN_FLAGS & cell.options.keys())
        if own:
            raise EngineError(f"engine 'triton', option {own[0]!r}: the adapter sets this flag itself")
        grace = cell.options.get("exit_timeout", _EXIT_TIMEOUT)
        if not 0 <= grace <= 3600:
            raise EngineError(f"option 'exit_timeout': {grace!r} is not a number of seconds from 0 to 3600")

    def availability(self, cell: Cell) -> Availability:
        if cell.command:
            return command_availability(cell.command)
        if _binary(cell):
            return Availability(True)
        found = super().availability(cell)
        bundle = _bundle(cell) if found.ok else None
        if bundle is None:
            reason = "the distribution 'nvidia-pytriton' holds no tritonserver"
            return Availability(False, reason=reason, enable=self.install) if found.ok else found
        reason, enable = bundle.problem()
        return Availability(False, found.version, reason, enable) if reason else found

    def versions(self, cell: Cell) -> dict[str, str]:
        return {} if _binary(cell) else super().versions(cell)

    def model(self, cell: Cell) -> Model:
        return triton_repository.find(cell.model or triton_repository.BUILT_IN, cell.options.get("model_name"))

    def command(self, spec: LaunchSpec) -> list[str]:
        cell = spec.cell
        bundle = None if cell.command or _binary(cell) else _bundle(cell)
        words = list(cell.command) or [_binary(cell) or str(bundle.server if bundle else "tritonserver")]
        words += [f"--model-repository={spec.model.path}", f"--http-address={spec.host}", f"--http-port={spec.port}"]
        words += [f"--metrics-address={self.metrics_host}", f"--metrics-port={spec.port}", "--allow-grpc=false"]
        words.append(f"--exit-timeout-secs={cell.options.get('exit_timeout', _EXIT_TIMEOUT)}")
        if bundle:
            words.append(f"--backend-directory={bundle.backends}")
        if cell.options.get("auto_complete_config") is False:
            words.append("--disable-auto-complete-config")
        for name, value in sorted(cell.options.items()):
            if name not in self.options:
                words += [f"--{name.replace('_', '-')}={text}" for text in _texts(value)]
        return words

    def environment(self, spec: LaunchSpec) -> dict[str, str]:
        bundle = None if spec.cell.command or _binary(spec.cell) else _bundle(spec.cell)
        return bundle.environment(spec.python, effective_environ(spec.cell.env)) if bundle else {}

    def libraries(self, cell: Cell) -> list[Path]:
        bundle = None if cell.command or _binary(cell) else _bundle(cell)
        return [*self.large_libraries(cell, (triton_bundle.DISTRIBUTION, "numpy")), bundle.server] if bundle else []

    def endpoints_for(self, cell: Cell) -> tuple[Endpoint, ...]:
        model = quote(self.model(cell).served, safe="")
        return (
            Endpoint("health", "/v2/health/ready", trusted=True),
            Endpoint("live", "/v2/health/live"),
            Endpoint("model", f"/v2/models/{model}/ready"),
        )

    def dialect(self, spec: LaunchSpec) -> Dialect:
        options, model = spec.cell.options, spec.model
        backend = triton_repository.backend(model.path, model.served) if model.path else None
        return Generate(
            model=model.served,
            prompt_name=options.get("prompt_name", "text_input"),
            answer_name=options.get("answer_name", "text_output"),
            tokens_name=options.get("tokens_name", "max_tokens"),
            tokens_as=options.get("tokens_as", "parameter" if backend == "vllm" else "input"),
            counts_events=options.get("counts_events", model.name == triton_repository.BUILT_IN),
            request=options.get("request", {}),
        )

    def impossible(self, cell: Cell) -> dict[str, str]:
        reason = "memory is the business of a model's backend, and Triton tells nothing of it"
        return dict.fromkeys(("fragmentation", "allocator_fragmentation", "kv_fragmentation"), reason)

    def stop_grace(self, cell: Cell) -> float:
        return float(cell.options.get("exit_timeout", _EXIT_TIMEOUT)) + 10.0


@dataclass(frozen=True)
class Generate(Dialect):
    """The generate extension, streamed. No event says that the answer is whole; the whole stream does."""

    model: str = ""
    prompt_name: str = "text_input"
    answer_name: str = "text_output"
    tokens_name: str = "max_tokens"
    #: ``input``: as the built-in model and TensorRT-LLM's take it; ``parameter``: as the vLLM backend does.
    tokens_as: str = "input"
    counts_events: bool = False
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/v2/models/{quote(self.model, safe='')}/generate_stream"

    def body(self, model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {self.prompt_name: prompt, "stream": True}
        if self.tokens_as == "parameter":
            body["parameters"] = {self.tokens_name: max_tokens, "temperature": 0, "ignore_eos": True}
        else:
            body[self.tokens_name] = max_tokens
        return {**body, **self.request}

    def read(self, data: Mapping[str, Any]) -> Event:
        answer = data.get(self.answer_name)
        return Event(answer is not None, bool(answer))

    def ended(self, tokens: int) -> Event | None:
        return Event(False, False, "length", completion_tokens=tokens if self.counts_events else None)


def _binary(cell: Cell) -> str | None:
    """An installed server, for cells that name no interpreter."""
    if cell.python or cell.command:
        return None
    found = shutil.which("tritonserver", path=effective_environ(cell.env).get("PATH"))
    return found or (str(_INSTALLED) if _INSTALLED.is_file() else None)


def _bundle(cell: Cell) -> Bundle | None:
    return triton_bundle.find(cell.python or sys.executable, cell.env.get("PYTHONPATH"))


def _texts(value: Any) -> list[str]:
    """The values of one flag; a list gives it several times."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in values]
