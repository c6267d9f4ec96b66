"""Times to first token of single requests."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import duckdb

from dashboard.data.newest import newest
from dashboard.data.query import rows


@dataclass(frozen=True)
class Sample:
    """One series' requests over its newest runs, seconds to the first token.

    ``warm``: as the metrics warm_ttft_* have them: after the one that warm_first_token is judged on, in the order of boots.
    ``cold``: each boot's first request. ``failed``: of its ``boots``; ``silent``: requests that gave no token; ``cut``: warm ones
    beyond the cap, the oldest of the series.
    """

    series: str
    warm: tuple[float, ...] = ()
    cold: tuple[float, ...] = ()
    runs: int = 0
    boots: int = 0
    failed: int = 0
    silent: int = 0
    cut: int = 0


# The first warm request is the one of warm_first_token, which derive.distribution leaves out.
_REQUESTS = """
SELECT boot_id, kind, ttft FROM request
WHERE boot_id BETWEEN $first AND $last AND kind IN ('first', 'warm') AND boot_id IN (SELECT unnest($boots::VARCHAR[]))
QUALIFY kind = 'first' OR row_number() OVER (PARTITION BY boot_id, kind ORDER BY position) > 1
ORDER BY boot_id, position
"""


@dataclass
class _Found:
    warm: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    silent: int = 0


def samples(con: duckdb.DuckDBPyConnection, series: tuple[str, ...], runs: int, most: int) -> tuple[Sample, ...]:
    """The newest *runs* of each of *series*, in their order, at most *most* warm requests of each."""
    boots = newest(con, series, runs)
    found: dict[str, _Found] = defaultdict(_Found)
    if boots:
        ids = [boot.id for boot in boots]
        of = {boot.id: boot.series for boot in boots}
        for row in rows(con, _REQUESTS, {"first": min(ids), "last": max(ids), "boots": ids}):
            one = found[of[row["boot_id"]]]
            if row["ttft"] is None:
                one.silent += 1
            else:
                (one.cold if row["kind"] == "first" else one.warm).append(row["ttft"])
    made = []
    for name in series:
        own, one = [boot for boot in boots if boot.series == name], found[name]
        made.append(
            Sample(
                name,
                tuple(one.warm[-most:]),
                tuple(one.cold),
                len({boot.run_id for boot in own}),
                len(own),
                sum(boot.failure is not None for boot in own),
                one.silent,
                max(0, len(one.warm) - most),
            )
        )
    return tuple(made)
