"""Server-sent events as engines write them, over real sockets: what counts as a token, and when it came."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pytest_coldstart.client import FIRST_PROMPT, FIRST_TOKENS, Client, Dialect, RequestFailed
from pytest_coldstart.record import Request

pytestmark = pytest.mark.timeout(60)

#: What a server sends: bytes, or a float, which is a pause in seconds.
Script = Sequence[bytes | float]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
#: Long against a loopback round trip, short against the tests' patience.
PAUSE = 0.3
#: Between two instants of the client: the first one may have been noticed late.
ABOUT = PAUSE / 2


def event(content: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """One event with one choice."""
    choice = {"index": 0, **content, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


def usage(completion: int, prompt: int = 5) -> bytes:
    counts = {"completion_tokens": completion, "prompt_tokens": prompt}
    return b"data: " + json.dumps({"choices": [], "usage": counts}).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.fixture
def received() -> list[bytes]:
    return []


@pytest.fixture
def ask(received: list[bytes]) -> Iterator[Callable[..., Request]]:
    """Asks a server that plays a script, once, on a real socket; what it received is kept."""
    threads: list[threading.Thread] = []

    def serve(listener: socket.socket, script: Script) -> None:
        with listener:
            connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(65536)
            head, _, body = data.partition(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")
            )
            while len(body) < length:
                body += connection.recv(65536)
            received.append(head + b"\r\n\r\n" + body)
            try:
                for step in script:
                    if isinstance(step, bytes):
                        connection.sendall(step)
                    else:
                        time.sleep(step)
            except OSError:
                pass  # the client had enough

    def run(
        script: Script, tokens: int = 2, api: str = "completions", timeout: float = 30.0, **settings: Any
    ) -> Request:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        thread = threading.Thread(target=serve, args=(listener, script), daemon=True)
        thread.start()
        threads.append(thread)
        client = Client("127.0.0.1", port, "model", Dialect(api=api, **settings), time.monotonic())
        return client.complete("a prompt", tokens, timeout)

    yield run
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


Ask = Callable[..., Request]


def failure(ask: Ask, script: Script, **settings: Any) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        ask(script, **settings)
    return caught.value


def after(request: Request, name: str = "first_token") -> float:
    value = getattr(request, name)
    assert value is not None
    return float(value) - request.sent


class TestInstants:
    def test_first_token_is_the_first_event_and_done_is_the_end(self, ask: Ask) -> None:
        got = ask([HEAD, PAUSE, event({"text": "a"}), PAUSE, event({"text": "b"}, "length"), usage(2), DONE])
        assert after(got) >= PAUSE
        assert after(got, "done") - after(got) >= ABOUT
        assert got.first_text == got.first_token
        assert (got.completion_tokens, got.prompt_tokens, got.events, got.finish_reason) == (2, 5, 3, "length")

    def test_role_delta_is_no_token(self, ask: Ask) -> None:
        role = event({"delta": {"role": "assistant", "content": ""}})
        tokens = [event({"delta": {"content": "a"}}), event({"delta": {}}, "length")]
        got = ask([HEAD, role, PAUSE, *tokens, DONE], api="chat")
        assert after(got) >= PAUSE

    def test_role_delta_without_content_is_no_token(self, ask: Ask) -> None:
        role = event({"delta": {"role": "assistant", "content": None}})
        got = ask([HEAD, role, PAUSE, event({"delta": {"content": "a"}}, "length"), DONE], api="chat")
        assert after(got) >= PAUSE

    def test_role_delta_that_brings_text_is_a_token(self, ask: Ask) -> None:
        first = event({"delta": {"role": "assistant", "content": "a"}})
        got = ask([HEAD, first, PAUSE, event({"delta": {"content": "b"}}, "length"), DONE], api="chat")
        assert after(got, "done") - after(got) >= ABOUT

    @pytest.mark.parametrize("api", ["completions", "chat"])
    def test_token_that_makes_no_text_is_a_token_and_no_text(self, ask: Ask, api: str) -> None:
        """vLLM sends an event with an empty text for half of a character."""

        def content(text: str) -> dict[str, Any]:
            return {"text": text} if api == "completions" else {"delta": {"content": text}}

        got = ask([HEAD, event(content("")), PAUSE, event(content("é"), "length"), usage(2), DONE], api=api)
        assert after(got, "first_text") - after(got) >= ABOUT

    def test_empty_text_with_a_finish_reason_is_no_token(self, ask: Ask) -> None:
        error = failure(ask, [HEAD, event({"text": ""}, "length"), usage(2), DONE])
        assert error.kind == "empty"
        assert str(error) == "2 events came and none carried a token"

    @pytest.mark.parametrize(
        "delta",
        [
            {"reasoning_content": "hm"},
            {"reasoning": "hm"},
            {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
        ],
        ids=["reasoning_content", "reasoning", "tool_calls"],
    )
    def test_reasoning_and_tool_deltas_are_tokens_and_no_text(self, ask: Ask, delta: dict[str, Any]) -> None:
        got = ask(
            [HEAD, event({"delta": delta}), PAUSE, event({"delta": {"content": "a"}}, "length"), DONE], api="chat"
        )
        assert after(got, "first_text") - after(got) >= ABOUT

    def test_token_ids_are_tokens(self, ask: Ask) -> None:
        first = event({"text": None, "token_ids": [17]})
        got = ask([HEAD, first, PAUSE, event({"text": "a"}, "length"), DONE])
        assert after(got, "first_text") - after(got) >= ABOUT

    def test_several_tokens_in_one_event(self, ask: Ask) -> None:
        got = ask([HEAD, event({"text": "a b c d"}, "length"), usage(4), DONE], tokens=4)
        assert (got.events, got.completion_tokens) == (2, 4)

    def test_instants_are_told_while_the_answer_still_comes(self) -> None:
        told: dict[str, float] = {}
        reached = threading.Event()

        def note(name: str, instant: float) -> None:
            told[name] = instant
            reached.set()

        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = Client("127.0.0.1", listener.getsockname()[1], "model", Dialect(), time.monotonic())
            thread = threading.Thread(target=lambda: client.complete("x", 1, 30, note=note))
            thread.start()
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(HEAD + event({"text": "a"}))
                assert reached.wait(30)
                assert thread.is_alive()
                connection.sendall(event({"text": ""}, "length") + DONE)
            thread.join(30)
        assert set(told) == {"first_token", "first_text"}


class TestWire:
    def test_line_in_many_pieces(self, ask: Ask) -> None:
        whole = event({"text": "ä"}) + event({"text": "b"}, "length") + usage(2) + DONE
        got = ask([HEAD, *(whole[index : index + 7] for index in range(0, len(whole), 7))])
        assert (got.events, got.completion_tokens) == (3, 2)

    def test_chunks_that_split_lines_and_hold_several_events(self, ask: Ask) -> None:
        whole = event({"text": "a"}) + event({"text": "b"}, "length") + usage(2) + DONE
        pieces = [chunk(whole[:9]), 0.02, chunk(whole[9:50]), 0.02, chunk(whole[50:])]
        assert ask([CHUNKED, *pieces, chunk(b"")]).events == 3

    def test_event_counts_when_it_is_whole_and_not_when_it_begins(self, ask: Ask) -> None:
        first = event({"text": "a"})
        got = ask([HEAD, first[:12], PAUSE, first[12:], event({"text": "b"}, "length"), DONE])
        assert after(got) >= PAUSE

    def test_comments_and_other_fields_are_no_events(self, ask: Ask) -> None:
        noise = b": keep-alive\n\n: ping\n\nevent: message\nid: 7\nretry: 100\n"
        got = ask([HEAD, noise, PAUSE, event({"text": "a"}, "length"), b":\n\n", usage(2), DONE])
        assert got.events == 2
        assert after(got) >= PAUSE

    def test_carriage_returns(self, ask: Ask) -> None:
        whole = event({"text": "a"}) + event({"text": "b"}, "length") + usage(2) + DONE
        got = ask([HEAD, whole.replace(b"\n", b"\r\n")])
        assert (got.events, got.completion_tokens) == (3, 2)

    def test_several_data_lines_are_one_event(self, ask: Ask) -> None:
        spread = b'data: {"choices":\ndata: [{"text": "a",\ndata:"finish_reason": "length"}]}\n\n'
        assert ask([HEAD, spread, DONE]).events == 1

    def test_no_space_after_the_colon(self, ask: Ask) -> None:
        whole = event({"text": "a"}, "length") + usage(2) + DONE
        assert ask([HEAD, whole.replace(b"data: ", b"data:")]).events == 2

    def test_end_without_done_and_without_a_last_blank_line(self, ask: Ask) -> None:
        got = ask([HEAD, event({"text": "a"}), event({"text": "b"}, "length").rstrip(b"\n")])
        assert got.finish_reason == "length"
        assert got.completion_tokens is None

    def test_usage_in_every_event_counts_the_last(self, ask: Ask) -> None:
        events = [
            event({"text": "a"}, usage={"completion_tokens": 1, "prompt_tokens": 5}),
            event({"text": "b"}, "length", usage={"completion_tokens": 2, "prompt_tokens": 5}),
        ]
        assert ask([HEAD, *events, DONE]).completion_tokens == 2

    def test_null_usage_and_null_error_mean_nothing(self, ask: Ask) -> None:
        assert ask([HEAD, event({"text": "a"}, "length", usage=None, error=None), DONE]).events == 1

    def test_what_comes_after_done_is_not_read(self, ask: Ask) -> None:
        assert ask([HEAD, event({"text": "a"}, "length"), DONE, b"data: rubbish\n\n"]).events == 1


class TestRequestBody:
    def test_completions(self, ask: Ask, received: list[bytes]) -> None:
        ask([HEAD, event({"text": "a"}, "length"), DONE], tokens=2)
        head, _, body = received[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
        assert json.loads(body) == {
            "model": "model",
            "prompt": "a prompt",
            "max_tokens": 2,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }

    def test_chat_with_extras_and_headers(self, ask: Ask, received: list[bytes]) -> None:
        script = [HEAD, event({"delta": {"content": "a"}}, "stop"), DONE]
        ask(script, api="chat", extra={"seed": 1}, headers={"X-Key": "k"}, ignore_eos=False)
        head, _, body = received[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
        assert b"X-Key: k" in head
        data = json.loads(body)
        assert data["messages"] == [{"role": "user", "content": "a prompt"}]
        assert data["seed"] == 1
        assert "ignore_eos" not in data
        assert "prompt" not in data

    def test_the_first_request_is_pinned(self) -> None:
        """A change of either starts a new series, so it must not happen by accident."""
        assert FIRST_TOKENS == 16
        assert FIRST_PROMPT.startswith("A server starts in the night.")
        assert len(FIRST_PROMPT) == 175


class TestFailures:
    def test_nobody_listens(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            client = Client("127.0.0.1", unused.getsockname()[1], "model", Dialect(), time.monotonic())
            with pytest.raises(RequestFailed) as caught:
                client.complete("x")
        assert caught.value.kind == "refused"

    @pytest.mark.parametrize(("status", "kind"), [(503, "refused"), (500, "status"), (404, "status"), (400, "status")])
    def test_http_errors_show_their_body(self, ask: Ask, status: int, kind: str) -> None:
        error = failure(ask, [b"HTTP/1.1 %d X\r\nContent-Length: 9\r\n\r\nthe cause" % status])
        assert error.kind == kind
        assert str(error) == f"HTTP {status} from /v1/completions: the cause"

    def test_connection_that_ends_before_the_headers(self, ask: Ask) -> None:
        assert failure(ask, []).kind == "broken"

    def test_answer_that_is_not_http(self, ask: Ask) -> None:
        assert failure(ask, [b"SSH-2.0-OpenSSH_9.9\r\n"]).kind == "broken"

    def test_stream_that_ends_in_the_middle(self, ask: Ask) -> None:
        error = failure(ask, [HEAD, event({"text": "a"}), event({"text": "b"})])
        assert error.kind == "broken"
        assert "after 2 events without a finish reason" in str(error)

    def test_chunked_stream_that_ends_in_the_middle(self, ask: Ask) -> None:
        assert failure(ask, [CHUNKED, chunk(event({"text": "a"}))]).kind == "broken"

    def test_silence_longer_than_the_timeout(self, ask: Ask) -> None:
        error = failure(ask, [HEAD, 1.5], timeout=0.5)
        assert error.kind == "broken"
        assert str(error) == "no answer within 0.5 s"

    @pytest.mark.parametrize("data", [b"{", b"[1, 2]", b"3", b"null"])
    def test_event_that_is_no_json_object(self, ask: Ask, data: bytes) -> None:
        assert failure(ask, [HEAD, b"data: " + data + b"\n\n"]).kind == "malformed"

    def test_error_in_the_stream(self, ask: Ask) -> None:
        error = failure(ask, [HEAD, event({"text": "a"}), b'data: {"error": {"message": "no memory"}}\n\n'])
        assert error.kind == "status"
        assert "no memory" in str(error)

    @pytest.mark.parametrize(("finish", "count"), [("stop", 2), ("length", 1), ("length", 3), ("content_filter", 2)])
    def test_other_than_the_tokens_asked_for(self, ask: Ask, finish: str, count: int) -> None:
        assert failure(ask, [HEAD, event({"text": "a"}, finish), usage(count), DONE], tokens=2).kind == "short"

    def test_done_without_a_finish_reason(self, ask: Ask) -> None:
        assert failure(ask, [HEAD, event({"text": "a"}), DONE]).kind == "short"

    def test_stream_without_end_is_given_up(self, ask: Ask) -> None:
        line = b"data: " + b"x" * (5 << 20)
        assert failure(ask, [HEAD, line]).kind == "malformed"

    def test_a_request_in_flight_can_be_ended_from_another_thread(self) -> None:
        errors: list[RequestFailed] = []

        def complete() -> None:
            try:
                client.complete("x", 1, 60)
            except RequestFailed as error:
                errors.append(error)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = Client("127.0.0.1", listener.getsockname()[1], "model", Dialect(), time.monotonic())
            thread = threading.Thread(target=complete)
            thread.start()
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                client.abort()
                thread.join(30)
                assert not thread.is_alive()
        assert [error.kind for error in errors] == ["broken"]
