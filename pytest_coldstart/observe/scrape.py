"""The engine's own histogram of the time to first token, read request by request.

Prometheus histograms only grow: with one request between two readings, the difference of the
sums is that request's own time to first token, exactly, whatever the buckets are.
"""

from __future__ import annotations

import http.client
import math
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: A name, its labels (whose quoted values may hold any character) and a value.
_SAMPLE = re.compile(rb'([A-Za-z_:][\w:]*)(\{(?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*\})?[ \t]+(\S+)')
#: A label begins where a word does, so that a long word is tried once.
_LABEL = re.compile(r'(?<!\w)([A-Za-z_]\w*)="((?:[^"\\\n]|\\.)*)"')
#: No sample has a longer line.
_LONGEST_LINE = 64 << 10
#: Bytes of an answer; what is longer is none.
_MOST = 4 << 20
#: So often a request may leave no trace in the histogram until nobody waits for one any more.
_PATIENT = 3


@dataclass(frozen=True)
class Reading:
    """Sum in seconds and count of one histogram, over all its label sets."""

    sum: float
    count: float


def samples(text: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    """Name, labels and value of each sample in Prometheus text; lines that are none are left out."""
    for line in text.split(b"\n"):
        if len(line) <= _LONGEST_LINE and (found := _SAMPLE.match(line)):
            yield found[1].decode(), found[2] or b"", found[3]


def labels_of(labels: bytes) -> dict[str, str]:
    """The labels of one of :func:`samples`, their values as they are written."""
    return dict(_LABEL.findall(labels.decode("utf-8", "replace")))


def parse(text: bytes, histogram: str) -> Reading | None:
    """The histogram's sum and count in Prometheus text, or None where it is not there or no number."""
    wanted = {f"{histogram}_sum": 0, f"{histogram}_count": 1}
    totals: list[float | None] = [None, None]
    for name, _, value in samples(text):
        place = wanted.get(name)
        if place is not None:
            try:
                totals[place] = (totals[place] or 0.0) + float(value)
            except ValueError:
                return None
    total, count = totals
    if total is None or count is None or not (math.isfinite(total) and math.isfinite(count)):
        return None
    return Reading(total, count)


class _Until(socket.socket):
    """A connection whose reads all end at one deadline: a timeout alone is that of each read."""

    deadline = 0.0

    def recv_into(self, *args: Any, **named: Any) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.settimeout(left)
        return super().recv_into(*args, **named)


def fetch(host: str, port: int, path: str, timeout: float = 5.0) -> bytes | None:
    """The body of a GET, whole after at most *timeout* seconds.

    None where there is no such answer, none with status 200, or one of more than 4 MiB.
    """
    deadline = time.monotonic() + timeout
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.connect()
        connection.sock = bounded = _Until(fileno=connection.sock.detach())
        bounded.deadline = deadline
        bounded.settimeout(timeout)
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        body = response.read(_MOST + 1) if response.status == 200 else None
        # Bytes that were announced and are not there would make another number of the last one.
        return None if body is None or len(body) > _MOST or response.length else body
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


class TTFTScraper:
    """Reads one histogram of one engine between requests that are sent one at a time."""

    def __init__(self, host: str, port: int, path: str, histogram: str) -> None:
        self.host, self.port, self.path, self.histogram = host, port, path, histogram
        self._last = Reading(0.0, 0.0)
        #: Requests since then of which the histogram does not know yet.
        self._owed = 0

    def skip(self, requests: int, patience: float = 1.0) -> None:
        """Take what the histogram holds as seen, once it knows of *requests* more that nobody asks for.

        Without waiting for them, figures that the engine writes a moment late would be taken for
        those of the next request. What is not there in time is owed, as in :meth:`take`.
        """
        last, owed = self._last, self._owed + requests
        now = self._read_until(owed, patience)
        if now is None:
            self._owed = owed
        else:
            self._last, self._owed = now, min(max(0, round(last.count + owed - now.count)), owed)

    def take(self, patience: float = 1.0) -> float | None:
        """TTFT in seconds of the one request since the last call; None where it cannot be told.

        The engine may write its figures a moment after the answer's end, so it is asked again
        for *patience* seconds. Figures that come later still are those of an earlier request,
        and are nobody's.
        """
        last, owed = self._last, self._owed + 1
        if owed > _PATIENT:
            return None
        now = self._read_until(owed, patience)
        if now is None or last.count <= now.count < last.count + owed:
            self._owed = owed
            return None
        self._last, self._owed = now, 0
        if owed > 1 or now.count != last.count + 1 or now.sum < last.sum:
            return None
        return now.sum - last.sum

    def _read_until(self, owed: int, patience: float) -> Reading | None:
        """A reading with *owed* more requests than the last one had, or the one when *patience* is out."""
        last, now = self._last, self._read()
        deadline = time.monotonic() + patience
        while now and now.count < last.count + owed and time.monotonic() < deadline:
            time.sleep(0.01)
            now = self._read()
        return now

    def _read(self) -> Reading | None:
        text = fetch(self.host, self.port, self.path)
        return parse(text, self.histogram) if text is not None else None
