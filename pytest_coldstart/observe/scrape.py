"""The engine's own histogram of the time to first token, read request by request.

Prometheus histograms only grow: with one request between two readings, the difference of the
sums is that request's own time to first token, exactly, whatever the buckets are.
"""

from __future__ import annotations

import http.client
import math
import re
import time
from dataclasses import dataclass

#: A name, its labels (whose quoted values may hold any character) and a value.
SAMPLE = re.compile(rb'^([A-Za-z_:][\w:]*)(\{(?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*\})?[ \t]+(\S+)', re.MULTILINE)
#: So often a request may leave no trace in the histogram until nobody waits for one any more.
_PATIENT = 3


@dataclass(frozen=True)
class Reading:
    """Sum in seconds and count of one histogram, over all its label sets."""

    sum: float
    count: float


def parse(text: bytes, histogram: str) -> Reading | None:
    """The histogram's sum and count in Prometheus text, or None where it is not there or no number."""
    wanted = {f"{histogram}_sum".encode(): 0, f"{histogram}_count".encode(): 1}
    totals: list[float | None] = [None, None]
    for name, _, value in SAMPLE.findall(text):
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


def fetch(host: str, port: int, path: str, timeout: float = 5.0) -> bytes | None:
    """The body of a GET, of at most 16 MiB; None where there is no answer or none with status 200."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        return response.read(16 << 20) if response.status == 200 else None
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
