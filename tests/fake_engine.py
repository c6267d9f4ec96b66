"""A small real server for faults that no real engine gives on demand: standard library alone.

Run as ``python fake_engine.py --port N --fault NAME``. It speaks ``/health``, ``/v1/models``,
``/v1/completions`` and ``/v1/chat/completions`` (server-sent events, with usage), ``/metrics``,
``/sleep``, ``/wake_up`` and ``/is_sleeping``, and has the one fault named; parameters say how
long, how many or where. Into its journal it writes what it did and when, by the clock that all
processes of the host share.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import signal
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

#: What the faults write, for tests to look for.
REASON = "fake engine: no such device, giving up"
PROGRESS = "loading weights: 90 %"
ERROR_WORDS = "fake engine: out of memory in the middle of an answer"

#: Faults of the process; all others are faults of an answer.
AT_START = (
    "none",
    "exit_at_once",
    "segfault",
    "die_before_listen",
    "hang_silent",
    "listen_and_hang",
    "health_503_a_while",
    "endless_output",
    "invalid_utf8",
    "half_a_line",
    "forks_escaping_child",
    "ignores_sigterm",
    "leaves_shm",
    "never_binds",
)
IN_ANSWER = (
    "die_at_first_token",
    "die_after_first_token",
    "healthy_but_hangs",
    "refuses_a_while",
    "empty_response",
    "empty_stream",
    "not_sse",
    "stall_after_headers",
    "short_answer",
    "wrong_count",
    "error_event",
    "malformed_json",
    "multi_token_event",
    "role_delta_first",
    "http_500",
    "http_500_after_first",
    "cut_stream",
    "ready_too_early",
)
ASLEEP = ("refuses_sleep", "never_sleeps", "dies_at_sleep", "refuses_wake", "never_wakes", "dies_at_wake")
#: The histogram in /metrics.
HISTOGRAM = "fake:time_to_first_token_seconds"


class Server(ThreadingHTTPServer):
    daemon_threads = True
    arguments: argparse.Namespace
    started: float
    answered = 0
    asleep = False
    woken_at = 0.0
    ttfts: list[float]
    #: Requests in flight, and room for those that are answered at once.
    present = 0
    slots: threading.Semaphore
    counting: threading.Lock
    noted: set[str]

    def note(self, event: str, once: bool = True, **more: Any) -> None:
        """A line in the journal; of what is asked again and again, the first time alone."""
        if self.arguments.journal and not (once and event in self.noted):
            self.noted.add(event)
            with self.arguments.journal.open("a") as file:
                file.write(json.dumps({"event": event, "t": time.monotonic(), **more}) + "\n")

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without the DNS question of HTTPServer
        self.server_name, self.server_port = "fake", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    @property
    def age(self) -> float:
        return time.monotonic() - self.server.started

    def do_GET(self) -> None:
        arguments = self.server.arguments
        if arguments.fault == "health_503_a_while" and self.age < arguments.seconds:
            self.whole(503, {"error": {"message": "Loading model"}})
        elif self.path == "/health":
            self.server.note("health")
            self.whole(200, {"status": "ok"})
        elif self.path == "/v1/models":
            if arguments.fault == "ready_too_early" and self.age < arguments.seconds / 2:
                self.whole(503, {"error": {"message": "Loading model"}})
                return
            self.server.note("models")
            self.whole(200, {"object": "list", "data": [{"id": "fake", "object": "model"}]})
        elif self.path == "/metrics" and not arguments.no_metrics:
            ttfts = self.server.ttfts
            lines = f"{HISTOGRAM}_sum {sum(ttfts)!r}\n{HISTOGRAM}_count {len(ttfts)}\n" if ttfts else "# none yet\n"
            running = min(self.server.present, arguments.slots)
            self.plain(f"{lines}fake:running {running}\nfake:waiting {self.server.present - running}\n")
        elif self.path == "/is_sleeping":
            waking = time.monotonic() < self.server.woken_at + arguments.wake_wait
            self.whole(200, {"is_sleeping": self.server.asleep or waking})
        else:
            self.whole(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith(("/sleep", "/wake_up")):
            self.sleep_or_wake()
            return
        server = self.server
        with server.counting:
            server.present += 1
        try:
            with server.slots:
                self.answer(json.loads(content))
        finally:
            with server.counting:
                server.present -= 1

    def answer(self, body: dict[str, Any]) -> None:
        begun = time.monotonic()
        fault, arguments = self.server.arguments.fault, self.server.arguments
        chat = self.path == "/v1/chat/completions"
        count = int(body["max_tokens"])
        self.asked = len(str(body.get("prompt", "")).split()) or 7
        with self.server.counting:
            self.server.answered += 1
            number = self.server.answered
        time.sleep(arguments.first_wait)
        if number == 1:
            time.sleep(arguments.first_request_wait)
        if fault == "ready_too_early":
            time.sleep(max(0.0, arguments.seconds - self.age))
        if self.server.asleep:
            self.whole(500, {"error": {"message": "asked while asleep"}})
            return
        self.begun = begun
        if fault == "healthy_but_hangs":
            time.sleep(1000)
        elif fault == "refuses_a_while" and self.age < arguments.seconds:
            self.whole(503, {"error": {"message": "still warming up"}})
        elif fault == "http_500" or (fault == "http_500_after_first" and number > arguments.count):
            self.whole(500, {"error": {"message": ERROR_WORDS}})
        elif fault == "empty_response":
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif fault == "not_sse":
            self.whole(200, {"choices": [{"text": "all at once", "finish_reason": "length"}]})
        else:
            self.stream(chat, count)

    def sleep_or_wake(self) -> None:
        fault, server = self.server.arguments.fault, self.server
        verb = "sleep" if self.path.startswith("/sleep") else "wake"
        server.note(verb, once=False, path=self.path)
        if fault == f"dies_at_{verb}":
            die(REASON, 9)
        if fault == f"refuses_{verb}":
            self.whole(500, {"error": {"message": ERROR_WORDS}})
            return
        if verb == "sleep":
            server.asleep = fault != "never_sleeps"
        elif fault != "never_wakes":
            server.asleep, server.woken_at = False, time.monotonic()
        self.whole(200, {"status": "done"})

    def plain(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def whole(self, status: int, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, chat: bool, count: int) -> None:
        fault, arguments = self.server.arguments.fault, self.server.arguments
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if fault == "die_at_first_token":
            die(REASON, 9)
        if fault == "stall_after_headers":
            time.sleep(1000)
        if fault == "role_delta_first":
            self.choice({"delta": {"role": "assistant", "content": ""}})
            time.sleep(arguments.seconds)
        if fault != "empty_stream":
            self.tokens(chat, count)
        self.wfile.write(b"0\r\n\r\n")

    def tokens(self, chat: bool, count: int) -> None:
        fault, arguments = self.server.arguments.fault, self.server.arguments
        made = {"short_answer": 3, "wrong_count": count - 1}.get(fault, count)
        at_once = 4 if fault == "multi_token_event" else 1
        for first in range(0, made, at_once):
            if first:
                time.sleep(arguments.gap)
            words = "".join(f" word{index}" for index in range(first, min(first + at_once, made)))
            if not first:  # before it is sent: nobody can have seen it earlier
                ttft = time.monotonic() - self.begun
                self.server.note("token", once=False, ttft=ttft)
            self.choice({"delta": {"content": words}} if chat else {"text": words})
            if fault == "die_after_first_token":
                die(REASON, 9)
            if fault == "error_event":
                self.event(json.dumps({"error": {"message": ERROR_WORDS, "code": 500}}))
                return
            if fault == "malformed_json":
                self.event('{"choices": [{"text": " w')
                return
            if fault == "cut_stream" and first >= 2:
                return
        finish = "stop" if fault == "short_answer" else "length"
        self.choice({"delta": {}} if chat else {"text": ""}, finish)
        usage = {"prompt_tokens": self.asked, "completion_tokens": made, "total_tokens": self.asked + made}
        self.event(json.dumps({"object": "text_completion", "choices": [], "usage": usage}))
        self.server.ttfts.append(ttft)
        self.event("[DONE]")

    def choice(self, content: dict[str, Any], finish: str | None = None) -> None:
        self.event(json.dumps({"choices": [{"index": 0, **content, "finish_reason": finish}], "usage": None}))

    def event(self, data: str) -> None:
        block = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
        self.wfile.flush()


def die(words: str, code: int) -> NoReturn:
    print(words, file=sys.stderr, flush=True)
    os._exit(code)


def escape(note: Path | None) -> None:
    """Leave the process group and the session by a double fork, deaf to SIGTERM, for 1000 s."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if note:
        note.write_text(str(os.getpid()))
    time.sleep(1000)
    os._exit(0)


