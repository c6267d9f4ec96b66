"""What every page has: navigation, which store is shown, and a page in place of one that cannot be shown."""

from __future__ import annotations

import streamlit as st

from dashboard import place, problem, state, text, watch
from dashboard.ask import ask, stamp
from dashboard.data.series import is_demo
from dashboard.source import Held, Unusable
from pytest_coldstart.store.home import Home

#: Address -> title, in the order of the questions that they answer.
PAGES = {
    "overview": "Overview",
    place.TREND: "Trend",
    place.BOOT: "Boot",
    place.COMPARE: "Compare",
    place.MATRIX: "Matrix",
    place.DISTRIBUTION: "Distribution",
    place.FRAGMENTATION: "Fragmentation",
    place.RUNS: "Runs",
    place.ALERTS: "Alerts",
}


def show() -> None:
    """Run the page that the address names."""
    pages = [
        st.Page(
            f"app_pages/{name}.py",
            title=title,
            default=name == "overview",
            url_path=name if name != "overview" else None,
        )
        for name, title in PAGES.items()
    ]
    page = st.navigation(pages, position="top")
    st.set_page_config(page_title=f"{page.title} - cold start", layout="wide")
    st.session_state["held"] = False
    try:
        home = _chosen()
    except Unusable as error:
        problem.show(error)
        return
    seen = stamp(home)
    try:
        _labelled(home)
        page.run()
        _footed(home)
    except Unusable as error:
        problem.show(error)
        # Whoever holds it lets it go without changing the file, perhaps.
        st.session_state["held"] = isinstance(error, Held)
    watch.follow(home, seen, bool(st.session_state["held"]))


def _chosen() -> Home:
    given = place.current()
    if not given.demo and len(given.stores) > 1:
        with st.sidebar:
            state.choice("store", list(given.stores), label="store")
    return place.home()


def _labelled(home: Home) -> None:
    """:raises Unusable: the store cannot be read."""
    if ask(home, is_demo):
        st.info("Demo data: every boot on this page is made up.", icon=":material/science:")


def _footed(home: Home) -> None:
    st.caption(f"Store: {text.plain(str(home.database))}")
    if st.session_state.get("held"):
        st.caption("A run is writing: what was read before is shown until it has ended.")
