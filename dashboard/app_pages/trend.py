"""Trend: one metric of one series over time. Every boot is a point, those that failed included."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from dashboard import charts, data, place, tables, text
from pytest_coldstart.metrics import METRICS

home = place.home()
series = {item.id: item for item in data.series(home)}


def chosen(key: str, options: Sequence[str], show: Callable[[str], str]) -> str:
    """A choice that always stands in the address, so that a copied link shows the same later.

    ``bind="query-params"`` would leave out a choice that is the first of its options today, and
    quietly show another one for a link that no longer holds.
    """
    if key not in st.session_state:
        asked = st.query_params.get(key, options[0])
        if asked not in options:
            st.warning(f"The link asks for the {key} {asked!r}, which is not in this store.")
        st.session_state[key] = asked if asked in options else options[0]
    choice = st.selectbox(key, options, format_func=show, key=key)
    st.query_params[key] = choice
    return choice


st.title("Trend")
left, right = st.columns([3, 1])
with left:
    one = series[chosen("series", list(series), lambda id: text.name(series[id]))]
with right:
    metric = METRICS[chosen("metric", list(METRICS), str)]

points = data.points(home, one.id, metric.name)
st.caption(f"{metric.help} Better is {metric.better}.")
st.altair_chart(charts.trend(points, one.verdicts, metric), width="stretch")
st.caption(
    "The line joins the medians of runs. Bounds are those of the newest run. A failed boot counts as infinite, "
    "so that it stands above the plot; priming boots and boots with the outcome error enter no median."
)
st.dataframe(tables.boots(points, metric), hide_index=True)
st.caption(f"Store: `{home.database}`, series `{one.id}`")
