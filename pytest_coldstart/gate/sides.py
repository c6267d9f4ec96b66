"""A side of a comparison: what a person writes for it, and the stored boots that it stands for."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_coldstart.gate.comparison import Side, SideBoot
from pytest_coldstart.gate.errors import GateError
from pytest_coldstart.gate.sound import check
from pytest_coldstart.record import BootRecord
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.runfile import CellVerdict, RunData, read_run

if TYPE_CHECKING:
    import duckdb

FORMS = "run:ID, run:last, git:REF, python:INTERPRETER, or the path of a run file (.jsonl), a store folder or a .duckdb file"

#: How many runs a message about a wrong id lists, and how much of a side it repeats.
_LISTED, _SHOWN = 5, 200
_NEWEST = "ORDER BY started_at DESC NULLS LAST, run_id DESC"
#: Columns of the table run that hold JSON.
_JSON = ("ci", "versions", "command", "extra")
_CHOSEN = "run_id IN (SELECT unnest(?::VARCHAR[]))"


@dataclass(frozen=True)
class Spelling:
    """A side as it was written. ``kind``: run, git, python or path; ``value``: what follows the colon, or the path."""

    kind: str
    value: str
    text: str


def parse(name: str, text: str) -> Spelling:
    """Read what was written for the side *name* (base or head).

    :raises GateError: it is empty, or neither one of the forms nor a path that exists.
    """
    kind, colon, value = text.partition(":")
    if colon and kind in ("run", "git", "python"):
        if not value.strip():
            raise GateError(f"{name} {text!r} names nothing after the colon; valid: {FORMS}")
        return Spelling(kind, value.strip(), text)
    try:
        found = bool(text.strip()) and Path(text).expanduser().exists()
    except (OSError, RuntimeError):  # longer than a path may be, or of a user that there is not
        found = False
    if not found:
        raise GateError(f"{name} {_short(text)!r} is no such form and no path that exists; valid: {FORMS}")
    return Spelling("path", text, text)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def load(name: str, text: str, home: Home, cwd: Path) -> Side:
    """The counted boots of a stored side; *home* is the store of ``run:`` and ``git:``, *cwd* the checkout of ``git:``.

    :raises GateError: an unknown run or ref, no boot at all, or a side that has to be booted.
    :raises StoreError: a store or run file that cannot be read, is newer, or is held by another process.
    """
    said = parse(name, text)
    if said.kind == "python":
        raise GateError(f"{name} {text!r} is booted now and has no stored boots; give the suites to boot: SUITES")
    if said.kind == "path":
        return _path(name, text, Path(said.value).expanduser())
    with _opened(home.database) as con:
        runs = [_run(con, name, said.value)] if said.kind == "run" else _at_commit(con, name, text, said.value, cwd)
        return _side(con, name, text, runs)


def commit(name: str, ref: str, cwd: Path) -> str:
    """The whole id of the commit that *ref* names in the checkout *cwd*.

    :raises GateError: git is missing, *cwd* is no checkout, or it has no such ref.
    """
    words = ["git", "-C", str(cwd), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GateError(f"{name} git:{ref}: git could not be run: {error}") from None
    if done.returncode:
        why = done.stderr.strip().partition("\n")[0].removeprefix("fatal: ")
        raise GateError(
            f"{name} git:{ref}: {why or 'there is no such branch, tag or commit here'}; a shallow clone lacks older "
            "commits (git fetch --unshallow), and `git branch -a` lists what there is"
        )
    return done.stdout.strip()


def of_runs(name: str, text: str, runs: Iterable[RunData]) -> Side:
    """A side made of run files that were read; it may be empty."""
    boots: dict[str, SideBoot] = {}  # a copy of a run file, or of a line of it, holds no boot more
    verdicts: list[CellVerdict] = []
    for run in runs:
        boots |= {record.boot_id: _boot(record, run.header) for record in run.boots if record.counted}
        verdicts += run.verdicts
    return Side(name, text, _ordered(boots.values()), tuple(verdicts))


def verdicts_of(home: Home, side: Side) -> tuple[CellVerdict, ...]:
    """What became of the SLOs in the runs of *side*, from their run files in *home*.

    :raises StoreError: one of them cannot be read.
    """
    runs = dict.fromkeys(boot.record.run_id for boot in side.boots)
    files = [file for run in runs for file in sorted(home.runs.glob(f"{run}.*.jsonl"))]
    return tuple(verdict for file in files for verdict in read_run(file).verdicts)


def _path(name: str, text: str, path: Path) -> Side:
    home = Home.at(path)
    if path.is_dir() and not home.database.exists() and any(home.runs.glob("*.jsonl")):
        return _filled(of_runs(name, text, map(_file, sorted(home.runs.glob("*.jsonl")))))
    if path.is_dir() or path.suffix == ".duckdb":
        with _opened(home.database) as con:
            return _side(con, name, text, [row[0] for row in con.execute("SELECT run_id FROM run").fetchall()])
    try:
        return _filled(of_runs(name, text, [_file(path)]))
    except StoreError as error:
        raise type(error)(f"{error}; {name} needs a whole run file, and this one was left as it is") from error


def _file(path: Path) -> RunData:
    """:raises StoreError: it cannot be read, or holds what we never write."""
    return check(read_run(path), str(path))


def _filled(side: Side) -> Side:
    """:raises GateError: *side* has no boot."""
    if not side.boots:
        raise GateError(
            f"{side.name} {side.text} is empty: it has no measured boot that counts; priming boots and boots whose "
            "evidence contradicts their tier do not"
        )
    return side


def _ordered(boots: Iterable[SideBoot]) -> tuple[SideBoot, ...]:
    return tuple(sorted(boots, key=lambda boot: (boot.record.started_at, boot.record.boot_id)))


def _boot(record: BootRecord, header: Mapping[str, Any]) -> SideBoot:
    """With its place in an interleaved gate, where the run's header tells of one."""
    place = header.get("gate")
    if not isinstance(place, Mapping):
        return SideBoot(record, header)
    return SideBoot(record, header, place.get("gate"), place.get("block"), place.get("position"))


