"""Verdicts: SLOs as they were judged in a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from dashboard.data.query import rows

#: Verdicts, the worst first. ``not judged``: the run ended before it judged, or no SLO was asked for.
WORST = ("fail", "unmeasured", "not judged", "pass", "n/a")


@dataclass(frozen=True)
class RunVerdict:
    """One SLO judged in one run. ``value`` is None where it is infinite or unmeasured."""

    run_id: str
    cell_digest: str
    cell_id: str
    tier: str
    nodeid: str
    metric: str
    stat: str
    op: str
    bound: float
    unit: str
    value: float | None
    rounds: int
    verdict: str
    bound_source: str
    reason: str | None = None


_VERDICT = f"SELECT {', '.join(f'v.{name}' for name in RunVerdict.__dataclass_fields__)} FROM verdict v"
_ORDER = "ORDER BY v.cell_id, v.nodeid, v.metric, v.stat, v.op, v.bound"

_OF_RUN = f"{_VERDICT} WHERE v.run_id = $run {_ORDER}"

_OF_CELLS = f"""
{_VERDICT} JOIN (SELECT unnest($runs::VARCHAR[]) AS run_id, unnest($cells::VARCHAR[]) AS cell_digest) asked
USING (run_id, cell_digest) {_ORDER}
"""


def of_run(con: duckdb.DuckDBPyConnection, run_id: str) -> tuple[RunVerdict, ...]:
    """Every verdict of one run."""
    return tuple(_verdict(row) for row in rows(con, _OF_RUN, {"run": run_id}))


def of_cells(
    con: duckdb.DuckDBPyConnection, cells: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], tuple[RunVerdict, ...]]:
    """The verdicts of each run and cell digest of *cells*; those without any are left out."""
    pairs = sorted(set(cells))
    given = {"runs": [run for run, _ in pairs], "cells": [cell for _, cell in pairs]}
    found: dict[tuple[str, str], list[RunVerdict]] = defaultdict(list)
    for row in rows(con, _OF_CELLS, given):
        found[row["run_id"], row["cell_digest"]].append(_verdict(row))
    return {pair: tuple(items) for pair, items in found.items()}


def _verdict(row: Mapping[str, Any]) -> RunVerdict:
    words = ("cell_id", "tier", "nodeid", "unit", "verdict", "bound_source")
    return RunVerdict(**{**row, **{name: row[name] or "" for name in words}, "rounds": row["rounds"] or 0})


def worst(verdicts: Iterable[RunVerdict]) -> str:
    """The worst of *verdicts*; ``not judged`` where there are none."""
    found = {item.verdict for item in verdicts}
    return next((word for word in WORST if word in found), "not judged")
