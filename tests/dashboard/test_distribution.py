"""Requests of series as the page Distribution shows them, and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="pages need streamlit: pip install 'pytest-coldstart[dashboard]'")

from streamlit.testing.v1 import AppTest

from dashboard.data.distribution import Sample, samples
from dashboard.data.series import all_series
from dashboard.source import opened
from pytest_coldstart import units
from pytest_coldstart.derive import distribution
from pytest_coldstart.record import BootRecord, Request
from pytest_coldstart.store.boots import load
from pytest_coldstart.store.database import connect, migrate
from pytest_coldstart.store.home import Home
from tests.dashboard import hostile
from tests.dashboard.conftest import boot, failed, run, shown_on


def requests(*warm: float, first: float = 5.0) -> tuple[Request, ...]:
    """The first of *warm* is the one of warm_first_token."""
    return (
        Request("first", 0, 1.0, 1.0 + first),
        Request("warmup", 0, 7.0, 7.5),
        *(Request("warm", index, 10.0 + index, 10.0 + index + value) for index, value in enumerate(warm)),
        Request("shape", 0, 50.0, 59.0),
        Request("burst", 0, 60.0, 69.0),
    )


def asked(home: Home, runs: int = 1, most: int = 100) -> tuple[Sample, ...]:
    with opened(home) as con:
        return samples(con, tuple(item.id for item in all_series(con)), runs, most)


def made(name: str, minute: int, *warm: float, **changes: Any) -> BootRecord:
    return boot(name, minute, 1.0, requests=requests(*warm), **changes)


def test_a_sample_is_the_distribution_of_the_metrics(home: Home) -> None:
    run(home, "r-1", [made("1", 1, 9.0, 0.25, 0.5), made("2", 2, 9.0, 0.75)], [])
    (one,) = asked(home)
    assert one.warm == (0.25, 0.5, 0.75)
    assert one.cold == (5.0, 5.0)
    assert (one.runs, one.boots, one.failed, one.silent, one.cut) == (1, 2, 0, 0, 0)
    with opened(home) as con:
        assert [value for name in ("1", "2") for value in distribution(load(con, name))] == list(one.warm)


def test_the_newest_runs_and_requests_are_taken(home: Home) -> None:
    run(home, "r-1", [made("1", 1, 9.0, 0.25)], [])
    run(home, "r-2", [made("2", 2, 9.0, 0.5, 0.75)], [])
    assert asked(home)[0].warm == (0.5, 0.75)
    assert asked(home, 2)[0].warm == (0.25, 0.5, 0.75)
    (one,) = asked(home, 2, most=2)
    assert (one.warm, one.cut, one.runs) == ((0.5, 0.75), 1, 2)


def test_failed_boots_and_silent_requests_are_counted_and_series_are_not_mixed(home: Home) -> None:
    silent = (*requests(9.0, 0.5), Request("warm", 2, 80.0, None, error="reset by peer"))
    run(
        home,
        "r-1",
        [boot("1", 1, 1.0, requests=silent), failed("2", 2, requests=()), made("3", 3, 9.0, role="prime")],
        [],
    )
    run(home, "r-2", [made("4", 4, 9.0, 2.0, cell_digest="other")], [])
    other, one = asked(home)
    assert other.warm == (2.0,)
    assert (one.warm, one.silent, one.boots, one.failed) == ((0.5,), 1, 2, 1)


def test_a_series_without_boots_that_count_is_empty(home: Home) -> None:
    run(home, "r-1", [made("1", 1, 9.0, 0.5, role="prime")], [])
    (one,) = asked(home)
    assert (one.warm, one.cold, one.boots) == ((), (), 0)
    with opened(home) as con:
        assert samples(con, (), 1, 10) == ()


# -- the page


def test_the_page_has_each_series_with_what_is_not_measured(
    page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [0.01 * number for number in range(1, 101)]
    run(home, "r-1", [made("1", 1, 9.0, *many)], [])
    run(home, "r-2", [made("2", 2, 9.0, 0.25, 0.5, cell_digest="few", cell_id="few")], [])
    run(home, "r-3", [failed("3", 3, requests=(), cell_digest="none", cell_id="none")], [])
    page = shown_on(page, "distribution", home.root, monkeypatch, runs="3")
    rows = {row["series"]: row for row in page.dataframe[0].value.to_dict("records")}
    full, few, none = rows["llamacpp llamacpp-tiny-restart"], rows["llamacpp few"], rows["llamacpp none"]
    assert (full["N"], full["p50"], full["p99"], full["max"]) == ("100", "505 ms", "990 ms", "1.00 s")
    assert full["jitter"] == units.show(0.99 - 0.505, "s")
    assert (few["p99"], few["max"], few["jitter"]) == ("unmeasured: needs 100", "500 ms", "125 ms")
    assert few["skew"] == "unmeasured"
    assert (none["N"], none["p50"], none["boots"]) == ("0", "unmeasured", "1 (1 failed)")
    assert len(page.get("vega_lite_chart")) == 2
    cold = {row["series"]: row for row in page.dataframe[1].value.to_dict("records")}
    assert cold["llamacpp few"] == {
        "series": "llamacpp few",
        "cold p50": "5.00 s of 1",
        "warm p50": "375 ms of 2",
        "cold over warm": "13.3 x",
    }
    assert page.selectbox(key="runs").value == "3"


def test_the_page_of_real_boots(page: AppTest, booted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = shown_on(page, "distribution", booted, monkeypatch)
    cold = page.dataframe[-1].value.to_dict("records")
    assert any(row["cold p50"].endswith(" of 2") for row in cold)


def test_a_store_full_of_attacks_is_shown(page: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = shown_on(page, "distribution", hostile.store(tmp_path).root, monkeypatch)
    assert page.dataframe


def test_a_store_without_boots_is_a_message(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(home.database) as con:
        migrate(con)
    page = shown_on(page, "distribution", home.root, monkeypatch)
    assert page.text[0].value == "The store holds no boots yet."


def test_more_series_than_are_shown_is_said(page: AppTest, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "r-1", [made(f"{number:02d}", number, 9.0, 0.5, cell_digest=f"c{number}") for number in range(13)], [])
    page = shown_on(page, "distribution", home.root, monkeypatch)
    assert "The 12 series seen last of 13; filter for others." in [item.value for item in page.caption]
    assert len(page.dataframe[0].value) == 12
