"""Trend: a metric of one series over time or commits, or of many series side by side."""

from __future__ import annotations

import streamlit as st

from dashboard import place, state, text, trend_view
from dashboard.ask import ask
from dashboard.charts.trend_axis import BY
from dashboard.charts.trend_panels import FACETS
from dashboard.data import trend as data
from dashboard.data.series import Series, all_series
from dashboard.source import empty
from pytest_coldstart.metrics import METRICS, Metric
from pytest_coldstart.store.home import Home

#: Boots of the store that are looked at to tell which metrics have a value.
_LOOKED_AT = 500


def main() -> None:
    home = place.home()
    series = ask(home, all_series)
    if not series:
        raise empty(home)
    st.title("Trend")
    shown = state.filtered(series)
    first, second, third = st.columns([3, 3, 2])
    with first:
        metric = _metric(home)
    with second:
        facet = state.choice("facet", ["none", *FACETS], label="small multiples by")
    with third:
        by = state.choice("by", BY, label="x axis")
    if not shown:
        st.info(f"None of {len(series)} series is left; clear a filter.")
    elif facet == "none":
        trend_view.Single(home, _series(shown, series), metric, by).show()
    else:
        trend_view.many(home, shown, metric, facet, by)


def _metric(home: Home) -> Metric:
    measured = ask(home, data.measured, _LOOKED_AT)
    none = f"no value in the newest {_LOOKED_AT} boots"
    asked = st.session_state.get("metric") or st.query_params.get("metric", "")
    name = state.choice(
        "metric",
        list(METRICS),
        lambda name: name if name in measured else f"{name} ({none})",
        help=text.plain(METRICS[asked if asked in METRICS else "cold_start"].help),
    )
    return METRICS[name]


def _series(shown: list[Series], everything: tuple[Series, ...]) -> Series:
    """The series that is chosen; one that a filter hides gives way to the first that is left."""
    names = {item.id: text.name(item) for item in shown}
    hidden = {item.id for item in everything} - names.keys()
    if (st.session_state.get("series") or st.query_params.get("series")) in hidden:
        st.session_state["series"] = shown[0].id
    id = state.choice("series", list(names), names.__getitem__)
    return next(item for item in shown if item.id == id)


main()
