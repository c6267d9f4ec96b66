"""The decision of the gate: a whole family of comparisons, each at its own look, under one error rate."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from pytest_coldstart.stats.decision import IMPROVED, INCONCLUSIVE, REGRESSED, SAME, Block, Decision, Rules
from pytest_coldstart.stats.holm import holm, holm_levels
from pytest_coldstart.stats.needs import needs
from pytest_coldstart.stats.randomisation import LARGE, steps
from pytest_coldstart.stats.series import Series

K = TypeVar("K", bound=Hashable)

NOT_DRAWN = "not interleaved: what drifted between the boots of both sides is in the difference"


def decide(
    series: Mapping[K, Sequence[Block]], rules: Mapping[K, Rules], final: bool = False, detail: bool = True
) -> dict[K, Decision]:
    """What is known by now of each key. *final*: no more boots will follow. *detail*: with intervals, and p-values beside
    the levels that decide; without it the outcomes are the same and come several times faster.

    Pass all keys of the family each time, the decided ones too, with the boots that each has. Of equal sides, the chance
    that any key is ever called regressed or improved is at most alpha, whenever one looks (values of each key that
    are exchangeable within its blocks).

    :raises ValueError: a value is NaN (the key, side and block are named), or ``Rules.better`` is unknown.
    :raises KeyError: a key has no rules.
    """
    made = {key: _series(key, blocks, rules[key]) for key, blocks in series.items()}
    levels = {key: rules[key].alpha / 2 for key in made}
    tested = {key: holm_levels(levels[key], len(made)) for key in made}
    worse = {key: one.p(True, tested[key]) for key, one in made.items()}
    better = {key: one.p(False, tested[key]) for key, one in made.items()}
    worse_at, better_at = holm(worse, levels), holm(better, levels)
    found = {}
    for key, one in made.items():
        outcome = _outcome(one, key in worse_at, key in better_at, final or one.spent)
        p = (worse[key], better[key])
        if detail:
            p = (one.readable_p(True, tested[key]), one.readable_p(False, tested[key]))
        found[key] = _decision(one, outcome, p, final, levels[key] / len(made), detail)
    return found


def _series(key: object, blocks: Sequence[Block], rules: Rules) -> Series:
    try:
        return Series.of(blocks, rules)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _decision(one: Series, outcome: str, p: tuple[float, float], final: bool, level: float, detail: bool) -> Decision:
    if not one.both:
        return Decision(INCONCLUSIVE, boots=one.boots, final=final, reason=_reason(one, outcome), method=_method(one))
    low, high = one.interval(one.rules.alpha / 2) if detail else (None, None)
    low, high = (one.scale.change(edge) for edge in ((high, low) if one.scale.higher else (low, high)))
    wanted, why = needs(one, level) if outcome == INCONCLUSIVE else (None, "")
    return Decision(
        outcome,
        change=one.scale.change(one.estimate),
        low=low,
        high=high,
        p_worse=p[0],
        p_better=p[1],
        boots=one.boots,
        final=final or one.spent or outcome != INCONCLUSIVE,
        reason="; ".join(filter(None, (_reason(one, outcome), why, "" if one.drawn else NOT_DRAWN))),
        needs=wanted,
        method=_method(one),
    )


def _outcome(one: Series, worse: bool, better: bool, end: bool) -> str:
    """A change must be shown *and* be larger than the floor; before the end, sameness must lie within the floor too."""
    shift = one.estimate
    floor = one.scale.shift(one.rules.floor)
    if shift is None:
        return INCONCLUSIVE
    if worse and shift > floor:
        return REGRESSED
    if better and shift < -floor and not one.failed[1]:
        return IMPROVED
    if not any(one.failed) and (abs(shift) <= floor or end) and one.equivalent():
        return SAME
    return INCONCLUSIVE


def _reason(one: Series, outcome: str) -> str:
    if outcome == SAME:
        return f"within {one.rules.margin:.0%} of the base"
    if outcome != INCONCLUSIVE:
        return ""
    empty = " and ".join(name for name, count in zip(("base", "head"), one.boots, strict=True) if not count)
    if empty:
        return f"no value of {empty}"
    if not one.both:
        return "no block has values of both sides"
    base, head = one.failed
    if (base, head) == one.boots:
        return "every boot of both sides failed"
    if base or head:
        return f"failed boots: {base} of {one.boots[0]} of base, {head} of {one.boots[1]} of head"
    return "neither a change nor sameness is shown"


def _method(one: Series) -> str:
    if not one.drawn:
        return f"rank-sum test, {'exact' if sum(one.boots) < LARGE else 'normal approximation'}, one look"
    paths = math.prod(math.comb(len(base) + len(head), len(head)) for base, head in one.both)
    used = math.prod(step.fan for step in steps(tuple((len(base), len(head)) for base, head in one.both)))
    orders = f"{paths:,} orders" if used == paths else f"{used:,} drawn of {paths:,} orders"
    return f"aligned ranks, {orders}, look {max(1, len(one.both))}"
