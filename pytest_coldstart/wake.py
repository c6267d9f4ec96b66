"""Before a boot at the tier ``wake``: the engine is booted, answers once and is put to sleep.

None of that is timed. The start of the boot is the request that wakes it.
"""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING

from pytest_coldstart.engines.base import Call, SleepCalls
from pytest_coldstart.errors import BootFailed
from pytest_coldstart.plan import Plan
from pytest_coldstart.ports import HOST
from pytest_coldstart.readiness import Endpoint

if TYPE_CHECKING:
    from pytest_coldstart.boot import Boot

#: Seconds from the answer to the sleep request until the engine must say that it sleeps.
_FALL_ASLEEP = 60.0


def plan_wakes(plan: Plan) -> bool:
    """Whether boots of this plan begin with an engine that sleeps."""
    return plan.cell.tier == "wake"


def calls_of(plan: Plan) -> SleepCalls:
    calls = plan.engine.sleep_calls(plan.cell)
    assert calls is not None  # the engine has the tier
    return calls


def put_to_sleep(boot: Boot) -> None:
    """Answer one request, sleep, and see that it sleeps.

    :raises BootFailed: it refuses to sleep, or says that it is awake.
    :raises RequestFailed: it does not answer before its sleep.
    """
    calls, exchange = calls_of(boot.plan), boot.exchange
    assert exchange is not None
    boot.requests.append(exchange.pinned("before"))
    if boot.scraper:
        boot.scraper.skip(1)
    post(boot, calls.sleep, "sleep")
    deadline = time.monotonic() + _FALL_ASLEEP
    while True:
        sleeps, said = says(boot, calls.asleep)
        if sleeps:
            return
        if time.monotonic() > deadline or exchange.closing.is_set():
            raise BootFailed(
                "sleep",
                f"GET {calls.asleep.path} does not say that the engine sleeps {_FALL_ASLEEP:g} s after "
                f"POST {calls.sleep.path}; it says {said}",
            )
        time.sleep(0.05)


def wake_up(boot: Boot) -> None:
    """Ask the engine to wake, call by call.

    :raises BootFailed: it refuses.
    """
    for call in calls_of(boot.plan).wake:
        post(boot, call, "wake")


def post(boot: Boot, call: Call, what: str) -> None:
    """Make one call.

    :raises BootFailed: any answer but 200.
    """
    body = b"" if call.body is None else json.dumps(dict(call.body)).encode()
    status, answer = _ask(boot, "POST", call.path, boot.plan.boot_timeout, body)
    if status != 200:
        raise BootFailed(what, f"the request to {what} failed: POST {call.path}: {_words(status, answer)}")


def says(boot: Boot, endpoint: Endpoint) -> tuple[bool, str]:
    """Whether *endpoint* says so, and its answer in words."""
    status, answer = _ask(boot, "GET", endpoint.path, 5.0)
    return status is not None and endpoint.success(status, answer), _words(status, answer)


def _words(status: int | None, answer: bytes) -> str:
    text = answer[:300].decode("utf-8", "replace").strip()
    return text if status is None else f"HTTP {status}: {text or 'no body'}"


def _ask(boot: Boot, method: str, path: str, timeout: float, body: bytes = b"") -> tuple[int | None, bytes]:
    assert boot.port is not None
    connection = http.client.HTTPConnection(HOST, boot.port.number, timeout=timeout)
    try:
        headers = {"Connection": "close", "Content-Length": str(len(body))}
        if body:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        return response.status, response.read(1 << 16)
    except (OSError, http.client.HTTPException) as error:
        return None, f"no answer: {error or type(error).__name__}".encode()
    finally:
        connection.close()
