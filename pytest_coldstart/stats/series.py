"""The boots of one comparison as the tests see them: costs in blocks, and p-values at any shift."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pytest_coldstart.stats.decision import Block, Rules
from pytest_coldstart.stats.randomisation import looks, two_sample_p
from pytest_coldstart.stats.ranks import Floats
from pytest_coldstart.stats.scale import Costs, Scaled, scaled
from pytest_coldstart.stats.shift import differences, hodges_lehmann, interval
from pytest_coldstart.stats.spending import LEVELS, first_rejections, sequential_p, share


@dataclass(frozen=True)
class Series:
    """``drawn``: false where nobody drew the order of some block; then all boots are one block with one look."""

    scale: Scaled
    rules: Rules
    drawn: bool

    @classmethod
    def of(cls, blocks: Sequence[Block], rules: Rules) -> Series:
        """:raises ValueError: as :func:`~pytest_coldstart.stats.scale.scaled`."""
        return cls(scaled(blocks, rules.better), rules, all(block.drawn for block in blocks))

    @cached_property
    def base(self) -> tuple[float, ...]:
        return tuple(cost for block in self.scale.blocks for cost in block[0])

    @cached_property
    def head(self) -> tuple[float, ...]:
        return tuple(cost for block in self.scale.blocks for cost in block[1])

    @property
    def boots(self) -> tuple[int, int]:
        return len(self.base), len(self.head)

    @property
    def failed(self) -> tuple[int, int]:
        return sum(map(math.isinf, self.base)), sum(map(math.isinf, self.head))

    @cached_property
    def both(self) -> tuple[Costs, ...]:
        """The blocks that have boots of both sides; one of all boots where the order was not drawn."""
        blocks = self.scale.blocks if self.drawn else ((self.base, self.head),)
        return tuple(block for block in blocks if block[0] and block[1])

    @cached_property
    def shares(self) -> list[float]:
        """The share of a level that is spent by each look."""
        if not self.drawn:
            return [1.0]
        boots = 0
        found = []
        for base, head in self.both:
            boots += len(base) + len(head)
            found.append(share(boots / 2, self.rules.most_boots))
        return found

    @property
    def spent(self) -> bool:
        """Whether the whole level is spent: boots that follow could not decide more."""
        return not self.drawn or sum(self.boots) / 2 >= self.rules.most_boots

    def p(self, worse: bool, levels: Sequence[float], shift: float = 0.0) -> float:
        """One-sided p-value that the head, its costs moved down by *shift*, is worse (or better) than the base.

        Drawn: the smallest of *levels* (falling) at which that is found by now, 1 for none. Else exact.
        """
        if not self.both:
            return 1.0
        if self.drawn:
            return sequential_p(looks(self.both, shift), self.shares, levels, worse)
        head = [cost - shift for cost in self.head]
        return two_sample_p(self.base, head) if worse else two_sample_p(head, self.base)

    def first_look(self, worse: bool, level: float, shift: float = 0.0, never: int = -1) -> int:
        """The number of the first look that rejects at *level*, where the order was drawn; *never* for none."""
        return next(iter(first_rejections(looks(self.both, shift), self.shares, (level,), worse)), never)

    def readable_p(self, worse: bool, levels: Sequence[float]) -> float:
        """The same, with levels for reading beside the *levels* that decide, which stay as they are without them."""
        p = self.p(worse, levels)
        if not self.drawn:
            return p
        if p < 1:
            return self.p(worse, [*levels, *(level for level in LEVELS if level < levels[-1])])
        return self.p(worse, [level for level in LEVELS if level > levels[0]])

    def rejects(self, worse: bool, shift: float, level: float) -> bool:
        return self.p(worse, (level,), shift) <= level * (1 + 1e-9)

    @cached_property
    def differences(self) -> Floats:
        return differences(self.both)

    @cached_property
    def estimate(self) -> float | None:
        """The shift by Hodges and Lehmann; positive is worse. None where there is none."""
        return hodges_lehmann(self.differences)

    def interval(self, level: float) -> tuple[float | None, float | None]:
        """The shifts that neither one-sided test at *level* rejects by now; None for an end without bound.

        Any look may have rejected a shift, also one that all boots together suggest: the estimate is always within.
        """
        low, high = interval(
            self.differences,
            lambda shift: self.rejects(True, shift, level),
            lambda shift: self.rejects(False, shift, level),
        )
        if self.estimate is not None and math.isfinite(self.estimate):
            low = None if low is None else min(low, self.estimate)
            high = None if high is None else max(high, self.estimate)
        return low, high

    def equivalent(self) -> bool:
        """Whether the shift is shown to be within the margin: two one-sided tests at alpha each.

        D. J. Schuirmann, A comparison of the two one-sided tests procedure and the power approach for assessing the
        equivalence of average bioavailability, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987).
        """
        margin, alpha = self.scale.shift(self.rules.margin), self.rules.alpha
        return self.rejects(False, margin, alpha) and self.rejects(True, -margin, alpha)
