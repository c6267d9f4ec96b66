"""What is decided, of which series, and that two equal sides are seldom told apart."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from pytest_coldstart.stats.decide import decide
from pytest_coldstart.stats.decision import IMPROVED, INCONCLUSIVE, REGRESSED, SAME, Block, Rules
from pytest_coldstart.stats.holm import holm, holm_levels

RULES = Rules()
INF = math.inf
BASE = (10.0, 10.1, 10.2, 10.3)


def one(*blocks, final=False, **rules):
    return decide({"cell": blocks}, {"cell": dataclasses.replace(RULES, **rules)}, final=final)["cell"]


def times(values, factor):
    return tuple(value * factor for value in values)


def drawn(rng, slowdown=0.0, spread=0.05, pairs=8):
    def side(count):
        return np.exp(rng.normal(0, spread, count))

    first = Block(tuple(side(4)), tuple(side(4) * (1 + slowdown)))
    return [first, *(Block(tuple(side(1)), tuple(side(1) * (1 + slowdown))) for _ in range(pairs))]


def test_complete_separation_of_four_and_four_decides_both_ways():
    worse, better = one(Block(BASE, times(BASE, 1.2))), one(Block(times(BASE, 1.2), BASE))
    assert (worse.outcome, worse.final, worse.boots) == (REGRESSED, True, (4, 4))
    assert worse.change == pytest.approx(0.2)
    # The interval of 4 against 4 is from the smallest to the largest difference.
    assert (worse.low, worse.high) == (pytest.approx(12 / 10.3 - 1), pytest.approx(12.36 / 10 - 1))
    assert worse.p_worse <= 0.025
    assert worse.p_better == 1.0
    assert better.outcome == IMPROVED
    assert better.change == pytest.approx(1 / 1.2 - 1)


def test_a_change_below_the_floor_is_no_regression_however_sure_it_is():
    found = one(Block(BASE, times(BASE, 1.04)), floor=0.05, margin=0.1)
    assert found.p_worse <= 0.025
    assert found.outcome == SAME


def test_the_estimate_and_interval_of_one_block_are_those_of_the_rank_sum_test():
    rng = np.random.default_rng(4)
    base, head = np.exp(rng.normal(0, 0.1, 7)), np.exp(rng.normal(0.1, 0.1, 6))
    found = one(Block(tuple(base), tuple(head), drawn=False))
    differences = np.sort((np.log(head)[:, None] - np.log(base)[None, :]).ravel())
    assert found.change == pytest.approx(np.expm1(np.median(differences)))
    # The tables for 7 and 6 at 0.025 one-sided reject at U of at most 6: the 7th difference from both ends.
    assert (found.low, found.high) == (
        pytest.approx(np.expm1(differences[6])),
        pytest.approx(np.expm1(differences[-7])),
    )
    assert found.p_worse == pytest.approx(stats.mannwhitneyu(head, base, alternative="greater", method="exact").pvalue)
    assert found.final
    assert "not interleaved" in found.reason


def test_same_is_said_early_only_within_the_floor_and_at_the_end_within_the_margin():
    near = Block(BASE, times(BASE, 1.01))
    assert one(near).outcome == SAME
    between = Block(BASE, (10.7, 10.1, 10.8, 10.45))
    assert one(between, floor=0.02, margin=0.15).outcome == INCONCLUSIVE
    at_end = one(between, floor=0.02, margin=0.15, final=True)
    assert (at_end.outcome, at_end.final) == (SAME, True)
    assert one(between, floor=0.02, margin=0.15, most_boots=4).outcome == SAME


def test_swapping_the_sides_mirrors_the_decision():
    rng = np.random.default_rng(5)
    swapped = {REGRESSED: IMPROVED, IMPROVED: REGRESSED, SAME: SAME, INCONCLUSIVE: INCONCLUSIVE}
    for slowdown in (0.0, 0.05, 0.15):
        blocks = drawn(rng, slowdown, pairs=3)
        ahead = one(*blocks)
        back = one(*(Block(block.head, block.base) for block in blocks))
        assert back.outcome == swapped[ahead.outcome]
        assert (back.p_worse, back.p_better) == (ahead.p_better, ahead.p_worse)
        assert 1 + back.change == pytest.approx(1 / (1 + ahead.change))
        assert 1 + back.low == pytest.approx(1 / (1 + ahead.high))


def test_the_unit_does_not_matter():
    blocks = drawn(np.random.default_rng(6), 0.08, pairs=4)
    thousand = [Block(times(block.base, 1000), times(block.head, 1000)) for block in blocks]
    a, b = one(*blocks), one(*thousand)
    assert (a.outcome, a.p_worse, a.needs) == (b.outcome, b.p_worse, b.needs)
    assert a.change == pytest.approx(b.change)


def test_a_larger_slowdown_has_no_larger_p():
    blocks = drawn(np.random.default_rng(7), pairs=4)
    p = [
        one(*(Block(block.base, times(block.head, factor)) for block in blocks)).p_worse
        for factor in (1.0, 1.02, 1.05, 1.1, 1.5)
    ]
    assert p == sorted(p, reverse=True)


def test_more_is_better_turns_the_meaning_round_and_keeps_the_sign_of_the_change():
    found = one(Block(BASE, times(BASE, 0.8)), better="higher")
    assert (found.outcome, found.change) == (REGRESSED, pytest.approx(-0.2))
    assert found.low < found.change < found.high < 0
    assert one(Block(BASE, (INF,) * 4), better="higher").outcome == REGRESSED


def test_failed_boots_are_the_worst_and_such_a_head_is_never_improved_or_the_same():
    assert one(Block(BASE, (INF,) * 4)).outcome == REGRESSED
    assert one(Block((INF,) * 4, BASE)).outcome == IMPROVED
    mixed = one(Block(times(BASE, 2), (*BASE[:3], INF)), final=True)
    assert mixed.outcome == INCONCLUSIVE
    assert "1 of 4 of head" in mixed.reason
    assert mixed.needs is None
    flaky = [Block(times(BASE, 2), (*BASE[:3], INF)), *(Block((20.0,), (10.0,)) for _ in range(8))]
    assert one(*flaky).p_better <= 0.025
    assert one(*flaky).outcome == INCONCLUSIVE
    neither = one(Block((INF,) * 4, (INF,) * 4), final=True)
    assert (neither.outcome, neither.change) == (INCONCLUSIVE, 0.0)
    assert "every boot of both sides failed" in neither.reason


@pytest.mark.parametrize(
    ("block", "outcome"),
    [
        (Block((0.0,) * 4, (0.0,) * 4), SAME),
        (Block((5.0,) * 4, (5.0,) * 4), SAME),
        (Block((-1.0, -1.1, -1.2, -1.3), (1.0, 1.1, 1.2, 1.3)), REGRESSED),
        (Block((0.0, 0.0, 0.0, 0.0), (1.0, 2.0, 3.0, 4.0)), REGRESSED),
        (Block((1.0,), (2.0,)), INCONCLUSIVE),
        (Block((1.0,), (2.0,), drawn=False), INCONCLUSIVE),
        (Block((), (1.0,)), INCONCLUSIVE),
        (Block((), (), drawn=False), INCONCLUSIVE),
        (Block((1.0, INF), (INF, 1.0)), INCONCLUSIVE),
        (Block((1e-300, 1e-300), (1e300, 1e300)), INCONCLUSIVE),
    ],
)
def test_odd_values_are_decided_without_an_error(block, outcome):
    assert one(block).outcome == outcome


def test_a_side_that_failed_as_a_whole_is_no_minus_100_percent():
    assert one(Block((INF,) * 4, BASE)).change == -INF
    assert one(Block(BASE, (INF,) * 4)).change == INF


def test_the_interval_holds_the_estimate_though_an_early_look_was_of_another_mind():
    first = Block(BASE, (10.05, 10.15, 10.1, 10.12))
    found = one(first, *(Block((10.0,), (10.1 + n / 1000,)) for n in range(12)))
    assert found.low <= found.change <= found.high


def test_the_method_says_what_was_enumerated_what_drawn_and_what_approximated():
    blocks = [Block(BASE, times(BASE, 1.01)), *(Block((10.0,), (10.1,)) for _ in range(12))]
    # 70 * 2 ** 8 orders are enumerated; each of them then goes on by a draw of its own.
    assert one(*blocks[:9]).method == "aligned ranks, 17,920 orders, look 9"
    assert one(*blocks).method == "aligned ranks, 17,920 drawn of 286,720 orders, look 13"
    many = tuple(10 + n / 100 for n in range(60))
    assert one(Block(BASE, BASE, drawn=False)).method == "rank-sum test, exact, one look"
    assert one(Block(many, many, drawn=False)).method == "rank-sum test, normal approximation, one look"


def test_nothing_at_all_is_inconclusive():
    found = one()
    assert (found.outcome, found.change, found.boots, found.reason) == (
        INCONCLUSIVE,
        None,
        (0, 0),
        "no value of base and head",
    )
    assert decide({}, {}) == {}


def test_nan_and_an_unknown_direction_are_errors_that_name_the_place():
    with pytest.raises(ValueError, match="cell: NaN among the values of head in block 1"):
        one(Block(BASE, BASE), Block((1.0,), (math.nan,)))
    with pytest.raises(ValueError, match="better is 'more'"):
        one(Block(BASE, BASE), better="more")


def test_one_boot_a_side_tells_how_many_would_be_the_least():
    # 3 and 3 have 20 orders, 4 and 4 have 70: 1 in 70 is the first below 0.025.
    assert one(Block((1.0, 1.1), (2.0, 2.1), drawn=False)).needs == 4
    # Pairs alone: 2 ** 6 = 64 orders, of which 1 is less than 0.025 * sqrt(6 / 12).
    assert one(Block((1.0,), (2.0,))).needs == 6


def test_needs_is_near_the_number_of_the_usual_formula():
    rng = np.random.default_rng(8)
    found = one(*drawn(rng, 0.07, 0.1, pairs=1), margin=0.05)
    assert found.outcome == INCONCLUSIVE
    assert 5 < found.needs <= 200
    hopeless = one(*drawn(rng, 0.0, 0.5, pairs=8), margin=0.031)
    assert hopeless.needs is None or hopeless.needs > 12


def test_holm_by_hand():
    levels = dict.fromkeys("abcd", 0.05)
    # Against 0.0125, 0.0167, 0.025: the third one is not rejected, so neither is the fourth.
    assert holm({"a": 0.03, "b": 0.01, "c": 0.04, "d": 0.015}, levels) == {"b": 0.0125, "d": pytest.approx(0.05 / 3)}
    assert holm({"a": 0.05, "b": 0.025, "c": 0.0166, "d": 0.0125}, levels).keys() == set("abcd")
    assert holm_levels(0.06, 3) == [0.06, 0.03, 0.02]


def test_a_family_asks_more_of_each_and_less_once_one_is_decided():
    four = Block(BASE, times(BASE, 1.2))
    alone = decide({"a": [four]}, {"a": RULES})
    assert alone["a"].outcome == REGRESSED
    # 1 of 70 orders is more than half of 0.0144: of two comparisons, four boots a side decide neither.
    both = decide({"a": [four], "b": [four]}, {"a": RULES, "b": RULES})
    assert {found.outcome for found in both.values()} == {INCONCLUSIVE}
    assert both["a"].needs == 5
    # One with more blocks is decided at half the level; then the other one is tested at the whole level.
    more = [four, *(Block((10.0,), (12.0,)) for _ in range(3))]
    found = decide({"a": more, "b": [four]}, {"a": RULES, "b": RULES})
    assert {one.outcome for one in found.values()} == {REGRESSED}


def test_decisions_without_detail_are_the_same():
    rng = np.random.default_rng(9)
    for slowdown in (0.0, 0.06, 0.12):
        blocks = drawn(rng, slowdown, pairs=5)
        for known in (1, 3, 6):
            full = decide({"a": blocks[:known], "b": blocks[:1]}, {"a": RULES, "b": RULES})
            fast = decide({"a": blocks[:known], "b": blocks[:1]}, {"a": RULES, "b": RULES}, detail=False)
            assert {k: v.outcome for k, v in full.items()} == {k: v.outcome for k, v in fast.items()}


def test_equal_sides_are_told_apart_in_no_more_than_alpha():
    """400 comparisons of equal sides, 4 looks each, at an alpha of 0.3, so that a fault of the level would show."""
    rng = np.random.default_rng(10)
    rules = {"a": dataclasses.replace(RULES, alpha=0.3, most_boots=7)}
    wrong = 0
    for _ in range(400):
        found = decide({"a": drawn(rng, pairs=3)}, rules, detail=False)["a"]
        wrong += min(found.p_worse, found.p_better) <= 0.15
    # Were the chance 0.3, more than that would come once in 10,000 times; nor is the level thrown away.
    assert stats.binomtest(wrong, 400, 0.3, alternative="greater").pvalue > 1e-4
    assert stats.binomtest(wrong, 400, 0.2, alternative="greater").pvalue < 0.05
