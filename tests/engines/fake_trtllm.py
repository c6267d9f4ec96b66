"""A stand-in for trtllm-serve and trtllm-build that behaves as NVIDIA/TensorRT-LLM's sources say.

``commands/serve.py``: the port is bound before the model is loaded, and refuses until the HTTP server listens.
``serve/openai_server.py``: /health is 503 while the health check fails; Prometheus text is at /prometheus/metrics and only
with return_perf_metrics, blocks of the KV cache in it only with enable_iter_perf_stats; /metrics is JSON. What it was
started with goes to the file of the variable FAKE_JOURNAL.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from speaking import Answer, Patience, Server, bind  # type: ignore[import-not-found]

LOADING, UNHEALTHY, BUILDING = 0.5, 0.4, 0.6
STAMP = "[11/07/2025-07:20:04] [TRT-LLM] [I] "
#: After a burst: 4 blocks of 32 tokens for 100 tokens of two requests that run.
BLOCKS = """# TYPE trtllm_kv_cache_used_blocks gauge
trtllm_kv_cache_used_blocks{engine_type="undefined",model_name="undefined",pid="7"} 4.0
trtllm_kv_cache_max_blocks{engine_type="undefined",model_name="undefined",pid="7"} 100.0
trtllm_kv_cache_tokens_per_block{engine_type="undefined",model_name="undefined",pid="7"} 32.0
trtllm_num_requests_running{engine_type="undefined",model_name="undefined",pid="7"} 2.0
"""


def journal(words: list[str], **more: Any) -> None:
    with open(os.environ["FAKE_JOURNAL"], "a") as file:
        file.write(json.dumps({"words": words, "pid": os.getpid(), **more}) + "\n")


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def build(words: list[str]) -> None:
    journal(["trtllm-build", *words])
    print("[TensorRT-LLM] TensorRT-LLM version: 1.1.0", flush=True)
    time.sleep(float(os.environ.get("FAKE_BUILD_SECONDS", BUILDING)))
    if os.environ.get("FAKE_BUILD_FAILS"):
        sys.exit(7)
    folder = Path(value(words, "--output_dir"))
    folder.mkdir(parents=True)
    (folder / "rank0.engine").write_bytes(b"engine")
    (folder / "config.json").write_text("{}")
    print("Total time of building all engines: 00:00:01", flush=True)


def serve(words: list[str]) -> None:
    flag = next(name for name in ("--config", "--extra_llm_api_options") if name in words)
    arguments = json.loads(Path(value(words, flag)).read_text())
    journal(["trtllm-serve", *words], arguments=arguments)
    bound = bind(value(words, "--host"), int(value(words, "--port")))
    print(STAMP + "Using LLM with PyTorch backend", flush=True)
    time.sleep(LOADING)
    print(STAMP + f"Model init total -- {LOADING:.2f}s", flush=True)
    print(
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.56 GiB for max tokens in paged KV cache (8224).", flush=True
    )
    print(
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 5.95 GiB for max tokens in paged KV cache (86720).", flush=True
    )
    ttfts: list[float] = []
    healthy = Patience(UNHEALTHY)

    def get(path: str) -> Answer:
        if path == "/health":
            return (200, "") if healthy else (503, "")
        if path == "/prometheus/metrics" and arguments.get("return_perf_metrics"):
            name = "trtllm_time_to_first_token_seconds"
            text = f"{name}_sum {sum(ttfts)}\n{name}_count {len(ttfts)}\n"
            return 200, text + (BLOCKS if arguments.get("enable_iter_perf_stats") else "")
        return {"/v1/models": (200, '{"data": []}'), "/metrics": (200, "[]")}.get(path, (404, ""))

    def complete(body: Any) -> Answer:
        if not healthy:
            return 500, "asked too early"
        return 200, tokens(body)

    def tokens(body: Any) -> Iterator[Any]:
        count = body["max_tokens"] if body.get("ignore_eos") else 1
        ttfts.append(0.001)
        for index in range(count):
            end = "length" if index == count - 1 else None
            yield {"choices": [{"index": 0, "text": f" {index}", "finish_reason": end}]}
        yield {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": count}}
        yield "[DONE]"

    server = Server(bound, get, {"/v1/completions": complete})
    print("INFO:     Application startup complete.", flush=True)
    healthy.start()
    server.serve_forever(0.05)


if __name__ == "__main__":
    {"trtllm-build": build}.get(Path(sys.orig_argv[1]).name, serve)(sys.argv[1:])
