"""``coldstart bisect``: a script for ``git bisect run``, which finds the commit that made a start slower."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_coldstart.gate.command import typed
from pytest_coldstart.gate.comparison import IGNORE, GateReport
from pytest_coldstart.gate.errors import GateError, NothingBooted, require_extra
from pytest_coldstart.gate.policy import boots
from pytest_coldstart.stats.decision import INCONCLUSIVE, REGRESSED

if TYPE_CHECKING:
    from pytest_coldstart.gate.live import LiveSide
    from pytest_coldstart.gate.policy import Policies

#: What git bisect run makes of an exit code: 0 good, 1 to 127 bad, 125 skip this commit, 128 and more stop the bisection.
GOOD, BAD, SKIP, STOP = 0, 1, 125, 128

#: The commit under test, where git bisect does not check it out (``--no-checkout``).
_BISECT_HEAD = "BISECT_HEAD"


def add(commands: Any, store: argparse.ArgumentParser) -> None:
    """Add the command to the parser's sub-commands; *store* is the parent with ``--store``."""
    parser = commands.add_parser(
        "bisect",
        parents=[store],
        help="for git bisect run: is the commit checked out now slower than a good one?",
        description="For git bisect run: is the commit checked out now slower than a good one?",
        epilog="Exit status: 0 no slower, 1 slower, 125 not known or it does not boot (git skips it), 128 or more a mistake.",
    )
    parser.add_argument("suites", nargs="+", metavar="SUITES", help="what to boot at both commits")
    parser.add_argument("--good", required=True, metavar="REF", help="the commit to compare with, always the same one")
    parser.add_argument("--prepare", metavar="COMMAND", help="shell command that is run once in each checkout")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="default: coldstart-gate.toml beside the suites")
    parser.add_argument(
        "--boots", type=typed(boots), dest="most_boots", metavar="N", help="boots a side at most (default: 20)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the order of the boots (default: drawn, and printed)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Boot the good commit and the one checked out now; returns the exit code for ``git bisect run``."""
    from pytest_coldstart.store.errors import StoreError

    try:
        require_extra("coldstart bisect")
        report = _compare(arguments)
    except NothingBooted as error:
        print(f"coldstart: {error}", file=sys.stderr)
        # Nothing can be said of any commit while the good one does not boot.
        return SKIP if error.side == "head" else STOP
    except (GateError, StoreError, OSError) as error:
        print(f"coldstart: {error}", file=sys.stderr)
        return STOP
    except Exception:  # Python would exit 1, and a fault of ours would be a commit's
        traceback.print_exc()
        return STOP
    from pytest_coldstart.report.gate_text import text

    print("\n".join(text(report, 100)))
    code = exit_code(report)
    print(f"coldstart: {report.head.text} is {_WORDS[code]}", flush=True)
    return code


_WORDS = {GOOD: "good: no slower than the good commit", BAD: "bad: slower", SKIP: "skipped: not known"}


def exit_code(report: GateReport) -> int:
    """1 where any cell regressed. SLOs play no part: a broken one says nothing of when it broke.

    A head with failed boots is skipped and not bad: what broke it need not be what made it slow.
    """
    if report.head.failed or report.base.failed:
        return SKIP
    if any(cell.outcome == REGRESSED and cell.verdict != IGNORE for cell in report.cells):
        return BAD
    return SKIP if report.outcome == INCONCLUSIVE or report.refused else GOOD


def _compare(arguments: argparse.Namespace) -> GateReport:
    """:raises GateError, NothingBooted, StoreError: there is nothing to compare."""
    from pytest_coldstart.gate.live import booted_and_compared
    from pytest_coldstart.store.home import Home

    here = Path.cwd()
    base, head = _sides(arguments.good, here)
    report, _ = booted_and_compared(
        base,
        head,
        arguments.suites,
        _policies(arguments.policy, arguments.suites, arguments.most_boots),
        Home.at(arguments.store),
        seed=arguments.seed,
        prepare=arguments.prepare,
        extra=getattr(arguments, "rest", ()),
        here=here,
    )
    return replace(report, broken=())  # a broken SLO says nothing of when it broke


def _sides(good: str, here: Path) -> tuple[LiveSide, LiveSide]:
    """Both are made alike, in worktrees of their own: the user's working tree holds what earlier steps left."""
    from pytest_coldstart.gate.checkout import Repository
    from pytest_coldstart.gate.live import LiveSide

    repository = Repository.at(here)
    commit = repository.commit(_BISECT_HEAD if repository.has(_BISECT_HEAD) else "HEAD")
    if repository.dirty():
        print(f"coldstart: changes that are not committed are not booted; head is {commit[:12]}", file=sys.stderr)
    return LiveSide(f"git:{good}", ref=repository.commit(good)), LiveSide(f"git:{commit[:12]}", ref=commit)


def _policies(policy: Path | None, suites: Sequence[str], most_boots: int | None) -> Policies:
    from pytest_coldstart.gate.policy import find, load

    found = load(policy or find([Path(word.partition("::")[0]) for word in suites], Path.cwd()))
    return found.over({"most_boots": most_boots}) if most_boots else found
