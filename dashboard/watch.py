"""New boots appear by themselves: the page runs again when the store's file has changed."""

from __future__ import annotations

import streamlit as st

from dashboard.ask import Stamp, stamp
from pytest_coldstart.store.home import Home

#: Seconds between two looks.
EVERY = 2.0


def follow(home: Home, seen: Stamp, held: bool) -> None:
    """Run the page again soon after each change of the store since *seen*, and where *held*, an older answer is shown."""
    st.session_state["looks"] = 0
    _look(home, seen, held)


@st.fragment(run_every=EVERY)
def _look(home: Home, seen: Stamp, held: bool) -> None:
    st.session_state["looks"] += 1
    # The first look belongs to the run of the page itself: what it showed cannot have got better yet.
    if st.session_state["looks"] > 1 and (held or stamp(home) != seen):
        st.rerun()
