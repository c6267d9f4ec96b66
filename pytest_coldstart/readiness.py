"""When each endpoint of an engine first answered: one watcher thread an endpoint."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Endpoint:
    """One thing that claims readiness. ``success`` judges status and body; ``trusted`` endpoints
    are where the first request is sent from."""

    name: str
    path: str
    trusted: bool = False
    success: Callable[[int, bytes], bool] = lambda status, body: status == 200


def interval(elapsed: float) -> float:
    """Seconds between polls: 2 ms at first, then 0.5 % of the time passed, at most 50 ms.

    Short boots need a fine grid; in long ones the polls themselves must not keep the engine busy.
    """
    return min(max(0.002, elapsed * 0.005), 0.05)


class Readiness:
    """Watches the port and every endpoint until each has succeeded or :meth:`close` is called.

    ``listen``, ``seen`` (endpoint name -> instant) and ``poll_delay`` are seconds from *origin*.
    """

    def __init__(self, host: str, port: int, endpoints: tuple[Endpoint, ...], origin: float) -> None:
        self.host, self.port, self.origin = host, port, origin
        self.listen: float | None = None
        self.ready: float | None = None
        self.poll_delay: float | None = None
        self.seen: dict[str, float] = {}
        self.last_answer = ""
        self._refused: float | None = None
        self.listening = threading.Event()
        self.trusted = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._watch_port, daemon=True, name="coldstart-listen")]
        for endpoint in endpoints:
            name = f"coldstart-{endpoint.name}"
            self._threads.append(threading.Thread(target=self._watch, args=(endpoint,), daemon=True, name=name))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop_polling(self) -> None:
        """Poll no more, without waiting for the threads: polls would disturb the timed requests."""
        self._closed.set()

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(3)

    def _now(self) -> float:
        return time.monotonic() - self.origin

    def _watch_port(self) -> None:
        while not self._closed.is_set():
            asked = self._now()
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
            except OSError:
                self._refused = asked
                self._closed.wait(interval(self._now()))
                continue
            self.listen = self._now()
            self.listening.set()
            return

    def _watch(self, endpoint: Endpoint) -> None:
        while not self.listening.wait(0.5):
            if self._closed.is_set():
                return
        failed_at = self._refused
        while not self._closed.is_set():
            asked = self._now()
            if self._ask(endpoint):
                self._succeed(endpoint, self._now(), failed_at)
                return
            failed_at = asked
            self._closed.wait(interval(self._now()))

    def _ask(self, endpoint: Endpoint) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=2)
        try:
            connection.request("GET", endpoint.path, headers={"Connection": "close"})
            response = connection.getresponse()
            body = response.read(1 << 20)
        except (OSError, http.client.HTTPException, ValueError):
            return False
        finally:
            connection.close()
        success = endpoint.success(response.status, body)
        words = "" if success or response.status != 200 else f" with {body[:100].decode('utf-8', 'replace')}"
        self.last_answer = f"{endpoint.path} {response.status}{words}"
        return success

    def _succeed(self, endpoint: Endpoint, when: float, failed_at: float | None) -> None:
        with self._lock:
            self.seen[endpoint.name] = when
            if endpoint.trusted and self.ready is None:
                self.ready = when
                self.poll_delay = when - failed_at if failed_at is not None else None
                self.trusted.set()
