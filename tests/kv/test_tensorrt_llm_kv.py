"""The KV cache of TensorRT-LLM read from Prometheus text over HTTP. Names as in its ``metrics/collector.py``."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_coldstart.kv.tensorrt_llm import TensorRTLLMKV

LABELS = '{engine_type="undefined",model_name="undefined",pid="7"}'
#: A held burst: 13 blocks of 32 tokens are in use, of 2710.
HELD = f"""# HELP trtllm_kv_cache_used_blocks Multiprocess metric
# TYPE trtllm_kv_cache_used_blocks gauge
trtllm_kv_cache_used_blocks{LABELS} 13.0
trtllm_kv_cache_free_blocks{LABELS} 2697.0
trtllm_kv_cache_max_blocks{LABELS} 2710.0
trtllm_kv_cache_tokens_per_block{LABELS} 32.0
trtllm_kv_cache_reused_blocks_total{{model_name="undefined"}} 1.0
trtllm_kv_cache_missed_blocks_total{{model_name="undefined"}} 3.0
trtllm_num_requests_running{LABELS} 6.0
trtllm_num_requests_waiting{LABELS} 0.0
trtllm_kv_cache_utilization{LABELS} 0.0047970
"""
#: What 1.1 has.
OLD = f"trtllm_kv_cache_hit_rate{LABELS} 0.5\ntrtllm_kv_cache_utilization{LABELS} 0.1\n"
#: Lines of a public log of 1.1.0rc3: an estimate, then the cache that stays.
LOG = """[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.56 GiB for max tokens in paged KV cache (8224).
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 5.95 GiB for max tokens in paged KV cache (86720).
"""

Serve = Callable[[str], TensorRTLLMKV]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A reader of a server that has *text* at /prometheus/metrics, and JSON at /metrics as the engine does."""
    servers = []

    def start(text: str) -> TensorRTLLMKV:
        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                found = {"/prometheus/metrics": text, "/metrics": "[]"}.get(self.path)
                self.send_response(404 if found is None else 200)
                self.end_headers()
                self.wfile.write((found or "").encode())

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return TensorRTLLMKV("127.0.0.1", server.server_port, tmp_path / "log")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_blocks_of_one_reading(serve: Serve) -> None:
    found = serve(HELD).read("held")
    assert found is not None
    assert (found.point, found.used_blocks, found.total_blocks, found.block_size) == ("held", 13, 2710, 32)
    assert found.capacity_tokens == 86720
    assert (found.running, found.waiting) == (6, 0)
    assert (found.hits, found.queries) == (32.0, 128.0), "reused and missed blocks, in tokens"
    assert found.tokens is None, "it counts none that are held, so the client does"


def test_version_without_blocks_tells_the_size_in_its_log(serve: Serve, tmp_path: Path) -> None:
    reader = serve(OLD)
    (tmp_path / "log").write_text(LOG)
    found = reader.read("ready")
    assert found is not None
    assert (found.used_blocks, found.total_blocks, found.block_size, found.hits) == (None, None, None, None)
    assert found.capacity_tokens == 86720, "the last one: the first was an estimate"


def test_values_that_are_no_numbers_are_not_known(serve: Serve) -> None:
    text = "trtllm_kv_cache_used_blocks NaN\ntrtllm_kv_cache_max_blocks many\ntrtllm_kv_cache_tokens_per_block 32\n"
    found = serve(text).read("held")
    assert found is not None
    assert (found.used_blocks, found.total_blocks, found.block_size, found.capacity_tokens) == (None, None, 32, None)


def test_no_answer_is_none(tmp_path: Path) -> None:
    assert TensorRTLLMKV("127.0.0.1", 1, tmp_path / "log").read("held") is None


@pytest.mark.parametrize("value", ["-4", "1e300", "+Inf", "9" * 5000])
def test_numbers_that_cannot_be_are_not_known(serve: Serve, value: str) -> None:
    text = HELD.replace(" 32.0\n", f" {value}\n").replace(" 6.0\n", f" {value}\n").replace(" 13.0\n", f" {value}\n")
    found = serve(text).read("held")
    assert found is not None
    assert (found.block_size, found.running, found.used_blocks) == (None, None, None)
    assert (found.total_blocks, found.capacity_tokens, found.hits, found.waiting) == (2710, None, None, 0)
