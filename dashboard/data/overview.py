"""How each series stands: its newest run, how often it runs, and what it is missing from."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import duckdb

from dashboard.data.query import rows
from dashboard.data.verdicts import RunVerdict, of_cells, worst
from pytest_coldstart.history.read import RunPoint, runs_of
from pytest_coldstart.metrics import median

#: How many of its own last intervals a series is judged by.
INTERVALS = 10
#: How many usual intervals may go by before a series is stale.
PATIENCE = 3
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Standing:
    """A series in its newest run that is none of a gate.

    ``boots``, ``failed``, ``errors``: of that run; ``boot_id``: the newest of them, ``failed_boot`` and ``failure``: the newest
    one that failed. ``starts``: of its own last runs on the same branch, the newest first, UTC. ``missed``: ended runs since then of
    the same suite (test file), branch and hardware class that lack it; ``most_missed``: as many as ever lay between two of its own.
    """

    series: str
    run_id: str
    branch: str
    boots: int
    failed: int
    errors: int
    boot_id: str
    failed_boot: str | None = None
    failure: str | None = None
    starts: tuple[datetime, ...] = ()
    missed: int = 0
    most_missed: int = 0
    verdicts: tuple[RunVerdict, ...] = ()

    @property
    def verdict(self) -> str:
        return worst(self.verdicts)

    @property
    def last(self) -> datetime | None:
        """When the newest run started."""
        return self.starts[0] if self.starts else None

    @property
    def usual(self) -> timedelta | None:
        """The usual time from one of its runs to the next; None where it has had one run only."""
        gaps = [(later - sooner).total_seconds() for later, sooner in pairwise(self.starts)]
        return timedelta(seconds=statistics.median(gaps)) if gaps else None

    def late(self, now: datetime) -> bool:
        """Whether its last run is older than its runs usually lie apart, three times over, and older than a day."""
        if self.last is None or self.usual is None:
            return False
        return now - self.last > max(PATIENCE * self.usual, _DAY)

    @property
    def missing(self) -> bool:
        """Whether more runs have gone by without it than ever between two of its last ones."""
        return self.missed > self.most_missed

    def stale(self, now: datetime) -> bool:
        return self.late(now) or self.missing


@dataclass(frozen=True)
class RunMedian:
    """The cold starts of one run of one series. ``value``: their median, a failed boot being infinitely bad; None where that
    is infinite or a boot is unmeasured. ``failed`` and ``unmeasured`` count boots."""

    run_id: str
    at: datetime | None
    commit: str | None
    value: float | None
    boots: int
    failed: int
    unmeasured: int


# One row a series, with its newest runs in lists: never a row a boot. A boot is found by its place in the table, which is the
# fastest way there is. A gate's runs are left out, as in the history: their boots are of any two commits.
_NEWEST = """
WITH booted AS (
    SELECT series, run_id, min(started_at) AS first, count(*) AS boots, count(*) FILTER (outcome = 'failed') AS failed,
           count(*) FILTER (outcome = 'error') AS errors, arg_max(rowid, coalesce(started_at, TIMESTAMP '0001-01-01')) AS place,
           arg_max(rowid, coalesce(started_at, TIMESTAMP '0001-01-01')) FILTER (outcome = 'failed') AS wrong
    FROM boot GROUP BY series, run_id
), recent AS (
    SELECT b.*, coalesce(r.started_at, b.first) AS began, r.git_branch AS branch, r.hardware_class,
           r.exit_status IS NOT NULL AS ended,
           row_number() OVER (PARTITION BY b.series ORDER BY began DESC NULLS LAST, b.run_id DESC) AS number
    FROM booted b LEFT JOIN run r ON r.run_id = b.run_id
    WHERE coalesce(json_type(r.extra, '$.gate'), 'NULL') = 'NULL' AND ($branch::VARCHAR IS NULL OR r.git_branch = $branch)
    QUALIFY number <= $runs
), listed AS (
    SELECT series, list(began ORDER BY number) AS begun, list(branch ORDER BY number) AS branches,
           list(ended ORDER BY number) AS ended
    FROM recent GROUP BY series
)
SELECT n.series, n.run_id, n.boots, n.failed, n.errors, n.branch, n.hardware_class, l.begun, l.branches, l.ended,
       b.boot_id, b.cell_digest, split_part(coalesce(b.nodeid, ''), '::', 1) AS suite,
       f.boot_id AS failed_boot, f.failure_message
