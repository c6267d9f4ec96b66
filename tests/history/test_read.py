from __future__ import annotations

import math
from datetime import datetime

from pytest_coldstart.history.read import Series, all_series, has_metric, matching, runs_of, runs_of_each
from pytest_coldstart.store.database import reader
from pytest_coldstart.store.home import Home
from tests.history.conftest import Fill, commit


def series_of(home: Home) -> list[Series]:
    with reader(home.database) as con:
        return all_series(con)


def test_the_runs_of_a_series_in_the_order_of_time(home: Home, fill: Fill) -> None:
    fill([[3.0, 1.0, None], [math.inf, 2.0]], lambda n: {"driver": "580" if n else "570", "git_dirty": bool(n)})
    fill([[9.0]], role="prime", cell_digest="other")
    fill([[9.0]], outcome="error", cell_digest="another")
    (one,) = series_of(home)
    assert (one.cell_id, one.engine, one.model, one.tier) == ("llamacpp-tiny-restart", "llamacpp", "tiny", "restart")
    assert (one.boots, one.failed) == (5, 1)
    with reader(home.database) as con:
        first, second = runs_of(con, [one.series], "cold_start")[one.series]
        assert runs_of(con, [one.series, "none"], "cold_start", newest=1) == {one.series: [second], "none": []}
        each = runs_of_each(con, [one.series], ["cold_start", "nothing"])
        assert runs_of_each(con, [one.series], []) == {}
        assert has_metric(con, "cold_start")
        assert not has_metric(con, "coldstart")
    assert each["cold_start"][one.series] == [first, second]
    assert [(run.values, run.unmeasured) for run in each["nothing"][one.series]] == [((), 3), ((math.inf,), 1)]
    assert (first.values, first.unmeasured) == ((1.0, 3.0), 1)
    assert (second.values, second.unmeasured) == ((2.0, math.inf), 0)
    assert (first.started_at, first.commit, first.dirty) == (datetime(2026, 3, 1, 8), commit(0), False)
    assert (second.branch, second.dirty) == ("main", True)
    assert first.environment == {
        "driver": "570",
        "kernel": "6.8.0",
        "hostname": "node7",
        "versions.pytest": "9.2.0",
        "versions.xllamacpp": "2026.10",
    }
    assert second.environment["driver"] == "580"


def test_runs_of_a_gate_and_of_other_branches_are_left_out(home: Home, fill: Fill) -> None:
    fill(
        [[1.0], [2.0], [3.0]],
        lambda n: {"gate": {"gate": "g", "side": "head"}} if n == 1 else {"git_branch": f"branch{n}", "gate": None},
    )
    (one,) = series_of(home)
    with reader(home.database) as con:
        assert [run.values for run in runs_of(con, [one.series], "cold_start")[one.series]] == [(1.0,), (3.0,)]
        (only,) = runs_of(con, [one.series], "cold_start", branch="branch2")[one.series]
    assert only.values == (3.0,)


def test_a_series_is_named_by_an_id_its_beginning_or_a_part(home: Home, fill: Fill) -> None:
    fill([[1.0]], cell_digest="aaaa00000001", cell_id="restart")
    fill([[1.0]], cell_digest="aaaa00000002", cell_id="big-restart", nodeid="test_b.py::test_big")
    found = series_of(home)
    big = next(one for one in found if one.cell_id == "big-restart")
    assert {one.cell_id for one in matching(found, "restart")} == {"restart"}
    assert len(matching(found, "aaaa")) == 2
    assert matching(found, "aaaa00000002") == [big]
    assert matching(found, big.series) == [big]
    assert matching(found, "test_big") == [big]
    assert matching(found, "big-r") == [big]
    assert len(matching(found, "llamacpp")) == 2
    assert matching(found, "vllm") == []
