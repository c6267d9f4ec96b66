"""``coldstart gate``: compare a head with a base, from stored boots or booted now, and say so with an exit code."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_coldstart import units
from pytest_coldstart.gate.comparison import EXIT_USAGE, GateReport
from pytest_coldstart.gate.errors import GateError, require_extra
from pytest_coldstart.gate.policy import Policies, boots, find, fraction, level, load

if TYPE_CHECKING:
    from pytest_coldstart.store.home import Home

#: Columns where there is no terminal, and the fewest that are worth it.
_WIDTH, _NARROW = 100, 60
_STDOUT = "-"
#: Files of the report: option and what is written.
_FILES = (
    ("markdown", "a job summary in markdown"),
    ("comment", "the body of a pull request's comment"),
    ("junit", "JUnit XML"),
    ("badge", "the JSON of a badge (shields.io endpoint)"),
)

_EPILOG = (
    "SIDE is run:ID (a run of the store, a unique beginning of its id, or last), git:REF, python:INTERPRETER, or the path of a "
    "run file (.jsonl), a store folder or a .duckdb file. Exit status: 0 ok, 1 regressed or an SLO broken, 4 wrong usage or a "
    "side that cannot be read, 10 inconclusive."
)


def add(commands: Any, store: argparse.ArgumentParser) -> None:
    """Add the command to the parser's sub-commands; *store* is the parent with ``--store``."""
    parser = commands.add_parser(
        "gate",
        parents=[store],
        help="compare boots of two sides: slower, faster, the same, or not yet known",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITES",
        help="boot them now on both sides, interleaved; without them stored boots are compared",
    )
    parser.add_argument("--base", required=True, metavar="SIDE", help="what the head is compared with")
    parser.add_argument("--head", required=True, metavar="SIDE", help="what may have changed")
    parser.add_argument(
        "--base-cell", default="", metavar="TEXT", help="of the base, the cells with this part in their ids"
    )
    parser.add_argument(
        "--head-cell", default="", metavar="TEXT", help="of the head, the cells with this part in their ids"
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="WHAT",
        help="compare cells that differ in this: driver, gpu, hardware, options.NAME, env.NAME, python, command, model, warmup or requests; repeatable",
    )
    parser.add_argument(
        "--policy", type=Path, metavar="FILE", help="default: coldstart-gate.toml beside the suites, else here"
    )
    _numbers(parser)
    parser.add_argument(
        "--json",
        nargs="?",
        const=_STDOUT,
        metavar="FILE",
        help="the report as JSON; without FILE on standard output alone",
    )
    for name, text in _FILES:
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"write {text}")
    parser.add_argument("--github", action="store_true", help="print annotations for GitHub Actions too")
    parser.add_argument(
        "--prepare", metavar="COMMAND", help="shell command that is run once in each git side's checkout"
    )
    parser.add_argument("--time", type=typed(units.parse_duration), metavar="DURATION", help="boot no longer than this")
    parser.add_argument("--seed", type=int, metavar="N", help="of the order of the boots (default: drawn, and printed)")
    parser.set_defaults(run=gate)


def _numbers(parser: argparse.ArgumentParser) -> None:
    """What overrides the policy for all cells."""
    parser.add_argument("--alpha", type=typed(level), metavar="LEVEL", help="chance of any false alarm (default: 0.05)")
    parser.add_argument(
        "--floor", type=typed(fraction), metavar="SHARE", help="the least change that is called one (default: 3%%)"
    )
    parser.add_argument(
        "--margin", type=typed(fraction), metavar="SHARE", help="within it both are the same (default: 10%%)"
    )
    parser.add_argument(
        "--boots", type=typed(boots), dest="most_boots", metavar="N", help="boots a side at most (default: 20)"
    )


