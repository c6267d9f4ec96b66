"""One boot as an OpenTelemetry trace: a file, or a POST to a collector such as Jaeger or Tempo."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from datetime import datetime
from importlib import import_module
from itertools import groupby
from typing import Any

import pytest_coldstart
from pytest_coldstart.attribution import Process, Reading
from pytest_coldstart.record import BootRecord

#: Where a collector takes traces, for an address that names no path.
_PATH = "/v1/traces"
_MESSAGES = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"
#: OTLP's numbers: a span inside one service; a status.
_INTERNAL, _OK, _ERROR = 1, 1, 2


def trace_json(record: BootRecord) -> str:
    """The boot in OTLP's JSON, one line: ids in hexadecimal, 64-bit numbers as text. Needs no other package.

    The root span is the boot, with its instants as events; below it are the phases of the critical path with their
    details, and a span for each process with the readings that say when they began. Ids come from the boot's id alone, so that a
    boot that is exported twice is the same trace.

    :raises ValueError: the record does not say when the boot started.
    """
    return json.dumps(_request(record), ensure_ascii=False)


def trace(record: BootRecord) -> bytes:
    """The same as a serialised ExportTraceServiceRequest, what a collector takes over HTTP/protobuf.

    :raises ValueError: the record does not say when the boot started, or opentelemetry-proto is not installed.
    """
    try:
        json_format, messages = import_module("google.protobuf.json_format"), import_module(_MESSAGES)
    except ImportError:
        raise ValueError(
            "a trace in protobuf needs opentelemetry-proto: pip install 'pytest-coldstart[otlp]'"
        ) from None
    request = _request(record)
    for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        # Protobuf's own JSON has bytes in base64; OTLP's has ids in hexadecimal.
        for name in ("traceId", "spanId", "parentSpanId"):
            span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return bytes(json_format.ParseDict(request, messages.ExportTraceServiceRequest()).SerializeToString())


def post(record: BootRecord, endpoint: str, timeout: float = 10) -> None:
    """Send the boot to a collector.

    :param endpoint: such as http://localhost:4318; without a path, /v1/traces is meant.
    :param timeout: seconds for each step of the connection.
    :raises ValueError: *endpoint* is no http or https address, or see :func:`trace`.
    :raises OSError: the collector is not there, refuses the trace or takes only a part of it.
    """
    url = _address(endpoint)
    headers = {
        "Content-Type": "application/x-protobuf",
        "User-Agent": f"pytest-coldstart/{pytest_coldstart.__version__}",
    }
    request = urllib.request.Request(url, trace(record), headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            answer = response.read(1 << 20)
    except urllib.error.HTTPError as error:
        text = error.read(300).decode("utf-8", "replace").strip()
        raise OSError(f"{url} answered {error.code} {error.reason}{': ' if text else ''}{text}") from None
    except urllib.error.URLError as error:
        raise OSError(f"{url} cannot be reached: {error.reason}") from None
    except TimeoutError:
        raise OSError(f"{url} did not answer within {timeout:g} s") from None
    except http.client.HTTPException as error:
        raise OSError(f"{url} did not answer in HTTP: {error!r}") from None
    except OSError as error:
        raise OSError(f"{url} broke the connection: {error}") from None
    if rejected := _rejected(answer):
        raise OSError(f"{url} took only a part of the trace: {rejected}")


def _address(endpoint: str) -> str:
    parts = urllib.parse.urlsplit(endpoint)
    try:
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        usable = False
    if not usable:
        raise ValueError(f"{endpoint!r} is no address of a collector, such as http://localhost:4318")
    return urllib.parse.urlunsplit(parts._replace(path=_PATH)) if parts.path in ("", "/") else endpoint


def _rejected(answer: bytes) -> str:
    """What a collector says that it did not take; an empty answer is a full success."""
    try:
        partial = import_module(_MESSAGES).ExportTraceServiceResponse.FromString(answer).partial_success
    except import_module("google.protobuf.message").DecodeError:
        return ""  # it answered 200 in words of its own
    if not partial.rejected_spans:
        return ""
    return f"{partial.rejected_spans} spans rejected{': ' if partial.error_message else ''}{partial.error_message}"


# -- the trace in OTLP's JSON


def _request(record: BootRecord) -> dict[str, Any]:
    resource = {"service.name": record.engine, "coldstart.run_id": record.run_id}
    scope = {"name": "pytest_coldstart", "version": pytest_coldstart.__version__}
    spans = _Trace(record).spans()
    return {
        "resourceSpans": [
            {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [{"scope": scope, "spans": spans}]}
        ]
    }


class _Trace:
    """The spans of one record, all with times that count from its start."""

    def __init__(self, record: BootRecord) -> None:
        self.record = record
        try:
            started = datetime.fromisoformat(record.started_at)
        except ValueError:
            raise ValueError(f"boot {record.boot_id}: started_at={record.started_at!r} is no time") from None
        if started.tzinfo is None:
            raise ValueError(f"boot {record.boot_id}: started_at={record.started_at!r} names no time zone")
        # In whole nanoseconds: a float of seconds since 1970 has steps of a quarter of a microsecond.
        self.origin = int(started.timestamp()) * 10**9 + started.microsecond * 1000
        self.trace_id = _digest(record.boot_id, 16)
        offsets = [*record.instants.values(), *(phase.end for phase in record.phases), record.attribution.end or 0.0]
        self.end = max(offsets)

    def spans(self) -> list[dict[str, Any]]:
        return [self._root(), *self._path(), *self._processes()]

    def _root(self) -> dict[str, Any]:
        record = self.record
        facts = {
            name: getattr(record, name)
            for name in ("boot_id", "run_id", "nodeid", "cell_id", "engine", "tier", "role", "round", "outcome")
        }
        versions = {f"version.{name}": version for name, version in record.versions.items()}
        metrics = {
            f"metric.{name}": None if item.value is None else float(item.value) for name, item in record.metrics.items()
        }
        found = _prefixed({**facts, **versions, **metrics})
        root = self._span(("boot",), "", f"boot {record.cell_id}", 0.0, self.end, found)
        root["events"] = self._events(record.instants)
        root["status"] = {"code": _OK}
        if record.failure:
            root["status"] = {"code": _ERROR, "message": _text(record.failure.message)}
        elif record.outcome != "ok":
            root["status"] = {"code": _ERROR, "message": record.outcome}
        return root

    def _path(self) -> Iterable[dict[str, Any]]:
        """A span for each run of one phase in one process; what it was made of lies below it."""
        runs = [list(run) for _, run in groupby(self.record.phases, lambda phase: (phase.name, phase.process))]
        for index, run in enumerate(runs):
            first, last = run[0], run[-1]
            facts = {"process": first.process, "source": ", ".join(dict.fromkeys(phase.source for phase in run))}
            facts["detail"] = first.detail if len(run) == 1 else ""
            key = ("path", index)
            yield self._span(key, self._id(("boot",)), first.name, first.begin, last.end, _prefixed(facts))
            for part, phase in enumerate(run if len(run) > 1 else ()):
                name = phase.detail or phase.name
                source = _prefixed({"source": phase.source})
                yield self._span((*key, part), self._id(key), name, phase.begin, phase.end, source)

    def _processes(self) -> Iterable[dict[str, Any]]:
        root, attribution = self._id(("boot",)), self.record.attribution
        placed = [item for item in attribution.readings if item.begin is not None and item.end is not None]
        known = {process.name for process in attribution.processes}
        for process in attribution.processes:
            key = ("process", process.name)
            own = [reading for reading in placed if reading.process == process.name]
            yield self._process(key, root, process)
            yield from self._readings(key, own)
        for name in sorted({reading.process for reading in placed} - known):
            key = ("process", name)
            own = [reading for reading in placed if reading.process == name]
            begin, end = min(item.begin or 0.0 for item in own), max(item.end or 0.0 for item in own)
            yield self._span(key, root, name or self.record.engine, begin, end, {})
            yield from self._readings(key, own)

    def _process(self, key: tuple[Any, ...], parent: str, process: Process) -> dict[str, Any]:
        facts = _prefixed({"pid": process.pid, "exit_code": process.exit_code, "command": process.command})
        end = self.end if process.end is None else process.end
        span = self._span(key, parent, process.name, process.start, end, facts)
        span["events"] = self._events(process.instants)
        return span

    def _readings(self, key: tuple[Any, ...], readings: Iterable[Reading]) -> Iterable[dict[str, Any]]:
        parent = self._id(key)
        for index, reading in enumerate(readings):
            facts = {"phases": ", ".join(reading.phases), "source": reading.source, "seconds": reading.seconds}
            begin, end = reading.begin or 0.0, reading.end or 0.0
            yield self._span((*key, index), parent, reading.text, begin, end, _prefixed(facts))

    def _span(
        self, key: tuple[Any, ...], parent: str, name: str, begin: float, end: float, facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "traceId": self.trace_id,
            "spanId": self._id(key),
            "parentSpanId": parent,
            "name": _text(name),
            "kind": _INTERNAL,
            "startTimeUnixNano": self._nano(begin),
            "endTimeUnixNano": self._nano(max(begin, end)),
            "attributes": _attributes(facts),
        }

    def _events(self, instants: Mapping[str, float]) -> list[dict[str, Any]]:
        ordered = sorted(instants.items(), key=lambda item: item[1])
        return [{"name": _text(name), "timeUnixNano": self._nano(offset)} for name, offset in ordered]

    def _nano(self, offset: float) -> str:
        return str(self.origin + round(offset * 1e9))

    def _id(self, key: tuple[Any, ...]) -> str:
        return _digest("\0".join((self.record.boot_id, *map(str, key))), 8)


def _digest(text: str, size: int) -> str:
    """*size* bytes in hexadecimal that are the same for the same text, and never all zero."""
    return hashlib.blake2b(text.encode(), digest_size=size, person=b"coldstart-trace").hexdigest()


def _prefixed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts under names of our own; what is unknown is left out."""
    return {f"coldstart.{name}": value for name, value in facts.items() if value is not None and value != ""}


def _attributes(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": _text(name), "value": _value(value)} for name, value in facts.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and abs(value) < 1 << 63:
        return {"intValue": str(value)}
    if isinstance(value, float):
        # Protobuf's JSON has words for what no number of JSON is.
        words = {math.inf: "Infinity", -math.inf: "-Infinity"}
        return {"doubleValue": "NaN" if math.isnan(value) else words.get(value, value)}
    return {"stringValue": _text(str(value))}


def _text(text: str) -> str:
    """Half a surrogate pair, as a log may hold, is no text in protobuf."""
    return text.encode("utf-8", "replace").decode()
