"""A problem on a page: what is wrong, where, and the command that mends it."""

from __future__ import annotations

import streamlit as st

from dashboard.source import Unusable


def show(error: Unusable) -> None:
    # As text: Streamlit would read paths and messages as Markdown.
    st.error("There is nothing to show.")
    st.text(error.what)
    st.text(error.where)
    st.code(error.command, language="sh")
    st.button("Try again")
