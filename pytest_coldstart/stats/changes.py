"""Change points of one series: where the level of its run medians moved, how far, and how sure that is.

Candidates come from PELT with a Gaussian kernel (Killick, Fearnhead & Eckley 2012; Celisse et al. 2018; ruptures'
``KernelCPD``, exact and in C). Its bandwidth is three times the noise between neighbouring runs: small steps count as
they do with squares, while one wild run counts no more than a step of a few times the noise.

A candidate was chosen because it looks like a step, so a test at its place alone would find one in pure noise. The
permutation test therefore looks for the best place anew in every permutation of the runs of the two neighbouring
segments (Matteson & James 2014), and Holm corrects over all candidates. The least convincing one is taken out until
those that are left hold.

The place is where two medians fit best by absolute deviations; the interval holds all places whose likelihood ratio (of
Laplace noise) is below 7.35, the 95 % point of that ratio for a place that was searched for (Hansen 2000).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

#: Fewer runs than this are not looked at, and a segment has at least this many.
LEAST_RUNS, LEAST_SEGMENT = 6, 3

#: The least change that is called one, a fraction; and the chance that a series without a change shows one.
SIZE, ALPHA = 0.03, 0.05

#: Permutations of a test: the least p-value is 1 in 1000.
PERMUTATIONS = 999

STEP, DRIFT = "step", "drift"

_HANSEN_95 = 7.35
#: Permuted values that are held at once: 64 MB.
_AT_ONCE = 8_000_000


@dataclass(frozen=True)
class ChangePoint:
    """A change of level. ``index``: of the first run after it; ``low`` to ``high``: of all runs that may be that one.

    ``size``: after over before less one; ``before``, ``after``: medians of the segments, in the values' unit; ``runs``: how
    many runs these have. ``confidence``: one less the corrected p-value. ``kind``: ``drift`` where a straight line fits the runs
    around better than steps, so that there is no one place: then ``low`` to ``high`` is all of it.
    """

    index: int
    size: float
    confidence: float
    before: float
    after: float
    low: int
    high: int
    kind: str = STEP
    runs: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Changes:
    """``points`` in the order of time. ``reason``: why there can be none. ``failed``, ``empty``: indices of runs that are
    marked and give no value: a boot of theirs failed, or none was measured."""

    points: tuple[ChangePoint, ...] = ()
    reason: str = ""
    failed: tuple[int, ...] = ()
    empty: tuple[int, ...] = ()


def change_points(
    runs: Sequence[Sequence[float]],
    size: float = SIZE,
    alpha: float = ALPHA,
    least: int = LEAST_SEGMENT,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Changes:
    """The change points of *runs*, each the values of its boots in the metric's unit, in the order of time.

    A failed boot is +infinity. Values enter as logs, so that sizes are ratios; where one is not above zero, as
    differences over the median size of all. The same input has the same result.

    :raises ValueError: a value is NaN or -infinity, or *least* is below 2.
    """
    import numpy as np

    if least < 2:
        raise ValueError(f"a segment needs at least 2 runs, not {least}")
    if any(math.isnan(value) or value == -math.inf for run in runs for value in run):
        raise ValueError("a value is no number")
    failed = tuple(n for n, run in enumerate(runs) if math.inf in run)
    empty = tuple(n for n, run in enumerate(runs) if not run)
    kept = [n for n, run in enumerate(runs) if run and math.inf not in run]
    medians = np.array([float(np.median(runs[n])) for n in kept])
    if len(kept) < max(LEAST_RUNS, 2 * least):
        reason = f"{_runs(len(kept))} with a value and no failed boot; change points need {max(LEAST_RUNS, 2 * least)}"
        return Changes((), reason, failed, empty)
    scaled = _scaled(medians)
    if scaled is None:
        return Changes((), "", failed, empty)  # all are zero: nothing changed
    search = _Search(scaled, bool((medians > 0).all()), least, seed, permutations)
    found = search.points(_candidates(scaled, least, size), size, alpha)
    points = [_point(medians, search, group, kept) for group in search.grouped(found)]
    return Changes(tuple(points), _too_few(len(kept), least, alpha), failed, empty)


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _too_few(count: int, least: int, alpha: float) -> str:
    """What the fewest permutations allow: a clean step in the middle of few runs is not rare enough by chance."""
    middle = max(least, count // 2)
    ways = math.comb(count, middle) / (2 if 2 * middle == count else 4)
    if 1 / ways <= alpha:
        return ""
    return f"among {count} runs even a clean step comes by chance in {1 / ways:.0%} of all orders; more runs are needed"


def _scaled(medians: Values) -> Values | None:
    import numpy as np

    if (medians > 0).all():
        return np.log(medians)
    typical = float(np.median(np.abs(medians))) or float(np.mean(np.abs(medians)))
    return medians / typical if typical else None


def _candidates(scaled: Values, least: int, size: float) -> list[int]:
    """Places that may be change points: rather too many than too few."""
    import numpy as np
    import ruptures  # type: ignore[import-untyped]

    steps = np.diff(scaled)
    noise = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / math.sqrt(2)
    # Without noise (a counter, a clock's ticks) the least change that counts takes its place.
    width = 3 * max(noise, size / 6, 1e-9)
    model = ruptures.KernelCPD(kernel="rbf", min_size=least, params={"gamma": 1 / (2 * width**2)})
    # Of noise the kernel's cost is about noise^2 / width^2 = 1/9 a run: the penalty of BIC in that unit.
    cuts = model.fit(scaled.reshape(-1, 1)).predict(pen=2 * math.log(len(scaled)) / 9)
    return [int(cut) for cut in cuts[:-1]]


@dataclass(frozen=True)
class _Cut:
    """A change at run *at*, between the segments that begin at *begin* and end before *end*."""

    begin: int
    at: int
    end: int
    size: float
    adjusted: float


class _Search:
    """Tests and fits of stretches of one series; each stretch once."""

    def __init__(self, scaled: Values, logs: bool, least: int, seed: int, permutations: int) -> None:
        self.scaled, self.logs, self.least, self.seed, self.permutations = scaled, logs, least, seed, permutations
        self._tests: dict[tuple[int, int], float] = {}
        self._places: dict[tuple[int, int], tuple[int, int, int]] = {}

    def points(self, cuts: list[int], size: float, alpha: float) -> list[_Cut]:
        """The candidates that hold, their p-values corrected for all that there were."""
        family = len(cuts)
        while cuts:
            cuts = self._settled(cuts)
            bounds = [0, *cuts, len(self.scaled)]
            p = [self.p_value(bounds[n], bounds[n + 2]) for n in range(len(cuts))]
            steps = [self.between(low, high) for low, high in pairwise(pairwise(bounds))]
            adjusted = _holm(p, family)
            wrong = [n for n in range(len(cuts)) if adjusted[n] > alpha or abs(steps[n]) < size]
            if not wrong:
                return [_Cut(bounds[n], bounds[n + 1], bounds[n + 2], steps[n], adjusted[n]) for n in range(len(cuts))]
            del cuts[max(wrong, key=lambda n: (abs(steps[n]) < size, p[n], -abs(steps[n])))]
        return []

    def _settled(self, cuts: list[int]) -> list[int]:
        """Each cut at the best place between its neighbours."""
        for _ in range(4):
            before = list(cuts)
            for n in range(len(cuts)):
                low, high = (cuts[n - 1] if n else 0), (cuts[n + 1] if n + 1 < len(cuts) else len(self.scaled))
                cuts[n] = self.place(low, high)[0]
            if cuts == before:
                break
        return cuts

    def between(self, before: tuple[int, int], after: tuple[int, int]) -> float:
        """The change from one stretch of runs to another as a fraction."""
        import numpy as np

        change = float(np.median(self.scaled[slice(*after)]) - np.median(self.scaled[slice(*before)]))
        return math.expm1(change) if self.logs else change

    def p_value(self, begin: int, end: int) -> float:
        """How often the runs *begin* to *end* in another order show a step as large anywhere among them."""
        import numpy as np

        if (begin, end) not in self._tests:
            part = _winsorised(self.scaled[begin:end])
            reached = self._largest(part[None, :])[0] * (1 - 1e-9)
            random = np.random.default_rng([self.seed, begin, end])
            hits, left = 0, self.permutations
            while left:
                rows = min(left, max(1, _AT_ONCE // len(part)))
                hits += int((self._largest(random.permuted(np.tile(part, (rows, 1)), axis=1)) >= reached).sum())
                left -= rows
            self._tests[begin, end] = (1 + hits) / (1 + self.permutations)
        return self._tests[begin, end]

    def _largest(self, rows: Values) -> Values:
        """For each row the largest difference of the means before and after a place, in units of its deviation."""
        import numpy as np

        count = rows.shape[1]
        before = np.arange(self.least, count - self.least + 1)
        sums = np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1)[:, before - 1]
        found: Values = (np.abs(sums) * np.sqrt(count / (before * (count - before)))).max(axis=1)
        return found

    def place(self, begin: int, end: int) -> tuple[int, int, int]:
        """The best place of one step among the runs *begin* to *end*, and the first and last place near it."""
        import numpy as np

        if (begin, end) not in self._places:
            part = self.scaled[begin:end]
            cuts = range(self.least, len(part) - self.least + 1)
            costs = np.array([_spread(part[:cut]) + _spread(part[cut:]) for cut in cuts])
            best = int(np.argmin(costs))
            near = 2 * len(part) * np.log((costs + 1e-12) / (costs[best] + 1e-12)) <= _HANSEN_95
            low, high = best, best
            while low > 0 and near[low - 1]:
                low -= 1
            while high + 1 < len(costs) and near[high + 1]:
                high += 1
            first = begin + self.least
            self._places[begin, end] = (first + best, first + low, first + high)
        return self._places[begin, end]

    def grouped(self, found: list[_Cut]) -> list[list[_Cut]]:
        """Steps alone, and those together that follow each other in one direction and are rather one line."""
        groups: list[list[_Cut]] = []
        for cut in found:
            if groups and (groups[-1][-1].size > 0) == (cut.size > 0):
                groups[-1].append(cut)
            else:
                groups.append([cut])
        return [part for group in groups for part in ([group] if self.line(group) else [[cut] for cut in group])]

    def line(self, group: Sequence[_Cut]) -> bool:
        """Whether one line fits the runs around these cuts better than levels do, by BIC with Laplace noise."""
        import numpy as np

        part = self.scaled[group[0].begin : group[-1].end]
        third = len(part) // 3  # Tukey's resistant line: through the medians of the outer thirds
        slope = (np.median(part[-third:]) - np.median(part[:third])) / (len(part) - third)
        line = _spread(part - slope * np.arange(len(part)))
        edges = [group[0].begin, *(cut.at for cut in group), group[-1].end]
        levels = sum(_spread(self.scaled[begin:end]) for begin, end in pairwise(edges))
        saved = (2 * len(group) + 1 - 2) * math.log(len(part))  # a level and a place for each step, against two numbers
        return 2 * len(part) * math.log((line + 1e-12) / (levels + 1e-12)) < saved


def _spread(part: Values) -> float:
    import numpy as np

    return float(np.abs(part - np.median(part)).sum())


def _winsorised(part: Values) -> Values:
    """Without what lies far from all others; the order of the runs has no say in it, so that the test stays exact."""
    import numpy as np

    middle = np.median(part)
    reach = 3 * 1.4826 * float(np.median(np.abs(part - middle)))
    return np.clip(part, middle - reach, middle + reach) if reach else part


def _holm(p: Sequence[float], family: int) -> list[float]:
    """Holm's corrected p-values of *p*, the smallest ones of *family*."""
    adjusted, largest = [1.0] * len(p), 0.0
    for rank, n in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (family - rank) * p[n]))
        adjusted[n] = largest
    return adjusted


def _point(medians: Values, search: _Search, group: Sequence[_Cut], kept: Sequence[int]) -> ChangePoint:
    import numpy as np

    first, last = group[0], group[-1]
    return ChangePoint(
        index=kept[first.at],
        size=first.size if len(group) == 1 else search.between((first.begin, first.at), (last.at, last.end)),
        confidence=1 - max(cut.adjusted for cut in group),
        before=float(np.median(medians[first.begin : first.at])),
        after=float(np.median(medians[last.at : last.end])),
        low=kept[search.place(first.begin, first.end)[1]],
        high=kept[search.place(last.begin, last.end)[2]],
        kind=DRIFT if search.line(group) else STEP,
        runs=(first.at - first.begin, last.end - last.at),
    )
