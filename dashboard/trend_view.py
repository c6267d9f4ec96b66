"""What the trend page draws: one series with all that is known of it, or many side by side."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import acknowledging, state, text, trend_tables
from dashboard.ask import ask
from dashboard.charts import trend as charts
from dashboard.charts import trend_panels
from dashboard.charts.trend_axis import Axis, Span, axis, span
from dashboard.charts.trend_line import levels
from dashboard.charts.trend_rules import MOST_MOVES, bound_words, kept_moves
from dashboard.charts.trend_scale import far
from dashboard.data import trend as data
from dashboard.data.changes import Changes, acknowledgements, changes, loaded, unsearched
from dashboard.data.series import Series
from pytest_coldstart.metrics import Metric
from pytest_coldstart.store.home import Home

#: Boots that are shown at most; of the small multiples series, and runs of each.
_NEWEST = ("2000", "500", "100")
_SERIES, _RUNS = 40, 60

_OPEN = {"open": st.column_config.LinkColumn(display_text="open")}
_TREND = {"trend": st.column_config.LinkColumn(display_text="trend")}


@dataclass(frozen=True)
class Single:
    """One series: its chart, its change points and its boots."""

    home: Home
    series: Series
    metric: Metric
    by: str

    def show(self) -> None:
        _open(st.session_state.pop("trend_opens", None))
        asked = self._asked()
        found = ask(self.home, data.trend, asked)
        changed = self._searched(found)
        if not found.points:
            st.info("No boot of this series is left; choose another branch, or show the boots of gates.")
            return
        x = axis(self.by, found.points)
        area = st.container()
        zoom = self._zoom(x)
        every = levels(found.runs, x, join=self.by == "commit")
        what = charts.picture(self.metric, x, zoom, found.points, every, found.bounds, changed)
        with area:
            self._chart(what)
            self._strip(charts.picture(self.metric, x, None, found.points, every, (), changed), zoom)
        self._said(found, what)
        self._changes(changed, asked.branch)
        st.subheader("Boots")
        listed = what.points if zoom else found.points
        st.dataframe(trend_tables.boots(listed, self.metric), hide_index=True, column_config=_OPEN)

    def _asked(self) -> data.Asked:
        first, second, third = st.columns([3, 2, 3], vertical_alignment="bottom")
        with first:
            branch = _branch(self.home, ask(self.home, data.branches, self.series.id))
        with second:
            newest = int(state.choice("newest", _NEWEST, label="newest boots"))
        with third:
            gates = state.switch("gates", "boots of gates", help="Boots that coldstart gate has made.")
        return data.Asked(self.series.id, self.series.cell_digest, self.metric.name, branch, newest, gates)

    def _searched(self, found: data.Trend) -> Changes:
        """The change points; of the first page of a server once their libraries are loaded, and all else before."""
        if not loaded():
            _look_again()
            return unsearched(self.series, self.metric.name, found, "loading the search for change points ...")
        return changes(self.series, self.metric.name, found, acknowledgements(self.home).given)

    # -- the chart

    def _chart(self, what: charts.Picture) -> None:
        key, known = f"trend {self.series.id}", {item.boot_id for item in what.points}

        def clicked() -> None:
            chosen = st.session_state[key]["selection"].get(charts.CHOSEN) or [{}]
            if chosen[0].get("boot") in known:
                st.session_state["trend_opens"] = chosen[0]["boot"]

        st.altair_chart(charts.trend(what), width="stretch", key=key, on_select=clicked, selection_mode=[charts.CHOSEN])

    def _strip(self, what: charts.Picture, zoom: Span | None) -> None:
        key = f"strip {self.by} {self.series.id}"

        def brushed() -> None:
            ends = st.session_state[key]["selection"].get(charts.BRUSH, {}).get("at") or []
            known = len(ends) == 2 and None not in ends
            st.session_state["from"], st.session_state["to"] = map(what.axis.word, ends) if known else ("", "")

        if len(what.levels) > 2:
            chart = charts.strip(what, zoom)
            st.altair_chart(chart, width="stretch", key=key, on_select=brushed, selection_mode=[charts.BRUSH])

    def _zoom(self, x: Axis) -> Span | None:
        """What the address shows of the axis; by a brush, or written into the two fields."""
        first, second = st.columns(2)
        such = "2026-11-30T08:00Z" if self.by == "time" else "a commit"
        begin, end = _field(first, "from", such), _field(second, "to", such)
        found = span(x, begin, end)
        if found is None and (begin or end):
            st.caption("Not zoomed: from and to do not both name a place of this axis.")
        return found

    # -- what there is to say

    def _said(self, found: data.Trend, what: charts.Picture) -> None:
        said = []
        if found.total > len(found.points):
            said.append(f"The newest {len(found.points)} of {found.total} boots are shown.")
        if found.left_out:
            said.append(
                f"Left out, since they are of any two commits in random order, boots of coldstart gate: {found.left_out}."
            )
        missing = sum(what.axis.place(item) is None for item in found.points)
        if missing:
            said.append(f"Without a start, and in the table alone: {missing}.")
        off = [bound_words(item) for item in what.bounds if far(item.bound, what.values)]
        if off:
            said.append(f"Above the axis: {', '.join(off)}.")
        _, more = kept_moves(what.changes, what.axis, what.span)
        if more:
            said.append(
                f"{more} more changes of the environment are not drawn (at most {MOST_MOVES}, other machines last)."
            )
        said.append(
            "Line and change points are of the same runs as in coldstart history: measured boots, none of a gate. A run with a "
            "failed boot breaks the line and is no value of the search."
        )
        st.caption(text.plain(" ".join(said)))

    def _changes(self, changed: Changes, branch: str | None) -> None:
        st.subheader("Change points")
        history = changed.history
        if not history.points:
            st.text("no change point")
        if changed.reason:
            st.text(changed.reason)
        if history.points:
            st.dataframe(trend_tables.change_points(changed, self.metric.unit), hide_index=True)
        for one in history.stray:
            st.text(f"The acknowledgement {one.id} of run {one.run} ({one.reason}) matches no change point here.")
        for problem in acknowledgements(self.home).problems:
            st.text(problem)
        for point in reversed(history.points):
            if point.acknowledged is None:
                st.text(f"{point.size:+.1%} at {text.moment(point.at)} may stay? Say why:")
                run = trend_tables.run_of(changed, point)
                command = trend_tables.command(self.home, self.series.id, self.metric.name, run, branch)
                st.code(command, language="sh")
        acknowledging.form(self.home, history)


def many(home: Home, shown: list[Series], metric: Metric, facet: str, by: str) -> None:
    """Small multiples of the run medians of *shown*."""
    series = shown[:_SERIES]
    branch = _branch(home, ask(home, data.all_branches))
    found = ask(home, data.panels, tuple(item.id for item in series), metric.name, branch, _RUNS)
    runs = sorted((run for one in found.values() for run in one if run.started_at), key=lambda run: str(run.started_at))
    said = [
        f"Medians of each run over the boots that count, none of a gate; the newest {_RUNS} runs of each series at most."
    ]
    if len(shown) > len(series):
        said.append(f"The {len(series)} series seen last of {len(shown)}; filter for others.")
    st.caption(text.plain(" ".join(said)))
    panels = trend_panels.panels(series, found, facet, metric, axis(by, runs))
    columns = st.columns(2 if len(panels) > 1 else 1)
    for number, panel in enumerate(panels):
        with columns[number % len(columns)]:
            st.text(f"{panel.name} ({len(panel.series)} series)")
            st.altair_chart(panel.chart, width="stretch", key=f"panel {facet} {panel.name}")
    st.subheader("Series")
    st.dataframe(trend_tables.panels(series, found, metric), hide_index=True, column_config=_TREND)


def _branch(home: Home, found: tuple[str, ...]) -> str | None:
    return state.choice("branch", ["", *found], lambda name: name or "all branches") or None


def _field(where: DeltaGenerator, key: str, such: str) -> str:
    """One end of what is shown; in the address while something is written into it."""
    if key not in st.session_state:
        st.session_state[key] = st.query_params.get(key, "")
    word = where.text_input(key, key=key, placeholder=such, help="Or brush the overview.").strip()
    if word:
        st.query_params[key] = word
    else:
        st.query_params.pop(key, None)
    return word


def _open(boot: str | None) -> None:
    """The page of a boot that was clicked on."""
    if boot is not None:
        store = {"store": st.query_params["store"]} if "store" in st.query_params else {}
        st.switch_page("app_pages/boot.py", query_params={**store, "boot": boot})


@st.fragment(run_every=0.5)
def _look_again() -> None:
    if loaded():
        st.rerun()
