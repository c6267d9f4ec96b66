"""Fragmentation."""

from __future__ import annotations

import streamlit as st

from dashboard import place, state, text
from dashboard.ask import ask
from dashboard.data.series import all_series

home = place.home()
series = ask(home, all_series)
st.title("Fragmentation")
st.text(f"{len(state.filtered(series))} series")
