"""The random order of boots."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from pytest_coldstart.gate.schedule import blocks, orders


def test_four_a_side_have_seventy_orders_and_a_pair_has_two() -> None:
    assert len(set(orders(4))) == 70
    assert all(Counter(order) == {"base": 4, "head": 4} for order in orders(4))
    assert sorted(orders(1)) == [("base", "head"), ("head", "base")]


def test_first_block_has_four_of_each_and_all_others_are_pairs() -> None:
    found = list(islice(blocks(1), 9))
    assert [len(block) for block in found] == [8] + [2] * 8
    assert all(block.count("base") == block.count("head") for block in found)
    assert sum(map(len, found)) == 24  # twelve a side


def test_a_small_budget_has_a_small_first_block() -> None:
    assert sorted(next(blocks(1, first=1))) == ["base", "head"]


def test_same_seed_gives_the_same_blocks_and_another_seed_others() -> None:
    assert list(islice(blocks(7), 20)) == list(islice(blocks(7), 20))
    assert list(islice(blocks(7), 20)) != list(islice(blocks(8), 20))


@pytest.mark.parametrize(("place", "kinds"), [(0, 70), (1, 2)], ids=["first", "pair"])
def test_each_order_is_equally_likely_over_seeds(place: int, kinds: int) -> None:
    draws = 70 * 60
    found = Counter(next(islice(blocks(seed), place, None)) for seed in range(draws))
    expected = draws / kinds
    chi_square = sum((count - expected) ** 2 / expected for count in found.values())
    assert len(found) == kinds
    # The 99.99 % point of chi-square with 69 and with 1 degrees of freedom.
    assert chi_square < {70: 121.3, 2: 15.2}[kinds]
