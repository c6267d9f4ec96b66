"""LMDeploy's TurboMind: ``python -m lmdeploy serve api_server``, one process with the engine in threads.

Facts this adapter rests on were read off sources and real boots of 0.18.0 on an H200; what differs between versions is
data in :mod:`pytest_coldstart.engines.turbomind_facts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import checkpoint, flags
from pytest_coldstart.engines.base import CacheRoot, Engine, EngineError, LaunchSpec, Model, Option, at_least_one
from pytest_coldstart.engines.facts import held
from pytest_coldstart.engines.turbomind_facts import CACHE_LOG, CACHE_MAX_ENTRY_COUNT, TTFT_HISTOGRAM
from pytest_coldstart.kv import KVReader
from pytest_coldstart.kv.turbomind import TurboMindKV

_LIBRARIES = ("lmdeploy", "torch", "nvidia-", "triton", "xgrammar", "tokenizers", "safetensors")
#: Options that are ours and no flag of LMDeploy.
_OURS = ("gemm_tune",)
#: Flags that no suite may give, and why.
_RESERVED: Mapping[str, str] = {
    **dict.fromkeys(
        ("server_name", "server_port", "model_path", "model_name"),
        "is set by the boot itself; the suite's model= and port= decide it",
    ),
    "backend": "is always turbomind here; use engine 'openai' with a command for the PyTorch backend",
    "api_keys": "would refuse the boot's own requests, which carry no key; leave it out",
    "ssl": "would serve HTTPS, and the boot's own requests are plain HTTP; leave it out",
    "proxy_url": "would register the boot with a proxy; leave it out",
}
_EXPORT, _IMPORT = "TM_GEMM_EXPORT", "TM_GEMM_IMPORT"
_CACHE_LOG = "TM_CACHE_LOG_INTERVAL"


class TurboMind(Engine):
    """LMDeploy's OpenAI-compatible server with its C++ engine."""

    name = "turbomind"
    title = "LMDeploy TurboMind"
    distributions = ("lmdeploy", "torch", "transformers", "triton", "tokenizers", "nvidia-nccl-cu12")
    default_model = "random:qwen2-tiny"
    metrics_path = "/metrics"
    ttft_histogram = TTFT_HISTOGRAM
    is_python = True
    #: torch names this folder in each process that loads its compiler, whether it compiles or not.
    cache_variables: ClassVar[Mapping[str, str]] = {"inductor": "TORCHINDUCTOR_CACHE_DIR"}
    passes_options = True
    sequence_option = "max_batch_size"
    install = "pip install lmdeploy, or give --coldstart-python turbomind=ENV/bin/python; it needs a GPU"
    options: ClassVar[Mapping[str, Option]] = {
        "cache_max_entry_count": Option(
            "share of the memory that is free after loading for the KV cache, between 0 and 1; before 0.15 also a number "
            "of blocks",
            (float, int),
        ),
        "cache_block_seq_len": Option("tokens in one block of the KV cache"),
        "enable_prefix_caching": Option("reuse the KV cache of equal prefixes", (bool,)),
        "quant_policy": Option("type of the KV cache: 0 as the model's, 4, 8, 16 (fp8), ...", (int, str)),
        "session_len": Option("context length, tokens"),
        "max_batch_size": Option("most sequences in one batch"),
        "vision_max_batch_size": Option("most images in one batch of the vision model"),
        "max_prefill_token_num": Option("most tokens of one prefill step; decides the lengths that are tuned"),
        "tp": Option("GPUs that one layer is split over"),
        "dp": Option("batches side by side, each on GPUs of its own for attention"),
        "cp": Option("GPUs that one context is split over"),
        "ep": Option("GPUs that experts are split over"),
        "dtype": Option("type of weights and activations", choices=("auto", "float16", "bfloat16")),
        "model_format": Option("format of the weights: hf, awq, gptq, fp8, mxfp4, ...", (str,)),
        "communicator": Option("how GPUs talk to each other: nccl, native, cuda-ipc", (str,)),
        "trust_remote_code": Option("run code that the checkpoint ships", (bool,)),
        "disable_metrics": Option("no /metrics", (bool,)),
        "log_level": Option("log level; INFO unless you set it", choices=("DEBUG", "INFO", "WARNING", "ERROR")),
        "gemm_tune": Option(
            "keep the tuning of its kernels in a file, and take it from there at the next boot", (bool,)
        ),
    }
    traps = (
        "Every other option is passed on as a flag.",
        "cache_max_entry_count is a share of free memory; a number of blocks is not accepted from 0.15.0 on.",
        "With gemm_tune a boot that finds the file skips its warm-up, so the first request is slower: watch cold_start, "
        "not ready. TM_GEMM_EXPORT or TM_GEMM_IMPORT in env= is a cache that the tiers do not know.",
        "Its allocator is its own: what torch says of memory in this process means nothing.",
        "An ERROR line 'Warm-up for N tokens failed' above session_len is harmless.",
        "One event of a stream can hold several tokens.",
    )

    def check(self, cell: Cell) -> None:
        super().check(cell)
        taken = sorted(set(cell.options) & set(_RESERVED))
        if taken:
            raise EngineError(f"engine 'turbomind': option {taken[0]!r} {_RESERVED[taken[0]]}")
        self._check_share(cell)
        at_least_one(cell, "cache_block_seq_len", "tp", "dp", "cp", "ep", "session_len")
        if cell.container:
            raise EngineError("engine 'turbomind' cannot run in a container yet; use engine 'openai' with its command")

    def _check_share(self, cell: Cell) -> None:
        share = cell.options.get("cache_max_entry_count", 0.8)
        if 0 < share < 1:
            return
        words = f"engine 'turbomind', option 'cache_max_entry_count': {share!r}"
        version = self._version(cell)
        if isinstance(share, float) or share < 1:
            raise EngineError(f"{words} is not between 0 and 1")
        if held(CACHE_MAX_ENTRY_COUNT, version) == "share":
            this = f"this is {version}" if version else "no version was found here"
            raise EngineError(
                f"{words} is a number of blocks, which LMDeploy accepts before 0.15.0 alone, and {this}; give a share of "
                "free memory between 0 and 1"
            )

    def device(self, cell: Cell) -> str:
        return "any" if cell.command else "gpu"

    def model(self, cell: Cell) -> Model:
        environ = checkpoint.effective_environ(cell.env)
        return checkpoint.find(
            cell.model or self.default_model, environ, revision=str(cell.options.get("revision") or "main")
        )

    def command(self, spec: LaunchSpec) -> list[str]:
        words = list(spec.cell.command) or [spec.python, "-m", "lmdeploy", "serve", "api_server"]
        words += [str(spec.model.path or spec.model.name), "--backend", "turbomind", "--model-name", spec.model.served]
        words += ["--server-name", spec.host, "--server-port", str(spec.port)]
        options = {name: value for name, value in spec.cell.options.items() if name not in _OURS}
        for name, value in sorted({"log_level": "INFO", **options}.items()):
            words += flags.words(name, value)
        return words

    def environment(self, spec: LaunchSpec) -> dict[str, str]:
        """A file that is named for import and is not there would mean no tuning and no warm-up, so it is looked for."""
        given = spec.cell.env
        environ = {} if _CACHE_LOG in given else {_CACHE_LOG: "1"}
        if not spec.cell.options.get("gemm_tune") or {_EXPORT, _IMPORT} & set(given):
            return environ
        file = _tune_file(spec)
        return environ | {_IMPORT if file.is_file() and file.stat().st_size else _EXPORT: str(file)}

    def cache_roots(self, spec: LaunchSpec) -> list[CacheRoot]:
        roots = super().cache_roots(spec)
        if spec.cell.options.get("gemm_tune"):
            folder = _tune_file(spec).parent
            roots.append(CacheRoot(folder.name, folder))
        return roots

    def libraries(self, cell: Cell) -> list[Path]:
        return [] if cell.command else self.large_libraries(cell, _LIBRARIES)

    def impossible(self, cell: Cell) -> dict[str, str]:
        """``kv_fragmentation`` can be measured where its log tells of blocks."""
        metrics = {"allocator_fragmentation": "its allocator is its own: torch's holds nothing of it"}
        if held(CACHE_LOG, self._version(cell)) == "nothing":
            return {**metrics, "kv_fragmentation": "before 0.15 it does not tell how many blocks are in use"}
        if cell.options.get("enable_prefix_caching"):
            why = "with prefix caching its log counts blocks that no request holds any more"
            return {**metrics, "kv_fragmentation": why}
        return metrics

    def gpus(self, cell: Cell) -> int | None:
        """As 0.18 counts: the data parallel ranks times the tensor parallel ones, times what experts and contexts share."""
        if cell.command:
            return None
        tp, dp, cp, ep = (int(cell.options.get(name) or 1) for name in ("tp", "dp", "cp", "ep"))
        return dp * tp * math.gcd(cp, ep)

    def kv_reader(self, spec: LaunchSpec, log: Path) -> KVReader | None:
        options = spec.cell.options
        return TurboMindKV(
            spec.host,
            spec.port,
            log,
            block_size=options.get("cache_block_seq_len"),
            keeps_prefixes=bool(options.get("enable_prefix_caching")),
        )

    def context_limit(self, cell: Cell) -> int | None:
        limit = cell.options.get("session_len")
        return limit if isinstance(limit, int) else None

    def stop_grace(self, cell: Cell) -> float:
        return 15.0

    def _version(self, cell: Cell) -> str | None:
        return self.versions(cell).get("lmdeploy")


def _tune_file(spec: LaunchSpec) -> Path:
    return spec.cache_home / "gemm_tune" / "gemm.txt"
