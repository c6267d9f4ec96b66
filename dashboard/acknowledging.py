"""The one thing that can be written from a page, and only where the server was started with ``--acknowledge``."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard import place, text
from pytest_coldstart.history import acknowledge
from pytest_coldstart.history.points import History, Point, short
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.home import Home


def form(home: Home, history: History) -> None:
    """Asks why a change point may stay; nothing is drawn where this may not be written, or nothing is left to acknowledge."""
    left = [point for point in history.points if point.acknowledged is None]
    if not place.current().acknowledge or not left:
        return
    # Another key once they are not the same any more, so that nobody acknowledges one that the form did not show.
    runs = " ".join(history.runs[point.index].run_id for point in left)
    key = f"{history.series.series} {history.metric} {runs}"
    with st.form(f"acknowledge {key}", border=True):
        number = st.selectbox(
            "change point", range(len(left)), format_func=lambda n: _named(left[n]), key=f"which {key}"
        )
        reason = st.text_input("reason", key=f"reason {key}", placeholder="why it may stay")
        author = st.text_input("author", key=f"author {key}", placeholder="who says so")
        if st.form_submit_button("Acknowledge"):
            _write(home, history, left, number, reason, author)


def _write(home: Home, history: History, left: Sequence[Point], number: int, reason: str, author: str) -> None:
    if not place.current().acknowledge:
        return
    point = left[number]
    run, series = history.runs[point.index].run_id, history.series
    try:
        one = acknowledge.make(
            series.series, series.cell_id, history.metric, run, point.place, point.size, reason, author
        )
        acknowledge.append(home.root / acknowledge.FILE_NAME, one)
    except (ValueError, StoreError) as error:
        st.error(text.plain(str(error)))
        return
    st.rerun()


def _named(point: Point) -> str:
    return f"{point.size:+.1%} at {text.moment(point.at)}, commits {short(point.commits[0])}..{short(point.commits[1])}"
