"""One boot whole, and the way to it: its run, its neighbours in its series, the verdicts of its cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb

from dashboard.data.query import COUNTED, items, rows
from pytest_coldstart.record import BootRecord
from pytest_coldstart.report.columns import one_line
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store import boots
from pytest_coldstart.store.errors import StoreError

#: Runs, and boots of one run, that the picker lists: the newest.
RUNS, OF_A_RUN = 100, 500


@dataclass(frozen=True)
class Found:
    """The boot that a word names, or in words why none is."""

    boot_id: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Listed:
    """A run or a boot as the picker names it."""

    id: str
    words: str


@dataclass(frozen=True)
class Whole:
    """``host``: what the run's row tells of host and commit, by column. ``command``: the run's own command line.

    ``previous`` and ``next``: the boots of the series around it that count. ``verdicts``: of its cell in its run.
    """

    record: BootRecord
    series: str
    started_at: datetime | None
    host: Mapping[str, Any]
    command: tuple[str, ...]
    previous: str | None
    next: str | None
    verdicts: tuple[Verdict, ...]


_NEWEST = "ORDER BY started_at DESC NULLS LAST, boot_id DESC LIMIT 1"


def newest(con: duckdb.DuckDBPyConnection) -> str | None:
    """The newest measured boot; of a store that has only priming ones, the newest of those."""
    for where in ("role = 'measured'", "true"):
        found = rows(con, f"SELECT boot_id FROM boot WHERE {where} {_NEWEST}")
        if found:
            return str(found[0]["boot_id"])
    return None


def named(con: duckdb.DuckDBPyConnection, word: str) -> Found:
    """The boot that *word* names: an id, the beginning of one alone, ``last`` or ``last-failed``."""
    try:
        return Found(boots.find(con, word))
    except StoreError as error:
        return Found(problem=str(error))


def whole(con: duckdb.DuckDBPyConnection, boot_id: str) -> Whole | str:
    """The boot with all that is beside it, or why it cannot be read."""
    try:
        record = boots.load(con, boot_id)
    except StoreError as error:
        return str(error)
    row = rows(con, "SELECT series, started_at FROM boot WHERE boot_id = ?", [boot_id])[0]
    run = rows(con, "SELECT command FROM run WHERE run_id = ?", [record.run_id])
    before, after = _neighbours(con, row["series"], row["started_at"], boot_id)
    return Whole(
        record,
        row["series"],
        row["started_at"],
        boots.host(con, record.run_id),
        tuple(str(word) for word in items(run[0]["command"] if run else None)),
        before,
        after,
        _verdicts(con, record),
    )


# Boots without a start are the oldest; those that started together are told apart by their ids.
_NEIGHBOUR = f"""
SELECT boot_id FROM boot b
WHERE series = $series AND boot_id <> $id AND {COUNTED}
  AND (coalesce(started_at, '-infinity'::TIMESTAMP), boot_id) %s (coalesce($at::TIMESTAMP, '-infinity'::TIMESTAMP), $id)
ORDER BY started_at %s, boot_id %s LIMIT 1
"""


def _neighbours(
    con: duckdb.DuckDBPyConnection, series: str, at: datetime | None, boot_id: str
) -> tuple[str | None, str | None]:
    values = {"series": series, "at": at, "id": boot_id}
    before = rows(con, _NEIGHBOUR % ("<", "DESC NULLS LAST", "DESC"), values)
    after = rows(con, _NEIGHBOUR % (">", "NULLS FIRST", ""), values)
    return before[0]["boot_id"] if before else None, after[0]["boot_id"] if after else None


def _verdicts(con: duckdb.DuckDBPyConnection, record: BootRecord) -> tuple[Verdict, ...]:
    names = ", ".join(Verdict.__dataclass_fields__)
    sql = (
        f"SELECT {names} FROM verdict WHERE run_id = ? AND cell_digest = ? AND nodeid = ? ORDER BY metric, stat, bound"
    )
    found = rows(con, sql, [record.run_id, record.cell_digest, record.nodeid])
    return tuple(Verdict.from_dict(row) for row in found)


def run_of(con: duckdb.DuckDBPyConnection, boot_id: str) -> str:
    """The run of a boot; empty where the boot is gone, as after ``coldstart prune``."""
    found = rows(con, "SELECT run_id FROM boot WHERE boot_id = ?", [boot_id])
    return str(found[0]["run_id"]) if found else ""


def runs(con: duckdb.DuckDBPyConnection, with_run: str = "") -> tuple[Listed, ...]:
    """The newest runs, and *with_run* where it is an older one."""
    sql = f"""
    SELECT run_id, started_at, git_commit FROM run
    QUALIFY row_number() OVER (ORDER BY started_at DESC NULLS LAST, run_id DESC) <= {RUNS} OR run_id = ?
    ORDER BY started_at DESC NULLS LAST, run_id DESC
    """
    return tuple(
        Listed(
            row["run_id"], one_line(f"{_moment(row['started_at'])} {(row['git_commit'] or '')[:10]} {row['run_id']}")
        )
        for row in rows(con, sql, [with_run])
    )


def of_run(con: duckdb.DuckDBPyConnection, run_id: str, with_boot: str = "") -> tuple[Listed, ...]:
    """The newest boots of a run, and *with_boot* where it is an older one."""
    sql = f"""
    SELECT boot_id, started_at, engine, cell_id, role, round, outcome FROM boot WHERE run_id = ?
    QUALIFY row_number() OVER (ORDER BY started_at DESC NULLS LAST, boot_id DESC) <= {OF_A_RUN} OR boot_id = ?
    ORDER BY started_at DESC NULLS LAST, boot_id DESC
    """
    return tuple(
        Listed(
            row["boot_id"],
            one_line(f"{row['engine']} {row['cell_id']}, {_round(row)}: {row['outcome']}, {row['boot_id']}"),
        )
        for row in rows(con, sql, [run_id, with_boot])
    )


def first_of(con: duckdb.DuckDBPyConnection, run_id: str) -> str | None:
    """The boot that a run is opened at: its newest failed one, else its newest measured one, else its newest."""
    sql = f"""
    SELECT boot_id FROM boot WHERE run_id = ?
    ORDER BY outcome = 'failed' DESC, role = 'measured' DESC, {_NEWEST.removeprefix("ORDER BY ")}
    """
    found = rows(con, sql, [run_id])
    return found[0]["boot_id"] if found else None


def _round(row: Mapping[str, Any]) -> str:
    return f"round {row['round']}" if row["role"] == "measured" else str(row["role"])


def _moment(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC" if at else "time unknown"
