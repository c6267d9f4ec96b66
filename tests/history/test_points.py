from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from pytest_coldstart.gate.comparison import Difference
from pytest_coldstart.history import points
from pytest_coldstart.history.points import History, histories, history, meant, to_dict
from pytest_coldstart.history.read import HistoryError, RunPoint, Series, all_series
from pytest_coldstart.store.database import reader
from pytest_coldstart.store.home import Home
from tests.history.conftest import STEP, Fill, commit, run_id

SERIES = Series("c0ffee-h200", "tiny-restart", "test_a.py::test_boot", "llamacpp", "tiny", "restart", 36, 0)


def of(runs: Sequence[Sequence[float]], metric: str = "cold_start") -> History:
    """Of one run a day from 1 March 2026 on, 8:00 UTC."""
    start = datetime(2026, 3, 1, 8)
    points = [
        RunPoint(run_id(n), start + timedelta(days=n), tuple(sorted(run)), int(not run), commit(n), "main", False)
        for n, run in enumerate(runs)
    ]
    return history(SERIES, metric, points)


def upgraded(n: int) -> dict[str, Any]:
    return {"driver": "580.1" if n >= 10 else "570.2", "versions": {"pytest": "9.3" if n >= 4 else "9.2"}}


def test_a_step_has_its_date_commits_size_and_what_changed_with_it(home: Home, fill: Fill) -> None:
    fill(STEP, upgraded)
    with reader(home.database) as con:
        (found,) = histories(con, all_series(con), "cold_start")
    (point,) = found.points
    assert (point.index, point.low, point.high) == (10, 10, 10)
    assert point.at == datetime(2026, 3, 11, 8)
    assert point.commits == (commit(9), commit(10))
    assert point.place.runs == (run_id(9), run_id(10))
    assert point.size == pytest.approx(0.5, abs=0.005)
    assert (point.before, point.after) == (pytest.approx(2.006, abs=0.002), pytest.approx(3.006, abs=0.002))
    assert point.confidence > 0.95
    assert point.regression
    assert point.environment == (Difference("driver", "570.2", "580.1"),)
    assert [(one.index, one.differences) for one in found.moved] == [
        (4, (Difference("versions.pytest", "9.2", "9.3"),)),
        (10, (Difference("driver", "570.2", "580.1"),)),
    ]
    assert found.new == (point,)
    assert (found.unit, found.better) == ("s", "lower")
    assert found.last == pytest.approx(3.007, abs=0.004)


def test_less_is_no_regression_unless_more_is_better() -> None:
    (point,) = of(STEP[::-1]).points
    assert point.size == pytest.approx(-1 / 3, abs=0.01)
    assert not point.regression
    found = of(STEP[::-1], "load_throughput")
    assert found.better == "higher"
    assert [point.regression for point in found.points] == [True]


def test_failed_runs_lie_between_the_commits_of_a_change() -> None:
    runs: list[Sequence[float]] = [list(run) for run in STEP]
    runs[9], runs[17] = [math.inf, 2.0], [math.inf]
    found = of(runs)
    (point,) = found.points
    assert point.commits == (commit(8), commit(10))
    assert found.last == math.inf


def test_few_runs_say_why_there_are_no_change_points() -> None:
    found = of(STEP[8:12])
    assert found.points == ()
    assert found.reason == "4 runs with a value and no failed boot; change points need 6"


def test_only_the_newest_runs_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "RECENT", 12)
    found = of(STEP)
    assert [point.index for point in found.points] == [10]
    assert found.points[0].commits == (commit(9), commit(10))
    assert found.reason == "only the newest 12 of 18 runs were searched"


def test_a_run_a_commit_or_a_day_means_a_change_point() -> None:
    found = of(STEP)
    (point,) = found.points
    for at in (run_id(10), commit(10), commit(10)[:7], "2026-03-11", "2026-03-11T07:30", "2026-03-11T09:30+02:00"):
        assert meant(found, at).point == point, at
    later = meant(found, run_id(14))
    assert later.point is None
    assert later.place.runs == (run_id(13), run_id(14))


def test_the_first_run_is_known_and_is_no_change() -> None:
    with pytest.raises(HistoryError, match=r"'run-000' is the first run of .*: nothing changed before it"):
        meant(of(STEP), run_id(0))


def test_the_beginning_of_several_ids_names_none_of_them_capitals_or_not() -> None:
    runs = tuple(RunPoint(f"RUN-{n}", None, (2.0,)) for n in range(8))
    with pytest.raises(HistoryError, match="names no run and no change point"):
        meant(dataclasses.replace(of(STEP), runs=runs, points=()), "RUN-")


@pytest.mark.parametrize("at", ["2026-03-12", "2027-01-01", "run-0", "feed", ""])
def test_what_means_none_lists_the_change_points(at: str) -> None:
    with pytest.raises(HistoryError, match=rf"(?s)no run and no change point.*\n  {run_id(10)}  .*\+49"):
        meant(of(STEP), at)


def test_the_plain_data_is_json_without_infinities() -> None:
    found = to_dict(of([*STEP, [math.inf, 3.0], []]))
    read = json.loads(json.dumps(found, allow_nan=False))
    assert read["runs"][18]["values"] == [3.0]
    assert read["runs"][18]["failed"] == 1
    assert read["runs"][18]["median"] is None
    assert read["runs"][19]["unmeasured"] == 1
    assert read["points"][0]["at"] == "2026-03-11T08:00:00.000+00:00"
    assert read["points"][0]["commits"] == [commit(9), commit(10)]
