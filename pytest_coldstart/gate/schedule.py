"""In which order the boots of both sides are made: drawn at random within each block."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import combinations

BASE, HEAD = "base", "head"

#: Boots a side in the first block: 70 orders, so that one block can already show a difference.
FIRST = 4


@cache
def orders(boots: int) -> tuple[tuple[str, ...], ...]:
    """Every order of *boots* boots of each side, always in the same sequence: 70 for four."""
    places = range(2 * boots)
    return tuple(
        tuple(BASE if place in chosen else HEAD for place in places) for chosen in map(set, combinations(places, boots))
    )


def blocks(seed: int, first: int = FIRST) -> Iterator[tuple[str, ...]]:
    """Blocks without end: one of *first* boots a side, then pairs; each order of a block is equally likely.

    The same seed gives the same blocks.
    """
    draw = random.Random(seed)
    yield draw.choice(orders(first))
    pairs = orders(1)
    while True:
        yield draw.choice(pairs)
