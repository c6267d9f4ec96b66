"""Streamed requests to an OpenAI-compatible engine, with the instant of each token.

Written on :mod:`http.client` and not on an HTTP library: the instants are this project's
product, so nothing stands between the socket and the clock.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_coldstart.record import Request

#: The pinned first request. Its digest is stored with every boot; a change of either
#: constant starts a new series.
FIRST_PROMPT = (
    "A server starts in the night. It reads its weights from a disk, fills its caches, opens a port "
    "and waits for the first question. Describe in a few sentences what happens next."
)
FIRST_TOKENS = 16

_MOST_BYTES = 64 << 20
_MOST_LINE = 4 << 20


class RequestFailed(RuntimeError):
    """A request that did not bring what was asked for. ``kind`` says how.

    kinds: refused (no connection, or HTTP 503: worth trying again during a boot), status,
    not_sse, empty, malformed, broken (the connection ended early), short (too few tokens).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Event:
    """What one server-sent event holds: any token, any text, the end."""

    token: bool
    text: bool
    finish_reason: str | None = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None


@dataclass(frozen=True)
class Dialect:
    """How an engine wants the request, and how its events read.

    ``api`` is completions or chat; ``extra`` is merged into the body. With ``ignore_eos``
    false the engine cannot be told to go on after its end-of-sequence token, and a shorter
    answer that says ``stop`` is accepted.
    """

    api: str = "completions"
    extra: Mapping[str, Any] = field(default_factory=dict)
    ignore_eos: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return "/v1/completions" if self.api == "completions" else "/v1/chat/completions"

    def body(self, model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.extra,
        }
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.api == "completions":
            body["prompt"] = prompt
        else:
            body["messages"] = [{"role": "user", "content": prompt}]
        return body

    def read(self, data: Mapping[str, Any]) -> Event:
        """Read one event. Token ids, reasoning and tool deltas are tokens; a role delta is not."""
        usage = data.get("usage") or {}
        counts = {"completion_tokens": usage.get("completion_tokens"), "prompt_tokens": usage.get("prompt_tokens")}
        choices = data.get("choices") or []
        if not choices:
            return Event(False, False, None, **counts)
        choice = choices[0]
        finish = choice.get("finish_reason")
        if self.api == "completions":
            text, role = choice.get("text"), False
            other = choice.get("token_ids")
        else:
            delta = choice.get("delta") or {}
            text, role = delta.get("content"), "role" in delta
            other = delta.get("reasoning_content") or delta.get("reasoning") or delta.get("tool_calls")
            other = other or choice.get("token_ids")
        # A token may make no text (half of a character): its event has an empty text and no end.
        silent = text == "" and finish is None and not role
        return Event(bool(text or other or silent), bool(text), finish, **counts)

    def ended(self, tokens: int) -> Event | None:
        """What the end of a whole stream says where no event said why it ends; None: an event has to.

        *tokens*: how many of its events held any.
        """
        return None


