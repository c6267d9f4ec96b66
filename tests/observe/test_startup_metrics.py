"""What engines' metrics say of their start: Prometheus text of real engines, and a real server."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pytest_coldstart.observe.startup_metrics import fetch, read_startup

#: SGLang 0.5.14, two ranks: the gauge is there and was never set.
SGLANG_0_5_14 = """\
# HELP sglang:engine_startup_time The time taken for the engine to start up.
# TYPE sglang:engine_startup_time gauge
sglang:engine_startup_time{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.0
sglang:startup_available_gpu_memory_gb{engine_type="unified",model_name="m",tp_rank="0"} 12.33819580078125
"""

#: Names and labels as in the source of 0.5.23; two ranks, values ours.
SGLANG_0_5_23 = """\
# TYPE sglang:startup_time_seconds gauge
sglang:startup_time_seconds{model_name="m",phase="load_weight",tp_rank="0"} 11.97
sglang:startup_time_seconds{model_name="m",phase="load_weight",tp_rank="1"} 12.02
sglang:startup_time_seconds{model_name="m",phase="kv_cache_allocation",tp_rank="0"} 0.44
sglang:startup_time_seconds{model_name="m",phase="scheduler_e2e",tp_rank="0"} 26.2
sglang:startup_time_seconds{model_name="m",phase="tokenizer_e2e",tp_rank="0"} 31.8
# TYPE sglang:startup_cuda_graph_time_seconds gauge
sglang:startup_cuda_graph_time_seconds{model_name="m",phase="prefill",tp_rank="0"} 3.98
sglang:startup_cuda_graph_time_seconds{model_name="m",phase="decode",tp_rank="0"} 4.57
sglang:startup_cuda_graph_time_seconds{model_name="m",phase="prefill",tp_rank="1"} 3.5
sglang:startup_cuda_graph_time_seconds{model_name="m",phase="target_verify",tp_rank="0"} 0.0
"""

#: Names and labels as in public captures of Triton; values ours.
TRITON = """\
# HELP nv_model_load_duration_secs Model load time in seconds
# TYPE nv_model_load_duration_secs gauge
nv_model_load_duration_secs{model="preprocessor",version="1"} 1.611378656
nv_model_load_duration_secs{model="strange \\"name}\\" 9",version="1"} 0.004683712
"""


def test_sglang_states_its_phases():
    read = {reading.phases: reading for reading in read_startup(SGLANG_0_5_23, "sglang")}
    assert read["load_weights",].seconds == 12.02  # the slower rank
    assert read["kv_alloc",].seconds == 0.44
    assert read["graph_capture", "compile"].seconds == pytest.approx(8.55)  # prefill and decode of one rank
    assert read["load_weights",].text == 'sglang:startup_time_seconds{phase="load_weight"}'
    assert {reading.source for reading in read.values()} == {"metrics"}
    assert len(read) == 4


def test_zero_is_not_a_measurement():
    assert read_startup(SGLANG_0_5_14, "sglang") == ()
    assert read_startup('nv_model_load_duration_secs{model="m",version="1"} 0', "triton") == ()


def test_triton_states_the_load_of_its_slowest_model():
    [reading] = read_startup(TRITON, "triton")
    assert (reading.seconds, reading.text) == (1.611378656, "nv_model_load_duration_secs")


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "soon", "1e999"])
def test_what_is_no_duration_is_no_reading(value):
    assert read_startup(f'nv_model_load_duration_secs{{model="m",version="1"}} {value}\n', "triton") == ()


def test_an_engine_that_says_nothing_has_no_readings():
    assert read_startup(TRITON, "vllm") == ()
    assert read_startup("", "sglang") == ()
    assert read_startup("\ud800 garbage {{{ \x00\n" * 100, "triton") == ()


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = TRITON.encode()
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_metrics_are_fetched_where_there_are_any():
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        assert fetch("127.0.0.1", port, "/metrics", 5.0) == TRITON
        assert fetch("127.0.0.1", port, "/nothing", 5.0) is None
        server.shutdown()
    assert fetch("127.0.0.1", port, "/metrics", 0.5) is None