def typed(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """*read* for argparse, with its own words for what is wrong."""

    def reader(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return reader


def gate(arguments: argparse.Namespace) -> int:
    """Compare, print and write; returns the exit code of the report, 4 where there is none."""
    from pytest_coldstart.store.errors import StoreError

    try:
        require_extra("coldstart gate")
        _check(arguments)
        report = _live(arguments) if arguments.suites else _stored(arguments)
        problems = _write(report, arguments)
    except BrokenPipeError:
        raise  # nobody reads on
    except (GateError, StoreError) as error:
        hint = "" if arguments.suites or "git:" not in arguments.base else "; to boot both sides now, give SUITES"
        print(f"coldstart: {error}{hint}", file=sys.stderr)
        return EXIT_USAGE
    except (OSError, RuntimeError) as error:
        print(f"coldstart: the gate has no verdict: {error}", file=sys.stderr)
        return EXIT_USAGE
    except Exception:  # Python would exit 1, and a fault of ours would be a regression
        traceback.print_exc()
        return EXIT_USAGE
    for problem in problems:
        print(f"coldstart: {problem}", file=sys.stderr)
    return report.exit_code or (EXIT_USAGE if problems else 0)


def _check(arguments: argparse.Namespace) -> None:
    """What would else be found out after the last boot, or not at all.

    :raises GateError: options that do not go together, or a file that cannot be written.
    """
    from pytest_coldstart.gate.match import check_allow

    arguments.allow = check_allow(arguments.allow)
    given = [f"--{name}" for name in ("prepare", "time", "seed") if getattr(arguments, name) is not None]
    given += ["arguments after --"] if arguments.rest else []
    if given and not arguments.suites:
        raise GateError(f"{' and '.join(given)}: only what is booted now needs that; give SUITES")
    if arguments.suites and (arguments.base_cell or arguments.head_cell):
        raise GateError("--base-cell and --head-cell choose among stored boots; with SUITES choose tests: -- -k TEXT")
    if arguments.json == _STDOUT and arguments.github:
        raise GateError("--json without FILE and --github both want standard output; give --json a FILE")
    for name in ("json", *(name for name, _ in _FILES)):
        path = getattr(arguments, name)
        if path is None or path == _STDOUT:
            continue
        file = Path(path).absolute()
        if file.is_dir() or not file.parent.is_dir():
            raise GateError(f"--{name} {path}: give a file in a folder that exists")
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise GateError(f"--{name} {path}: it cannot be written to; give a file in a folder that is yours")


def _policies(arguments: argparse.Namespace) -> Policies:
    suites = [Path(word.partition("::")[0]) for word in arguments.suites]
    found = load(arguments.policy or find(suites, Path.cwd()))
    names = ("alpha", "floor", "margin", "most_boots")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    return found.over({**given, **({"seconds": arguments.time} if arguments.time else {})})


def _home(arguments: argparse.Namespace) -> Home:
    from pytest_coldstart.store.home import Home

    return Home.at(arguments.store)


def _stored(arguments: argparse.Namespace) -> GateReport:
    """:raises GateError, StoreError: a side is unknown, empty or cannot be read, or the policy is wrong."""
    from pytest_coldstart.gate.judge import compare
    from pytest_coldstart.gate.sides import load as side
    from pytest_coldstart.store.database import reader

    home, policies = _home(arguments), _policies(arguments)
    with ExitStack() as stack:
        of_the_store = any(text.startswith(("run:", "git:")) for text in (arguments.base, arguments.head))
        if of_the_store and home.database.exists():
            # Both sides and the history read it; while it is open, opening it again is quick.
            stack.enter_context(reader(home.database))
        base, head = (side(name, getattr(arguments, name), home, Path.cwd()) for name in ("base", "head"))
        return compare(
            base,
            head,
            policies,
            history=home,
            allow=arguments.allow,
            base_cell=arguments.base_cell,
            head_cell=arguments.head_cell,
        )


def _live(arguments: argparse.Namespace) -> GateReport:
    """:raises GateError, StoreError: nothing can be booted, or the policy is wrong."""
    from pytest_coldstart.gate.live import booted_and_compared, live_side

    here = Path.cwd()
    report, made = booted_and_compared(
        live_side(arguments.base, here),
        live_side(arguments.head, here),
        arguments.suites,
        _policies(arguments),
        _home(arguments),
        allow=arguments.allow,
        seed=arguments.seed,
        prepare=arguments.prepare,
        extra=arguments.rest,
        here=here,
    )
    return replace(report, notes=(*report.notes, *made.notes, f"gate {made.gate}, seed {made.seed}"))


def _write(report: GateReport, arguments: argparse.Namespace) -> list[str]:
    """Print the report and write its files; returns what could not be written."""
    from pytest_coldstart.report import gate_github, gate_junit, gate_markdown, gate_text

    whole = json.dumps(report.to_dict(), indent=2, allow_nan=False)
    texts: dict[str, Callable[[], str]] = {
        "json": lambda: whole,
        "markdown": lambda: gate_markdown.markdown(report),
        "comment": lambda: gate_markdown.comment(report),
        "junit": lambda: gate_junit.junit(report),
        "badge": lambda: json.dumps(gate_github.badge(report)),
    }
    problems = []
    for name, text in texts.items():
        path = getattr(arguments, name)
        if path is None or path == _STDOUT:
            continue
        try:
            Path(path).write_text(text().rstrip("\n") + "\n", encoding="utf-8", errors="replace")
        except OSError as error:
            problems.append(f"--{name} {path} was not written: {error.strerror or error}")
    _print([whole] if arguments.json == _STDOUT else gate_text.text(report, _width()))
    if arguments.github:
        _print(gate_github.annotations(report))
    return problems


def _width() -> int:
    return max(_NARROW, shutil.get_terminal_size((_WIDTH, 24)).columns)


def _print(lines: Sequence[str]) -> None:
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")  # a name may hold what this terminal cannot print
    print("\n".join(lines), flush=True)