def digest(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()[:16]


class Client:
    """Sends requests to one engine. Instants are seconds since *origin* on the monotonic clock."""

    def __init__(
        self,
        host: str,
        port: int,
        model: str,
        dialect: Dialect,
        origin: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host, self.port, self.model, self.dialect = host, port, model, dialect
        self.origin = origin
        self.clock = clock
        self._socket: socket.socket | None = None
        #: Events with a token that the latest request has brought so far; may be read from another thread.
        self.token_events = 0

    def now(self) -> float:
        return self.clock() - self.origin

    def another(self) -> Client:
        """A client of the same engine, for a request at the same time."""
        return Client(self.host, self.port, self.model, self.dialect, self.origin, self.clock)

    def complete(
        self,
        prompt: str,
        max_tokens: int = 16,
        timeout: float = 60.0,
        kind: str = "user",
        index: int = 0,
        note: Callable[[str, float], None] | None = None,
    ) -> Request:
        """One streamed request on a new connection, answered whole.

        *note* is told ``first_token`` and ``first_text`` with their instants as they happen.

        :raises RequestFailed: any other end.
        """
        body = json.dumps(self.dialect.body(self.model, prompt, max_tokens)).encode()
        self.token_events = 0
        request = Request(kind, index, sent=self.now(), prompt_digest=digest(prompt))
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            response = self._send(connection, body)
            request = self._receive(response, request, note or _ignore)
        except RequestFailed:
            raise
        except TimeoutError as error:
            raise RequestFailed("broken", f"no answer within {timeout:g} s") from error
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            raise RequestFailed("broken", f"the connection ended early: {error or type(error).__name__}") from error
        finally:
            self._socket = None
            connection.close()
        return self._validate(request, max_tokens)

    def abort(self) -> None:
        """End the request in flight, from another thread."""
        with suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, connection: http.client.HTTPConnection, body: bytes) -> http.client.HTTPResponse:
        try:
            connection.connect()
        except ConnectionRefusedError as error:
            raise RequestFailed("refused", "connection refused") from error
        self._socket = connection.sock
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", **self.dialect.headers}
        connection.request("POST", self.dialect.path, body, headers)
        response = connection.getresponse()
        if response.status != 200:
            text = response.read(2000).decode("utf-8", "replace").strip()
            kind = "refused" if response.status == 503 else "status"
            raise RequestFailed(kind, f"HTTP {response.status} from {self.dialect.path}: {text or 'no body'}")
        return response

    def _receive(
        self, response: http.client.HTTPResponse, request: Request, note: Callable[[str, float], None]
    ) -> Request:
        content_type = response.headers.get("Content-Type") or "none"
        if "text/event-stream" not in content_type:
            start = response.read(200).decode("utf-8", "replace")
            if not start:
                raise RequestFailed("empty", "HTTP 200 with an empty body where a stream of events was asked for")
            raise RequestFailed("not_sse", f"the answer is not an event stream but {content_type}: {start!r}")
        events = tokens = 0
        first_token = first_text = None
        finish: str | None = None
        counts: dict[str, int] = {}
        done = False
        for data in _server_sent(response):
            stamp = self.now()
            if data == "[DONE]":
                done = True
                break
            event = self._parse(data)
            events += 1
            tokens += event.token
            self.token_events = tokens
            if event.token and first_token is None:
                first_token = stamp
                note("first_token", stamp)
            if event.text and first_text is None:
                first_text = stamp
                note("first_text", stamp)
            finish = event.finish_reason or finish
            for name in ("completion_tokens", "prompt_tokens"):
                value = getattr(event, name)
                if value is not None:
                    counts[name] = value
        if not events:
            raise RequestFailed("empty", "the event stream ended without an event")
        if not done and finish is None and _is_whole(response) and (end := self.dialect.ended(tokens)):
            finish = end.finish_reason
            if end.completion_tokens is not None:
                counts["completion_tokens"] = end.completion_tokens
        if not done and finish is None:
            raise RequestFailed("broken", f"the event stream ended after {events} events without a finish reason")
        return replace(
            request,
            first_token=first_token,
            first_text=first_text,
            done=self.now(),
            events=events,
            finish_reason=finish,
            completion_tokens=counts.get("completion_tokens"),
            prompt_tokens=counts.get("prompt_tokens"),
        )

    def _parse(self, data: str) -> Event:
        try:
            parsed = json.loads(data)
        except ValueError as error:
            raise RequestFailed("malformed", f"an event is not JSON: {data[:200]!r}") from error
        if not isinstance(parsed, dict):
            raise RequestFailed("malformed", f"an event is not a JSON object: {data[:200]!r}")
        if parsed.get("error"):
            raise RequestFailed("status", f"the stream brought an error: {json.dumps(parsed['error'])[:500]}")
        return self.dialect.read(parsed)

    def _validate(self, request: Request, max_tokens: int) -> Request:
        """The tokens asked for, no more and no fewer, and an end that says so."""
        if request.first_token is None:
            raise RequestFailed("empty", f"{request.events} events came and none carried a token")
        tokens, finish = request.completion_tokens, request.finish_reason
        if finish == "stop" and not self.dialect.ignore_eos:
            return request
        if finish == "stop":
            raise RequestFailed(
                "short",
                f"the engine stopped by itself after {tokens if tokens is not None else 'an unknown number of'} of "
                f"{max_tokens} tokens: it does not honour ignore_eos (option ignore_eos=False of engine 'openai' accepts that)",
            )
        if finish != "length":
            raise RequestFailed("short", f"finish reason {finish!r} where 'length' was expected")
        if tokens is not None and tokens != max_tokens:
            raise RequestFailed("short", f"{tokens} tokens came where {max_tokens} were asked for")
        return request


def _is_whole(response: http.client.HTTPResponse) -> bool:
    """Whether the last chunk came: lines end alike after it and where the connection broke between two chunks."""
    return response.chunked and response.chunk_left is None


def _ignore(name: str, instant: float) -> None:
    pass


def _server_sent(response: http.client.HTTPResponse) -> Iterator[str]:
    """The data of each server-sent event, as soon as its blank line is read."""
    lines: list[str] = []
    total = 0
    while True:
        raw = response.readline(_MOST_LINE)
        if not raw:
            break
        total += len(raw)
        if total > _MOST_BYTES or len(raw) >= _MOST_LINE:
            raise RequestFailed("malformed", f"the event stream is longer than {_MOST_BYTES >> 20} MiB")
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if lines:
                yield "\n".join(lines)
                lines = []
        elif line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
    if lines:
        yield "\n".join(lines)
