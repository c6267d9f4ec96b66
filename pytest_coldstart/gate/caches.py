"""Which caches were used otherwise on one side than on the other, from the statements of their boots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from pytest_coldstart import reuse
from pytest_coldstart.cache_kinds import COMPILED
from pytest_coldstart.record import BootRecord

#: A count that differs by less than this share is the same.
_ALIKE = 0.1


def caches(base: Sequence[BootRecord], head: Sequence[BootRecord]) -> tuple[str, ...]:
    """``vllm: hit on the base, grew although full on the head: 41 kernels``, for each cache that was used otherwise."""
    return tuple(changed(base, head, lambda name: True))


_VERDICTS = {reuse.GREW: "grew although full", reuse.FILLED: "filled", reuse.IGNORED: "not used", reuse.HIT: "hit"}


def changed(base: Sequence[BootRecord], head: Sequence[BootRecord], wanted: Callable[[str], bool]) -> list[str]:
    """The same sentences for those caches whose name is *wanted*."""
    sides = [_uses(base), _uses(head)]
    texts = []
    for name in dict.fromkeys((*sides[0], *sides[1])):
        first, second = (side.get(name, ("not there", {}, "")) for side in sides)
        if not wanted(name) or {first[0], second[0]} == {"not there", "not used"}:
            continue
        if first[0] != second[0]:
            tail = second[2] or first[2]
            on = "" if second[2] or not tail else " (on the base)"
            texts.append(f"{name}: {first[0]} on the base, {second[0]} on the head" + (f": {tail}{on}" if tail else ""))
        elif _other_counts(first[1], second[1]):
            texts.append(f"{name}: {first[0]} on both, {first[2]} on the base, {second[2]} on the head")
    return texts


def _uses(records: Sequence[BootRecord]) -> dict[str, tuple[str, dict[str, float], str]]:
    """Cache -> what its boots did with it, what was compiled into it (kind -> median count), and that in words."""
    found: dict[str, list[tuple[str, dict[str, int]]]] = {}
    for record in records:
        for cache, item in zip(record.caches, reuse.statements(record), strict=True):
            if item.verdict != reuse.UNKNOWN:
                found.setdefault(cache.name, []).append((_VERDICTS[item.verdict], cache.new_kinds))
    uses = {}
    for name, items in found.items():
        verdicts = list(dict.fromkeys(verdict for verdict, _ in items))
        words = verdicts[0] if len(verdicts) == 1 else f"varies ({', '.join(sorted(verdicts))})"
        written = [kinds for verdict, kinds in items if verdict in (_VERDICTS[reuse.GREW], _VERDICTS[reuse.FILLED])]
        kinds = dict.fromkeys(kind for item in written for kind in item if kind in COMPILED)
        counts = {kind: median([item.get(kind, 0) for item in written]) for kind in kinds}
        uses[name] = words, counts, ", ".join(_amount(count, kind) for kind, count in counts.items())
    return uses


def _other_counts(base: Mapping[str, float], head: Mapping[str, float]) -> bool:
    return any(
        abs(base.get(kind, 0) - head.get(kind, 0)) > _ALIKE * max(base.get(kind, 0), head.get(kind, 0))
        for kind in (*base, *head)
    )


def _amount(count: float, kind: str) -> str:
    if count != 1:
        return f"{count:g} {kind}"
    return f"1 {kind[:-3]}y" if kind.endswith("ies") else f"1 {kind.removesuffix('s')}"
