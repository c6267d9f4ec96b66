"""Alerts: the rules of a file, and which of them fire now. ``coldstart alerts`` evaluates the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from dashboard import place, state, text
from dashboard.ask import ask
from dashboard.data.changes import acknowledgements
from dashboard.data.series import all_series
from dashboard.source import empty
from pytest_coldstart.alerts import file
from pytest_coldstart.alerts.evaluate import look, results
from pytest_coldstart.alerts.file import EXAMPLE, Rules, RulesError
from pytest_coldstart.alerts.finding import NOT_LOOKED_AT, OK, STATES, Evaluated, Finding
from pytest_coldstart.alerts.rules import SEVERITIES, Changed
from pytest_coldstart.alerts.text import ordered, summary
from pytest_coldstart.history import acknowledge
from pytest_coldstart.history.acknowledge import Acknowledgement
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.home import Home

#: Series that a table lists at most.
_MOST = 500

_SEARCHING = "changes are being searched for"


def main() -> None:
    home = place.home()
    if not ask(home, all_series):
        raise empty(home)
    st.title("Alerts")
    path = file.find(Path.cwd(), home.root)
    if path is None:
        _none(home)
        return
    try:
        rules = file.load(path)
    except RulesError as error:
        _broken(error)
        return
    st.caption(f"Rules: {text.plain(str(path))}")
    _evaluated(home, rules)


def _none(home: Home) -> None:
    st.info("There is no file of rules, so nothing is watched. It is looked for here, and the first one counts:")
    st.code("\n".join(str(path) for path in file.places(Path.cwd(), home.root)), language=None)
    st.markdown("Such as:")
    st.code(EXAMPLE, language="toml")
    st.caption("`coldstart alerts` evaluates the same file for cron and CI, and tells a webhook.")


def _broken(error: RulesError) -> None:
    count = len(error.problems)
    st.error(f"The file of rules has {count} {'mistake' if count == 1 else 'mistakes'}, and nothing is watched.")
    st.code("\n".join(error.problems), language=None, wrap_lines=True)


def _evaluated(home: Home, rules: Rules) -> None:
    given = _given(home, rules)
    now = datetime.now(UTC).replace(tzinfo=None)
    left, right = st.columns(2)
    with left:
        states = state.choices("state", list(STATES), "state", help="Of a rule: that of the worst series it watches.")
    with right:
        severities = state.choices("severity", list(reversed(SEVERITIES)), "severity")
    shown = [rule for rule in rules.rules if not severities or rule.severity in severities]
    quick = tuple(rule for rule in shown if not isinstance(rule.condition, Changed))
    slow = tuple(rule for rule in shown if isinstance(rule.condition, Changed))
    found = list(results(ask(home, look, quick), given, now)) if quick else []
    slot = st.empty()
    if slow:
        with slot.container():
            _drawn([*found, *(Evaluated(rule, reason=_SEARCHING) for rule in slow)], states, now)
        found += results(ask(home, look, slow), given, now)
    with slot.container():
        _drawn(found, states, now)


def _given(home: Home, rules: Rules) -> tuple[Acknowledgement, ...]:
    """What was acknowledged in the store, and in the file that the rules name."""
    own = acknowledgements(home)
    problems, more = list(own.problems), []
    if rules.acknowledgements:
        try:
            read = acknowledge.read(rules.acknowledgements)
            more, problems = read.given, problems + read.problems
        except StoreError as error:
            problems.append(str(error))
    if problems:
        st.warning("Not all acknowledgements could be read:")
        st.code("\n".join(problems), language=None, wrap_lines=True)
    return (*own.given, *more)


def _drawn(found: Sequence[Evaluated], states: Sequence[str], now: datetime) -> None:
    every = ordered(found)
    shown = [one for one in every if not states or one.state in states]
    st.text(summary(every))
    if not shown:
        st.info(f"None of {len(every)} rules is left; clear a filter.")
        return
    st.dataframe([_rule(one) for one in shown], width="stretch", hide_index=True)
    fires = [(one, finding) for one in shown for finding in one.firing]
    st.subheader("Fires now")
    if fires:
        _listed(fires, now)
    else:
        st.text("nothing of these rules")
    rest = [(one, finding) for one in shown for finding in one.findings if not finding.fires and finding.state != OK]
    if rest:
        st.subheader("Not yet, or not judged")
        _listed(rest, now)
    st.caption(
        "unmeasured fires: what was not measured kept no bound. pending: it holds, but not yet for as many runs in a row as the rule "
        "asks for. Each series is judged by its newest run, or the newest on the branches that a rule names; a gate's runs are left "
        f"out. Ages are those of {now:%Y-%m-%d %H:%M:%S} UTC."
    )


def _rule(one: Evaluated) -> dict[str, str]:
    rule = one.rule
    return {
        "state": one.reason if one.state == NOT_LOOKED_AT else one.state,
        "severity": rule.severity,
        "rule": rule.name,
        "condition": rule.what,
        "series": f"{len(one.firing)} of {len(one.findings)} fire" if one.findings else "none",
        "watches": rule.which,
        "message": rule.message or "-",
    }


def _listed(rows: Sequence[tuple[Evaluated, Finding]], now: datetime) -> None:
    st.dataframe(
        [_row(one, finding, now) for one, finding in rows[:_MOST]],
        width="stretch",
        hide_index=True,
        column_config={"trend": st.column_config.LinkColumn(display_text="trend", width="small")},
    )
    if len(rows) > _MOST:
        st.caption(f"The first {_MOST} of {len(rows)} are listed; `coldstart alerts` prints all.")


def _row(one: Evaluated, finding: Finding, now: datetime) -> dict[str, str]:
    series = finding.series
    return {
        "rule": one.rule.name,
        "severity": one.rule.severity,
        "state": finding.state,
        "value": finding.value,
        "bound": finding.bound or "-",
        "trend": place.trend(series.id, finding.metric or "cold_start"),
        "series": series.name,
        "since": _since(finding),
        "why": finding.reason or "-",
        "newest run": f"{finding.run_id} ({text.age(finding.at, now)})" if finding.run_id else "none",
    }


def _since(finding: Finding) -> str:
    if not finding.since:
        return "-"
    return f"{text.moment(finding.since_at)}, run {finding.since}{' or before' if finding.earlier else ''}"


main()
