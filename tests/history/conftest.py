"""A store of one series whose runs have known values, and the two commands on it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.history.command import add
from pytest_coldstart.record import Value
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from pytest_coldstart.store.runfile import RunFile
from tests.store.samples import HEADER, record

#: One clean step: 2 s, then 3 s from run 10 on, with noise of some per mille.
STEP = [[2.0 + 0.002 * (n % 3), 2.01] for n in range(10)] + [[3.0 + 0.002 * (n % 4), 3.01] for n in range(8)]

Fill = Callable[..., Home]


def commit(n: int) -> str:
    """A commit that nothing else begins like."""
    return f"{n:04d}" + "c" * 36


def run_id(n: int) -> str:
    return f"run-{n:03d}"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home.at(tmp_path / "home")
    made.prepare()
    return made


@pytest.fixture
def fill(home: Home) -> Fill:
    """Writes one run a day from 1 March 2026 on, 8:00 UTC, with the given values; +infinity is a failed boot, None no value."""

    def filled(
        runs: Sequence[Sequence[float | None]],
        header: Callable[[int], dict[str, Any]] = lambda n: {},
        first: int = 0,
        metric: str = "cold_start",
        **changes: Any,
    ) -> Home:
        for n, values in enumerate(runs, first):
            at = datetime(2026, 3, 1, 8) + timedelta(days=n)
            head = {**HEADER, "started_at": f"{at.isoformat()}+00:00", "git_commit": commit(n), "git_dirty": False}
            file = RunFile(home, run_id(n), str(changes.get("cell_digest", "main")), {**head, **header(n)})
            for index, value in enumerate(values):
                failed = value == math.inf
                given = Value(None, None, "none") if value is None or failed else Value(value, "client")
                started = (at + timedelta(minutes=index)).isoformat(timespec="milliseconds") + "+00:00"
                boot = record(
                    f"{run_id(n)}-{index}-{changes.get('cell_digest', '')}",
                    run_id=run_id(n),
                    started_at=started,
                    round=index,
                    metrics={metric: given},
                    **{"outcome": "failed" if failed else "ok", **changes},
                )
                file.boot(boot)
            file.close(0)
        assert not ingest(home).problems
        return home

    return filled


@pytest.fixture
def coldstart(home: Home, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs ``coldstart history`` or ``ack`` on the store, on a terminal of 120 columns."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(command: str, *words: str) -> int:
        parser = argparse.ArgumentParser()
        store = argparse.ArgumentParser(add_help=False)
        store.add_argument("--store", type=Path)
        add(parser.add_subparsers(required=True), store)
        arguments = parser.parse_args([command, "--store", str(home.root), *words])
        return int(arguments.run(arguments))

    return run
