"""Receives the spans that an engine sends of its own boot: OTLP over HTTP on this machine, kept in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from pytest_coldstart.attribution import Reading
from pytest_coldstart.observe.otlp_http import PATH, OTLPServer
from pytest_coldstart.observe.span_phases import LEFT_OUT, SPAN_PHASES

#: Spans that are kept.
MAX_SPANS = 20_000
#: A wall clock that moved more than this against the monotonic one, seconds, has been set.
MAX_STEP = 0.05
#: Attributes of a span that are kept, and characters of any text that are.
_KEPT = ("code.function", "code.namespace", "code.filepath")
_TEXT = 300
_INSTALL = "pip install 'pytest-coldstart[otlp]'"


def available() -> str:
    """Why spans cannot be received here and what installs it, or an empty string."""
    try:
        _messages()
    except ImportError:
        return f"needs opentelemetry-proto: {_INSTALL}"
    except Exception as error:  # generated code and protobuf of two versions that do not go together
        return f"opentelemetry-proto does not load ({error}): {_INSTALL}"
    return ""


def _messages() -> Any:
    return import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")


@dataclass(frozen=True)
class Span:
    """One span as its engine sent it. Times are unix nanoseconds; ids in hexadecimal, an empty parent is none.

    ``process`` is the name that the engine gives its process ("EngineCore"), "" where it gives none.
    """

    name: str
    begin: int
    end: int
    pid: int | None = None
    process: str = ""
    span_id: str = ""
    parent_id: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


class SpanReceiver:
    """Receives OTLP traces over HTTP/protobuf on 127.0.0.1 until :meth:`close`.

    An engine sends its last spans when it stops, so close it and ask for readings after that. Whatever is
    sent, nothing is raised or printed: a body that is no trace is answered 4xx and counted in ``refused``,
    spans over ``MAX_SPANS`` are counted in ``dropped``.

    :raises ImportError: opentelemetry-proto is missing; :func:`available` says so before.
    :raises OSError: no port could be bound.
    """

    def __init__(self) -> None:
        _messages()
        self.spans: list[Span] = []
        self.dropped = 0
        self.refused = 0
        self._lock = threading.Lock()
        self._offset = _wall_offset()
        self._server = OTLPServer(self.accept, self.refuse)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}{PATH}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="coldstart-spans", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening and end every connection. Spans stay readable; a second call does nothing."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def unusable(self) -> str:
        """Why the spans' times cannot be put on the boot's clock, or an empty string."""
        step = _wall_offset() - self._offset
        if abs(step) <= MAX_STEP:
            return ""
        return f"the wall clock was set by {step:+.3f} s during the boot: the engine's spans have no place on its clock"

    def readings(self, origin: float, engine: str, names: Mapping[int, str] | None = None) -> tuple[Reading, ...]:
        """What the spans say of phases: spans of the same phases that overlap in one process are one reading.

        :param origin: the boot's start, in seconds of the monotonic clock; offsets of readings count from it.
        :param names: pid -> name of the process in this boot, where it is known.
        :returns: in order of their begin; none where the clock was set, see :attr:`unusable`.
        """
        if self.unusable:
            return ()
        table = SPAN_PHASES.get(engine, {})
        groups: dict[tuple[Any, ...], list[Span]] = {}
        for span in self._copy():
            if phases := table.get(span.name):
                groups.setdefault((phases, span.pid, span.process), []).append(span)
        clusters = [(key[0], cluster) for key, found in groups.items() for cluster in _clusters(found)]
        made = [self._reading(phases, cluster, origin, names or {}) for phases, cluster in clusters]
        return tuple(sorted(made, key=lambda reading: (reading.begin or 0.0, reading.text)))

    def unknown(self, engine: str) -> tuple[str, ...]:
        """Names of received spans that the engine's table does not know."""
        known = {*SPAN_PHASES.get(engine, {}), *LEFT_OUT.get(engine, {})}
        return tuple(sorted({span.name for span in self._copy()} - known))

    def missing(self) -> tuple[str, ...]:
        """What was not received or cannot be used, one sentence each."""
        found = [self.unusable] if self.spans and self.unusable else []
        if not self.spans:
            found.append("the engine sent no spans")
        if self.dropped:
            found.append(f"{self.dropped} spans over the first {MAX_SPANS} were dropped")
        if self.refused:
            found.append(f"{self.refused} requests to the receiver of spans were no traces")
        return tuple(found)

    def _copy(self) -> list[Span]:
        with self._lock:
            return list(self.spans)

    def _reading(self, phases: tuple[str, ...], spans: list[Span], origin: float, names: Mapping[int, str]) -> Reading:
        first, last = min(span.begin for span in spans), max(span.end for span in spans)
        outer = max(spans, key=lambda span: span.end - span.begin)
        named = names.get(outer.pid) if outer.pid is not None else None
        begin, end = first / 1e9 - self._offset - origin, last / 1e9 - self._offset - origin
        return Reading(
            phases=phases,
            seconds=(last - first) / 1e9,
            source="span",
            text=outer.name,
            process=named or outer.process or (f"pid {outer.pid}" if outer.pid is not None else ""),
            begin=begin,
            end=end,
        )

    def accept(self, body: bytes) -> bytes:
        """Keep what one request brought; returns the answer's body.

        :raises ValueError: the body is no ExportTraceServiceRequest.
        """
        messages = _messages()
        request = messages.ExportTraceServiceRequest()
        try:
            request.ParseFromString(body)
            found = _spans(request, MAX_SPANS - len(self.spans))
        except Exception as error:  # protobuf's DecodeError, and what its text decoding raises
            raise ValueError(f"no ExportTraceServiceRequest: {error}") from None
        sent = sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)
        answer = messages.ExportTraceServiceResponse()
        with self._lock:
            kept = found[: MAX_SPANS - len(self.spans)]
            self.spans += kept
            self.dropped += sent - len(kept)
        if sent > len(kept):
            answer.partial_success.rejected_spans = sent - len(kept)
            answer.partial_success.error_message = f"more than {MAX_SPANS} spans"
        return bytes(answer.SerializeToString())

    def refuse(self) -> None:
        with self._lock:
            self.refused += 1


