"""Choices that stand in the address, so that a copied link shows the same view in another browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from dashboard import text
from dashboard.data.series import Series


def choice(
    key: str, options: Sequence[str], show: Callable[[str], str] = str, label: str = "", help: str | None = None
) -> str:
    """One of *options*, which always stands in the address.

    ``bind="query-params"`` would leave out a choice that is the first of its options today, and
    quietly show another one for a link that no longer holds.
    """
    if st.session_state.get(key) not in options:
        asked = st.query_params.get(key, options[0])
        if asked not in options:
            st.warning(text.plain(f"The link asks for the {label or key} {asked!r}, which is not in this store."))
        st.session_state[key] = asked if asked in options else options[0]
    found: str = st.selectbox(label or key, options, format_func=show, key=key, help=help)
    st.query_params[key] = found
    return found


def choices(key: str, options: Sequence[str], label: str = "", help: str | None = None) -> list[str]:
    """Any of *options*; none chosen means all. In the address while something is chosen."""
    # Streamlit drops them from the address without a word, and more would be shown than the link meant.
    gone = [word for word in st.query_params.get_all(key) if word and word not in options]
    if gone:
        words = ", ".join(map(repr, gone))
        st.warning(text.plain(f"The link asks for the {label or key} {words}, which is not here and is left out."))
    found: list[str] = st.multiselect(label or key, options, key=key, bind="query-params", placeholder="all", help=help)
    return found


def switch(key: str, label: str, help: str | None = None) -> bool:
    """On or off; in the address while it is on."""
    found: bool = st.toggle(label, key=key, bind="query-params", help=help)
    return found


#: The filters of every page that lists series: the key in the address and its label.
FILTERS: dict[str, tuple[str, Callable[[Series], str]]] = {
    "engine": ("engine", lambda item: item.engine),
    "tier": ("tier", lambda item: item.tier),
    "hardware": ("hardware class", lambda item: item.hardware),
    "model": ("model", lambda item: item.model),
}


def filtered(series: Sequence[Series]) -> list[Series]:
    """*series*, narrowed by the filters, which are drawn here in a row."""
    shown = list(series)
    for column, (key, (label, of)) in zip(st.columns(len(FILTERS)), FILTERS.items(), strict=True):
        with column:
            chosen = choices(key, sorted({of(item) for item in series}), label)
        shown = [item for item in shown if not chosen or of(item) in chosen]
    return shown
