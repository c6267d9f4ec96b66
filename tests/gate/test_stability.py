from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from pytest_coldstart.gate.stability import LEAST_BOOTS, UNKNOWN, Stability, of_runs, stabilities, stability
from pytest_coldstart.history.read import RunPoint
from pytest_coldstart.record import Value
from pytest_coldstart.store.database import reader
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from pytest_coldstart.store.rows import series
from tests.store.samples import HEADER, record, write


def runs(values: Sequence[Sequence[float]]) -> list[RunPoint]:
    start = datetime(2026, 3, 1)
    return [RunPoint(f"r{n}", start + timedelta(days=n), tuple(run)) for n, run in enumerate(values)]


def noise(count: int, cv: float, level: float = 5.0, seed: int = 1) -> list[list[float]]:
    random = np.random.default_rng(seed)
    return [[float(level * np.exp(random.normal(0, cv))) for _ in range(3)] for _ in range(count)]


def test_the_deviation_is_that_of_the_logs() -> None:
    # Ratios to the median 10: 0.5, 1 and 2, so the median of their distances is a factor of 2 for most.
    assert of_runs(runs([[5.0, 20.0], [5.0, 20.0], [5.0, 20.0], [10.0, 10.0, 10.0]])).mad == pytest.approx(1.0)
    assert of_runs(runs([[9.9, 10.1]] * 4)).mad == pytest.approx(0.01, abs=1e-4)
    assert of_runs(runs([[0.0, 0.0, 0.0, 10.0, 10.0]] * 2)).mad is not None
    assert of_runs(runs([[0.0] * 8])).mad == 0.0


def test_normal_noise_has_the_deviation_it_was_made_with() -> None:
    found = of_runs(runs(noise(60, 0.04)))
    # Of normal noise the median absolute deviation is 0.6745 standard deviations.
    assert found.mad == pytest.approx(0.6745 * 0.04, rel=0.15)
    assert (found.unstable, found.boots, found.reason) == (False, 180, "")


def test_a_series_that_scatters_widely_is_unstable() -> None:
    found = of_runs(runs(noise(20, 0.3)))
    assert found.unstable
    assert "scatter by" in found.reason
    assert "more than 10%" in found.reason


def test_what_was_before_the_last_change_point_does_not_count() -> None:
    found = of_runs(runs([*noise(12, 0.02, 5.0), *noise(12, 0.02, 10.0, seed=2)]))
    assert found.boots == 36
    assert found.mad == pytest.approx(0.6745 * 0.02, rel=0.4)
    assert not found.unstable


def test_a_series_with_many_failed_boots_is_unstable() -> None:
    found = of_runs(runs([*[[5.0, 5.1]] * 8, [5.0, math.inf], [math.inf, math.inf]]))
    assert (found.unstable, found.reason) == (True, "3 of 20 boots failed")
    assert found.mad is not None
    assert not of_runs(runs([*[[5.0, 5.1]] * 9, [5.0, math.inf]])).unstable


def test_few_boots_say_nothing() -> None:
    found = of_runs(runs([[1.0, 9.0, 2.0]] * 2))
    assert found == Stability(False, None, 6, f"6 boots with a value stored; {LEAST_BOOTS} are needed")
    assert of_runs([]).mad is None
    mostly_failed = of_runs(runs([[1.0] * 3 + [math.inf] * 6]))
    assert (mostly_failed.unstable, mostly_failed.mad) == (True, None)


def test_all_series_of_a_gate_are_read_at_once_from_a_store(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "home")
    names = {digest: series(digest, HEADER["hardware_class"]) for digest in ("calm", "wild")}
    assert stability(home, names["calm"], "cold_start") == UNKNOWN
    home.prepare()
    values = {"calm": [10.0, 10.1] * 6, "wild": [5.0, 20.0] * 6}
    boots = [
        record(f"{digest}{n}", cell_digest=digest, metrics={"cold_start": Value(value, "client")})
        for digest, found in values.items()
        for n, value in enumerate(found)
    ]
    write(home, "main", *boots)
    ingest(home)
    with reader(home.database) as con:
        found = stabilities(con, [*names.values(), "unknown"], ["cold_start"])["cold_start"]
    assert [found[name].unstable for name in (names["calm"], names["wild"], "unknown")] == [False, True, False]
    assert found[names["calm"]].mad == pytest.approx(0.005, abs=1e-4)
    assert found[names["wild"]].boots == 12
    with reader(home.database) as con:
        (run_id,) = {row[0] for row in con.execute("SELECT run_id FROM boot").fetchall()}
        assert stabilities(con, [names["wild"]], ["cold_start"], {run_id})["cold_start"][names["wild"]].boots == 0
    assert found["unknown"].boots == 0
    assert stability(home, names["calm"], "cold_start") == found[names["calm"]]
