"""TensorRT-LLM: ``trtllm-serve``, and before it ``trtllm-build`` where a TensorRT engine is served.

Not yet run on the real engine. What it rests on was read off public sources; what differs between versions, and what is
unverified, is in :mod:`pytest_coldstart.engines.tensorrt_llm_facts`. Its completions API knows ``ignore_eos`` and
``stream_options``, and refuses fields that it does not know (tensorrt_llm/serve/openai_protocol.py), so requests are plain ones.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pytest_coldstart.cell import Cell
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
from pytest_coldstart.engines.tensorrt_llm_facts import (
    AUTOTUNER_FILE,
    CACHE_VARIABLES,
    METRICS_PATH,
    TTFT_HISTOGRAM,
    facts_for,
)
from pytest_coldstart.kv import KVReader
from pytest_coldstart.kv.tensorrt_llm import TensorRTLLMKV
from pytest_coldstart.phases.rules.rule import Rule

LAUNCHER = Path(__file__).parent / "launchers" / "trtllm_engine.py"

#: Distributions, by the beginning of their names, whose shared libraries a boot loads.
_LIBRARIES = ("tensorrt", "torch", "nvidia-", "triton", "flashinfer", "xgrammar", "tokenizers", "safetensors")
#: Options that are flags of trtllm-serve. Newer versions have longer names and kept these.
_FLAGS = ("max_batch_size", "max_seq_len", "max_num_tokens", "tp_size", "pp_size", "ep_size", "trust_remote_code")
#: Options whose product is how many GPUs it takes. The last one is not named below: names of other arguments are near to it.
_SIZES = ("tp_size", "pp_size", "context_parallel_size")
_FLAGS_OF_TEXT = ("log_level", "tokenizer")
#: Options that are fields of kv_cache_config. A file that has that key may replace what flags said of it, so the memory
#: fraction stands there too and not in its flag.
_KV_FIELDS: Mapping[str, str] = {
    "kv_cache_free_gpu_memory_fraction": "free_gpu_memory_fraction",
    "kv_cache_dtype": "dtype",
    "kv_cache_max_tokens": "max_tokens",
    "enable_block_reuse": "enable_block_reuse",
    "tokens_per_block": "tokens_per_block",
}
#: Options that decide what trtllm-build makes; the limits are those of the engine too.
_BUILD = (
    "kv_cache_type",
    "context_fmha",
    "use_paged_context_fmha",
    "remove_input_padding",
    "gemm_plugin",
    "gpt_attention_plugin",
    "max_input_len",
)
_BUILT_IN = ("max_batch_size", "max_seq_len", "max_num_tokens", "tokens_per_block")
#: Options that are ours, or go somewhere else than into the file of LLM arguments.
_ELSEWHERE = {"backend", "checkpoint", "autotuner_cache", "cuda_graphs", "cuda_graph_max_batch_size"}
_RESERVED: Mapping[str, str] = {
    **dict.fromkeys(("host", "port", "model"), "is set by the boot itself; the suite's model= and port= decide it"),
    **dict.fromkeys(
        ("config", "extra_llm_api_options"),
        "names the file that this adapter writes; give its keys as options of their own",
    ),
    **dict.fromkeys(("return_perf_metrics", "enable_iter_perf_stats"), "is set where the version has it"),
}


class TensorRTLLM(Engine):
    """trtllm-serve: the HTTP server and its workers, started by MPI."""

    name = "tensorrt_llm"
    title = "TensorRT-LLM"
    distributions = (
        *("tensorrt-llm", "torch", "transformers", "triton", "tensorrt", "flashinfer-python", "nvidia-nccl-cu12"),
    )
    default_model = "random:qwen2-tiny"
    metrics_path = METRICS_PATH
    ttft_histogram = TTFT_HISTOGRAM
    cache_variables = CACHE_VARIABLES
    is_python = True
    passes_options = True
    sequence_option = "max_batch_size"
    install = "pip install tensorrt-llm, or give --coldstart-python tensorrt_llm=ENV/bin/python; it needs a GPU"
    options: ClassVar[Mapping[str, Option]] = {
        "backend": Option("what runs the model", choices=("pytorch", "tensorrt", "_autodeploy")),
        "max_batch_size": Option("most requests that run at once"),
        "max_seq_len": Option("context length, tokens"),
        "max_num_tokens": Option("most tokens in one step"),
        "tp_size": Option("GPUs that one layer is split over"),
        "pp_size": Option("stages that the layers are split over"),
        "ep_size": Option("GPUs that experts are split over"),
        "kv_cache_free_gpu_memory_fraction": Option("share of the free device memory for the KV cache", (float,)),
        "kv_cache_dtype": Option("type of the KV cache, such as fp8", (str,)),
        "kv_cache_max_tokens": Option("most tokens in the KV cache"),
        "enable_block_reuse": Option("reuse the KV cache of equal prefixes", (bool,)),
        "tokens_per_block": Option("tokens in one block of the KV cache"),
        "enable_chunked_prefill": Option("split long prefills", (bool,)),
        "cuda_graphs": Option("capture CUDA graphs; False is eager", (bool,)),
        "cuda_graph_max_batch_size": Option("largest batch that a CUDA graph is captured for"),
        "load_format": Option("how weights are loaded: auto, dummy, ...", (str,)),
        "attn_backend": Option("attention of the PyTorch backend", (str,)),
        "trust_remote_code": Option("run code that the checkpoint ships", (bool,)),
        "log_level": Option("log level", (str,)),
        "tokenizer": Option("folder or name of the tokenizer, with checkpoint; else the model's own", (str,)),
        "autotuner_cache": Option("keep what the autotuner measured in the cell's caches", (bool,)),
        "checkpoint": Option("backend tensorrt: folder of a converted checkpoint that trtllm-build builds", (str,)),
        "kv_cache_type": Option("trtllm-build: layout of the KV cache", choices=("paged", "continuous", "disabled")),
        "context_fmha": Option("trtllm-build: fused attention of the context phase", (bool,)),
        "use_paged_context_fmha": Option("trtllm-build: the same over a paged KV cache; block reuse needs it", (bool,)),
        "remove_input_padding": Option("trtllm-build: pack inputs without padding", (bool,)),
        "gemm_plugin": Option("trtllm-build: auto, disable or a type", (str,)),
        "gpt_attention_plugin": Option("trtllm-build: auto, disable or a type", (str,)),
        "max_input_len": Option("trtllm-build: longest prompt, tokens"),
    }
    #: The wait of our launcher for the builder.
    phase_rules = (Rule("compile", "__main__", "build_engine", "trtllm-build"),)
    traps = (
        "Not yet run on the real engine: flags, endpoints and metrics are as its public sources say.",
        "Every other option is an argument of its LLM API and is written to the file of those (kv_cache_config={...}).",
        "The KV cache is sized twice: an estimate first, then the real one; its log says both, and the last one counts.",
        "The TensorRT backend was removed upstream: newer versions have no trtllm-build.",
        "A TensorRT engine holds the weights: once it is built, the checkpoint is not read, so tiers prove less.",
        "The gauges of the KV cache are those of the last iteration: idle ones are old, and 1.1 has no blocks.",
    )

    def check(self, cell: Cell) -> None:
        super().check(cell)
        options = cell.options
        if taken := sorted(set(options) & set(_RESERVED)):
            raise EngineError(f"engine {self.name!r}: option {taken[0]!r} {_RESERVED[taken[0]]}")
        share = options.get("kv_cache_free_gpu_memory_fraction", 0.5)
        if not 0 < share <= 1:
            raise EngineError(
                f"engine {self.name!r}, option 'kv_cache_free_gpu_memory_fraction': {share!r} is not above 0 and at most 1"
            )
        at_least_one(cell, *_SIZES, "ep_size", "max_seq_len")
        if not isinstance(options.get("kv_cache_config", {}), Mapping):
            raise EngineError(f"engine {self.name!r}, option 'kv_cache_config': it is a dict of its fields")
        if cell.container:
            raise EngineError(
                f"engine {self.name!r} cannot run in a container yet; use engine 'openai' with its command"
            )
        building = sorted(name for name in ("checkpoint", *_BUILD) if name in options)
        if building and options.get("backend") != "tensorrt":
            raise EngineError(
                f"engine {self.name!r}: option {building[0]!r} needs backend='tensorrt', which builds an engine"
            )
        if building and "checkpoint" not in options:
            raise EngineError(
                f"engine {self.name!r}: option {building[0]!r} needs checkpoint=, the folder of a converted checkpoint "
                "that trtllm-build reads"
            )
        if "checkpoint" in options and cell.command:
            raise EngineError(f"engine {self.name!r}: checkpoint= builds an engine first, which command= cannot")
        if options.get("cuda_graphs") is False and "cuda_graph_max_batch_size" in options:
            raise EngineError(f"engine {self.name!r}: cuda_graph_max_batch_size= contradicts cuda_graphs=False")

    def availability(self, cell: Cell) -> Availability:
        found = super().availability(cell)
        removed = not cell.command and facts_for(found.version)["tensorrt_backend"] == "no"
        if found.ok and cell.options.get("backend") == "tensorrt" and removed:
            return Availability(
                False,
                found.version,
                "its TensorRT backend was removed",
                "install 'tensorrt-llm<1.4', or use backend='pytorch'",
            )
        return found

    def device(self, cell: Cell) -> str:
        return "any" if cell.command else "gpu"

    def model(self, cell: Cell) -> Model:
        environ = checkpoint.effective_environ(cell.env)
        revision = str(cell.options.get("revision") or "main")
        if cell.options.get("load_format") == "dummy":
            found = checkpoint.find(cell.model or str(self.default_model), environ, False, revision)
            return _with_files(found, ())
        found = checkpoint.find(cell.model or str(self.default_model), environ, True, revision)
        converted = cell.options.get("checkpoint")
        return found if converted is None else _with_files(found, _converted_files(converted))

    def command(self, spec: LaunchSpec) -> list[str]:
        folder = self._engine_folder(spec)
        if folder is None:
            return self._serve(spec, str(spec.model.path or spec.model.name))
        return [
            spec.python,
            str(LAUNCHER),
            str(folder),
            "--",
            *self._build(spec),
            "--",
            *self._serve(spec, str(folder)),
        ]

    def _serve(self, spec: LaunchSpec, model: str) -> list[str]:
        cell, facts = spec.cell, facts_for(self._version(spec.cell))
        words = [*self._launcher(spec), model, "--host", spec.host, "--port", str(spec.port)]
        backend = cell.options.get("backend")
        if backend and (backend != "tensorrt" or facts["tensorrt_is_a_word"] == "yes"):
            words += ["--backend", str(backend)]
        if "checkpoint" in cell.options and "tokenizer" not in cell.options:
            words += ["--tokenizer", str(spec.model.path or spec.model.name)]
        for name in sorted((*_FLAGS, *_FLAGS_OF_TEXT)):
            words += _flag(name, cell.options.get(name))
        arguments = self._arguments(cell)
        return words + ([facts["config_flag"], str(_written(spec.cache_home, arguments))] if arguments else [])

    def _launcher(self, spec: LaunchSpec) -> list[str]:
        if spec.cell.command:
            return list(spec.cell.command)
        if script := console_script(spec.python, "trtllm-serve"):
            return [script]
        return [spec.python, "-m", "tensorrt_llm.commands.serve"]

    def _arguments(self, cell: Cell) -> dict[str, Any]:
        """What the file of LLM arguments holds."""
        options, arguments = cell.options, dict[str, Any]()
        named = {*_FLAGS, *_FLAGS_OF_TEXT, *_KV_FIELDS, *_BUILD, *_ELSEWHERE}
        kv = {field: options[name] for name, field in _KV_FIELDS.items() if name in options}
        if "checkpoint" in options:
            kv.pop("tokens_per_block", None)  # built in
        for name in sorted(set(options) - named):
            arguments[name] = options[name]
        if kv:
            arguments["kv_cache_config"] = {**arguments.get("kv_cache_config", {}), **kv}
        if options.get("cuda_graphs") is False:
            arguments["cuda_graph_config"] = None
        elif "cuda_graph_max_batch_size" in options:
            arguments["cuda_graph_config"] = {"max_batch_size": options["cuda_graph_max_batch_size"]}
        if facts_for(self._version(cell))["prometheus"] == "yes":
            arguments["return_perf_metrics"] = True
            if self._backend(cell) != "tensorrt":  # which always has them, and does not know the word
                arguments["enable_iter_perf_stats"] = True
        return arguments

    # -- the engine that trtllm-build makes

    def _build(self, spec: LaunchSpec) -> list[str]:
        options = spec.cell.options
        script = console_script(spec.python, "trtllm-build")
        words = [script] if script else [spec.python, "-m", "tensorrt_llm.commands.build"]
        words += ["--checkpoint_dir", str(Path(options["checkpoint"]).expanduser().resolve())]
        for name in (*_BUILD, *_BUILT_IN):
            value = options.get(name)
            words += _flag(name, {True: "enable", False: "disable"}[value] if isinstance(value, bool) else value)
        workers = self.gpus(spec.cell) or 1
        return words + (["--workers", str(workers)] if workers > 1 else [])

    def _engine_folder(self, spec: LaunchSpec) -> Path | None:
        """Where the engine of these options is, or is to be; None where none is built beforehand."""
        if "checkpoint" not in spec.cell.options:
            return None
        read = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in spec.model.files]
        made_of = json.dumps([self._version(spec.cell), self._build(spec)[1:], read])
        return spec.cache_home / "engines" / hashlib.sha256(made_of.encode()).hexdigest()[:16]

    def cache_roots(self, spec: LaunchSpec) -> list[CacheRoot]:
        roots, home = super().cache_roots(spec), spec.cache_home
        if "checkpoint" in spec.cell.options:
            roots.append(CacheRoot("engines", home / "engines"))
        if spec.cell.options.get("autotuner_cache"):
            folder = home / "autotuner"
            roots.append(CacheRoot("autotuner", folder, {AUTOTUNER_FILE: str(folder / "tuned.json")}))
        return roots

    def libraries(self, cell: Cell) -> list[Path]:
        return [] if cell.command else self.large_libraries(cell, _LIBRARIES)

    def impossible(self, cell: Cell) -> dict[str, str]:
        """Of the KV cache, capacity and hits can be read, and not what is held: see :class:`TensorRTLLMKV`."""
        found = {
            "kv_fragmentation": "the blocks that it tells of are not of the instant at which tokens can be counted"
        }
        if facts_for(self._version(cell))["prometheus"] == "no":
            found["kv_fragmentation"] = "this version has no metrics of its KV cache"
        if self._backend(cell) == "tensorrt":
            found["allocator_fragmentation"] = "its TensorRT backend does not allocate by torch"
        return found

    def gpus(self, cell: Cell) -> int | None:
        if self.device(cell) != "gpu":
            return super().gpus(cell)
        return math.prod(int(cell.options.get(name) or 1) for name in _SIZES)

    def kv_reader(self, spec: LaunchSpec, log: Path) -> KVReader | None:
        return TensorRTLLMKV(spec.host, spec.port, log)

    def context_limit(self, cell: Cell) -> int | None:
        limit = cell.options.get("max_seq_len")
        return limit if isinstance(limit, int) else None

    def stop_grace(self, cell: Cell) -> float:
        return 30.0

    def _version(self, cell: Cell) -> str | None:
        return self.versions(cell).get("tensorrt-llm")

    def _backend(self, cell: Cell) -> str:
        return str(cell.options.get("backend") or facts_for(self._version(cell))["default_backend"])


def _written(home: Path, arguments: Mapping[str, Any]) -> Path:
    """The file of *arguments*, JSON and so YAML too, named by its content: equal cells name the same file."""
    text = json.dumps(arguments, sort_keys=True, indent=1)
    path = home / f"llm-args-{hashlib.sha256(text.encode()).hexdigest()[:16]}.yaml"
    home.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    return path


def _flag(name: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    return [f"--{name}"] if value is True else [f"--{name}", str(value)]


def _converted_files(folder: str) -> tuple[Path, ...]:
    """The weights of a converted checkpoint.

    :raises EngineError: there are none.
    """
    path = Path(folder).expanduser()
    files = tuple(sorted(file.resolve() for file in path.glob("rank*.safetensors")))
    if not files or not (path / "config.json").is_file():
        raise EngineError(
            f"option 'checkpoint': {folder!r} is no converted checkpoint; it needs config.json and rank0.safetensors"
        )
    return files


def _with_files(model: Model, files: tuple[Path, ...]) -> Model:
    """The model with other weights: those that a boot reads."""
    pending = model.pending
    return replace(model, files=files, pending=(lambda: _with_files(pending(), files)) if pending else None)
