"""Prune: old runs leave the store whole, with their boots, verdicts, run files, logs and caches.

Files go first and rows last, in one transaction: a prune that is killed leaves rows whose files are gone, and the next
one finds those runs again. The other way round the next ingest would bring them back.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from pytest_coldstart.store.database import connect, migrate, reader, said, transaction
from pytest_coldstart.store.errors import StoreError, why
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from pytest_coldstart.store.rows import TABLES
from pytest_coldstart.store.runfile import is_ended, is_held

#: A run file without its end, and a cache, that changed within this many seconds may be in use.
_IN_USE = 86_400.0


@dataclass(frozen=True)
class Keep:
    """What a prune leaves: runs of the last *days*, and the newest *runs* of each series; a run stays where one of them holds.

    :raises ValueError: neither is given, or one is below its least.
    """

    days: float | None = None
    runs: int | None = None

    def __post_init__(self) -> None:
        if self.days is None and self.runs is None:
            raise ValueError("say what to keep: --keep-days N, --keep-runs N or both")
        if self.days is not None and not 0 < self.days <= 36_500:
            raise ValueError(f"--keep-days {self.days:g}: not between 0 and 36500 days")
        if self.runs is not None and self.runs < 1:
            raise ValueError(f"--keep-runs {self.runs}: at least 1 run of each series is kept")


@dataclass
class Pruned:
    """What went, or would go. ``files`` and ``bytes``: of run files, logs, probe folders and caches. ``in_use``: runs
    that are old enough and are still being written."""

    runs: list[str] = field(default_factory=list)
    boots: int = 0
    files: int = 0
    bytes: int = 0
    caches: int = 0
    in_use: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


#: Runs without a time are as old as any for the newest ones, and of no known age for days.
_OLD = """
WITH runs AS (
    SELECT run_id, coalesce(max(b.started_at), any_value(r.started_at)) AS began
    FROM (SELECT run_id FROM run UNION SELECT run_id FROM boot)
    LEFT JOIN run r USING (run_id)
    LEFT JOIN boot b USING (run_id)
    GROUP BY run_id
), places AS (
    SELECT run_id, rank() OVER (PARTITION BY series ORDER BY began DESC NULLS LAST, run_id DESC) AS place
    FROM (SELECT DISTINCT series, run_id FROM boot) JOIN runs USING (run_id)
)
SELECT run_id FROM runs
WHERE NOT coalesce($since IS NOT NULL AND (began IS NULL OR began >= $since), false)
    AND NOT coalesce($newest >= (SELECT min(place) FROM places WHERE places.run_id = runs.run_id), false)
