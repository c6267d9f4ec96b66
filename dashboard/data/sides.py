"""What can be compared: boots, runs, commits and configs, and the boots that count on one side of a comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import duckdb

from dashboard import text
from dashboard.data.newest import newest
from dashboard.data.query import COUNTED, rows
from dashboard.data.series import Series, all_series

BOOTS, RUNS, COMMITS, CONFIGS = "boots", "runs", "commits", "configs"

#: Kind -> what one of it is called, and the table and column of its ids.
KINDS = {
    BOOTS: ("boot", "boot", "boot_id"),
    RUNS: ("run", "run", "run_id"),
    COMMITS: ("commit", "run", "git_commit"),
    CONFIGS: ("series", "boot", "series"),
}

#: Boots of one side that are compared at most, the newest; and how many ids a picker lists.
MOST, LISTED = 100, 300
#: Ids that a message about the beginning of several lists.
_NAMED = 5


@dataclass(frozen=True)
class Listed:
    """An id as a picker names it."""

    id: str
    words: str


@dataclass(frozen=True)
class Chosen:
    """One side of a comparison. ``asked``: as the address has it; ``id``: whole, empty where there is a ``problem``.

    ``boots``: ids of those that count, at most :data:`MOST` of ``counted``. ``runs``: of these boots. ``notes``: what was left out.
    """

    name: str
    kind: str
    asked: str
    id: str = ""
    boots: tuple[str, ...] = ()
    counted: int = 0
    runs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def text(self) -> str:
        """As a gate would be given it; boots and series are no such form."""
        form = {RUNS: "run", COMMITS: "git"}.get(self.kind)
        return f"{form}:{self.id}" if form else f"{KINDS[self.kind][0]} {self.id}"


# -- what can be picked

_GATE = "coalesce(json_type(r.extra, '$.gate'), 'NULL') <> 'NULL'"

_BOOTS = f"""
SELECT boot_id AS id, engine, cell_id, outcome, role, started_at FROM boot
ORDER BY started_at DESC NULLS LAST, boot_id DESC LIMIT {LISTED}
"""
_RUNS = f"""
WITH newest AS (
    SELECT r.run_id AS id, r.started_at, r.git_commit, r.git_branch, r.git_dirty, {_GATE} AS gate FROM run r
    WHERE r.run_id IN (SELECT b.run_id FROM boot b WHERE {COUNTED})
    ORDER BY r.started_at DESC NULLS LAST, r.run_id DESC LIMIT {LISTED}
)
SELECT n.*, (SELECT count(*) FROM boot b WHERE b.run_id = n.id AND {COUNTED}) AS boots FROM newest n
ORDER BY n.started_at DESC NULLS LAST, n.id DESC
"""
_COMMITS = f"""
SELECT r.git_commit AS id, max(r.started_at) AS started_at, arg_max(r.git_branch, r.started_at) AS git_branch, count(*) AS runs
FROM run r
WHERE r.git_commit IS NOT NULL AND NOT coalesce(r.git_dirty, false)
  AND r.run_id IN (SELECT b.run_id FROM boot b WHERE {COUNTED})
GROUP BY r.git_commit ORDER BY 2 DESC NULLS LAST, 1 LIMIT {LISTED}
"""


def listed(con: duckdb.DuckDBPyConnection, kind: str) -> tuple[Listed, ...]:
    """The newest of a *kind*, the newest first."""
    if kind == CONFIGS:
        return tuple(Listed(item.id, text.name(item)) for item in all_series(con)[:LISTED])
    sql, words = {BOOTS: (_BOOTS, _boot), RUNS: (_RUNS, _run), COMMITS: (_COMMITS, _commit)}[kind]
    return tuple(Listed(row["id"], words(row)) for row in rows(con, sql))


def _boot(row: dict[str, Any]) -> str:
    state = "prime" if row["role"] == "prime" else row["outcome"]
    return f"{text.moment(row['started_at'])} | {row['engine']} {row['cell_id']} | {state} | {row['id']}"


def _run(row: dict[str, Any]) -> str:
    at = text.commit(row["git_commit"], row["git_branch"], row["git_dirty"])
    gate = " | of a gate" if row["gate"] else ""
    return f"{text.moment(row['started_at'])} | {at} | {_count(row['boots'], 'boot')}{gate} | {row['id']}"


def _commit(row: dict[str, Any]) -> str:
    return (
        f"{text.moment(row['started_at'])} | {text.commit(row['id'], row['git_branch'])} | {_count(row['runs'], 'run')}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


#: Kind -> its id of a boot, and what else a boot must be.
_OF = {
    BOOTS: ("b.boot_id", "true"),
    RUNS: ("b.run_id", "true"),
    COMMITS: ("r.git_commit", f"r.git_commit IS NOT NULL AND NOT coalesce(r.git_dirty, false) AND NOT ({_GATE})"),
}


def usual(con: duckdb.DuckDBPyConnection, kind: str) -> tuple[str, str]:
    """The base and the head where the address names none: the newest is the head, and the base the newest before it that has a
    series in common; of configs one of the same engine, model, tier and hardware class where there is one."""
    if kind == CONFIGS:
        series = all_series(con)
        same = [item for item in series[1:] if _class(item) == _class(series[0])]
        ids = [item.id for item in (*series[:1], *same[:1], *series[1:2])]
        return (ids[1], ids[0]) if len(ids) > 1 else ("".join(ids), "".join(ids))
    id, which = _OF[kind]
    sql = f"""
