"""What a store holds of its series: which there are, and the runs of one with the values of a metric."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

import duckdb

#: Boots count as everywhere: measured ones, whose evidence does not contradict their tier.
_COUNTED = "role = 'measured' AND outcome <> 'error'"

_SERIES = f"""
SELECT series, arg_max(cell_id, started_at), arg_max(nodeid, started_at), any_value(engine), any_value(model_name),
       any_value(tier), count(*), count(*) FILTER (outcome = 'failed'), max(started_at)
FROM boot WHERE {_COUNTED} GROUP BY series ORDER BY max(started_at) DESC NULLS LAST, series
"""

# A gate's runs are left out: their boots are of any two commits, in random order. The metrics of the chosen boots are found by
# an inner join within bounds: ids begin with the time of the boot, so that the rest of the table is passed over. Versions are
# long, and read of one boot a run.
_RUNS = f"""
WITH wanted AS (SELECT unnest($metrics::VARCHAR[]) AS name), picked AS (
    SELECT b.rowid AS place, b.boot_id, b.series, b.run_id, b.started_at, b.outcome FROM boot b
    WHERE {_COUNTED} AND b.series IN (SELECT unnest($series::VARCHAR[]))
      AND b.run_id NOT IN (SELECT run_id FROM run WHERE coalesce(json_type(extra, '$.gate'), 'NULL') <> 'NULL')
      AND ($branch::VARCHAR IS NULL OR b.run_id IN (SELECT run_id FROM run WHERE git_branch = $branch))
), newest AS (
    SELECT series, run_id, min(started_at) AS started_at, min(place) AS place FROM picked
    GROUP BY series, run_id
    QUALIFY row_number() OVER (PARTITION BY series ORDER BY min(started_at) DESC NULLS LAST, run_id DESC) <= $newest
), chosen AS (
    SELECT p.* FROM picked p SEMI JOIN newest n ON n.series = p.series AND n.run_id = p.run_id
), measured AS (
    SELECT m.boot_id, m.name, m.value FROM metric m JOIN chosen c ON c.boot_id = m.boot_id WHERE m.name IN (@names)
      AND m.boot_id >= (SELECT min(boot_id) FROM chosen) AND m.boot_id <= (SELECT max(boot_id) FROM chosen)
), found AS (
    SELECT c.series, c.run_id, w.name, list(CASE WHEN c.outcome = 'failed' THEN 'inf'::DOUBLE ELSE m.value END) AS found
    FROM chosen c CROSS JOIN wanted w LEFT JOIN measured m ON m.boot_id = c.boot_id AND m.name = w.name
    GROUP BY c.series, c.run_id, w.name
)
SELECT f.name, n.series, n.run_id, n.started_at, f.found, r.git_commit, r.git_branch, r.git_dirty,
       r.driver, r.kernel, r.hostname, r.versions, b.versions