ORDER BY began, run_id
"""


def prune(home: Home, keep: Keep, dry_run: bool = False, now: datetime | None = None, wait: float = 20.0) -> Pruned:
    """Remove the runs that *keep* does not keep; with *dry_run* only say which. Run files are taken in before.

    *now*: UTC, by default the clock's. Files of other folders that were ingested stay, and are not read again.

    :raises StoreLocked: another process held the database for *wait* seconds.
    :raises StoreError: there is no such store, or it cannot be written.
    """
    now = now or datetime.now(UTC)
    if not dry_run:
        ingest(home, wait=wait)
    if dry_run or not home.database.exists():  # which the reader refuses
        with reader(home.database, wait) as con:
            return _Prune(con, home).plan(keep, now)
    with connect(home.database, wait=wait) as con:
        migrate(con)
        work = _Prune(con, home)
        work.plan(keep, now)
        try:
            work.remove()
        except duckdb.Error as error:
            raise StoreError(f"could not write the store {home.database}: {said(error)}") from error
        return work.done


class _Prune:
    """One prune of an open store: first a plan, then what it says."""

    def __init__(self, con: duckdb.DuckDBPyConnection, home: Home) -> None:
        self.con = con
        self.home = home
        self.done = Pruned()
        self.run_files: dict[str, list[Path]] = {}
        self.boots: dict[str, list[str]] = {}
        self.caches: list[Path] = []

    def plan(self, keep: Keep, now: datetime) -> Pruned:
        since = (now - timedelta(days=keep.days)).replace(tzinfo=None) if keep.days is not None else None
        values = {"since": since, "newest": keep.runs}
        old = [str(run) for (run,) in self.con.execute(_OLD, values).fetchall()]
        self.run_files = _by_run(self.home.runs)
        self.done.in_use = [run for run in old if any(map(_in_use, self.run_files.get(run, ())))]
        self.done.runs = [run for run in old if run not in self.done.in_use]
        rows = self.con.execute(
            "SELECT run_id, boot_id FROM boot WHERE run_id IN (SELECT unnest(?::VARCHAR[]))", [self.done.runs]
        ).fetchall()
        for run, boot in rows:
            self.boots.setdefault(run, []).append(boot)
        self.done.boots = len(rows)
        self.caches = self._unused_caches()
        self.done.caches = len(self.caches)
        for path in (*self.caches, *(path for run in self.done.runs for path in self._files(run))):
            files, size = _measured(path)
            self.done.files += files
            self.done.bytes += size
        return self.done

    def _unused_caches(self) -> list[Path]:
        """Cache folders of removed boots that no boot which stays has used."""
        rows = self.con.execute(
            "SELECT base_digest FROM boot GROUP BY base_digest "
            "HAVING bool_and(run_id IN (SELECT unnest(?::VARCHAR[])))",
            [self.done.runs],
        ).fetchall()
        folders = (self.home.caches / digest for (digest,) in rows if _is_name(digest))
        return [folder for folder in folders if folder.is_dir() and time.time() - _changed(folder) > _IN_USE]

    def _files(self, run: str) -> list[Path]:
        """Run files, logs and probe folders of a run that exist; by the ids, since a record's paths may be of another host."""
        logs = (
            self.home.logs / f"{boot}.{kind}"
            for boot in self.boots.get(run, ())
            if _is_name(boot)
            for kind in ("log", "probe")
        )
        return [*self.run_files.get(run, ()), *(path for path in logs if os.path.lexists(path))]

    def remove(self) -> None:
        """Files, then rows. A run one of whose files stays keeps its rows: it would come back."""
        gone = [run for run in self.done.runs if all(self._remove(path) for path in self._files(run))]
        for folder in self.caches:
            self._remove(folder)
        self.done.boots = sum(len(self.boots.get(run, ())) for run in gone)
        self.done.runs = gone
        with transaction(self.con):
            _delete(self.con, gone)
            self._forget()
        # Space of what was deleted is used again; the file itself does not shrink.
        self.con.execute("CHECKPOINT").fetchall()

    def _remove(self, path: Path) -> bool:
        files, size = _measured(path)
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            self.done.problems.append(f"could not remove {path}: {why(error)}")
            self.done.files -= files
            self.done.bytes -= size
            return False
        return True

    def _forget(self) -> None:
        """Run files of this store that are gone were never read."""
        inside = f"{self.home.runs}{os.sep}"
        rows = self.con.execute("SELECT file FROM ingested WHERE starts_with(file, ?)", [inside]).fetchall()
        missing = [file for (file,) in rows if not os.path.lexists(file)]
        self.con.execute("DELETE FROM ingested WHERE file IN (SELECT unnest(?::VARCHAR[]))", [missing]).fetchall()


def _delete(con: duckdb.DuckDBPyConnection, runs: Sequence[str]) -> None:
    of_runs = "run_id IN (SELECT unnest(?::VARCHAR[]))"
    for table in TABLES:
        con.execute(
            f"DELETE FROM {table} WHERE boot_id IN (SELECT boot_id FROM boot WHERE {of_runs})", [runs]
        ).fetchall()
    for table in ("boot", "verdict", "run"):
        con.execute(f"DELETE FROM {table} WHERE {of_runs}", [runs]).fetchall()


def _by_run(folder: Path) -> dict[str, list[Path]]:
    """The run files of a folder by the run that each says it is of; what says none is left alone."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        with suppress(OSError, ValueError, TypeError, KeyError), path.open("rb") as file:
            found.setdefault(str(json.loads(file.readline())["run_id"]), []).append(path)
    return found


def _in_use(path: Path) -> bool:
    """Whether a run file may still be written to."""
    return is_held(path) or (not is_ended(path) and time.time() - _changed(path) < _IN_USE)


def _is_name(text: str | None) -> bool:
    """Whether a word of a record is safe as the name of a file: records come from anywhere."""
    return bool(text) and text not in (".", "..") and "/" not in str(text) and "\0" not in str(text)


def _changed(path: Path) -> float:
    """When *path*, or what lies directly in it, was last changed; epoch seconds, 0 where it is gone."""
    return max((_seconds(item) for item in (path, *_inside(path))), default=0.0)


def _inside(path: Path) -> Iterable[Path]:
    with suppress(OSError):
        return list(path.iterdir()) if path.is_dir() else []
    return []


def _seconds(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _measured(path: Path) -> tuple[int, int]:
    """How many files are at or below *path*, and their bytes; links count as themselves."""
    paths = [path]
    if path.is_dir() and not path.is_symlink():
        paths = [Path(top, name) for top, _, names in os.walk(path) for name in names]
    sizes = []
    for item in paths:
        with suppress(OSError):
            sizes.append(item.lstat().st_size)
    return len(sizes), sum(sizes)