# -- from the store


@contextmanager
def _opened(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """:raises StoreError: it cannot be opened, or a part of it is broken."""
    import duckdb

    from pytest_coldstart.store.database import reader, said

    with reader(path) as con:
        try:
            yield con
        except duckdb.Error as error:
            raise StoreError(f"could not read the store {path}: {said(error)}; it was left as it is") from error


def _run(con: duckdb.DuckDBPyConnection, name: str, word: str) -> str:
    """The id of the run that *word* names: an id, the beginning of one id alone, or last."""
    if word == "last":
        found = con.execute(f"SELECT run_id FROM run {_NEWEST} LIMIT 1").fetchall()
        if not found:
            raise GateError(f"{name} run:last: the store holds no run; run `pytest --coldstart`, or `coldstart ingest`")
        return str(found[0][0])
    matching = "FROM run WHERE starts_with(run_id, ?)"
    found = con.execute(f"SELECT run_id {matching} ORDER BY run_id LIMIT 2", [word]).fetchall()
    if found and (len(found) == 1 or found[0][0] == word):  # a whole id sorts before what begins with it
        return str(found[0][0])
    if found:
        raise GateError(f"{name} run:{word}: the ids of several runs begin so{_list(con, matching, [word])}")
    raise GateError(f"{name} run:{word}: the store has no such run{_list(con, 'FROM run', [])}")


def _list(con: duckdb.DuckDBPyConnection, matching: str, values: Sequence[str]) -> str:
    rows = con.execute(f"SELECT run_id, started_at, git_commit {matching} {_NEWEST} LIMIT {_LISTED}", values).fetchall()
    if not rows:
        return ": it is empty"
    lines = [f"  {run}  {at:%Y-%m-%d %H:%M:%S} UTC  {(sha or 'no commit')[:9]}" for run, at, sha in rows]
    return "\n".join(["; the newest:", *lines])


def _at_commit(con: duckdb.DuckDBPyConnection, name: str, text: str, ref: str, cwd: Path) -> list[str]:
    """The runs at a commit, those made of changed files left out."""
    sha = commit(name, ref, cwd)
    rows = con.execute("SELECT run_id, coalesce(git_dirty, false) FROM run WHERE git_commit = ?", [sha]).fetchall()
    clean = [str(run) for run, dirty in rows if not dirty]
    if clean:
        return clean
    dirty = f"; runs at it with changed files do not count (it has {len(rows)})" if rows else ""
    raise GateError(
        f"{name} {text} is commit {sha[:9]}, of which the store holds no run{dirty}; run `pytest --coldstart` there, or "
        "give SUITES to boot both sides now"
    )


def _side(con: duckdb.DuckDBPyConnection, name: str, text: str, runs: Sequence[str]) -> Side:
    from pytest_coldstart.store.boots import load_all

    ids = con.execute(
        f"SELECT boot_id FROM boot WHERE {_CHOSEN} AND role = 'measured' AND outcome <> 'error'", [list(runs)]
    ).fetchall()
    records = load_all(con, [row[0] for row in ids])
    return _filled(of_records(name, text, records, headers(con, runs), verdicts(con, runs)))


def headers(con: duckdb.DuckDBPyConnection, runs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The first lines of the run files of *runs*, by the id of the run, from the store."""
    return {row["run_id"]: _header(row) for row in _rows(con, f"SELECT * FROM run WHERE {_CHOSEN}", runs)}


def verdicts(con: duckdb.DuckDBPyConnection, runs: Sequence[str]) -> tuple[CellVerdict, ...]:
    """What became of the SLOs of *runs*, from the store."""
    return tuple(map(_verdict, _rows(con, f"SELECT * FROM verdict WHERE {_CHOSEN} ORDER BY rowid", runs)))


def of_records(
    name: str,
    text: str,
    records: Iterable[BootRecord],
    headers: Mapping[str, Mapping[str, Any]],
    verdicts: Iterable[CellVerdict] = (),
) -> Side:
    """A side made of records with the *headers* of their runs; it may be empty."""
    boots = [_boot(record, headers.get(record.run_id, {})) for record in records if record.counted]
    return Side(name, text, _ordered(boots), tuple(verdicts))


def _rows(con: duckdb.DuckDBPyConnection, sql: str, runs: Sequence[str]) -> list[dict[str, Any]]:
    cursor = con.execute(sql, [list(runs)])
    names = [item[0] for item in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _header(row: Mapping[str, Any]) -> dict[str, Any]:
    """A run's row as the first line of its run file."""
    header = {name: json.loads(value) if name in _JSON and value else value for name, value in row.items()}
    started = row["started_at"]
    return {**(header.pop("extra") or {}), **header, "started_at": started.isoformat() + "+00:00" if started else None}


def _verdict(row: Mapping[str, Any]) -> CellVerdict:
    verdict = Verdict(**{name: row[name] for name in Verdict.__dataclass_fields__})
    return CellVerdict(row["cell_digest"], row["cell_id"], row["tier"], row["nodeid"], verdict)