FROM newest n JOIN found f ON f.series = n.series AND f.run_id = n.run_id JOIN boot b ON b.rowid = n.place
LEFT JOIN run r ON r.run_id = n.run_id
ORDER BY n.started_at NULLS FIRST, n.run_id
"""

#: All runs of a series.
ALL = 2**31


class HistoryError(ValueError):
    """A word that names no series, run or metric of the store, or several; the message lists what could be meant."""


@dataclass(frozen=True)
class Series:
    """One cell on one hardware class. ``boots``: that count; ``failed``: of them. ``last``: when the newest started, UTC."""

    series: str
    cell_id: str
    nodeid: str
    engine: str
    model: str
    tier: str
    boots: int
    failed: int
    last: datetime | None = None

    @property
    def name(self) -> str:
        """As it is listed: the id alone is often the same in several tests."""
        return f"{self.engine} {self.model} {self.cell_id}".strip()

    @property
    def test(self) -> str:
        """The test without its folders, for narrow tables."""
        file, colons, rest = self.nodeid.partition("::")
        return file.rpartition("/")[2] + colons + rest


@dataclass(frozen=True)
class RunPoint:
    """One run of one series. ``values``: of its boots in the metric's unit, +infinity for one that failed.

    ``unmeasured``: boots without a value. ``started_at``: of its first boot, UTC. ``environment``: what may differ between runs of
    one series: driver, kernel, hostname, ``versions.NAME``.
    """

    run_id: str
    started_at: datetime | None
    values: tuple[float, ...] = ()
    unmeasured: int = 0
    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def all_series(con: duckdb.DuckDBPyConnection) -> list[Series]:
    """Every series of the store that has a boot that counts, the one with the newest boot first."""
    rows = con.execute(_SERIES).fetchall()
    texts = ("cell_id", "nodeid", "engine", "model", "tier")
    return [
        Series(
            series=row[0],
            **{name: str(text or "") for name, text in zip(texts, row[1:6], strict=True)},
            boots=row[6],
            failed=row[7],
            last=row[8],
        )
        for row in rows
    ]


def matching(found: Sequence[Series], word: str) -> list[Series]:
    """The series that *word* names: by a whole id, else by the beginning of one, else by a part of cell, test, engine or model."""
    whole = [one for one in found if word in (one.series, one.cell_id)]
    begun = [one for one in found if one.series.startswith(word)]
    return whole or begun or [one for one in found if word in f"{one.nodeid} {one.name}"]


def runs_of(
    con: duckdb.DuckDBPyConnection, series: Sequence[str], metric: str, branch: str | None = None, newest: int = ALL
) -> dict[str, list[RunPoint]]:
    """The *newest* runs of each of *series* in the order of time, those of *branch* alone where it is given. One query."""
    return runs_of_each(con, series, [metric], branch, newest)[metric]


def runs_of_each(
    con: duckdb.DuckDBPyConnection,
    series: Sequence[str],
    metrics: Sequence[str],
    branch: str | None = None,
    newest: int = ALL,
) -> dict[str, dict[str, list[RunPoint]]]:
    """As :func:`runs_of` for each of *metrics*, with one look at the boots and their metrics. One query."""
    found: dict[str, dict[str, list[RunPoint]]] = {metric: {name: [] for name in series} for metric in metrics}
    # One by one: constants are what DuckDB passes over the rest of the table for.
    names = {f"metric{n}": metric for n, metric in enumerate(metrics)}
    values = {"series": list(series), "metrics": list(metrics), "branch": branch, "newest": newest, **names}
    sql = _RUNS.replace("@names", ", ".join(f"${name}" for name in names))
    for metric, *row in con.execute(sql, values).fetchall() if metrics else ():
        found[metric][row[0]].append(_run(row))
    return found


def _run(row: Sequence[Any]) -> RunPoint:
    _, run_id, started_at, values, commit, branch, dirty, *environment = row
    known = tuple(sorted(value for value in values if value is not None))
    unmeasured = len(values) - len(known)
    return RunPoint(run_id, started_at, known, unmeasured, commit, branch, dirty, _environment(*environment))


@lru_cache(maxsize=1024)
def _environment(
    driver: str | None, kernel: str | None, hostname: str | None, run_versions: str | None, boot_versions: str | None
) -> dict[str, str]:
    """One for all runs that have the same, which are most: nobody may change it."""
    versions = {**_json(run_versions), **_json(boot_versions)}  # an engine may have a Python of its own
    found = {"driver": driver, "kernel": kernel, "hostname": hostname}
    found |= {f"versions.{name}": version for name, version in versions.items()}
    return {name: str(value) for name, value in found.items() if value is not None}


def _json(text: str | None) -> dict[str, Any]:
    found = json.loads(text or "{}")
    return found if isinstance(found, dict) else {}


def has_metric(con: duckdb.DuckDBPyConnection, metric: str) -> bool:
    """Whether any boot has a row of *metric*, be it unmeasured."""
    return bool(con.execute("SELECT 1 FROM metric WHERE name = ? LIMIT 1", [metric]).fetchall())
