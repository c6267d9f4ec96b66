"""Overview: every series with the verdicts of its newest run; what is broken stands first."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard import data, place, tables, text

home = place.home()
series = data.series(home)
newest = data.newest(home, tables.LAST)


def filtered(shown: list[data.Series], label: str, of: Callable[[data.Series], str], key: str) -> list[data.Series]:
    """*shown*, narrowed by a filter whose choice stands in the address."""
    options = sorted({of(item) for item in series})
    chosen = st.multiselect(label, options, key=key, bind="query-params", placeholder="all")
    return [item for item in shown if not chosen or of(item) in chosen]


st.title("Overview")
shown = series
filters: dict[str, Callable[[data.Series], str]] = {
    "engine": lambda item: item.engine,
    "tier": lambda item: item.tier,
    "hardware": lambda item: item.hardware,
    "model": lambda item: item.model,
}
for column, (key, of) in zip(st.columns(len(filters)), filters.items(), strict=True):
    with column:
        shown = filtered(shown, "hardware class" if key == "hardware" else key, of, key)

if shown:
    st.text(tables.summary(shown))
    st.dataframe(
        tables.overview(shown, newest),
        hide_index=True,
        column_config={
            "trend": st.column_config.LinkColumn(display_text="trend"),
            "boots": st.column_config.TextColumn(help="all boots of the series, priming boots included"),
        },
    )
    st.subheader("SLOs of the newest run")
    st.dataframe(tables.verdicts(shown), hide_index=True)
else:
    st.info(f"None of {len(series)} series is left; clear a filter.")
st.caption(f"Store: `{home.database}`; last boot {text.moment(series[0].last_seen)}")
