"""The HTTP side of a receiver of traces: bodies in, answers out, nothing raised and nothing printed."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from typing import Any

PATH = "/v1/traces"
#: Bytes of one body as sent and unpacked, and connections at a time.
MAX_BODY, MAX_CONNECTIONS = 64 << 20, 256


class _Refused(Exception):
    """A request that is answered with a status of its own."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class OTLPServer(socketserver.ThreadingTCPServer):
    """Listens on a free port of 127.0.0.1: one thread a connection, all of which end with the server.

    ``accept`` takes a body, returns the answer's and raises ValueError for one that is no trace; ``refused`` is
    told of every request that was answered 4xx. No name is looked up for an address.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, accept: Callable[[bytes], bytes], refused: Callable[[], None]) -> None:
        self.accept, self.refused = accept, refused
        self._open: dict[socket.socket, threading.Thread] = {}
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name="coldstart-spans-connection",
            daemon=True,
        )
        with self._guard:
            full = len(self._open) >= MAX_CONNECTIONS
            if not full:
                self._open[request] = thread
        if full:
            self.refused()
            self.shutdown_request(request)
            return
        try:
            thread.start()
        except RuntimeError:  # no thread to be had
            with self._guard:
                self._open.pop(request, None)
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._guard:
            self._open.pop(request, None)

    def server_close(self) -> None:
        super().server_close()
        with self._guard:
            left = list(self._open.items())
        for connection, _ in left:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it ended by itself
        for _, thread in left:
            thread.join(2.0)

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.refused()  # a connection that broke; nothing is printed


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60.0
    server: OTLPServer

    def do_POST(self) -> None:
        try:
            if self.path.split("?")[0] != PATH:
                raise _Refused(404, f"traces go to {PATH}")
            if self.headers.get_content_type() != "application/x-protobuf":
                raise _Refused(415, "the body must be application/x-protobuf")
            answer = self.server.accept(self._body())
        except _Refused as error:
            self._refuse(error.status, str(error))
        except ValueError as error:
            self._refuse(400, str(error))
        else:
            self._answer(200, answer, "application/x-protobuf")

    def do_GET(self) -> None:
        self._refuse(405, f"POST traces to {PATH}")

    do_PUT = do_DELETE = do_HEAD = do_GET

    def _body(self) -> bytes:
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "", "gzip", "deflate"):
            raise _Refused(415, "the body must be plain, gzip or deflate")
        chunked = self.headers.get("Transfer-Encoding", "").strip().lower() == "chunked"
        raw = _read_chunks(self.rfile) if chunked else self._read_length()
        return _unpack(raw) if encoding in ("gzip", "deflate") else raw

    def _read_length(self) -> bytes:
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdigit()):
            raise _Refused(411, "the length of the body is not given")
        length = int(text[:20])
        if length > MAX_BODY:
            raise _Refused(413, f"the body is over {MAX_BODY} bytes")
        body = self.rfile.read(length)
        if len(body) < length:
            raise ValueError("the body ended early")
        return body

    def _refuse(self, status: int, text: str) -> None:
        """Answer, then read what is still coming for a while: a closed socket would hide the answer from its client."""
        self.server.refused()
        self.close_connection = True
        self._answer(status, (text + "\n").encode(), "text/plain; charset=utf-8")
        self.connection.settimeout(0.5)
        deadline = time.monotonic() + 5.0
        try:
            self.connection.shutdown(socket.SHUT_WR)
            while time.monotonic() < deadline and self.rfile.read1(1 << 16):
                pass
        except OSError:
            pass  # the client is gone, or has nothing more to say

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _read_chunks(stream: BufferedIOBase) -> bytes:
    """A body in chunks, without what may trail it."""
    parts, total = [], 0
    while True:
        word = stream.readline(1024).split(b";")[0].strip()
        try:
            size = int(word, 16)
        except ValueError:
            raise _Refused(400, "a chunk has no length") from None
        if size < 0 or total + size > MAX_BODY:
            raise _Refused(413, f"the body is over {MAX_BODY} bytes")
        if size == 0:
            break
        part = stream.read(size)
        if len(part) < size or stream.readline(3).strip():
            raise _Refused(400, "a chunk ended early")
        parts.append(part)
        total += size
    while stream.readline(65537).strip():
        pass
    return b"".join(parts)


def _unpack(raw: bytes) -> bytes:
    """A gzip or zlib body, never more than ``MAX_BODY`` bytes of it."""
    unpacker = zlib.decompressobj(wbits=47)  # either format, told apart by its header
    try:
        body = unpacker.decompress(raw, MAX_BODY + 1)
    except zlib.error as error:
        raise _Refused(400, f"the body does not unpack: {error}") from None
    if len(body) > MAX_BODY:
        raise _Refused(413, f"the body unpacks to over {MAX_BODY} bytes")
    if not unpacker.eof:
        raise _Refused(400, "the compressed body ends early")
    return body
