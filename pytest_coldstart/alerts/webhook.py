"""A webhook: one POST of JSON, tried again a few times. Its address is a secret, and never in any message."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from pytest_coldstart import __version__

#: Seconds that one attempt waits for each part of an answer, and seconds between the attempts.
TIMEOUT, PAUSES = 10.0, (1.0, 4.0)

#: The longest that an answer's Retry-After is heeded.
_LONGEST_PAUSE = 30.0

#: Answers after which the same may work a moment later.
_PASSING = (408, 425, 429, 500, 502, 503, 504)

_VARIABLE = "env:"


class AddressError(ValueError):
    """What was given is no address of a webhook; the message does not repeat it."""


class NotDelivered(RuntimeError):
    """Nobody has been told; the message says why, and only the host of the address."""


@dataclass(frozen=True)
class Address:
    """Where to. Only ``shown`` may be printed."""

    url: str = field(repr=False)
    shown: str

    def __str__(self) -> str:
        return self.shown


def address(given: str, environ: Mapping[str, str]) -> Address:
    """The address that *given* is, or that the variable holds which ``env:NAME`` names.

    :raises AddressError: there is none, or it is no http:// or https:// address.
    """
    what, url = "--webhook", given
    if given.startswith(_VARIABLE):
        name = given.removeprefix(_VARIABLE)
        what, url = f"the variable {name}", environ.get(name, "").strip()
        if not url:
            raise AddressError(f"{what} of --webhook is empty or not set; give env:NAME with the address in NAME")
    return Address(url, _shown(url, what))


def _shown(url: str, what: str) -> str:
    if any(not char.isprintable() or char.isspace() or ord(char) > 126 for char in url):
        raise AddressError(f"{what} is no address: it has a space or a character that none may have")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise AddressError(f"{what} is no address of the form https://HOST/PATH") from None
    if parts.scheme not in ("http", "https") or not host:
        raise AddressError(f"{what} is no http:// or https:// address, or env:NAME for one in a variable")
    if parts.username is not None:
        raise AddressError(f"{what} has a user or a password in it, which is not supported")
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}{f':{port}' if port else ''}"


def post(to: Address, body: Mapping[str, Any], timeout: float = TIMEOUT, pauses: Sequence[float] = PAUSES) -> int:
    """Deliver *body*; returns how many attempts it took.

    :raises NotDelivered: no attempt was answered with success.
    """
    data = json.dumps(body, allow_nan=False).encode()
    said = ""
    for attempt, pause in enumerate((*pauses, None), 1):
        try:
            _send(to, data, timeout)
            return attempt
        except _Refused as refused:
            said = refused.what
            if pause is None or not refused.passing:
                raise NotDelivered(f"{to} {said}, after {attempt} attempt{'s' if attempt > 1 else ''}") from None
            time.sleep(max(pause, refused.after))
    raise AssertionError(said)  # the last attempt has no pause after it


class _Refused(Exception):
    def __init__(self, what: str, passing: bool, after: float = 0.0) -> None:
        self.what, self.passing, self.after = what, passing, after


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST becomes a GET without a body, and may lead to any place: it is an error instead."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _send(to: Address, data: bytes, timeout: float) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": f"pytest-coldstart/{__version__}"}
    try:
        request = urllib.request.Request(to.url, data, headers, method="POST")
        urllib.request.build_opener(_NoRedirect()).open(request, timeout=timeout).close()
    except urllib.error.HTTPError as error:
        error.close()
        raise _answered(error) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _Refused(_why(error, timeout), not isinstance(error, ValueError)) from None


def _answered(error: urllib.error.HTTPError) -> _Refused:
    try:
        phrase = f" {HTTPStatus(error.code).phrase}"
    except ValueError:
        phrase = ""
    if 300 <= error.code < 400:
        return _Refused(
            f"answered {error.code}{phrase}: redirects are not followed; give the address it leads to", False
        )
    wait = str(error.headers.get("Retry-After", "")) if error.headers else ""
    after = min(float(wait), _LONGEST_PAUSE) if wait.isdecimal() else 0.0
    return _Refused(f"answered {error.code}{phrase}", error.code in _PASSING, after)


def _why(error: Exception, timeout: float) -> str:
    """In words of ours: those of the libraries may repeat the address."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return f"did not answer within {timeout:g} s"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"has a certificate that does not hold ({cause.verify_message})"
    if isinstance(cause, ssl.SSLError):
        return "could not be spoken to over TLS"
    if isinstance(cause, socket.gaierror):
        return "is a host that cannot be found"
    if isinstance(cause, ConnectionRefusedError):
        return "refused the connection"
    if isinstance(cause, http.client.HTTPException):
        return f"gave no HTTP answer ({type(cause).__name__})"
    if isinstance(cause, OSError) and cause.strerror:
        return f"could not be reached ({cause.strerror})"
    return f"could not be reached ({type(cause).__name__})"
