"""What a comparison is decided by, and what comes out of it: the data that tests, gate and reports share."""

from __future__ import annotations

from dataclasses import dataclass

REGRESSED, IMPROVED, SAME, INCONCLUSIVE = "regressed", "improved", "same", "inconclusive"

#: From the worst to the best: of several, the first one that occurs is the outcome of all.
OUTCOMES = (REGRESSED, INCONCLUSIVE, IMPROVED, SAME)


@dataclass(frozen=True)
class Block:
    """Boots of both sides that were made in random order within the block: values in the metric's unit.

    A failed boot is +infinity. Interleaved comparisons have several blocks; boots that were not
    interleaved are one block, whose order nobody drew (``drawn`` is false).
    """

    base: tuple[float, ...]
    head: tuple[float, ...]
    drawn: bool = True


@dataclass(frozen=True)
class Rules:
    """How a comparison of one metric is decided. Fractions of the base's value unless a field says otherwise.

    ``alpha``: the chance that ``regressed`` or ``improved`` is said at all of two equal sides, over all looks and the
    whole family of comparisons. ``floor``: the least change that is called one. ``margin``: within it both are the
    ``same``. ``better``: lower or higher. ``most_boots``: boots a side at most, over which alpha is spent.
    """

    alpha: float = 0.05
    floor: float = 0.03
    margin: float = 0.10
    better: str = "lower"
    most_boots: int = 20


@dataclass(frozen=True)
class Decision:
    """``change``: head over base less one, by Hodges and Lehmann, with its interval; positive is a larger value.

    ``p_worse``, ``p_better``: p-values that hold at any look. ``boots``: how many values a side had. ``final``: more
    boots would not change the outcome, or there is no budget for more. ``needs``: about how many boots a side
    would decide it, where it is inconclusive.
    """

    outcome: str
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p_worse: float | None = None
    p_better: float | None = None
    boots: tuple[int, int] = (0, 0)
    final: bool = True
    reason: str = ""
    needs: int | None = None
    method: str = ""
