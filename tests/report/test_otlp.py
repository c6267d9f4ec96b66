"""A boot as a trace: what a collector is sent, and what is said where it is not there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from pytest_coldstart.attribution import Attribution, Reading
from pytest_coldstart.observe.spans import SpanReceiver
from pytest_coldstart.record import Failure, Phase, Value
from pytest_coldstart.report import otlp
from tests.store.samples import FULL

#: 2026-11-02T08:00:01.250+00:00, by `date -u -d 2026-11-02T08:00:01 +%s`.
STARTED = 1_793_606_401_250_000_000


def spans_of(record: Any) -> list[Any]:
    request = ExportTraceServiceRequest.FromString(otlp.trace(record))
    (resource,) = request.resource_spans
    (scope,) = resource.scope_spans
    return list(scope.spans)


def facts(span: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}


def offsets(span: Any) -> tuple[float, float]:
    return (span.start_time_unix_nano - STARTED) / 1e9, (span.end_time_unix_nano - STARTED) / 1e9


def test_root_is_the_boot_with_its_instants() -> None:
    root, *rest = spans_of(FULL)
    assert (root.name, root.parent_span_id, offsets(root)) == ("boot llamacpp-tiny-restart", b"", (0.0, 7.5))
    told = facts(root)
    assert told["coldstart.boot_id"] == "b-1"
    assert told["coldstart.cell_id"] == "llamacpp-tiny-restart"
    assert (told["coldstart.engine"], told["coldstart.tier"], told["coldstart.round"]) == ("llamacpp", "restart", 2)
    assert told["coldstart.outcome"] == "ok"
    for name, version in FULL.versions.items():
        assert told[f"coldstart.version.{name}"] == version
    events = {event.name: (event.time_unix_nano - STARTED) / 1e9 for event in root.events}
    assert events == FULL.instants
    assert (root.status.code, root.status.message) == (2, "exited with 1")
    assert {span.trace_id for span in rest} == {root.trace_id}
    assert (len(root.trace_id), {len(span.span_id) for span in rest}) == (16, {8})
    assert len({span.span_id for span in (root, *rest)}) == 1 + len(rest)


def test_children_are_the_path_and_the_processes_with_their_readings() -> None:
    root, *rest = spans_of(FULL)
    top = [span for span in rest if span.parent_span_id == root.span_id]
    assert [(span.name, *offsets(span)) for span in top] == [
        ("imports", 0.0, 0.25),
        ("load_weights", 0.25, 1.0),
        ("server", 0.0, 7.5),
        ("ninja", 0.5, 7.5),
    ]
    assert facts(top[0]) == {
        "coldstart.process": "server",
        "coldstart.source": "probe",
        "coldstart.detail": "torch",
    }
    assert [event.name for event in top[2].events] == ["python", "torch"]
    (reading,) = [span for span in rest if span.parent_span_id != root.span_id]
    assert (reading.parent_span_id, reading.name, offsets(reading)) == (top[2].span_id, "loaded in", (0.25, 1.0))
    assert facts(reading) == {
        "coldstart.phases": "load_weights",
        "coldstart.source": "log",
        "coldstart.seconds": 0.75,
    }


def test_readings_of_a_process_that_is_not_in_the_table_and_without_a_begin() -> None:
    readings = (
        Reading(("compile",), 2.0, "span", "Compile graph", "Worker_0", 3.0, 5.0),
        Reading(("compile",), 1.0, "span", "Compile graph", "Worker_0", 6.0, 7.0),
        Reading(("kv_alloc",), 1.0, "metrics", "no begin"),
    )
    record = dataclasses.replace(FULL, phases=(), attribution=Attribution(readings=readings))
    root, worker, *compiled = spans_of(record)
    assert (worker.name, worker.parent_span_id, offsets(worker)) == ("Worker_0", root.span_id, (3.0, 7.0))
    assert [(span.name, span.parent_span_id, *offsets(span)) for span in compiled] == [
        ("Compile graph", worker.span_id, 3.0, 5.0),
        ("Compile graph", worker.span_id, 6.0, 7.0),
    ]


def test_phases_in_a_row_are_one_span_with_their_details_below() -> None:
    phases = (
        Phase("imports", 0.0, 1.0, "probe", "server", "torch"),
        Phase("imports", 1.0, 3.0, "probe gap", "server", "transformers"),
        Phase("imports", 3.0, 4.0, "probe", "worker", "torch"),
        Phase("unattributed", 4.0, 5.0, "proc"),
    )
    record = dataclasses.replace(FULL, phases=phases, attribution=Attribution())
    root, imports, torch, transformers, worker, rest = spans_of(record)
    assert (imports.name, imports.parent_span_id, offsets(imports)) == ("imports", root.span_id, (0.0, 3.0))
    assert facts(imports) == {"coldstart.process": "server", "coldstart.source": "probe, probe gap"}
    assert {torch.parent_span_id, transformers.parent_span_id} == {imports.span_id}
    assert (torch.name, offsets(torch)) == ("torch", (0.0, 1.0))
    assert (transformers.name, offsets(transformers)) == ("transformers", (1.0, 3.0))
    assert (worker.name, worker.parent_span_id, offsets(worker)) == ("imports", root.span_id, (3.0, 4.0))
    assert facts(worker)["coldstart.detail"] == "torch"
    assert (rest.name, facts(rest)) == ("unattributed", {"coldstart.source": "proc"})


def test_ids_come_from_the_boot_alone() -> None:
    assert otlp.trace(FULL) == otlp.trace(FULL)
    other = dataclasses.replace(FULL, boot_id="b-2")
    assert not {span.span_id for span in spans_of(FULL)} & {span.span_id for span in spans_of(other)}
    assert spans_of(FULL)[0].trace_id != spans_of(other)[0].trace_id


def test_json_is_one_line_with_ids_in_hexadecimal_and_large_numbers_as_text() -> None:
    text = otlp.trace_json(FULL)
    assert "\n" not in text
    (resource,) = json.loads(text)["resourceSpans"]
    root = resource["scopeSpans"][0]["spans"][0]
    binary = spans_of(FULL)[0]
    assert (root["traceId"], root["spanId"]) == (binary.trace_id.hex(), binary.span_id.hex())
    assert root["startTimeUnixNano"] == str(STARTED)
    assert {item["key"]: item["value"] for item in root["attributes"]}["coldstart.round"] == {"intValue": "2"}
    assert {"key": "service.name", "value": {"stringValue": "llamacpp"}} in resource["resource"]["attributes"]


def test_boot_without_a_path_is_a_trace_too() -> None:
    bare = dataclasses.replace(FULL, phases=(), attribution=Attribution(), instants={}, failure=None)
    (root,) = spans_of(bare)
    assert (root.status.code, offsets(root)) == (1, (0.0, 0.0))


def test_values_that_are_no_number_of_json_and_text_that_is_no_text() -> None:
    odd = dataclasses.replace(
        FULL,
        metrics={"cold_start": Value(math.inf), "ready": Value(2), "jitter": Value(None, reason="no warm request")},
        failure=Failure("exit", "half a pair: \udce9", "listen"),
        versions={"odd \udce9": "\udce9"},
    )
    root = spans_of(odd)[0]
    told = facts(root)
    assert (told["coldstart.metric.cold_start"], told["coldstart.metric.ready"]) == (math.inf, 2.0)
    assert "coldstart.metric.jitter" not in told
    assert root.status.message == "half a pair: ?"
    assert told["coldstart.version.odd ?"] == "?"
    json.loads(otlp.trace_json(odd), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_record_that_does_not_say_when_it_began() -> None:
    for text in ("yesterday", "2026-11-02T08:00:01"):
        with pytest.raises(ValueError, match="b-1: started_at="):
            otlp.trace_json(dataclasses.replace(FULL, started_at=text))


# -- a collector


class Collector(HTTPServer):
    """Answers every POST with one status and body, and keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.answer = 200, b""
        self.got: list[tuple[str, str, bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, self.headers["Content-Type"], body))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.parametrize(("path", "asked"), [("", "/v1/traces"), ("/", "/v1/traces"), ("/otlp/v1/traces", None)])
