"""``coldstart alerts``."""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pytest_coldstart.alerts.file import Rules
    from pytest_coldstart.alerts.finding import Evaluated
    from pytest_coldstart.alerts.webhook import Address
    from pytest_coldstart.store.home import Home

_NONE, _FIRES, _USAGE, _NOT_DELIVERED = 0, 1, 4, 5

#: Columns where there is no terminal, and the fewest that are worth it.
_WIDTH, _NARROW = 100, 60


class _UsageError(ValueError):
    """Options that make no sense together."""


def add(commands: Any, store: argparse.ArgumentParser) -> None:
    """Add the command to the parser's sub-commands; *store* is the parent with ``--store``."""
    parser = commands.add_parser("alerts", parents=[store], help="which alerts fire now, and tell a webhook once")
    parser.add_argument(
        "--rules", type=Path, metavar="FILE", help="default: coldstart-alerts.toml beside pyproject.toml"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--strict", action="store_true", help="a rule that matches no series counts as one that fires")
    parser.add_argument("--webhook", metavar="URL|env:NAME", help="post what fires newly and what fires no more")
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="what was posted before (default: alerts.json in the store)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be posted; post and remember nothing")
    parser.set_defaults(run=alerts)


def alerts(arguments: argparse.Namespace) -> int:
    """Print what fires; returns 0 where nothing does, 1 where something does, 4 for wrong usage, 5 where the webhook was not told."""
    from pytest_coldstart.alerts.file import RulesError
    from pytest_coldstart.alerts.webhook import AddressError
    from pytest_coldstart.store.errors import StoreError

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _alerts(arguments)
    except BrokenPipeError:
        raise  # nobody reads on
    except RulesError as error:
        print("\n".join(f"coldstart: {problem}" for problem in error.problems), file=sys.stderr)
    except (AddressError, _UsageError, StoreError, OSError) as error:  # 1 would say that something fires
        print(f"coldstart: {error}", file=sys.stderr)
    return _USAGE


def _alerts(arguments: argparse.Namespace) -> int:
    from pytest_coldstart.alerts import told, webhook
    from pytest_coldstart.store.home import Home

    home = Home.at(arguments.store)
    rules = _rules(arguments.rules, home)
    to = webhook.address(arguments.webhook, os.environ) if arguments.webhook is not None else None
    if to is None:
        if arguments.state is not None or arguments.dry_run:
            raise _UsageError("--state and --dry-run say what becomes of --webhook; give that too")
        return _said(arguments, home, rules, *_evaluated(home, rules))
    state = arguments.state or home.root / told.FILE_NAME
    if arguments.dry_run:
        found, now = _evaluated(home, rules)
        code = _said(arguments, home, rules, found, now)
        _rehearse(home, found, now, state, to)
        return code
    # Another process looks and tells before or after, never in between.
    with told.alone(state):
        found, now = _evaluated(home, rules)
        code = _said(arguments, home, rules, found, now)
        return code if _tell(home, found, now, state, to) else _NOT_DELIVERED


def _rules(given: Path | None, home: Home) -> Rules:
    from pytest_coldstart.alerts.change import NEEDS, searchable
    from pytest_coldstart.alerts.file import EXAMPLE, RULES_FILE, RulesError, find, load
    from pytest_coldstart.alerts.rules import Changed

    path = given or find(Path.cwd(), home.root)
    if path is None:
        raise RulesError([f"there is no {RULES_FILE} here; put one beside pyproject.toml, such as\n{EXAMPLE}"])
    rules = load(path)
    if not searchable():
        changing = [rule for rule in rules.rules if isinstance(rule.condition, Changed)]
        if changing:
            raise RulesError([f"{path}:{rule.line}: alert {rule.name!r}: {NEEDS}" for rule in changing])
    return rules


def _evaluated(home: Home, rules: Rules) -> tuple[tuple[Evaluated, ...], datetime]:
    """What each rule says now, and when that is."""
    from datetime import UTC, datetime

    from pytest_coldstart.alerts.evaluate import look, results
    from pytest_coldstart.history.acknowledge import FILE_NAME, read
    from pytest_coldstart.store.database import reader

    with reader(home.database) as con:
        looked = look(con, rules.rules)
    given = read(*(path for path in (home.root / FILE_NAME, rules.acknowledgements) if path))
    for problem in given.problems:
        print(f"coldstart: {problem}", file=sys.stderr)
    now = datetime.now(UTC).replace(tzinfo=None)
    return results(looked, given.given, now), now


def _said(arguments: argparse.Namespace, home: Home, rules: Rules, found: Sequence[Evaluated], now: datetime) -> int:
    """Print it; returns the exit code that it makes."""
    from pytest_coldstart.alerts import text
    from pytest_coldstart.alerts.finding import NOTHING

    if arguments.json:
        words = json.dumps(text.to_dict(found, rules.path, home.database, now), indent=2, allow_nan=False)
    else:
        words = "\n".join(text.lines(found, max(_NARROW, shutil.get_terminal_size((_WIDTH, 24)).columns)))
    try:
        print(words, flush=True)
    except BrokenPipeError:
        # Nobody reads on: the exit code and the webhook still say what fires.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    idle = [one.rule.name for one in found if one.state == NOTHING]
    if idle and arguments.strict:
        print(f"coldstart: no series is matched by {', '.join(map(repr, idle))}", file=sys.stderr)
        return _FIRES
    return _FIRES if any(one.firing for one in found) else _NONE


def _tell(home: Home, found: Sequence[Evaluated], now: datetime, state: Path, to: Address) -> bool:
    """Post what is new and remember it; whether nobody is left to be told."""
    from pytest_coldstart.alerts import text, told, webhook

    before = told.read(state)
    news = told.news(before, told.alerts(found))
    if not news:
        return True
    try:
        webhook.post(to, text.body(news, home.database, now))
    except webhook.NotDelivered as error:
        print(f"coldstart: the webhook was not told: {error}; the next call tries again", file=sys.stderr)
        return False
    told.write(state, told.after(before, news))
    print(f"coldstart: told {to}: {len(news.firing)} firing, {len(news.resolved)} resolved", file=sys.stderr)
    return True


def _rehearse(home: Home, found: Sequence[Evaluated], now: datetime, state: Path, to: Address) -> None:
    from pytest_coldstart.alerts import text, told

    news = told.news(told.read(state), told.alerts(found))
    if not news:
        print(f"coldstart: nothing would be posted to {to}", file=sys.stderr)
        return
    print(f"coldstart: would be posted to {to}:", file=sys.stderr)
    print(json.dumps(text.body(news, home.database, now), indent=2, allow_nan=False), file=sys.stderr)