def noise(megabytes: int) -> None:
    """Print that many MiB in lines of 128 bytes as fast as the reader takes them."""
    line = b"x" * 127 + b"\n"
    block = line * (1024 * 1024 // len(line))
    for _ in range(megabytes):
        sys.stdout.buffer.write(block)
    sys.stdout.flush()


def before_listening(arguments: argparse.Namespace) -> None:
    fault = arguments.fault
    if fault == "exit_at_once":
        die(REASON, 3)
    elif fault == "segfault":
        print("about to crash", flush=True)
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "die_before_listen":
        for share in range(0, 100, 10):
            print(f"loading weights: {share} %", flush=True)
            time.sleep(0.05)
        time.sleep(0.5)
        os._exit(5)
    elif fault in ("hang_silent", "never_binds"):
        time.sleep(1000)
    elif fault == "endless_output":
        noise(arguments.count)
    elif fault == "invalid_utf8":
        sys.stdout.buffer.write(b"bytes \xff\xfe that are no text\n")
        sys.stdout.buffer.write(b"y" * 300_000)
        for share in range(101):
            sys.stdout.buffer.write(b"\rprogress %d %%" % share)
        sys.stdout.buffer.write(b"\r\nafter the bar\r\n")
        sys.stdout.flush()
    elif fault == "half_a_line":
        sys.stdout.write("no newline")
        sys.stdout.flush()
    elif fault == "forks_escaping_child":
        escape(arguments.note)
    elif fault == "ignores_sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def share_memory(arguments: argparse.Namespace) -> list[Any]:
    """Files in /dev/shm: one held open, one held mapped, one left lying; their names begin with the note."""
    held = open(f"/dev/shm/{arguments.name}-open", "wb+")
    held.write(b"o" * 4096)
    held.flush()
    mapped = open(f"/dev/shm/{arguments.name}-mapped", "wb+")
    mapped.write(b"m" * 8192)
    mapped.flush()
    view = mmap.mmap(mapped.fileno(), 8192)
    mapped.close()
    Path(f"/dev/shm/{arguments.name}-left").write_bytes(b"l" * 12288)
    return [held, view]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fault", default="none", choices=(*AT_START, *IN_ANSWER, *ASLEEP))
    parser.add_argument("--gap", type=float, default=0.0, help="seconds between two tokens")
    parser.add_argument("--first-wait", type=float, default=0.0, help="seconds before the first token")
    parser.add_argument("--first-request-wait", type=float, default=0.0, help="the same for the first request alone")
    parser.add_argument("--wake-wait", type=float, default=0.0, help="seconds from the request to wake to awake")
    parser.add_argument("--slots", type=int, default=64, help="requests answered at once; more wait")
    parser.add_argument("--no-metrics", action="store_true")
    parser.add_argument("--journal", type=Path, help="where it writes what it did and when")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a fault that passes lasts")
    parser.add_argument("--count", type=int, default=1, help="MiB of noise, or requests answered before the fault")
    parser.add_argument("--name", default="fake", help="begin of the names in /dev/shm")
    parser.add_argument("--note", type=Path, help="where the escaped child writes its pid")
    arguments = parser.parse_args()
    before_listening(arguments)
    kept = share_memory(arguments) if arguments.fault == "leaves_shm" else []
    server = Server(("127.0.0.1", arguments.port), Handler)
    server.arguments = arguments
    server.started = time.monotonic()
    server.ttfts, server.noted = [], set()
    server.slots, server.counting = threading.Semaphore(arguments.slots), threading.Lock()
    if arguments.fault == "listen_and_hang":
        time.sleep(1000)
    server.serve_forever(0.05)
    del kept


if __name__ == "__main__":
    main()
