"""Boot: where the time of one boot went, and all that is known of it."""

from __future__ import annotations

import streamlit as st

from dashboard import boot_view, place
from dashboard.ask import ask
from dashboard.data import boot as data
from dashboard.source import empty
from pytest_coldstart.report.waterfall import stretches
from pytest_coldstart.store.boots import LAST

home = place.home()
newest = ask(home, data.newest)
if newest is None:
    raise empty(home)


def _go(word: str) -> None:
    st.query_params["boot"] = word
    # What was chosen of the boot before says nothing of this one.
    st.session_state.pop("phase", None)
    st.query_params.pop("phase", None)


def _to_run() -> None:
    first = ask(home, data.first_of, st.session_state["boot_run"])
    if first:
        _go(first)


def _to_boot() -> None:
    _go(st.session_state["boot_of_run"])


def _to_word() -> None:
    word = st.session_state["boot_word"].strip()
    st.session_state["boot_word"] = ""
    if word:
        _go(word)


word = st.query_params.get("boot", "") or newest
found = ask(home, data.named, word)
if found.problem:
    st.warning("The address asks for a boot that this store does not have, or has several of. The newest is shown.")
    boot_view.lines(found.problem.splitlines())
boot_id = found.boot_id or newest
if word not in LAST and not found.problem:
    st.query_params["boot"] = boot_id
whole = ask(home, data.whole, boot_id)

run_id = ask(home, data.run_of, boot_id)
runs = {item.id: item.words for item in ask(home, data.runs, run_id)}
boots = {item.id: item.words for item in ask(home, data.of_run, run_id, boot_id)}
# A boot that was removed a moment ago is in neither list: then nothing is chosen in them.
st.session_state["boot_run"] = run_id if run_id in runs else None
st.session_state["boot_of_run"] = boot_id if boot_id in boots else None
first, second, third = st.columns([2, 2, 1])
first.selectbox("run", list(runs), format_func=runs.__getitem__, key="boot_run", on_change=_to_run)
second.selectbox("boot", list(boots), format_func=boots.__getitem__, key="boot_of_run", on_change=_to_boot)
third.text_input(
    "another boot",
    key="boot_word",
    on_change=_to_word,
    placeholder="id or its beginning",
    help="also last or last-failed",
)
if len(runs) >= data.RUNS or len(boots) >= data.OF_A_RUN:
    st.caption(
        f"The newest {data.RUNS} runs and the newest {data.OF_A_RUN} boots of one are listed; any other by its id."
    )
if boot_id != newest:
    boot_view.links({"a newer boot is in the store: open the newest": place.boot(newest)})

if isinstance(whole, str):
    st.error("This boot cannot be shown.")
    boot_view.lines(whole.splitlines())
else:
    record = whole.record
    parts = stretches(record.phases)
    boot_view.header(whole)
    boot_view.key_metrics(whole)
    chosen = boot_view.phase_choice(parts)
    boot_view.time_charts(record, chosen)
    boot_view.phases(record)
    boot_view.processes(record)
    boot_view.coldness(record)
    boot_view.memory_points(record)
    boot_view.requests(record)
    boot_view.log(home, record, chosen)
    boot_view.hints(record)
    boot_view.metrics(record)
    boot_view.environment(whole)
