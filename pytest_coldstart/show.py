"""``coldstart show``: one boot of a store whole, and what other tools read of it."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from pytest_coldstart.record import BootRecord

#: Columns where there is no terminal, and the fewest that are worth it.
_WIDTH, _NARROW = 100, 60

#: What is meant as an address, and would make a file of a strange name: with another scheme, or with none.
_ADDRESS = re.compile(r"(?i)[a-z][a-z0-9+.-]*://|[\w.-]+:\d+(/|$)")

NO_SAMPLES = "the samples of this boot were not kept; run with --coldstart-keep-logs=all"


def add(commands: Any, store: argparse.ArgumentParser) -> None:
    """Add the command to the parser's sub-commands; *store* is the parent with ``--store``."""
    parser = commands.add_parser("show", parents=[store], help="print one boot whole: where its time went")
    parser.add_argument("boot", metavar="BOOT", help="an id, the beginning of one, last or last-failed")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--otlp", metavar="FILE|URL", help="write the boot as a trace, or send it to a collector")
    parser.add_argument("--speedscope", type=Path, metavar="FILE", help="write its stack samples for speedscope.app")
    parser.set_defaults(run=show)


def show(arguments: argparse.Namespace) -> int:
    """Print the boot, then export it; returns 1 where one of these failed.

    :raises StoreError: there is no such store or boot, or another process holds the store.
    """
    from pytest_coldstart.store.boots import find, host, load
    from pytest_coldstart.store.database import reader
    from pytest_coldstart.store.home import Home

    with reader(Home.at(arguments.store).database) as con:
        record = load(con, find(con, arguments.boot))
        place = host(con, record.run_id)
    problems = [
        _write(record, place, arguments.json),
        _otlp(record, arguments.otlp) if arguments.otlp is not None else "",
        _speedscope(record, arguments.speedscope) if arguments.speedscope else "",
    ]
    for problem in filter(None, problems):
        print(f"coldstart: {problem}", file=sys.stderr)
    return 1 if any(problems) else 0


def _write(record: BootRecord, place: dict[str, Any], as_json: bool) -> str:
    """Print the boot; returns what went wrong."""
    from pytest_coldstart.report.document import document
    from pytest_coldstart.report.show import lines

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a log may hold what this terminal cannot print
    width = max(_NARROW, shutil.get_terminal_size((_WIDTH, 24)).columns)
    whole = json.dumps(document(record, place), indent=2, allow_nan=False) if as_json else ""
    try:
        print(whole or "\n".join(lines(record, place, width)), flush=True)
    except BrokenPipeError:
        raise  # a reader that has seen enough
    except OSError as error:
        # What is left in the buffer would fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"the boot was not printed: {error}"
    return ""


def _otlp(record: BootRecord, to: str) -> str:
    """Write or send the boot's trace; returns what went wrong."""
    from pytest_coldstart.report import otlp

    try:
        if to.lower().startswith(("http://", "https://")):
            otlp.post(record, to)
        elif not to or _ADDRESS.match(to):
            return f"the trace was not exported: {to!r} is no file and no http:// or https:// address of a collector"
        else:
            Path(to).write_text(otlp.trace_json(record) + "\n", encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        return f"the trace was not exported: {error}"
    return ""


def _speedscope(record: BootRecord, to: Path) -> str:
    """Write the boot's samples; returns what went wrong."""
    from pytest_coldstart.probe.read import read_folder
    from pytest_coldstart.report.speedscope import speedscope

    folder = record.attribution.samples_path
    traces = read_folder(Path(folder)) if folder else []
    if not traces:
        return NO_SAMPLES if not folder else f"the samples of this boot are no longer in {folder}"
    try:
        to.write_text(json.dumps(speedscope(record, traces)), encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        return f"the samples were not exported: {error}"
    return ""
