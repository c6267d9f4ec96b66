"""The client's first-token instant against a clock it does not share: the kernel's, through strace.

llama.cpp's real server is booted; a small child process then sends N streamed requests with the
project's own client, while strace stamps each of its reads with CLOCK_REALTIME (the entry of the
system call plus the time spent in it, so the moment the read returned). The read that completes
the first ``data:`` event is compared with the client's ``first_token``. The child samples
CLOCK_REALTIME - CLOCK_MONOTONIC before and after each request, which brings both on one axis.

strace slows the child: each traced call stops it twice, and what lies between the stamp strace
takes and the child running again counts as the client's delay. ``floor`` shows how much that is: the
same comparison for a bare ``recv`` on a socket pair followed at once by the clock. So the figure is
an upper bound of the client's own error.

Goal: within 1 ms (largest absolute difference of at least 10 requests).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _common import Summary, arguments, bench, finish, table

from pytest_coldstart.boot import Boot
from pytest_coldstart.client import FIRST_PROMPT, FIRST_TOKENS, Client, Dialect
from pytest_coldstart.warmup import unique_prompt

GOAL = 0.001
PING = "floor-ping"
READ = re.compile(r'^(?:\d+\s+)?(\d+\.\d+) (?:recvfrom|read|recv)\(\d+, "(.*)", \d+.*\) = (\d+) <(\d+\.\d+)>$')
STRACE = ("-f", "-ttt", "-T", "-s", "65536", "-e", "trace=recvfrom,read,recv", "-e", "signal=none")


# -- the traced child


def offset() -> float:
    """CLOCK_REALTIME - CLOCK_MONOTONIC in seconds, from the narrowest of 20 brackets."""
    best, found = float("inf"), 0.0
    for _ in range(20):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best:
            best, found = after - before, (real - (before + after) / 2) / 1e9
    return found


def child(port: int, served: str, n: int) -> None:
    """Send the requests; one line of JSON for each, on stdout."""
    client = Client("127.0.0.1", port, served, Dialect(), origin=0.0)
    client.complete(FIRST_PROMPT, FIRST_TOKENS)  # imports and first-use costs of the client end here
    left, right = socket.socketpair()
    for index in range(n):
        first = offset()
        left.sendall(PING.encode())
        right.recv(100)
        floor = time.monotonic()
        request = client.complete(
            unique_prompt(1000 + index, 32), 4
        )  # none that the boot itself sent: it would be cached
        print(
            json.dumps(
                {
                    "floor": floor,
                    "sent": request.sent,
                    "first_token": request.first_token,
                    "offset_before": first,
                    "offset_after": offset(),
                }
            )
        )


# -- the trace


def reads(trace: str) -> list[tuple[float, bytes]]:
    """When each traced read returned and what it brought."""
    found = []
    for line in trace.splitlines():
        if match := READ.match(line):
            when, text, length, spent = match.groups()
            content = text.encode("latin-1").decode("unicode_escape").encode("latin-1")
            if len(content) == int(length):
                found.append((float(when) + float(spent), content))
    return found


def arrivals(found: list[tuple[float, bytes]]) -> tuple[list[float], list[float]]:
    """The instants of the pings, and of the read that completes the first event of each answer."""
    pings: list[float] = []
    events: list[float] = []
    answer: bytes | None = None
    for when, content in found:
        if content == PING.encode():
            pings.append(when)
        elif content.startswith(b"HTTP/1.1 200"):
            answer = content
        elif answer is not None:
            answer += content
        if answer is not None and re.search(rb"data: [^\n]*\r?\n\r?\n", answer):
            events.append(when)
            answer = None
    return pings, events


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("-n", type=int, default=30, help="requests (default: 30)")
    parser.add_argument("--child", nargs=2, metavar=("PORT", "MODEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(int(options.child[0]), options.child[1], options.n)
        return
    strace = shutil.which("strace")
    if strace is None:
        sys.exit("strace is not installed")
    with bench() as where, tempfile.TemporaryDirectory() as folder:
        boot = Boot(where.plan("restart"))
        boot.run()
        try:
            if boot.failure:
                sys.exit(f"llama.cpp did not boot: {boot.failure}")
            assert boot.client is not None
            out = Path(folder) / "trace"
            command = [strace, *STRACE, "-o", str(out), sys.executable, __file__, "-n", str(options.n)]
            command += ["--child", str(boot.client.port), boot.client.model]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            trace = out.read_text("latin-1")
        finally:
            boot.stop()
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    pings, events = arrivals(reads(trace))
    events = events[1:]  # the untimed request
    if len(pings) != len(rows) or len(events) != len(rows):
        sys.exit(f"{len(rows)} requests, but the trace shows {len(pings)} pings and {len(events)} first events")
    difference, floor, drift, ttft = [], [], [], []
    for row, ping, event in zip(rows, pings, events, strict=True):
        axis = (row["offset_before"] + row["offset_after"]) / 2
        difference.append(row["first_token"] + axis - event)
        floor.append(row["floor"] + row["offset_before"] - ping)
        drift.append(abs(row["offset_after"] - row["offset_before"]))
        ttft.append(row["first_token"] - row["sent"])
    late, bare = Summary.of(difference), Summary.of(floor)
    worst = max(abs(value) for value in difference)
    table(
        [
            ("what", "median [quartiles], least..most"),
            ("client's first token - read that brought it", late.show(1e3, 3, " ms")),
            ("floor: clock after a bare recv - that recv", bare.show(1e3, 3, " ms")),
            ("drift of the two clocks over a request", Summary.of(drift).show(1e3, 4, " ms")),
            ("time to first token, under strace", Summary.of(ttft).show(1e3, 1, " ms")),
        ]
    )
    print(
        f"largest absolute difference {worst * 1e3:.3f} ms; goal {GOAL * 1e3:g} ms: {'met' if worst <= GOAL else 'MISSED'}"
    )
    finish(options, {"goal_s": GOAL, "difference_s": late, "largest_s": worst, "floor_s": bare})


if __name__ == "__main__":
    main()
