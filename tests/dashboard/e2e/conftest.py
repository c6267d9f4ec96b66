"""A real server, a real Chromium, and stores for them."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.e2e.reader import Reader
from tests.dashboard.e2e.server import Server, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Names the browser for these tests. Where it is set, a browser that is missing is an error and no reason to skip.
VARIABLE = "COLDSTART_CHROMIUM"

#: No GPU, and no talk with anybody.
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)

Serve = Callable[..., Server]
Reads = Callable[..., Reader]


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One file of these tests at a time: a browser and its server keep two cores busy, and two of each only wait for the other."""
    with (tmp_path_factory.getbasetemp().parent / "browser.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="package")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Starts ``coldstart dashboard`` with the words given, once for each of them."""
    pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")
    running: dict[tuple[str, ...], Server] = {}
    with ExitStack() as stack:

        def start(*words: str) -> Server:
            if words not in running:
                running[words] = stack.enter_context(served(tmp_path_factory.mktemp("server"), *words))
            return running[words]

        yield start


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """The browser. For as long as it lives, no test of this process can run an asyncio loop of its own."""
    wanted = os.environ.get(VARIABLE)
    if wanted:
        import playwright.sync_api as sync_api
    else:
        sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")
    program = shutil.which(wanted or "chromium") or (None if wanted else shutil.which("chromium-browser"))
    if program is None and wanted:
        pytest.fail(f"{VARIABLE} names no program: {wanted}")
    if program is None:
        pytest.skip(f"needs Chromium: apt-get install chromium, or {VARIABLE}=PATH of one")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def reads(chromium: Browser) -> Iterator[Reads]:
    """Opens fresh browser contexts; at the end none of them may have seen what must not happen."""
    readers: list[Reader] = []

    def start(width: int = 1280, height: int = 900, **context: Any) -> Reader:
        size: Any = {"width": width, "height": height}
        readers.append(Reader.of(chromium.new_context(viewport=size, **context)))
        return readers[-1]

    yield start
    for reader in readers:
        reader.context.close()
    wrong = [word for reader in readers for word in reader.wrong]
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def reader(reads: Reads) -> Reader:
    return reads()


@pytest.fixture(scope="package")
def real(serve: Serve, booted: Path) -> Server:
    """A dashboard of the store that real boots have made."""
    return serve("--store", str(booted))


@pytest.fixture(scope="package")
def demo(serve: Serve) -> Server:
    """A dashboard of made-up boots, which has something on each page."""
    return serve("--demo")
