"""A stand-in for an engine: boots in a moment and speaks enough of the OpenAI API to be measured.

Sockets alone, since importing http.server would double its boot. What it does is set by variables:
FAKE_MODE=exit (prints a reason and ends with 3 before it listens) or broken (HTTP 500 for every completion),
FAKE_DELAY=SECONDS (before it listens), FAKE_LATER=FILE (mode exit in every boot that finds the file; the first
boot makes it).
"""

import json
import os
import socket
import sys
import threading
import time


def main():
    port = int(sys.argv[sys.argv.index("--port") + 1])
    print("fake engine: loading", flush=True)
    mode = os.environ.get("FAKE_MODE", "ok")
    later = os.environ.get("FAKE_LATER")
    if later and os.path.exists(later):
        mode = "exit"
    elif later:
        open(later, "w").close()
    if mode == "exit":
        print("fake engine: out of memory", flush=True)
        sys.exit(3)
    time.sleep(float(os.environ.get("FAKE_DELAY", 0)))
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def serve(connection):
    with connection:
        head, body = read(connection)
        path = head.split(b" ", 2)[1].decode() if b" " in head else ""
        if path in ("/health", "/v1/models"):
            answer(connection, 200, b"{}")
        elif path == "/v1/completions":
            if os.environ.get("FAKE_MODE") == "broken":
                answer(connection, 500, b'{"error": "no such luck"}')
            else:
                complete(connection, json.loads(body))
        elif head:
            answer(connection, 404, b"")


def read(connection):
    """Request line and headers, then the body."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return b"", b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        body += connection.recv(65536)
    return head, body


def answer(connection, status, body):
    head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    connection.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)


def complete(connection, request):
    """max_tokens events with one token each, then the end with the usage."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    tokens = request["max_tokens"]
    for number in range(tokens):
        finish = "length" if number == tokens - 1 else None
        event(connection, {"choices": [{"text": f" {number}", "finish_reason": finish}]})
    usage = {"prompt_tokens": len(request["prompt"].split()), "completion_tokens": tokens}
    event(connection, {"choices": [], "usage": usage})
    connection.sendall(b"data: [DONE]\n\n")


def event(connection, data):
    connection.sendall(b"data: " + json.dumps(data).encode() + b"\n\n")


if __name__ == "__main__":
    main()
