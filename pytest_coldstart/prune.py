"""``coldstart prune``: old runs leave the store."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def add(commands: Any, store: argparse.ArgumentParser) -> None:
    """Add the command to the parser's sub-commands; *store* is the parent with ``--store``."""
    parser = commands.add_parser("prune", parents=[store], help="remove old runs, with their files")
    parser.add_argument("--keep-days", type=float, metavar="N", help="keep runs whose last boot began within N days")
    parser.add_argument("--keep-runs", type=int, metavar="N", help="keep the newest N runs of each series")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and remove nothing")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prune and say what went; returns 1 where something could not be removed, 4 for a rule that makes no sense.

    :raises StoreError: there is no such store, or another process holds it.
    """
    from pytest_coldstart.store.home import Home
    from pytest_coldstart.store.prune import Keep, prune

    try:
        keep = Keep(arguments.keep_days, arguments.keep_runs)
    except ValueError as error:
        print(f"coldstart: {error}", file=sys.stderr)
        return 4
    home = Home.at(arguments.store)
    done = prune(home, keep, arguments.dry_run)
    for run_id in done.runs:
        print(run_id)
    print(
        f"{'would remove' if arguments.dry_run else 'removed'} {len(done.runs)} runs with {done.boots} boots, "
        f"{done.files} files ({done.bytes} bytes), caches of {done.caches} cells; store: {home.root}"
    )
    for run_id in done.in_use:
        print(
            f"coldstart: run {run_id} is old and was kept: a file of it has no end and may still be written to",
            file=sys.stderr,
        )
    for problem in done.problems:
        print(f"coldstart: {problem}", file=sys.stderr)
    return 1 if done.problems else 0
