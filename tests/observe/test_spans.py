"""The receiver of spans: what is kept, what is refused, what is left when it is closed, and what spans say of phases."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from pytest_coldstart.attribution import PHASES
from pytest_coldstart.observe import otlp_http, spans
from pytest_coldstart.observe.span_phases import LEFT_OUT, SPAN_PHASES
from pytest_coldstart.observe.spans import SpanReceiver
from tests.conftest import eventually

DATA = Path(__file__).parents[1] / "data"
PROTOBUF = "application/x-protobuf"
#: name, begin, end in seconds of an origin, process; the pid is the process's place in PROCESSES.
Row = tuple[str, float, float, str]
PROCESSES = ("frontend", "engine_core", "Worker_0", "Worker_1")


@pytest.fixture
def receiver() -> Iterator[SpanReceiver]:
    made = SpanReceiver()
    yield made
    made.close()


def batch(rows: list[Row], origin: float = 0.0) -> bytes:
    """A request as an exporter makes it; *origin* in unix seconds."""
    request = ExportTraceServiceRequest()
    for process in sorted({row[3] for row in rows}):
        resource = request.resource_spans.add()
        for key, value in (("vllm.process_id", str(PROCESSES.index(process))), ("vllm.process_name", process)):
            resource.resource.attributes.add(key=key).value.string_value = value
        scope = resource.scope_spans.add()
        for number, (name, begin, end, _) in enumerate(row for row in rows if row[3] == process):
            span = scope.spans.add(name=name, span_id=bytes([number % 255 + 1] * 8), trace_id=b"t" * 16)
            span.start_time_unix_nano, span.end_time_unix_nano = (round((origin + t) * 1e9) for t in (begin, end))
    return request.SerializeToString()


ONE = batch([("Load weights", 1.0, 2.0, "engine_core")])


def send(receiver: SpanReceiver, body: Any, path: str = "/v1/traces", method: str = "POST", **headers: str) -> Any:
    """Status and body of the answer. A list is sent in chunks."""
    given = {"Content-Type": PROTOBUF} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", port_of(receiver), timeout=10)
    try:
        connection.request(method, path, iter(body) if isinstance(body, list) else body, given)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def port_of(receiver: SpanReceiver) -> int:
    host, _, port = receiver.endpoint.removeprefix("http://").removesuffix("/v1/traces").partition(":")
    assert host == "127.0.0.1"
    return int(port)


# -- bodies


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (ONE, {}),
        (gzip.compress(ONE), {"Content_Encoding": "gzip"}),
        (zlib.compress(ONE), {"Content_Encoding": "deflate"}),
        ([ONE[:10], ONE[10:11], ONE[11:]], {}),
        ([gzip.compress(ONE)], {"Content_Encoding": "GZIP"}),
        (ONE, {"Content_Type": "application/x-protobuf; charset=binary"}),
    ],
)
def test_body_is_kept_however_it_is_packed(receiver: SpanReceiver, body: Any, headers: dict[str, str]) -> None:
    status, answer = send(receiver, body, **headers)
    assert status == 200
    assert ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans == 0
    (span,) = receiver.spans
    assert (span.name, span.begin, span.end) == ("Load weights", 1_000_000_000, 2_000_000_000)
    assert (span.pid, span.process, span.span_id, span.parent_id) == (1, "engine_core", "01" * 8, "")
    assert receiver.missing() == ()


@pytest.mark.parametrize(
    ("status", "body", "options"),
    [
        (400, b"\xff\xfenothing of the kind", {}),
        (400, ONE[:-1], {}),
        (400, b"not gzip", {"Content_Encoding": "gzip"}),
        (400, gzip.compress(ONE)[:-9], {"Content_Encoding": "gzip"}),
        (404, ONE, {"path": "/v1/metrics"}),
        (405, None, {"method": "GET"}),
        (405, None, {"method": "HEAD"}),
        (405, ONE, {"method": "PUT"}),
        (411, b"", {"Content_Length": "-1"}),
        (413, gzip.compress(b"\0" * (otlp_http.MAX_BODY + 1), 1), {"Content_Encoding": "gzip"}),
        (413, [b"\0" * (1 << 22)] * 17, {}),
        (415, b"{}", {"Content_Type": "application/json"}),
        (415, ONE, {"Content_Encoding": "br"}),
    ],
)
def test_what_is_no_trace_is_answered_so_and_the_next_one_is_kept(
    receiver: SpanReceiver, status: int, body: Any, options: dict[str, str]
) -> None:
    assert send(receiver, body, **options)[0] == status
    assert send(receiver, ONE)[0] == 200
    assert len(receiver.spans) == 1
    assert receiver.missing() == ("1 requests to the receiver of spans were no traces",)


def test_body_that_says_it_is_huge_is_refused_before_it_is_sent(receiver: SpanReceiver) -> None:
    with socket.create_connection(("127.0.0.1", port_of(receiver)), timeout=10) as client:
        head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {PROTOBUF}\r\n"
        client.sendall(f"{head}Content-Length: {(64 << 20) + 1}\r\n\r\n".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 413 ")
    assert receiver.spans == []


@pytest.mark.parametrize(
    "text", [b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00" * 50, b"POST /v1/traces HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_http_disturbs_nobody(
    receiver: SpanReceiver, text: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", port_of(receiver)), timeout=10) as client:
        client.sendall(text)
    with socket.create_connection(("127.0.0.1", port_of(receiver)), timeout=10) as client:
        client.sendall(b"POST /v1/traces HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
    assert send(receiver, ONE)[0] == 200
    assert capfd.readouterr() == ("", "")


def test_batches_over_one_connection_and_over_many_at_once(receiver: SpanReceiver) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(receiver), timeout=10)
    for _ in range(3):
        connection.request("POST", "/v1/traces", ONE, {"Content-Type": PROTOBUF})
        response = connection.getresponse()
        assert (response.status, response.will_close) == (200, False)
        response.read()
    with ThreadPoolExecutor(40) as pool:
        assert {status for status, _ in pool.map(lambda _: send(receiver, ONE), range(200))} == {200}
    connection.close()
    assert len(receiver.spans) == 203


def test_spans_over_the_limit_are_counted_and_the_sender_is_told(receiver: SpanReceiver) -> None:
    rows: list[Row] = [("Load weights", 1.0, 2.0, "engine_core")] * (spans.MAX_SPANS - 1)
    assert send(receiver, batch(rows))[0] == 200
    status, answer = send(receiver, batch(rows[:4]))
    assert (status, len(receiver.spans), receiver.dropped) == (200, 20_000, 3)
    assert ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans == 3
    assert receiver.missing() == ("3 spans over the first 20000 were dropped",)


def test_spans_without_an_end_or_a_process_and_with_long_names(receiver: SpanReceiver) -> None:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.spans.add(name="never ended", start_time_unix_nano=5)
    scope.spans.add(name="ended before", start_time_unix_nano=5, end_time_unix_nano=4)
    scope.spans.add(name="x" * 5000, start_time_unix_nano=5, end_time_unix_nano=5)
    assert send(receiver, request.SerializeToString())[0] == 200
    (span,) = receiver.spans
    assert (len(span.name), span.pid, span.process) == (300, None, "")


# -- the end


def test_close_leaves_no_thread_and_no_socket() -> None:
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    receiver = SpanReceiver()
    idle = [socket.create_connection(("127.0.0.1", port_of(receiver))) for _ in range(5)]
    head = f"POST /v1/traces HTTP/1.1\r\nContent-Type: {PROTOBUF}\r\nContent-Length: 10\r\n\r\n"
    idle[0].sendall(head.encode() + b"half")
    assert send(receiver, ONE)[0] == 200
    assert eventually(lambda: threading.active_count() >= threads + 6)
    begun = time.monotonic()
    receiver.close()
    assert time.monotonic() - begun < 2.0, "a connection that says nothing held it up"
    assert threading.active_count() == threads
    for client in idle:
        while client.recv(4096):
            pass
        client.close()
    assert len(os.listdir("/proc/self/fd")) == files
    with pytest.raises(ConnectionRefusedError):
        send(receiver, ONE)
    receiver.close()
    assert len(receiver.spans) == 1


def test_receivers_have_ports_of_their_own() -> None:
    first, second = SpanReceiver(), SpanReceiver()
    assert send(second, ONE)[0] == 200
    assert (len(first.spans), len(second.spans)) == (0, 1)
    assert first.missing() == ("the engine sent no spans",)
    first.close()
    second.close()


# -- what spans say of phases


def h200() -> list[Row]:
    lines = (DATA / "h200-vllm-0.25.1.spans.tsv").read_text().splitlines()[1:]
    cells = (line.split("\t") for line in lines)
    return [(name, float(begin), float(end), process) for begin, end, name, _, process in cells]


def test_readings_of_a_boot_on_a_gpu(receiver: SpanReceiver) -> None:
    rows, origin = h200(), time.monotonic()
    assert send(receiver, batch(rows, time.time()))[0] == 200
    found = {reading.text: reading for reading in receiver.readings(origin, "vllm")}
    # The begin and end of each, as the capture has them. "Compile graph" is a part of "Inductor compilation".
    expected = {
        "Init device": (("device_init", "distributed_init"), 17.720, 18.794),
        "Load model": (("load_weights",), 19.251, 20.084),
        "Inductor compilation": (("compile",), 27.615, 38.578),
        "Allocate KV cache": (("kv_alloc",), 45.724, 45.739),
        "DeepSeek V4 mHC warmup": (("warmup",), 45.776, 45.776),
        "DeepGemm warmup": (("warmup",), 45.789, 45.793),
        "MiniMax M3 MSA warmup": (("warmup",), 45.793, 45.794),
        "CuTeDSL warmup": (("warmup",), 45.794, 45.794),
    }
    assert set(found) == set(expected)
    for name, (phases, begin, end) in expected.items():
        assert found[name].phases == phases
        assert found[name].source == "span"
        assert found[name].process == "engine_core"
        assert found[name].seconds == pytest.approx(end - begin, abs=1e-6)
        # Two clocks are read one after the other here.
        assert (found[name].begin, found[name].end) == (pytest.approx(begin, abs=0.02), pytest.approx(end, abs=0.02))
    assert receiver.unknown("vllm") == ()
    assert receiver.readings(origin, "llamacpp") == ()


def test_readings_of_a_real_boot_on_a_cpu(receiver: SpanReceiver) -> None:
    boot = json.loads((DATA / "cpu-vllm-0.32.0.spans.json").read_text())
    rows: list[Row] = [(item["name"], item["begin"], item["end"], item["process"]) for item in boot]
    send(receiver, batch(rows, 1e9))
    found = [(r.phases, r.process, r.text) for r in receiver.readings(0.0, "vllm")]
    assert found == [
        (("load_weights",), "Worker_0", "Loading (CPU)"),
        (("compile", "warmup"), "Worker_0", "Warmup (CPU)"),
        (("kv_alloc",), "Worker_0", "Allocate KV cache"),
    ]
    assert receiver.unknown("vllm") == ()


def test_ranks_and_repeats_are_readings_of_their_own(receiver: SpanReceiver) -> None:
    rows: list[Row] = [
        ("Load weights", 1.0, 2.0, "Worker_0"),
        ("Load weights", 1.0, 4.0, "Worker_1"),
        ("Compile graph", 5.0, 6.0, "Worker_0"),
        ("Compile graph", 5.5, 7.0, "Worker_0"),
        ("Compile graph", 7.0, 8.0, "Worker_0"),
    ]
    send(receiver, batch(rows, 1e9))
    found = receiver.readings(0.0, "vllm", {3: "rank 1"})
    assert [(reading.process, reading.seconds) for reading in found] == [
        ("Worker_0", 1.0),
        ("rank 1", 3.0),
        ("Worker_0", 2.0),
        ("Worker_0", 1.0),
    ]


def test_name_that_the_table_does_not_know_is_kept_and_listed(receiver: SpanReceiver) -> None:
    send(receiver, batch([("Load weights", 1.0, 2.0, "Worker_0"), ("Teleport weights", 2.0, 3.0, "Worker_0")]))
    assert [span.name for span in receiver.spans] == ["Load weights", "Teleport weights"]
    assert receiver.unknown("vllm") == ("Teleport weights",)
    assert len(receiver.readings(0.0, "vllm")) == 1


def test_tables_name_phases_that_exist_and_no_span_twice() -> None:
    for engine, table in SPAN_PHASES.items():
        assert {phase for phases in table.values() for phase in phases} <= set(PHASES)
        assert not set(table) & set(LEFT_OUT[engine])


def test_wall_clock_that_was_set_makes_readings_unusable(
    receiver: SpanReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(receiver, ONE)
    assert receiver.unusable == ""
    real = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() - 0.2)
        assert receiver.readings(0.0, "vllm") == ()
        assert "set by -0.200 s" in receiver.unusable
        assert receiver.missing() == (receiver.unusable,)
        patch.setattr(time, "time", lambda: real() + 0.03)
        assert len(receiver.readings(0.0, "vllm")) == 1


# -- where it cannot be had

BLOCKED = "import sys; sys.modules['opentelemetry'] = None\n"


def test_missing_package_is_said_with_what_installs_it() -> None:
    assert spans.available() == ""
    code = BLOCKED + "from pytest_coldstart.observe import spans; print(spans.available())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "needs opentelemetry-proto: pip install 'pytest-coldstart[otlp]'\n"


@pytest.mark.parametrize(
    ("arguments", "where"),
    [(("--coldstart-spans",), "--coldstart-spans"), (("-o", "coldstart_spans=true"), "ini option coldstart_spans")],
)
def test_option_without_the_package_ends_the_run_at_once(
    pytester: pytest.Pytester, arguments: tuple[str, ...], where: str
) -> None:
    pytester.makeconftest(BLOCKED)
    result = pytester.runpytest_subprocess("--coldstart", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {where}: needs opentelemetry-proto: pip install 'pytest-coldstart[[]otlp]'"])
