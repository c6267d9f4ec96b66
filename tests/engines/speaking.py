"""The HTTP side of the stand-ins for engines that cannot be installed here: standard library alone."""

from __future__ import annotations

import json
import socket
import socketserver
import time
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, str | Iterable[Any]]


class Server(ThreadingHTTPServer):
    """Serves on a socket that is bound and does not listen yet."""

    daemon_threads = True

    def __init__(self, bound: socket.socket, get: Callable[[str], Answer], post: Mapping[str, Callable[[Any], Answer]]):
        socketserver.BaseServer.__init__(self, bound.getsockname(), _Handler)
        self.socket, self.get, self.post = bound, get, post
        self.socket.listen(16)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(*self.server.get(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = self.server.post.get(self.path)
        self._answer(*(found(body) if found else (404, "")))

    def _answer(self, status: int, content: str | Iterable[Any]) -> None:
        self.send_response(status)
        if isinstance(content, str):
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content.encode())
            return
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in content:
            block = f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def bind(host: str, port: int) -> socket.socket:
    """A socket that has the port and refuses connections."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((host, port))
    return found


class Patience:
    """False until so many seconds after its start."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.begun = seconds, float("inf")

    def start(self) -> None:
        self.begun = time.monotonic()

    def __bool__(self) -> bool:
        return time.monotonic() >= self.begun + self.seconds
