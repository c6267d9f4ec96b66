from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_coldstart.stats.changes import DRIFT, STEP, change_points

inf = math.inf


def noisy(levels: list[float], cv: float, seed: int) -> list[list[float]]:
    """One boot a run around each level."""
    random = np.random.default_rng(seed)
    return [[float(level * np.exp(random.normal(0, cv)))] for level in levels]


@pytest.mark.parametrize("size", [-0.2, 0.05, 0.5])
def test_a_step_is_found_where_it_is_with_its_size(size: float) -> None:
    runs = noisy([10.0] * 14 + [10.0 * (1 + size)] * 10, 0.01, 3)
    found = change_points(runs)
    (point,) = found.points
    assert point.index == 14
    assert point.low <= 14 <= point.high
    assert point.size == pytest.approx(size, abs=0.015)
    assert point.before == pytest.approx(10.0, rel=0.01)
    assert point.after == pytest.approx(10.0 * (1 + size), rel=0.01)
    assert point.confidence >= 0.95
    assert (point.kind, point.runs) == (STEP, (14, 10))
    assert found.reason == ""


def test_false_alarms_in_noise_are_no_more_than_alpha() -> None:
    # With 500 series at 5 %, more than 36 would come by chance in 1 of 100 trials: binomial, P(X > 36) = 0.012.
    alarms = sum(bool(change_points(noisy([1.0] * 16, 0.1, seed), size=0.0).points) for seed in range(500))
    assert alarms <= 36


def test_a_step_is_found_in_most_series() -> None:
    levels = [1.0] * 20 + [1.15] * 10
    found = [change_points(noisy(levels, 0.05, seed)).points for seed in range(60)]
    assert sum(len(points) == 1 and points[0].low <= 20 <= points[0].high for points in found) >= 54


def test_two_steps_there_and_back() -> None:
    points = change_points(noisy([4.0] * 15 + [4.4] * 10 + [4.0] * 15, 0.01, 1)).points
    assert [point.index for point in points] == [15, 25]
    assert [round(point.size, 1) for point in points] == [0.1, -0.1]


@pytest.mark.parametrize(("before", "after"), [(3, 27), (27, 3)])
def test_a_step_three_runs_from_an_end(before: int, after: int) -> None:
    (point,) = change_points(noisy([5.0] * before + [6.0] * after, 0.01, 2)).points
    assert point.index == before


@pytest.mark.parametrize("at", [0, 1, 13, 28, 29])
def test_one_wild_run_is_no_change(at: int) -> None:
    levels = [5.0] * 30
    levels[at] = 20.0
    assert change_points(noisy(levels, 0.01, 4)).points == ()


def test_a_wild_run_does_not_hide_a_step() -> None:
    levels = [5.0] * 15 + [5.5] * 15
    levels[6] = 50.0
    (point,) = change_points(noisy(levels, 0.01, 5)).points
    assert point.index == 15


def test_a_slow_drift_is_one_and_says_so() -> None:
    (point,) = change_points(noisy([10.0 * (1 + 0.4 * n / 40) for n in range(40)], 0.01, 6)).points
    assert point.kind == DRIFT
    assert 0.2 < point.size < 0.4
    assert point.high - point.low > 10


def test_a_change_below_the_least_size_is_none() -> None:
    runs = noisy([10.0] * 20 + [10.2] * 20, 0.001, 7)
    assert change_points(runs).points == ()
    assert [point.index for point in change_points(runs, size=0.01).points] == [20]


def test_a_run_counts_by_its_median() -> None:
    runs = [[1.0, 1.0, 9.0]] * 10 + [[2.0, 2.0, 0.1]] * 10
    (point,) = change_points(runs).points
    assert (point.index, point.size, point.low, point.high) == (10, pytest.approx(1.0), 10, 10)


def test_runs_with_failed_boots_or_none_are_marked_and_give_no_value() -> None:
    runs = noisy([3.0] * 12 + [4.0] * 12, 0.01, 8)
    runs[4], runs[12], runs[20] = [3.0, inf], [inf], []
    found = change_points(runs)
    assert (found.failed, found.empty) == ((4, 12), (20,))
    (point,) = found.points
    assert point.index == 13
    assert point.size == pytest.approx(1 / 3, abs=0.02)


def test_few_runs_have_no_change_points_and_a_reason() -> None:
    found = change_points([[1.0], [1.0], [inf], [2.0], [2.0]])
    assert found.points == ()
    assert found.reason == "4 runs with a value and no failed boot; change points need 6"
    assert change_points([]).reason.startswith("0 runs")
    # Three low ones before three high ones, or the reverse: 2 of the 20 ways to pick three of six.
    six = change_points([[1.0]] * 3 + [[2.0]] * 3)
    assert six.points == ()
    assert six.reason == "among 6 runs even a clean step comes by chance in 10% of all orders; more runs are needed"
    assert len(change_points(noisy([1.0] * 4 + [2.0] * 4, 0.01, 1)).points) == 1


def test_counters_may_be_zero() -> None:
    assert change_points([[0.0]] * 20).points == ()
    assert change_points([[7.0]] * 20).points == ()
    (point,) = change_points([[0.0]] * 12 + [[41.0]] * 8).points
    assert (point.index, point.before, point.after) == (12, 0.0, 41.0)


def test_the_same_series_has_the_same_result() -> None:
    runs = noisy([1.0] * 15 + [1.06] * 15, 0.03, 9)
    assert change_points(runs) == change_points(runs)


def test_the_interval_holds_the_true_place_in_most_series() -> None:
    levels = [1.0] * 15 + [1.06] * 15
    found = [change_points(noisy(levels, 0.03, seed)).points for seed in range(120)]
    single = [points[0] for points in found if len(points) == 1]
    assert len(single) > 100
    # At 95 % coverage, fewer than 89 of 100 would come by chance in less than 1 of 100 trials.
    assert sum(point.low <= 15 <= point.high for point in single) >= 0.89 * len(single)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="no number"):
        change_points([[math.nan]])
    with pytest.raises(ValueError, match="at least 2"):
        change_points([[1.0]], least=1)