def _wall_offset() -> float:
    """Unix time less monotonic time, seconds: of several tries the one that was least disturbed."""
    tries = []
    for _ in range(5):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        tries.append((after - before, wall - (before + after) / 2))
    return min(tries)[1]


def _clusters(spans: list[Span]) -> list[list[Span]]:
    """Spans in order of their begin, those that overlap or nest together in one list."""
    clusters: list[list[Span]] = []
    reach = -1
    for span in sorted(spans, key=lambda span: (span.begin, -span.end)):
        if clusters and span.begin < reach:
            clusters[-1].append(span)
        else:
            clusters.append([span])
        reach = max(reach, span.end)
    return clusters


def _spans(request: Any, most: int) -> list[Span]:
    """At most *most* spans of a request; one that ends before it begins, or never ended, is left out."""
    found: list[Span] = []
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        pid = resource.get("process.pid") or resource.get("vllm.process_id") or ""
        process = resource.get("vllm.process_name") or resource.get("vllm.instrumenting_module_name") or ""
        for scope in resource_spans.scope_spans:
            for span in scope.spans:
                if len(found) >= most:
                    return found
                begin, end = span.start_time_unix_nano, span.end_time_unix_nano
                if not 0 < begin <= end:
                    continue
                attributes = _attributes(span.attributes)
                found.append(
                    Span(
                        name=span.name[:_TEXT],
                        begin=begin,
                        end=end,
                        pid=int(pid) if pid.isascii() and pid.isdigit() else None,
                        process=process,
                        span_id=span.span_id.hex(),
                        parent_id=span.parent_span_id.hex(),
                        attributes={key: attributes[key] for key in _KEPT if key in attributes},
                    )
                )
    return found


def _attributes(items: Any) -> dict[str, str]:
    """Attributes that are text or whole numbers, as text."""
    kinds = {"string_value", "int_value"}
    values = {item.key: (item.value.WhichOneof("value"), item.value) for item in items}
    return {key: str(getattr(value, kind))[:_TEXT] for key, (kind, value) in values.items() if kind in kinds}
