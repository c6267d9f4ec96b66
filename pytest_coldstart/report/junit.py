"""Properties of a test for JUnit XML: scalars and JSON strings only."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pytest_coldstart.record import BootRecord
from pytest_coldstart.slo import Verdict


def _worst(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """One verdict a statistic: the broken one where several bounds stand on it."""
    chosen: dict[tuple[str, str], Verdict] = {}
    for verdict in verdicts:
        key = (verdict.metric, verdict.stat)
        if key not in chosen or (verdict.broken and not chosen[key].broken):
            chosen[key] = verdict
    return list(chosen.values())


def properties(records: Sequence[BootRecord], verdicts: Sequence[Verdict]) -> list[tuple[str, str | float]]:
    """``coldstart.cold_start.max`` = 2.3 and so on, values in the metric's unit."""
    if not records:
        return []
    first = records[0]
    found: list[tuple[str, str | float]] = [
        ("coldstart.engine", first.engine),
        ("coldstart.cell", first.cell_id),
        ("coldstart.tier", first.tier),
        ("coldstart.rounds", len(records)),
        ("coldstart.boots", json.dumps([record.boot_id for record in records])),
    ]
    for verdict in _worst(verdicts):
        name = f"coldstart.{verdict.metric}.{verdict.stat}"
        found.append((f"{name}.verdict", verdict.verdict))
        if verdict.to_dict()["value"] is not None:
            found.append((name, verdict.to_dict()["value"]))
    return found
