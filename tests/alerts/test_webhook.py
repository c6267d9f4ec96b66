from __future__ import annotations

import socket

import pytest

from pytest_coldstart.alerts import webhook
from pytest_coldstart.alerts.webhook import Address, AddressError, NotDelivered, address, post
from tests.alerts.server import hook

BODY = {"text": "a \u2264 b"}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


def to(url: str) -> Address:
    return address(url, {})


def refused(url: str, timeout: float = 10.0) -> str:
    with pytest.raises(NotDelivered) as caught:
        post(to(url), BODY, timeout, (0.0, 0.0))
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_one_post_of_json() -> None:
    with hook(200) as server:
        assert post(to(server.url), BODY) == 1
    ((method, headers, body),) = server.got
    assert (method, body, headers["Content-Type"]) == ("POST", BODY, "application/json")
    assert headers["User-Agent"].startswith("pytest-coldstart/")


def test_what_passes_is_tried_again() -> None:
    with hook(500, (429, {"Retry-After": "0"}), 204) as server:
        assert post(to(server.url), BODY, pauses=(0.0, 0.0)) == 3
    assert server.bodies == [BODY] * 3


def test_the_attempts_are_bounded() -> None:
    with hook(503) as server:
        said = refused(server.url)
        assert said == f"http://127.0.0.1:{server.server_port} answered 503 Service Unavailable, after 3 attempts"
    assert len(server.got) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_what_will_not_pass_is_not_tried_again(status: int) -> None:
    with hook(status) as server:
        assert refused(server.url).endswith("after 1 attempt")
    assert len(server.got) == 1


def test_a_server_that_hangs_is_left() -> None:
    with hook("hang") as server:
        assert "did not answer within 0.2 s, after 3 attempts" in refused(server.url, 0.2)


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/s3cr3t"
        assert refused(url).endswith("refused the connection, after 3 attempts")


def test_a_host_that_does_not_exist() -> None:
    assert "http://none.invalid " in refused("http://none.invalid/s3cr3t")


def test_an_answer_that_is_no_http() -> None:
    with hook("garbage") as server:
        assert "gave no HTTP answer (BadStatusLine)" in refused(server.url)


def test_tls_with_what_does_not_speak_it() -> None:
    with hook(200) as server:
        said = refused(server.url.replace("http:", "https:"), 5.0)
    assert "TLS" in said or "could not be reached" in said


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("place", ["/other/s3cr3t", "file:///etc/passwd", "ftp://127.0.0.1/s3cr3t"])
def test_redirects_are_not_followed(status: int, place: str) -> None:
    with hook((status, {"Location": place})) as server:
        said = refused(server.url)
    assert "redirects are not followed; give the address it leads to" in said
    assert len(server.got) == 1


# -- addresses


def test_an_address_shows_its_host_alone() -> None:
    found = to("https://hooks.example.org:8443/services/s3cr3t?key=s3cr3t")
    assert str(found) == "https://hooks.example.org:8443"
    assert "s3cr3t" not in repr(found)
    assert str(to("http://[::1]/s3cr3t")) == "http://[::1]"


def test_a_variable_can_hold_the_address() -> None:
    assert address("env:HOOK", {"HOOK": " https://example.org/s3cr3t\n"}).url == "https://example.org/s3cr3t"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("env:HOOK", "the variable HOOK of --webhook is empty or not set"),
        ("env:", "the variable  of --webhook is empty or not set"),
        ("env:WRONG", "the variable WRONG is no http:// or https:// address"),
        ("file:///etc/s3cr3t", "--webhook is no http:// or https:// address"),
        ("ftp://s3cr3t", "--webhook is no http:// or https:// address"),
        ("hooks.example.org/s3cr3t", "--webhook is no http:// or https:// address"),
        ("https:///s3cr3t", "--webhook is no http:// or https:// address"),
        ("https://a:s3cr3t@example.org/", "has a user or a password in it"),
        ("https://example.org:s3cr3t/", "is no address of the form"),
        ("https://[s3cr3t/", "is no address of the form"),
        ("https://example.org/s3cr3t\r\nX: y", "a space or a character that none may have"),
        ("https://example.org/s3cr3t x", "a space or a character that none may have"),
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(given: str, said: str) -> None:
    with pytest.raises(AddressError) as caught:
        address(given, {"WRONG": "s3cr3t"})
    assert said in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_pauses_grow_and_end() -> None:
    assert list(webhook.PAUSES) == sorted(webhook.PAUSES)
    assert sum(webhook.PAUSES) + (len(webhook.PAUSES) + 1) * webhook.TIMEOUT < 60
