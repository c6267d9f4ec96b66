"""The command ``coldstart``: doctor, init, ingest, export, show, gate, bisect, history, ack, alerts,
prune, dashboard, make-model, env."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_coldstart import __version__, prune, show
from pytest_coldstart.alerts import command as alerts
from pytest_coldstart.environments import command as env
from pytest_coldstart.gate import bisect
from pytest_coldstart.gate import command as gate
from pytest_coldstart.history import command as history
from pytest_coldstart.random_model import command as make_model

#: Commands that hand what follows ``--`` to pytest.
_HANDS_ON = ("gate", "bisect")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; returns 0, 1 for a named problem, 2 for a wrong model or environment, 4 for wrong usage.

    ``gate``, ``bisect`` and ``alerts`` have their own: see docs/gate.md and docs/alerts.md.
    """
    from pytest_coldstart.store.errors import StoreError

    parser = _parser()
    words, rest = _parted(sys.argv[1:] if argv is None else list(argv))
    try:
        arguments = parser.parse_args(words, argparse.Namespace(rest=rest))
    except SystemExit as stop:
        wrong = bisect.STOP if words[:1] == ["bisect"] else 4  # git would take 4 for a bad commit
        return wrong if stop.code else 0
    try:
        return int(arguments.run(arguments))
    except StoreError as error:
        print(f"coldstart: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0


def _parted(words: list[str]) -> tuple[list[str], list[str]]:
    """The words up to ``--``, and those after it, where the command hands them on."""
    if "--" not in words or words[0] not in _HANDS_ON:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "coldstart", description="Cold start of LLM serving engines: store and host tools."
    )
    parser.add_argument("--version", action="version", version=f"coldstart {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    store = argparse.ArgumentParser(add_help=False)
    store.add_argument("--store", default=".coldstart", type=Path, metavar="DIR", help="default: .coldstart")

    doctor = commands.add_parser("doctor", parents=[store], help="what is installed, skipped and provable here")
    doctor.set_defaults(run=_doctor)

    init = commands.add_parser("init", help="copy a starter suite")
    init.add_argument("folder", nargs="?", default="suites", type=Path, help="where to (default: suites)")
    init.set_defaults(run=_init)

    ingest = commands.add_parser("ingest", parents=[store], help="merge run files or stores into the store")
    ingest.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE|DIR",
        help="a folder: every run file in it (default: the store's own)",
    )
    ingest.set_defaults(run=_ingest)

    export = commands.add_parser("export", parents=[store], help="print or write what the store holds")
    export.add_argument("--format", choices=("csv", "json", "parquet"), default="csv")
    export.add_argument("--table", default="boots", help="boots (one wide row a boot, the default) or a table's name")
    export.add_argument("--output", type=Path, metavar="FILE", help="default: standard output")
    export.set_defaults(run=_export)

    show.add(commands, store)
    gate.add(commands, store)
    bisect.add(commands, store)
    history.add(commands, store)
    alerts.add(commands, store)
    prune.add(commands, store)

    dashboard = commands.add_parser("dashboard", help="show the store in a browser, read-only")
    dashboard.add_argument(
        "--store",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="any number of times; default: COLDSTART_STORE, or .coldstart",
    )
    dashboard.add_argument(
        "--demo", action="store_true", help="show made-up boots, in a store that goes with the server"
    )
    dashboard.add_argument(
        "--acknowledge", action="store_true", help="let the page acknowledge change points, which writes to the store"
    )
    dashboard.add_argument("--port", default=8501, type=int, metavar="N", help="on this host alone (default: 8501)")
    dashboard.add_argument("--no-browser", action="store_true", help="do not open a browser")
    dashboard.set_defaults(run=_dashboard)

    make_model.add(commands)
    env.add(commands)
    return parser


def _doctor(arguments: argparse.Namespace) -> int:
    from pytest_coldstart.doctor import report

    print("\n".join(report(arguments.store)))
    return 0


def _init(arguments: argparse.Namespace) -> int:
    source = starter()
    target: Path = arguments.folder
    written = []
    for file in sorted(source.glob("*.py")):
        copy = target / file.name
        if copy.exists():
            print(f"coldstart: {copy} exists and was left as it is", file=sys.stderr)
            continue
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        written.append(copy)
        print(copy)
    if written:
        print(f"run it: pytest --coldstart {target}")
    return 0 if written else 1


def starter() -> Path:
    """The starter suite: inside the installed package, or suites/ of a checkout."""
    inside = Path(__file__).with_name("starter")
    return inside if inside.is_dir() else Path(__file__).parent.parent / "suites"


def _ingest(arguments: argparse.Namespace) -> int:
    from pytest_coldstart.store.home import Home
    from pytest_coldstart.store.ingest import ingest

    home = Home.at(arguments.store)
    home.prepare()
    done = ingest(home, arguments.files or None)
    print(f"{done.boots_added} boots of {done.runs_added} new runs added to {home.database}, from {done.files} files")
    for problem in done.problems:
        print(f"coldstart: {problem}", file=sys.stderr)
    return 1 if done.problems else 0


def _export(arguments: argparse.Namespace) -> int:
    from pytest_coldstart.store.errors import StoreError
    from pytest_coldstart.store.export import export
    from pytest_coldstart.store.home import Home

    if arguments.format == "parquet" and arguments.output is None:
        raise StoreError("parquet needs --output FILE")
    export(Home.at(arguments.store), arguments.format, arguments.output or sys.stdout, arguments.table)
    return 0


def _dashboard(arguments: argparse.Namespace) -> int:
    from pytest_coldstart.dashboard import Shown, serve

    shown = Shown(arguments.store, arguments.demo, arguments.acknowledge)
    return serve(shown, arguments.port, browser=not arguments.no_browser)


if __name__ == "__main__":
    sys.exit(main())
