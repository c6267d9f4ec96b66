"""The simulation of the gate says of a comparison what the gate itself says, and knows the exact tests."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pytest_coldstart.stats.decide import decide
from pytest_coldstart.stats.decision import Rules

SOURCE = Path(__file__).parents[2] / "benchmarks" / "gate_simulation.py"


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("gate_simulation", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_a_simulated_comparison_ends_as_the_gate_ends_it(simulation):
    rng = np.random.default_rng(1)
    rules = Rules(most_boots=8)
    ends = set()
    for number in range(24):
        blocks = simulation.blocks(rng.normal(0, 0.04, 16), (0.0, 0.08, 0.15)[number % 3], rng)
        for known in range(1, len(blocks) + 1):
            found = decide({"a": blocks[:known]}, {"a": rules}, detail=False)["a"]
            if found.final:
                break
        assert simulation.gate(blocks, rules) == (found.outcome, found.boots[0])
        ends.add(found.outcome)
    assert len(ends) > 1


def test_the_critical_values_are_those_of_the_tables(simulation):
    # Two-sided 0.05: U of 2 at 5 and 5, 23 at 10 and 10 (Mann and Whitney's tables), counted from the other end.
    assert simulation.critical(5, 0.05, False) == 25 - 2
    assert simulation.critical(10, 0.05, False) == 100 - 23
    # 6 and 6: 2 / 924 is above 0.002, which is why asv's rule can say nothing there.
    assert simulation.critical(6, 0.002, True) == float("inf")
    edge = simulation.critical(7, 0.002, True)
    assert 2 * stats.mannwhitneyu(range(7, 14), range(7), alternative="greater", method="exact").pvalue < 0.002
    assert edge <= 49


def test_the_interval_of_a_rate_is_clopper_and_pearsons(simulation):
    wanted = stats.binomtest(7, 100).proportion_ci(0.95, method="exact")
    assert simulation.interval(7, 100) == pytest.approx((wanted.low, wanted.high))
    assert simulation.interval(0, 10)[0] == 0.0


def test_the_stored_noise_is_long_enough_and_names_no_machine(simulation):
    found = simulation.noises((0.02,))
    assert min(len(noise.residuals) for noise in found) >= 40
    assert np.std(found[-1].residuals, ddof=1) == pytest.approx(0.02)
    assert "/" not in simulation.NOISE.read_text()
