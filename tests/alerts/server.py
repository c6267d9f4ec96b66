"""A real HTTP server that answers as it is told, one answer a request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hook(ThreadingHTTPServer):
    """``answers``: a status, a status with headers, or ``hang``; the last one for all that follow. ``got``: what came."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.got: list[tuple[str, Mapping[str, str], Any]] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks/s3cr3t-path"

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.got]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Hook)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.got.append((self.command, dict(self.headers), json.loads(body)))
        answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        if answer == "hang":
            server.over.wait(60)
            return
        if answer == "garbage":
            self.wfile.write(b"s3cr3t-path is no HTTP\r\n\r\n")
            return
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        self.send_response(status, "s3cr3t-path")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Hook)
        server.got.append((self.command, dict(self.headers), None))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def hook(*answers: Any) -> Iterator[Hook]:
    with Hook(*answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join(10)