FROM recent n JOIN listed l ON l.series = n.series JOIN boot b ON b.rowid = n.place LEFT JOIN boot f ON f.rowid = n.wrong
WHERE n.number = 1
"""

_BRANCHES = "SELECT DISTINCT git_branch AS branch FROM run WHERE git_branch IS NOT NULL ORDER BY 1"


def standings(con: duckdb.DuckDBPyConnection, branch: str | None = None, runs: int = 30) -> dict[str, Standing]:
    """How each series stands, by its id, looking at its newest *runs*; one that only gates have booted has no standing.

    *branch*: the runs of this one alone.
    """
    newest = rows(con, _NEWEST, {"branch": branch, "runs": runs})
    ended = _ended(newest)
    judged = of_cells(con, ((row["run_id"], row["cell_digest"]) for row in newest))
    return {
        row["series"]: _standing(
            row, ended[_place(row, row["branch"])], judged.get((row["run_id"], row["cell_digest"]), ())
        )
        for row in newest
    }


#: A suite on a branch and a hardware class: what can be expected to boot the same series each time.
_Place = tuple[str, str | None, str | None]


def _place(row: Mapping[str, Any], branch: str | None) -> _Place:
    return row["suite"], branch, row["hardware_class"]


def _ended(newest: Sequence[Mapping[str, Any]]) -> dict[_Place, list[datetime]]:
    """The starts of the runs of each place that have come to their end, in order."""
    found: dict[_Place, set[datetime]] = defaultdict(set)
    for row in newest:
        found[_place(row, row["branch"])]  # there, even if empty
        for began, branch, ended in zip(row["begun"], row["branches"], row["ended"], strict=True):
            if ended and began is not None:
                found[_place(row, branch)].add(began)
    return {place: sorted(starts) for place, starts in found.items()}


def _standing(row: Mapping[str, Any], others: Sequence[datetime], verdicts: tuple[RunVerdict, ...]) -> Standing:
    pairs = zip(row["begun"], row["branches"], strict=True)
    starts = [began for began, branch in pairs if began is not None and branch == row["branch"]][: INTERVALS + 1]
    between = [bisect_left(others, later) - bisect_right(others, sooner) for later, sooner in pairwise(starts)]
    same = ("series", "run_id", "boots", "failed", "errors", "boot_id", "failed_boot")
    return Standing(
        **{name: row[name] for name in same},
        branch=row["branch"] or "",
        failure=row["failure_message"],
        starts=tuple(starts),
        missed=len(others) - bisect_right(others, starts[0]) if starts else 0,
        most_missed=max(between, default=0),
        verdicts=verdicts,
    )


def branches(con: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    """The branches of all runs."""
    return tuple(row["branch"] for row in rows(con, _BRANCHES))


def medians(
    con: duckdb.DuckDBPyConnection, series: tuple[str, ...], metric: str, branch: str | None = None, runs: int = 30
) -> dict[str, tuple[RunMedian, ...]]:
    """The newest *runs* of each of *series* in the order of time, without those of gates."""
    found = runs_of(con, series, metric, branch, runs)
    return {name: tuple(_median(run) for run in points) for name, points in found.items()}


def _median(run: RunPoint) -> RunMedian:
    failed = run.values.count(float("inf"))
    middle = median(run.values) if run.values and not run.unmeasured else None
    value = None if middle == float("inf") else middle
    boots = len(run.values) + run.unmeasured
    return RunMedian(run.run_id, run.started_at, run.commit, value, boots, failed, run.unmeasured)
