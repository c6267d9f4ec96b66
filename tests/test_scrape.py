"""The engine's own time to first token: Prometheus text of real engines, and a server whose histogram grows late."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pytest_coldstart.observe.scrape import Reading, TTFTScraper, fetch, labels_of, parse, samples

VLLM = "vllm:time_to_first_token_seconds"

#: vLLM 0.32 after two requests.
CPU_VLLM = b"""\
# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.02",model_name="tiny"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="tiny"} 2.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="tiny"} 2.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="tiny"} 0.06413936614990234
# HELP vllm:time_to_first_token_seconds_created Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds_created gauge
vllm:time_to_first_token_seconds_created{engine="0",model_name="tiny"} 1.796006607329162e+09
vllm:inter_token_latency_seconds_count{engine="0",model_name="tiny"} 30.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="tiny"} 1.5
"""

#: SGLang 0.5.14, whose sum comes before its buckets.
SGLANG = b"""\
# HELP sglang:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE sglang:time_to_first_token_seconds histogram
sglang:time_to_first_token_seconds_sum{engine_type="unified",model_name="models/qwen2-0.5b-random"} 1.3246121680000442
sglang:time_to_first_token_seconds_bucket{engine_type="unified",le="0.1",model_name="models/qwen2-0.5b-random"} 38.0
sglang:time_to_first_token_seconds_count{engine_type="unified",model_name="models/qwen2-0.5b-random"} 38.0
"""


class TestText:
    @pytest.mark.parametrize(
        ("text", "name", "reading"),
        [
            (CPU_VLLM, VLLM, Reading(0.06413936614990234, 2)),
            (SGLANG, "sglang:time_to_first_token_seconds", Reading(1.3246121680000442, 38)),
            (SGLANG, VLLM, None),
            (b"", VLLM, None),
            (b"x_sum 1\n", "x", None),
            (b"x_count 1\n", "x", None),
            (b"x_sum 1.5 1395066363000\nx_count 3 1395066363000\n", "x", Reading(1.5, 3)),
            (b'x_sum{e="0"} 1\nx_sum{e="1"} 0.5\nx_count{e="0"} 3\nx_count{e="1"} 1\n', "x", Reading(1.5, 4)),
            (b'x_sum{m="a}b",n="q\\"}"} 2\nx_count{m="a}b",n="q\\"}"} 1\n', "x", Reading(2, 1)),
            (b"x_sum{} 2\r\nx_count{} 1\r\n", "x", Reading(2, 1)),
            (b"x_sum NaN\nx_count 1\n", "x", None),
            (b"x_sum +Inf\nx_count 1\n", "x", None),
            (b"x_sum 1\nx_count -Inf\n", "x", None),
            (b"x_sum one\nx_count 1\n", "x", None),
            (b"# x_sum 1\n# x_count 1\nxx_sum 1\nxx_count 1\nx_sum_created 5\n", "x", None),
            (b"\xff\xfe\x00 no text", "x", None),
            (b"<html>x_sum 1</html>", "x", None),
        ],
    )
    def test_sum_and_count_over_all_label_sets(self, text: bytes, name: str, reading: Reading | None) -> None:
        assert parse(text, name) == reading

    @pytest.mark.timeout(30)
    def test_labels_take_time_as_they_are_long(self) -> None:
        """Tried at each of its letters, a word of 60 thousand would take minutes in a text of 4 MiB."""
        word = b"a" * 60_000
        found = [(name, labels_of(labels), value) for name, labels, value in samples(b"x{%b} 1\n" % word * 70)]
        assert found == [("x", {}, b"1")] * 70

    @pytest.mark.timeout(30)
    def test_label_without_end_and_line_without_end_are_left_out(self) -> None:
        text = b'x{a="' * 10_000 + b'\nx{a="\\"\n' + b"x" * (3 << 20) + b" 1\nx 2\n"
        assert list(samples(text)) == [("x", b"", b"2")]


@contextmanager
def answering(answer: bytes, repeated: bytes = b"") -> Iterator[tuple[int, threading.Event]]:
    """A port whose one answer ends only once the event is set, where *repeated* goes on."""
    over = threading.Event()

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(4096)
            try:
                client.sendall(answer)
                while repeated and not over.wait(0.02):
                    client.sendall(repeated)
            except OSError:
                over.wait()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], over
        finally:
            over.set()
            thread.join()


class TestFetch:
    @pytest.mark.timeout(30)
    @pytest.mark.parametrize(
        ("answer", "repeated"),
        [(b"HTTP/1.1 200 OK\r\n\r\n", b"x 1\n"), (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"), (b"HTTP/1.1 200 O", b"K")],
        ids=["body", "headers", "status"],
    )
    def test_answer_that_drips_is_given_up(self, answer: bytes, repeated: bytes) -> None:
        with answering(answer, repeated) as (port, over):
            assert fetch("127.0.0.1", port, "/metrics", timeout=0.3) is None
            assert not over.is_set()

    @pytest.mark.parametrize(
        ("length", "sent", "whole"),
        [(None, 4 << 20, True), (None, (4 << 20) + 1, False), (7, 7, True), (7, 6, False), (5 << 20, 5 << 20, False)],
    )
    def test_answer_is_whole_and_of_4_mib_at_most(self, length: int | None, sent: int, whole: bool) -> None:
        announced = b"" if length is None else b"Content-Length: %d\r\n" % length
        body = b"1" * sent
        with answering(b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (announced, body)) as (port, over):
            over.set()
            assert fetch("127.0.0.1", port, "/metrics", timeout=20.0) == (body if whole else None)


class Server(ThreadingHTTPServer):
    """Serves a histogram; a request is written to it when its time has come."""

    daemon_threads = True
    status = 200
    name = "x"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[float, float]] = []

    def request(self, ttft: float, late: float = 0.0) -> None:
        """One request, which its histogram shows *late* seconds from now."""
        self.seen.append((time.monotonic() + late, ttft))

    @property
    def text(self) -> bytes:
        known = [ttft for at, ttft in self.seen if at <= time.monotonic()]
        return f'{self.name}_sum{{m="t"}} {sum(known)!r}\n{self.name}_count{{m="t"}} {len(known)}\n'.encode()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.send_response(self.server.status if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(self.server.text)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def scraper(server: Server) -> TTFTScraper:
    return TTFTScraper("127.0.0.1", server.server_address[1], "/metrics", "x")


class TestScraper:
    def test_each_request_has_its_own_time(self, server: Server, scraper: TTFTScraper) -> None:
        for ttft in (0.5, 0.25, 2.0):
            server.request(ttft)
            assert scraper.take() == pytest.approx(ttft)

    def test_figure_that_comes_a_moment_later_is_waited_for(self, server: Server, scraper: TTFTScraper) -> None:
        server.request(0.5, late=0.2)
        assert scraper.take(patience=30.0) == pytest.approx(0.5)

    def test_figure_that_comes_too_late_is_not_taken_for_the_next_requests(
        self, server: Server, scraper: TTFTScraper
    ) -> None:
        server.request(0.5, late=1000)
        assert scraper.take(patience=0.05) is None
        server.seen[0] = (0.0, 0.5)
        server.request(0.25, late=1000)
        assert scraper.take(patience=0.05) is None  # one more there, and it is the first one's
        server.seen[1] = (0.0, 0.25)
        server.request(2.0)
        assert scraper.take() is None  # three more since it was last known which was which
        server.request(4.0)
        assert scraper.take() == pytest.approx(4.0)

    def test_histogram_that_never_grows_is_not_waited_for_for_ever(self, server: Server, scraper: TTFTScraper) -> None:
        server.request(1000.0, late=1000)
        for _ in range(3):
            assert scraper.take(patience=0.01) is None
        begin = time.monotonic()
        assert scraper.take(patience=30.0) is None
        assert time.monotonic() - begin < 25

    def test_request_of_somebody_else_in_between_makes_both_unknown(self, server: Server, scraper: TTFTScraper) -> None:
        server.request(0.5)
        server.request(0.7)
        assert scraper.take() is None
        server.request(0.25)
        assert scraper.take() == pytest.approx(0.25)

    def test_what_was_there_before_is_left_out(self, server: Server, scraper: TTFTScraper) -> None:
        server.request(9.0)
        server.request(9.0)
        scraper.skip(2)
        server.request(0.25)
        assert scraper.take() == pytest.approx(0.25)

    def test_what_is_skipped_is_waited_for_and_is_not_the_next_requests(
        self, server: Server, scraper: TTFTScraper
    ) -> None:
        """Each figure is late: without the wait, every request would be given the time of the one before it."""
        server.request(9.0, late=0.3)
        scraper.skip(1, patience=30.0)
        for ttft in (0.5, 0.25):
            server.request(ttft, late=0.2)
            assert scraper.take(patience=30.0) == pytest.approx(ttft)

    def test_what_is_skipped_and_comes_too_late_is_nobodys(self, server: Server, scraper: TTFTScraper) -> None:
        server.request(9.0, late=1000)
        scraper.skip(1, patience=0.05)
        server.seen[0] = (0.0, 9.0)
        server.request(0.5, late=1000)
        assert scraper.take(patience=0.05) is None  # one more there, and it is the one that was skipped
        server.seen[1] = (0.0, 0.5)
        server.request(0.25)
        assert scraper.take() is None
        server.request(2.0)
        assert scraper.take() == pytest.approx(2.0)

    def test_histogram_that_was_not_there_for_a_moment_shifts_no_time_to_the_next_request(
        self, server: Server, scraper: TTFTScraper
    ) -> None:
        server.status = 500
        server.request(0.5)
        assert scraper.take() is None
        server.status = 200
        server.request(0.25, late=0.2)
        assert scraper.take(patience=30.0) is None
        server.request(2.0, late=0.2)
        assert scraper.take(patience=30.0) == pytest.approx(2.0)

    def test_counters_that_began_again_are_no_time(self, server: Server, scraper: TTFTScraper) -> None:
        server.request(9.0)
        scraper.skip(1)
        server.seen = [(0.0, 0.1), (0.0, 0.2)]
        assert scraper.take() is None

    @pytest.mark.parametrize("fault", ["status", "name", "path"])
    def test_no_histogram_no_time_and_no_waiting(self, server: Server, scraper: TTFTScraper, fault: str) -> None:
        if fault == "status":
            server.status = 500
        elif fault == "name":
            server.name = "other"
        else:
            scraper.path = "/nowhere"
        server.request(0.5)
        begin = time.monotonic()
        assert scraper.take(patience=30.0) is None
        assert time.monotonic() - begin < 25

    def test_nobody_listens(self) -> None:
        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
            port = closed.server_address[1]
        scraper = TTFTScraper("127.0.0.1", port, "/metrics", "x")
        scraper.skip(1)
        assert scraper.take() is None
