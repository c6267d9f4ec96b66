"""What each series' newest run says of a metric."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from dashboard.data.newest import Boot, newest
from dashboard.data.query import rows
from dashboard.data.series import NOT_DERIVED
from pytest_coldstart.metrics import METRICS, median

#: Verdicts of one metric, the worst first.
_WORST = ("fail", "unmeasured", "pass", "n/a")


@dataclass(frozen=True)
class Result:
    """One metric over the boots that count in the newest run of one series.

    ``value``: their median, in the metric's unit. As in an SLO, a failed boot takes part as infinitely bad, and where a boot is
    unmeasured there is none. ``state``: ok, failed or unmeasured. ``verdict``: the worst of the metric's SLOs in that run,
    empty where none was judged; ``reason``: why there is no value.
    """

    series: str
    metric: str
    run_id: str
    state: str
    value: float | None = None
    reason: str = ""
    boots: int = 0
    failed: int = 0
    unmeasured: int = 0
    verdict: str = ""


_METRICS = """
SELECT boot_id, value, reason FROM metric
WHERE boot_id BETWEEN $first AND $last AND name = $name AND boot_id IN (SELECT unnest($boots::VARCHAR[]))
"""

_VERDICTS = """
SELECT v.run_id, v.cell_digest, v.metric, list(DISTINCT v.verdict) AS verdicts FROM verdict v
JOIN (SELECT unnest($runs::VARCHAR[]) AS run_id, unnest($digests::VARCHAR[]) AS cell_digest) USING (run_id, cell_digest)
WHERE list_contains($names, v.metric)
GROUP BY ALL
"""

Readings = Mapping[tuple[str, str], tuple[float | None, str | None]]


def results(con: duckdb.DuckDBPyConnection, *metrics: str) -> dict[tuple[str, str], Result]:
    """By series and metric; a series of which no boot counts is left out."""
    boots = newest(con)
    if not boots:
        return {}
    ids = [boot.id for boot in boots]
    given = {"first": min(ids), "last": max(ids), "boots": ids}
    readings = {
        (row["boot_id"], metric): (row["value"], row["reason"])
        for metric in metrics
        for row in rows(con, _METRICS, {**given, "name": metric})
    }
    judged = _judged(con, boots, metrics)
    grouped: dict[str, list[Boot]] = defaultdict(list)
    for boot in boots:
        grouped[boot.series].append(boot)
    return {
        (series, metric): _result(
            metric, group, readings, judged.get((group[0].run_id, group[0].cell_digest, metric), "")
        )
        for series, group in grouped.items()
        for metric in metrics
    }


def _judged(
    con: duckdb.DuckDBPyConnection, boots: Sequence[Boot], metrics: Sequence[str]
) -> dict[tuple[str, str, str], str]:
    """The worst verdict of each run, cell and metric."""
    pairs = sorted({(boot.run_id, boot.cell_digest) for boot in boots})
    given = {"runs": [run for run, _ in pairs], "digests": [cell for _, cell in pairs], "names": list(metrics)}
    return {
        (row["run_id"], row["cell_digest"], row["metric"]): next((w for w in _WORST if w in row["verdicts"]), "")
        for row in rows(con, _VERDICTS, given)
    }


def _result(metric: str, boots: Sequence[Boot], readings: Readings, verdict: str) -> Result:
    worst = math.inf if METRICS[metric].better == "lower" else -math.inf
    failures = [boot.failure for boot in boots if boot.failure is not None]
    found = [readings.get((boot.id, metric), (None, NOT_DERIVED)) for boot in boots if boot.failure is None]
    silent = [reason for value, reason in found if value is None]
    numbers = [value for value, _ in found if value is not None] + [worst] * len(failures)
    value = None if silent else median(numbers)
    state, reason = "ok", ""
    if silent and len(failures) < len(boots):
        state, reason = "unmeasured", silent[0] or "no reason is stored"
    if failures and (silent or not math.isfinite(value or 0.0)):
        state, reason, value = "failed", failures[0], None
    return Result(
        boots[0].series, metric, boots[0].run_id, state, value, reason, len(boots), len(failures), len(silent), verdict
    )
