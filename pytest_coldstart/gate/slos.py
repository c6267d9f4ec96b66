"""SLOs of a side that do not hold, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytest_coldstart import units
from pytest_coldstart.gate.comparison import SideBoot
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import BootRecord
from pytest_coldstart.slo import Bound, Verdict, judge
from pytest_coldstart.store.runfile import CellVerdict

_Key = tuple[str, str, str, str, str, float]


def broken(verdicts: Sequence[CellVerdict], boots: Sequence[SideBoot]) -> tuple[str, ...]:
    """A sentence for each SLO of the cells of *boots* that is broken, once however many runs judged it.

    A bound that several runs judged, as those of an interleaved gate do with one boot each, is judged over all the boots.
    """
    cells: dict[str, list[BootRecord]] = {}
    for boot in boots:
        cells.setdefault(boot.record.cell_digest, []).append(boot.record)
    runs: dict[_Key, list[CellVerdict]] = {}
    for item in verdicts:
        bound = item.verdict
        key = (item.cell_digest, item.nodeid, bound.metric, bound.stat, bound.op, bound.bound)
        if item.cell_digest in cells:
            runs.setdefault(key, []).append(item)
    judged = [(group[-1], _over_all(group, cells[key[0]])) for key, group in runs.items()]
    said = [_words(item, verdict, cells) for item, verdict in judged if verdict.broken]
    return tuple(dict.fromkeys(said))


def _over_all(group: Sequence[CellVerdict], records: Sequence[BootRecord]) -> Verdict:
    """The verdict over all boots; the run's own where there is one alone, or where its metric is another plugin's."""
    last = group[-1].verdict
    if len(group) == 1 or last.metric not in METRICS or last.verdict == "n/a":
        return last
    limit = units.show(last.bound, last.unit)
    text = f"{last.metric}.{last.stat} {last.op} {limit}"
    bound = Bound(last.metric, last.stat, None, last.op, last.bound, text, last.bound_source)
    return next(iter(judge([bound], records, records[-1].memory.impossible)), last)


def _words(item: CellVerdict, verdict: Verdict, cells: Mapping[str, Sequence[BootRecord]]) -> str:
    """As the table of a run names it: engine, cell, metric and statistic, value, bound."""
    records = cells[item.cell_digest]
    limit = f"{verdict.op} {units.show(verdict.bound, verdict.unit)}"
    what = f"{records[-1].engine} {item.cell_id}: {verdict.metric}.{verdict.stat}"
    if verdict.value is not None and math.isfinite(verdict.value):
        return f"{what} {units.show(verdict.value, verdict.unit)} ({limit})"
    if verdict.verdict == "fail":
        failed = sum(record.failed for record in records)
        return f"{what} failed in {failed} of {len(records)} boots ({limit})"
    return f"{what} unmeasured ({limit}): {verdict.reason or 'no reason is known'}"