WITH counted AS (
    SELECT {id} AS id, b.series, b.started_at FROM boot b LEFT JOIN run r ON r.run_id = b.run_id WHERE {COUNTED} AND {which}
), head AS (SELECT id FROM counted ORDER BY started_at DESC NULLS LAST, id DESC LIMIT 1)
SELECT c.id AS base, h.id AS head FROM counted c, head h
WHERE c.id <> h.id AND c.series IN (SELECT series FROM counted WHERE id = (SELECT id FROM head))
ORDER BY c.started_at DESC NULLS LAST, c.id DESC LIMIT 1
"""
    found = rows(con, sql)
    if found:
        return str(found[0]["base"]), str(found[0]["head"])
    ids = [item.id for item in listed(con, kind)[:2]]
    return (ids[1], ids[0]) if len(ids) > 1 else ("".join(ids), "".join(ids))


def _class(item: Series) -> tuple[str, ...]:
    return item.engine, item.model, item.tier, item.hardware


# -- one side


def chosen(
    con: duckdb.DuckDBPyConnection, kind: str, name: str, word: str, gates: bool = False, depth: int = 1
) -> Chosen:
    """The side *name* (base or head) that *word* names: a whole id, or the beginning of one id alone.

    *gates*: with the runs of gates, whose boots are of any two commits; for commits alone. *depth*: of a config, how many of
    its newest runs.
    """
    side = Chosen(name, kind, word)
    try:
        id = _id(con, kind, word)
        boots, runs, notes = _boots(con, kind, id, gates, depth)
    except _Unknown as error:
        return replace(side, problem=str(error))
    kept = boots[:MOST]
    if len(boots) > MOST:
        notes = (*notes, f"the newest {MOST} of {len(boots)} boots are compared")
    return replace(side, id=id, boots=tuple(kept), counted=len(boots), runs=runs, notes=notes)


class _Unknown(Exception):
    """Why there is no such side, in words."""


def _id(con: duckdb.DuckDBPyConnection, kind: str, word: str) -> str:
    """:raises _Unknown: no id begins so, or several do."""
    noun, table, column = KINDS[kind]
    if not word:
        raise _Unknown(f"no {noun} is chosen")
    sql = f"SELECT DISTINCT {column} AS id FROM {table} WHERE starts_with({column}, ?) ORDER BY 1 LIMIT {_NAMED + 1}"
    found = [row["id"] for row in rows(con, sql, [word])]
    if not found:
        raise _Unknown(f"the store has no {noun} {word!r}")
    if len(found) > 1 and found[0] != word:  # a whole id sorts before what begins with it
        more = ", ..." if len(found) > _NAMED else ""
        raise _Unknown(f"the ids of several begin with {word!r}: {', '.join(found[:_NAMED])}{more}")
    return str(found[0])


#: Ids of boots, of their runs, and notes.
_Found = tuple[list[str], tuple[str, ...], tuple[str, ...]]


def _boots(con: duckdb.DuckDBPyConnection, kind: str, id: str, gates: bool, depth: int) -> _Found:
    """:raises _Unknown: none counts."""
    if kind == BOOTS:
        return _one(con, id)
    notes: tuple[str, ...] = ()
    if kind == CONFIGS:
        found = sorted(newest(con, (id,), depth), key=lambda boot: (str(boot.started_at or ""), boot.id), reverse=True)
        ids, runs = [boot.id for boot in found], list(dict.fromkeys(boot.run_id for boot in found))
    else:
        made, notes = ([id], notes) if kind == RUNS else _at(con, id, gates)
        ids, runs = _of(con, made)
    if not ids:
        raise _Unknown(
            f"{KINDS[kind][0]} {id} has no boot that counts; priming boots and boots whose evidence contradicts their tier do not"
        )
    return ids, tuple(runs), notes


def _one(con: duckdb.DuckDBPyConnection, id: str) -> _Found:
    (row,) = rows(con, "SELECT run_id, role, outcome FROM boot WHERE boot_id = ?", [id])
    if row["role"] != "measured":
        raise _Unknown(f"boot {id} is a priming boot, which enters no comparison")
    if row["outcome"] == "error":
        raise _Unknown(f"boot {id} says nothing of its cell: its evidence contradicts its tier")
    return [id], (row["run_id"],), ()


def _at(con: duckdb.DuckDBPyConnection, commit: str, gates: bool) -> tuple[list[str], tuple[str, ...]]:
    """The runs at a commit. As for a gate, those made of changed files are left out.

    :raises _Unknown: none is left.
    """
    sql = f"SELECT r.run_id, coalesce(r.git_dirty, false) AS dirty, {_GATE} AS gate FROM run r WHERE r.git_commit = ?"
    found = rows(con, sql, [commit])
    dirty = [row for row in found if row["dirty"]]
    gate = [row for row in found if row["gate"] and not row["dirty"] and not gates]
    left = [row["run_id"] for row in found if not row["dirty"] and (gates or not row["gate"])]
    notes = tuple(
        f"{_count(len(group), 'run')} {why} left out"
        for group, why in ((dirty, "with changed files"), (gate, "of gates"))
        if group
    )
    if not left:
        raise _Unknown(f"commit {commit} has no run that counts: {' and '.join(notes)}")
    return left, notes


def _of(con: duckdb.DuckDBPyConnection, runs: list[str]) -> tuple[list[str], list[str]]:
    """The boots of *runs* that count, the newest first, and the runs that have one."""
    sql = f"""
SELECT b.boot_id, b.run_id FROM boot b WHERE b.run_id IN (SELECT unnest(?::VARCHAR[])) AND {COUNTED}
ORDER BY b.started_at DESC NULLS LAST, b.boot_id DESC
"""
    found = rows(con, sql, [runs])
    return [row["boot_id"] for row in found], list(dict.fromkeys(row["run_id"] for row in found))
