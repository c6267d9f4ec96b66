"""The exact tests against scipy, tables and tiny cases worked out by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from pytest_coldstart.stats import randomisation
from pytest_coldstart.stats.randomisation import assignments, look, looks, two_sample_p
from pytest_coldstart.stats.ranks import aligned_ranks, doubled_ranks
from pytest_coldstart.stats.spending import first_rejections, sequential_p, share


def tail(one):
    """One-sided p of a look that is the only one."""
    return float((one.sums >= one.sums[one.happened]).mean())


def test_ranks_are_those_of_scipy_with_ties_and_infinities():
    values = np.array([3.0, 1.0, 3.0, math.inf, 2.0, math.inf, 1.0])
    assert (doubled_ranks(values) / 2).tolist() == stats.rankdata(values).tolist()


def test_alignment_takes_the_centre_of_each_block_away_and_leaves_failed_boots_the_worst():
    # Centred: -0.5, 0.5 | -1, 1 | 0, infinity.
    ranks = aligned_ranks([((1.0,), (2.0,)), ((10.0,), (12.0,)), ((5.0,), (math.inf,))])
    assert [(part / 2).tolist() for part in ranks] == [[2.0, 4.0], [1.0, 5.0], [3.0, 6.0]]


def test_four_boots_a_side_have_seventy_orders_and_complete_separation_is_one_of_them():
    assert len(assignments(4, 4)) == 70
    assert tail(look((((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0)),))) == pytest.approx(1 / 70)


@pytest.mark.parametrize("seed", range(5))
def test_one_block_is_the_rank_sum_test(seed):
    rng = np.random.default_rng(seed)
    base, head = tuple(rng.normal(size=5)), tuple(rng.normal(0.8, size=4))
    expected = stats.mannwhitneyu(head, base, alternative="greater", method="exact").pvalue
    assert tail(look(((base, head),))) == pytest.approx(expected)
    assert two_sample_p(base, head) == pytest.approx(expected)


def test_ties_are_exact_too():
    base, head = (1.0, 1.0, 2.0, 3.0), (1.0, 3.0, 3.0, 3.0)
    pooled = stats.rankdata([*base, *head])

    def statistic(_, ranks):
        return float(sum(ranks))

    found = stats.permutation_test(
        (pooled[:4], pooled[4:]), statistic, alternative="greater", n_resamples=np.inf, vectorized=False
    )
    assert two_sample_p(base, head) == pytest.approx(found.pvalue)
    assert tail(look(((base, head),))) == pytest.approx(found.pvalue)


def test_pairs_alone_are_a_signed_rank_test():
    base, head = np.random.default_rng(0).normal((0, 0.5), size=(7, 2)).T
    ranks = stats.rankdata(np.concatenate([base - (base + head) / 2, head - (base + head) / 2]))

    def heads(_, of_head):
        return float(sum(of_head))

    wanted = stats.permutation_test(
        (ranks[:7], ranks[7:]),
        heads,
        permutation_type="samples",
        alternative="greater",
        n_resamples=np.inf,
        vectorized=False,
    )
    assert tail(look(tuple(((float(a),), (float(b),)) for a, b in zip(base, head, strict=True)))) == wanted.pvalue


def test_six_pairs_that_are_all_slower_are_one_of_sixty_four_orders():
    pairs = tuple(((float(number),), (number + 0.1 * (number + 1),)) for number in range(6))
    wanted = stats.wilcoxon([head[0] - base[0] for base, head in pairs], alternative="greater", method="exact").pvalue
    assert tail(look(pairs)) == wanted == 1 / 64


def test_blocks_of_any_size_are_enumerated_as_by_hand():
    blocks = (((1.0, 4.0), (2.0,)), ((3.0,), (7.0, 5.0)))
    ranks = [part.tolist() for part in aligned_ranks(blocks)]
    sums = [sum(a) + sum(b) for a in itertools.combinations(ranks[0], 1) for b in itertools.combinations(ranks[1], 2)]
    found = look(blocks)
    assert sorted(found.sums.tolist()) == sorted(sums)
    assert found.sums[found.happened] == ranks[0][2] + ranks[1][1] + ranks[1][2]


def test_more_paths_than_are_enumerated_are_drawn_and_give_about_the_same_p(monkeypatch):
    rng = np.random.default_rng(1)
    blocks = (
        (tuple(rng.normal(size=4)), tuple(rng.normal(0.4, size=4))),
        *(((float(a),), (float(b),)) for a, b in rng.normal((0, 0.4), size=(8, 2))),
    )
    exact = tail(look(blocks))
    for cached in (randomisation.look, randomisation.steps, randomisation.assignments):
        cached.cache_clear()
    monkeypatch.setattr(randomisation, "LIMIT", 1 << 12)
    try:
        drawn = look(blocks)
        assert len(drawn.sums) <= 1 << 12
        # The real path has the statistic that it has, and B paths leave an error of sqrt(p (1 - p) / B).
        assert tail(drawn) == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / len(drawn.sums)))
        # A block with more orders than that.
        many = look(((tuple(rng.normal(size=12)), tuple(rng.normal(3, size=12))),))
        assert tail(many) == pytest.approx(1 / len(many.sums), rel=0.01)
    finally:
        for cached in (randomisation.look, randomisation.steps, randomisation.assignments):
            cached.cache_clear()


def test_large_samples_take_the_normal_approximation():
    rng = np.random.default_rng(2)
    base, head = tuple(rng.normal(size=70)), tuple(rng.normal(0.3, size=60))
    wanted = stats.mannwhitneyu(head, base, alternative="greater", method="asymptotic").pvalue
    assert two_sample_p(base, head) == pytest.approx(wanted, rel=1e-3)
    assert two_sample_p([1.0] * 70, [1.0] * 70) == 1.0


def test_the_level_is_spent_by_a_power_of_the_boots_that_leaves_enough_to_the_first_four():
    assert share(3, 12) == pytest.approx(0.5)
    for most in (4, 5, 12, 16, 20, 100):
        assert share(most, most) == share(most + 1, most) == 1.0
        assert all(share(n, most) < share(n + 1, most) for n in range(1, most - 1))
        # 0.025 one-sided: what the first look has is enough for 1 of 70 orders.
        assert 0.025 * share(4, most) >= 1 / 70


def test_what_a_look_cannot_spend_is_left_to_the_next():
    # Two looks at pairs: 2, then 4 orders. Half of 0.5 is less than 1 of 2 orders; all of it is 2 of 4.
    found = looks([((0.0,), (3.0,)), ((0.0,), (1.0,))])
    assert first_rejections(found, [0.5, 1.0], [0.5]) == [1]
    assert first_rejections(found, [1.0, 1.0], [0.5]) == [0]
    assert sequential_p(found, [0.5, 1.0], [0.5, 0.25, 0.1]) == 0.25
    assert sequential_p(found, [0.5, 1.0], [0.5, 0.25, 0.1], worse=False) == 1.0


def test_over_all_paths_the_level_is_never_exceeded_at_any_look():
    """Each of the 70 x 2 x 2 orders of the same values is played: the share that rejects at any look is known exactly."""
    values = np.random.default_rng(3).normal(size=12).tolist()
    level, rejected, orders = 0.06, 0, 0
    for first in itertools.combinations(range(8), 4):
        for flips in itertools.product((False, True), repeat=2):
            block = tuple(v for i, v in enumerate(values[:8]) if i not in first), tuple(values[i] for i in first)
            pairs = [((values[8 + 2 * k + flip],), (values[9 + 2 * k - flip],)) for k, flip in enumerate(flips)]
            orders += 1
            rejected += bool(first_rejections(looks([block, *pairs]), [share(n, 6) for n in (4, 5, 6)], [level]))
    assert orders == 280
    # And nearly all of it is used: one path more would be too many.
    assert level - 2 / orders < rejected / orders <= level
