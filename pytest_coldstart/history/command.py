"""``coldstart history`` and ``coldstart ack``."""

from __future__ import annotations

import argparse
import difflib
import io
import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

    from pytest_coldstart.history.acknowledge import Acknowledgement, Acknowledgements
    from pytest_coldstart.history.read import Series

#: Version of the JSON that ``coldstart history --json`` prints.
HISTORY_VERSION = 1

_OK, _NEW, _USAGE = 0, 1, 4

#: Columns where there is no terminal, and the fewest that are worth it.
_WIDTH, _NARROW = 100, 60


def add(commands: Any, store: argparse.ArgumentParser) -> None:
    """Add both commands to the parser's sub-commands; *store* is the parent with ``--store``."""
    metric = argparse.ArgumentParser(add_help=False)
    metric.add_argument("--metric", default="cold_start", metavar="NAME", help="default: cold_start")
    metric.add_argument("--branch", metavar="NAME", help="runs of this git branch alone")

    parser = commands.add_parser(
        "history", parents=[store, metric], help="how a series went over time, and where it changed"
    )
    parser.add_argument(
        "cell", nargs="?", metavar="CELL", help="a cell, a series or a part of one; default: a table of all"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--fail-on-new", action="store_true", help="exit 1 if a regression is not acknowledged")
    parser.add_argument("--acknowledgements", type=Path, metavar="FILE", help="read this file beside the store's own")
    parser.set_defaults(run=history)

    parser = commands.add_parser("ack", parents=[store, metric], help="acknowledge one change point of a series")
    parser.add_argument("series", nargs="?", metavar="SERIES", help="a cell, a series or a part of one")
    parser.add_argument("--at", metavar="RUN|COMMIT|DATE", help="where it changed; the beginning of an id will do")
    parser.add_argument("--reason", metavar="TEXT", help="why it may stay")
    parser.add_argument("--author", metavar="NAME", help="default: git's user.name, or the user")
    parser.add_argument("--file", type=Path, metavar="FILE", help="default: acknowledgements.jsonl in the store")
    parser.add_argument("--list", action="store_true", help="print all, and those that match no change point")
    parser.add_argument("--remove", metavar="ID", help="withdraw one; its line stays in the file")
    parser.set_defaults(run=acknowledge)


def history(arguments: argparse.Namespace) -> int:
    """Print the history of one series, or a table of all; returns 0, 1 for a new regression, 4 for wrong usage."""
    return _guarded(_history, arguments, "history")


def acknowledge(arguments: argparse.Namespace) -> int:
    """Append, list or withdraw acknowledgements; returns 0, or 4 for wrong usage."""
    return _guarded(_acknowledge, arguments, "ack")


def _guarded(run: Any, arguments: argparse.Namespace, name: str) -> int:
    from pytest_coldstart.history.read import HistoryError
    from pytest_coldstart.store.errors import StoreError

    if find_spec("ruptures") is None or find_spec("numpy") is None:
        print(f"coldstart {name} needs the extra gate: pip install 'pytest-coldstart[gate]'", file=sys.stderr)
        return _USAGE
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return int(run(arguments))
    except BrokenPipeError:
        raise  # nobody reads on
    except (HistoryError, StoreError, OSError) as error:  # 1 would say that something got slower
        print(f"coldstart: {error}", file=sys.stderr)
        return _USAGE


def _history(arguments: argparse.Namespace) -> int:
    from pytest_coldstart.history import text
    from pytest_coldstart.history.points import histories, to_dict
    from pytest_coldstart.store.database import reader
    from pytest_coldstart.store.home import Home

    home = Home.at(arguments.store)
    given = _given(home, arguments.acknowledgements)
    with reader(home.database) as con:
        chosen = _chosen(con, arguments.cell, arguments.metric)
        found = histories(con, chosen, arguments.metric, given.given, arguments.branch)
    new = sum(len(one.new) for one in found)
    if arguments.json:
        whole = {"version": HISTORY_VERSION, "new": new, "histories": [to_dict(one) for one in found]}
        print(json.dumps({**whole, "problems": given.problems}, indent=2, allow_nan=False))
    elif arguments.cell:
        print("\n".join(text.lines(found[0], _width(), _marks())))
    else:
        print("\n".join([f"{arguments.metric} of {len(found)} series", "", *text.overview(found, _width())]))
    if new and arguments.fail_on_new:
        print(f"coldstart: {new} new regression{'' if new == 1 else 's'} without an acknowledgement", file=sys.stderr)
        return _NEW
    return _OK


def _given(home: Any, more: Path | None) -> Acknowledgements:
    """The acknowledgements of the store and of one more file; broken lines are said."""
    from pytest_coldstart.history.acknowledge import FILE_NAME, read
    from pytest_coldstart.history.read import HistoryError

    if more is not None and not more.exists():
        raise HistoryError(f"there is no file {more}")
    found = read(*dict.fromkeys(path.absolute() for path in (home.root / FILE_NAME, more) if path))
    for problem in found.problems:
        print(f"coldstart: {problem}", file=sys.stderr)
    return found


def _chosen(con: duckdb.DuckDBPyConnection, word: str | None, metric: str) -> list[Series]:
    """All series, or the one that *word* names.

    :raises HistoryError: there is none, or *word* names several; or no boot has the metric.
    """
    from pytest_coldstart.history.read import HistoryError, all_series, has_metric, matching
    from pytest_coldstart.history.text import listed
    from pytest_coldstart.metrics import METRICS

    everything = all_series(con)
    if not everything:
        raise HistoryError("the store holds no measured boot")
    if metric not in METRICS and not has_metric(con, metric):
        near = difflib.get_close_matches(metric, METRICS, 3)
        raise HistoryError(f"no boot has a metric {metric!r}" + (f"; near it: {', '.join(near)}" if near else ""))
    if word is None:
        return everything
    found = matching(everything, word)
    if len(found) == 1:
        return found
    what = f"{len(found)} series match" if found else "no series matches"
    hint = "; name one by the beginning of its id" if found else "; there are"
    raise HistoryError("\n".join([f"{what} {word!r}{hint}:", *listed(found or everything, _width())]))


def _acknowledge(arguments: argparse.Namespace) -> int:
    from pytest_coldstart.history.acknowledge import FILE_NAME
    from pytest_coldstart.history.read import HistoryError
    from pytest_coldstart.store.home import Home

    home = Home.at(arguments.store)
    path = arguments.file or home.root / FILE_NAME
    if arguments.list:
        return _list(arguments, home)
    if arguments.remove:
        return _remove(arguments.remove, path, arguments.author)
    missing = [name for name in ("series", "at", "reason") if not getattr(arguments, name)]
    if missing:
        raise HistoryError(
            f"coldstart ack needs SERIES, --at and --reason (or --list, or --remove ID); no {missing[0]} was given"
        )
    return _append(arguments, home, path)


def _append(arguments: argparse.Namespace, home: Any, path: Path) -> int:
    from pytest_coldstart.history.acknowledge import append, default_author, make
    from pytest_coldstart.history.points import histories, meant
    from pytest_coldstart.history.read import HistoryError
    from pytest_coldstart.store.database import reader

    with reader(home.database) as con:
        chosen = _chosen(con, arguments.series, arguments.metric)
        (found,) = histories(con, chosen, arguments.metric, (), arguments.branch)
    there = meant(found, arguments.at)
    size = there.point.size if there.point else None
    run = found.runs[there.point.index].run_id if there.point else there.place.runs[1]
    try:
        author = default_author() if arguments.author is None else arguments.author
        one = make(
            found.series.series, found.series.cell_id, found.metric, run, there.place, size, arguments.reason, author
        )
    except ValueError as error:
        raise HistoryError(str(error)) from error
    append(path, one)
    change = f"the change of {size:+.1%}" if size is not None else "run"
    print(f"{one.id}: acknowledged {change} at {run} of {found.series.name}, {found.metric}, in {path}")
    if size is None:
        print(
            f"coldstart: it matches no change point; one that is found at {run} later is acknowledged", file=sys.stderr
        )
    return _OK


def _list(arguments: argparse.Namespace, home: Any) -> int:
    from pytest_coldstart.history.text import acknowledged

    given = _given(home, arguments.file)
    stray = _stray(home, given.given, arguments.branch)
    for one in given.given:
        note = f"  ({stray[one.id]})" if one.id in stray else ""
        print(f"{one.series}  {one.metric}  {one.run}  {one.cell_id}: {acknowledged(one)}{note}")
    for one in given.withdrawn:
        print(f"{one.series}  {one.metric}  {one.run}  {one.cell_id}: {acknowledged(one)}  (withdrawn)")
    if not given.given and not given.withdrawn:
        print("no acknowledgements")
    return _OK


def _stray(home: Any, given: list[Acknowledgement], branch: str | None) -> dict[str, str]:
    """What there is to say of acknowledgements, by their id."""
    from pytest_coldstart.history.points import histories
    from pytest_coldstart.history.read import all_series
    from pytest_coldstart.store.database import reader

    if not given or not home.database.exists():
        return {one.id: "there is no store to look it up in" for one in given}
    names = {one.series for one in given}
    with reader(home.database) as con:
        chosen = [one for one in all_series(con) if one.series in names]
        found = [
            one
            for metric in sorted({one.metric for one in given})
            for one in histories(con, chosen, metric, given, branch)
        ]
    known = {one.series for one in chosen}
    said = {one.id: "the store has no such series" for one in given if one.series not in known}
    return said | {one.id: "matches no change point" for history in found for one in history.stray}


def _remove(id: str, path: Path, author: str | None) -> int:
    from pytest_coldstart.history.acknowledge import default_author, read, withdraw
    from pytest_coldstart.history.read import HistoryError

    given = read(path).given
    found = [one for one in given if one.id.startswith(id)]
    if len(found) != 1:
        ids = ", ".join(one.id for one in given) or "none"
        raise HistoryError(f"{len(found)} acknowledgements in {path} begin with {id!r}; there are: {ids}")
    withdraw(path, found[0].id, default_author() if author is None else author)
    print(f"{found[0].id}: withdrawn in {path}")
    return _OK


def _width() -> int:
    return max(_NARROW, shutil.get_terminal_size((_WIDTH, 24)).columns)


def _marks() -> tuple[str, str, str]:
    """Blocks, or digits where the output has no blocks."""
    from pytest_coldstart.history.text import BLOCKS, DIGITS

    try:
        "".join(BLOCKS).encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeError):
        return DIGITS
    return BLOCKS
