"""What rules say, as lines for a terminal, as JSON, and as the message of a webhook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_coldstart.alerts.finding import NOT_LOOKED_AT, NOTHING, OK, PENDING, STATES, UNMEASURED, Evaluated, Finding
from pytest_coldstart.alerts.rules import SEVERITIES
from pytest_coldstart.alerts.told import Alert, News, iso
from pytest_coldstart.history.points import day
from pytest_coldstart.report.columns import fit, one_line, wrapped

#: Version of the JSON that is printed and posted.
VERSION = 1

#: Alerts that a message names one by one, and the longest line of one.
NAMED, LONGEST = 20, 300


def ordered(found: Sequence[Evaluated]) -> list[Evaluated]:
    """The worst state first, then the gravest."""
    return sorted(found, key=lambda one: (STATES.index(one.state), -SEVERITIES.index(one.rule.severity)))


def summary(found: Sequence[Evaluated]) -> str:
    """``2 of 5 rules fire, on 7 series; 1 matches nothing``."""
    firing = [one for one in found if one.firing]
    series = {finding.series.id for one in firing for finding in one.firing}
    words = f"{len(firing)} of {len(found)} rules {'fires' if len(firing) == 1 else 'fire'}"
    words += f", on {len(series)} series" if firing else ""
    for state, said in ((NOTHING, "matches nothing"), (NOT_LOOKED_AT, "could not be looked at")):
        count = sum(one.state == state for one in found)
        words += f"; {count} {said if count == 1 else said.replace('matches', 'match')}" if count else ""
    return words


def lines(found: Sequence[Evaluated], width: int) -> list[str]:
    """All rules, those that fire first, with each series on which they do."""
    said = [summary(found)]
    for one in ordered(found):
        rule = one.rule
        said += ["", fit(f"{one.state.upper()} ({rule.severity}) {rule.name}", width)]
        said += wrapped(f"{rule.what}; {_watched(one)}", width)
        said += wrapped(rule.message, width) if rule.message and one.firing else []
        for finding in one.findings:
            if finding.state != OK:
                said += wrapped(f"- {sentence(finding)}", width, "    ")
    return said


def _watched(one: Evaluated) -> str:
    if one.reason:
        return one.reason
    if one.state == NOTHING:
        return (
            f"matches nothing: no series is {one.rule.which}" if one.rule.filters else "matches nothing: no boots yet"
        )
    return f"{one.rule.which} ({len(one.findings)} series)"


def sentence(one: Finding) -> str:
    """One series, its value, the bound and since when."""
    state = f"{one.state}: " if one.state in (UNMEASURED, PENDING) and one.value != one.state else ""
    words = f"{one.series.name} [{one.series.id}]: {state}{one.value}"
    words += f" (bound {one.bound})" if one.bound else ""
    words += f", {since(one)}" if one.since else ""
    return words + (f": {one.reason}" if one.reason else "")


def since(one: Finding) -> str:
    """``since run 20260309T023000-15 (2026-03-09 02:30 UTC)``."""
    at = f" ({day(one.since_at)} UTC)" if one.since_at else ""
    return f"since run {one.since}{at}{' or before' if one.earlier else ''}" if one.since else ""


def to_dict(found: Sequence[Evaluated], rules: Path, store: Path, now: datetime) -> dict[str, Any]:
    """What ``coldstart alerts --json`` prints."""
    return {
        "version": VERSION,
        "at": iso(now),
        "rules_file": str(rules),
        "store": str(store),
        "firing": sum(len(one.firing) for one in found),
        "rules": [_rule(one) for one in found],
    }


def _rule(one: Evaluated) -> dict[str, Any]:
    rule = one.rule
    return {
        "name": rule.name,
        "severity": rule.severity,
        "message": rule.message,
        "condition": rule.what,
        "series_filter": rule.which,
        "state": one.state,
        "reason": one.reason,
        "series": [_finding(finding) for finding in one.findings],
    }


def _finding(one: Finding) -> dict[str, Any]:
    names = ("id", "engine", "cell_id", "nodeid", "model", "tier", "hardware", "gpu")
    found = {
        **{name: getattr(one.series, name) for name in names},
        **{name: getattr(one, name) for name in ("state", "fires", "metric", "value", "number", "bound", "reason")},
        "run": one.run_id,
        "run_at": iso(one.at),
        "since": one.since,
        "since_at": iso(one.since_at),
        "since_or_before": one.earlier,
    }
    return {name: None if value == "" else value for name, value in found.items()}


def body(news: News, store: Path, now: datetime) -> dict[str, Any]:
    """What is posted. ``text`` is what Slack, Mattermost and their like show; the rest is for programs."""
    return {
        "text": message(news),
        "version": VERSION,
        "at": iso(now),
        "store": str(store),
        "firing": [asdict(one) for one in news.firing],
        "resolved": [asdict(one) for one in news.resolved],
    }


def message(news: News) -> str:
    counts = [f"{len(group)} {word}" for group, word in ((news.firing, "firing"), (news.resolved, "resolved")) if group]
    named = [*_named(news.firing, ""), *_named(news.resolved, "resolved: ")]
    return "\n".join([f"cold start alerts: {', '.join(counts)}", *named])


def _named(group: Sequence[Alert], before: str) -> list[str]:
    worst = sorted(group, key=lambda one: -_rank(one.severity))
    found = [f"- {before}{_line(one, bool(before))}" for one in worst[:NAMED]]
    return [*found, *([f"- {before}and {len(group) - NAMED} more"] if len(group) > NAMED else [])]


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else 0


def _line(one: Alert, ended: bool) -> str:
    words = f"{one.rule}: {one.name}"
    if not ended:
        state = "unmeasured, " if one.state == UNMEASURED and one.value != UNMEASURED else ""
        bound = f" (bound {one.bound})" if one.bound else ""
        since = f", since run {one.since}" if one.since else ""
        words = f"[{one.severity}] {words}: {state}{one.value}{bound}{since}"
    # The message is the rule's author's, who may mean to mention somebody.
    return quiet(fit(words, LONGEST)) + (f": {one_line(one.message)}" if one.message and not ended else "")


#: What makes a mention, a link or formatting in chats.
_LOUD: Mapping[str, str] = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b"}


def quiet(text: str) -> str:
    """*text* from the store, which must not call a whole channel: ``<!channel>`` as a model's name stays a name."""
    text = text.replace("<=", "\u2264").replace(">=", "\u2265")
    return "".join(_LOUD.get(char, char) for char in text)