def test_boot_is_posted(collector: Collector, path: str, asked: str | None) -> None:
    otlp.post(FULL, collector.url + path)
    assert collector.got == [(asked or path, "application/x-protobuf", otlp.trace(FULL))]


def test_our_own_receiver_takes_it() -> None:
    receiver = SpanReceiver()
    otlp.post(FULL, receiver.endpoint)
    receiver.close()
    assert [span.name for span in receiver.spans][:2] == ["boot llamacpp-tiny-restart", "imports"]


def test_collector_that_refuses(collector: Collector) -> None:
    collector.status, collector.answer = 415, b"only gRPC here\n"
    with pytest.raises(OSError, match=r"/v1/traces answered 415 Unsupported Media Type: only gRPC here$"):
        otlp.post(FULL, collector.url)


def test_collector_that_takes_a_part(collector: Collector) -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 4
    answer.partial_success.error_message = "too old"
    collector.answer = answer.SerializeToString()
    with pytest.raises(OSError, match="took only a part of the trace: 4 spans rejected: too old"):
        otlp.post(FULL, collector.url)
    collector.answer = b"<html>thank you</html>"
    otlp.post(FULL, collector.url)


def test_collector_that_is_not_there_or_does_not_speak() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OSError, match=f"^{url}/v1/traces cannot be reached: "):
            otlp.post(FULL, url)
        silent.listen()
        with pytest.raises(OSError, match=r"did not answer within 0\.2 s$"):
            otlp.post(FULL, url, timeout=0.2)
        thread = threading.Thread(target=_says_hello, args=(silent,))
        thread.start()
        with pytest.raises(OSError, match="did not answer in HTTP"):
            otlp.post(FULL, url)
        thread.join()


def _says_hello(listener: socket.socket) -> None:
    for _ in range(2):  # the one that timed out is still in the queue
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"220 hello\r\n")
            connection.recv(1 << 20)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):
                pass


@pytest.mark.parametrize("url", ["localhost:4318", "grpc://x:4317", "http://", "http://x:port", "", "trace.json"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="is no address of a collector, such as http://localhost:4318"):
        otlp.post(FULL, url)


def test_json_needs_no_other_package_and_protobuf_says_which() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
from pytest_coldstart.record import Failure, Phase, Value
from pytest_coldstart.report import otlp
from tests.store.samples import FULL
assert otlp.trace_json(FULL)
try:
    otlp.trace(FULL)
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a trace in protobuf needs opentelemetry-proto: pip install 'pytest-coldstart[otlp]'\n"
