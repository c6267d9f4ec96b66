"""The sections of the page of one boot, from top to bottom."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import altair as alt
import streamlit as st

from dashboard import boot_log, boot_rows, place, state, text
from dashboard.boot_rows import Rows
from dashboard.charts import requests as request_chart
from dashboard.charts import resources, waterfall
from dashboard.charts.waterfall import Span
from dashboard.data.boot import Whole
from pytest_coldstart.attribution import Process
from pytest_coldstart.process import printable
from pytest_coldstart.record import BootRecord
from pytest_coldstart.report import explain, memory, reproduce, show
from pytest_coldstart.report.columns import one_line
from pytest_coldstart.report.path import hint_texts
from pytest_coldstart.report.waterfall import Row as Stretch
from pytest_coldstart.store.home import Home

#: Lanes of processes that the waterfall has: those on the path, then those that lived longest.
LANES = 16


def header(whole: Whole) -> None:
    """What the boot is, how it ended, and the links around it."""
    record = whole.record
    st.title(text.plain(boot_rows.title(record)))
    age = text.age(whole.started_at, datetime.now(UTC).replace(tzinfo=None))
    st.text("\n".join([f"boot {one_line(record.boot_id)}", *boot_rows.standing(whole, age)]))
    _links(whole)
    if record.outcome == "error":
        st.warning("This boot says nothing of its cell and is not counted: its evidence contradicts the declared tier.")
    elif record.role == "prime":
        st.info("A priming boot: it filled the caches of the measured ones and is not counted.")
    if record.failure or record.failed:
        _failure(record)


def _links(whole: Whole) -> None:
    record = whole.record
    around = {
        "trend of its series": place.trend(whole.series, "cold_start"),
        "its run": place.link(place.RUNS, run=record.run_id),
        "previous boot of the series": place.boot(whole.previous) if whole.previous else "",
        "compare with it": place.link(place.COMPARE, kind="boots", base=whole.previous, head=record.boot_id)
        if whole.previous
        else "",
        "next boot of the series": place.boot(whole.next) if whole.next else "",
    }
    links(around)


def _failure(record: BootRecord) -> None:
    failure = record.failure
    st.error("This boot failed: it counts as +infinity in every statistic.")
    if failure is None:
        st.text("why is not stored")
        return
    phase = explain.FAILED_IN.get(failure.kind) or explain.FAILED_AT.get(failure.instant, failure.instant)
    lines = [
        f"{failure.kind}: {failure.message}",
        f"failed at {phase}; last instant reached: {failure.instant or 'none'}",
    ]
    # A stack's indentation tells its levels.
    st.text("\n".join([*map(one_line, lines), *map(printable, failure.diagnosis)]))


def key_metrics(whole: Whole) -> None:
    found = boot_rows.keys(whole)
    for begin in range(0, len(found), 5):
        for column, key in zip(st.columns(5), found[begin : begin + 5], strict=False):
            with column:
                st.metric(text.plain(key.name), key.value, help=text.plain(key.help))
                judged = "; ".join(key.verdicts) or "not judged in this run"
                words = [judged] if key.why in judged else [key.why, judged]
                st.caption(text.plain(one_line("; ".join(words))))


def span_of(record: BootRecord, until_stop: bool, selected: Stretch | None) -> Span:
    """The time axis: to the end of the path, or to the last thing that is known of the boot."""
    end = max((item.end for item in record.phases), default=0.0)
    shown = [at for name, at in record.instants.items() if until_stop or name != "stopped"]
    if until_stop:
        shown += [item.done or item.sent for item in record.requests]
    elif end:
        shown = []
    last = max([end, *shown], default=0.0)
    begin = min([0.0, *(item.begin for item in record.phases)])
    # A little room, so that an instant at the end has its rule.
    return Span(begin, (last or 1.0) * 1.03, (selected.begin, selected.end) if selected else None)


def lanes(record: BootRecord) -> tuple[list[Process], str]:
    """The processes that get a lane, in the order of their starts, and in words what is left out."""
    everyone = record.attribution.processes
    own: dict[str, float] = {}
    for item in record.phases:
        own[item.process] = own.get(item.process, 0.0) + item.end - item.begin
    lived = boot_rows.longest_lived(record, len(everyone))
    rank = {item.name: place for place, item in enumerate(lived)}
    kept = sorted(everyone, key=lambda item: (-own.get(item.name, 0.0), rank[item.name]))[:LANES]
    left = len(everyone) - len(kept)
    said = (
        f"{left} processes that held the path for less time have no lane; the table of processes has them."
        if left
        else ""
    )
    return sorted(kept, key=lambda item: item.start), said


def time_charts(record: BootRecord, selected: Stretch | None) -> None:
    """The waterfall, and below it on the same axis what was used."""
    st.header("Where the time went")
    st.text(one_line(show.path_text(record)))
    until_stop = state.switch(
        "whole", "until the stop", help="The axis ends where the path ends, or where the engine had stopped."
    )
    span = span_of(record, until_stop, selected)
    shown, left = lanes(record)
    charts: list[alt.LayerChart] = [
        waterfall.labels(record.instants, span),
        waterfall.waterfall(record.phases, shown, record.instants, span),
    ]
    titles = ["", ""]
    missing: dict[str, list[str]] = {}
    for item in resources.panels(record.memory.gpus, record.usage.series):
        if item.why:
            missing.setdefault(item.why, []).append(item.title)
        else:
            charts.append(resources.panel(item, record.instants, span))
            titles.append(resources.captioned(item, span))
    for title, chart in zip(titles, charts, strict=True):
        if title:
            said(title)
        st.altair_chart(chart, width="stretch")
    if left:
        st.caption(left)
    if missing:
        lines([f"{'; '.join(names)}: {why}" for why, names in missing.items()])
    with st.expander("instants, and what the process tree used in sum"):
        first, second = st.columns(2)
        with first:
            table(boot_rows.instants(record), "no instant was seen")
        with second:
            table(boot_rows.used(record), "")


def phases(record: BootRecord) -> None:
    st.header("Phases")
    table(boot_rows.sums(record), "This boot has no critical path.")
    rows, left = boot_rows.pieces(record)
    with st.expander("the critical path, piece by piece"):
        table(rows, "This boot has no critical path.")
        said(left)
    texts, rows = show.source_texts(record), boot_rows.readings(record)
    if rows or texts:
        with st.expander("what other sources say"):
            if rows:
                table(rows, "")
            lines(texts)
    hot = boot_rows.hottest(record)
    if hot:
        with st.expander("hottest frames of unattributed time"):
            table(hot, "")


def processes(record: BootRecord) -> None:
    st.header("Processes")
    rows, left = boot_rows.processes(record)
    table(rows, "No process was seen: the tree was not observed.")
    said(left)
    lines(show.spread_texts(record))


def coldness(record: BootRecord) -> None:
    """Caches with their statements, and the evidence of the tier."""
    st.header("Caches and tier")
    lines(explain.evidence_lines(record))
    table(boot_rows.caches(record), "No cache was inventoried.")
    with st.expander("evidence of the tier"):
        table(boot_rows.read_bytes(record), "")
        table(boot_rows.residency(record), "No file's residency was looked at.")


def memory_points(record: BootRecord) -> None:
    st.header("Memory")
    found = memory.parts(record)
    if not found:
        st.text("unmeasured: nothing of the devices, the allocators or the KV cache was read")
    for part in found:
        if part.titles:
            rows = [{**dict(zip(_distinct(part.titles), map(one_line, row), strict=True))} for row in part.rows]
            table(rows, "")
        else:
            lines(part.texts)


def _distinct(titles: Sequence[str]) -> list[str]:
    """A table of the terminal may have two columns of one name: the second is that of the column before it."""
    return [f"{titles[place - 1]} {title}" if titles.count(title) > 1 else title for place, title in enumerate(titles)]


def requests(record: BootRecord) -> None:
    st.header("Requests")
    rows, left = boot_rows.requests(record)
    if not rows:
        st.text("No request was sent.")
        return
    for name in request_chart.QUANTITIES:
        said(request_chart.captioned(record.requests, name))
        st.altair_chart(request_chart.requests(record.requests, name), width="stretch")
    if len(record.requests) > request_chart.MOST:
        st.caption(f"The first {request_chart.MOST:,} of {len(record.requests):,} requests are drawn.")
    with st.expander("every request"):
        table(rows, "")
        said(left)


def log(home: Home, record: BootRecord, chosen: Stretch | None) -> None:
    """The engine's log; with a selected phase, the lines of its interval."""
    st.header("Log")
    log = boot_log.read(home, record)
    st.text("\n".join(map(one_line, log.about)))
    if not log.lines:
        return
    words = st.text_input("lines that contain", key="lines", bind="query-params", help="upper and lower case are alike")
    kept = log.lines
    if chosen and not log.timed:
        said("These lines have no offsets: they are shown whole.")
    elif chosen:
        kept = boot_log.between(log, chosen.begin, chosen.end)
        said(f"Lines of the phase {boot_rows.stretch(chosen)}:")
    if words:
        kept = tuple(line for line in kept if words.lower() in line.text.lower())
    kept, left = boot_log.cut(kept)
    said(left)
    st.code(boot_log.shown(kept) or "no line", language=None, height=min(600, 60 + 22 * max(1, len(kept))))


def phase_choice(found: Sequence[Stretch]) -> Stretch | None:
    """Choose a phase: it is marked in the charts, and the log shows the lines of its interval."""
    if not found:
        return None
    names = {"all": "the whole boot", **{str(number): boot_rows.stretch(item) for number, item in enumerate(found)}}
    chosen = state.choice("phase", list(names), names.__getitem__, "phase: marked here, its lines in the log below")
    return None if chosen == "all" else found[int(chosen)]


def hints(record: BootRecord) -> None:
    st.header("What would help")
    lines(hint_texts(record) or ["No rule found anything that would help."])


def metrics(record: BootRecord) -> None:
    st.header("Metrics")
    table(boot_rows.metrics(record), "No metric is stored of this boot.")


def environment(whole: Whole) -> None:
    record = whole.record
    st.header("Environment and command")
    table(boot_rows.facts(whole), "")
    with st.expander("host, versions, model, cell, variables"):
        table(boot_rows.environment(whole), "")
    st.text("the engine's command")
    st.code(one_line(shlex.join(record.command)) or "not known", language="sh", wrap_lines=True)
    st.text("to boot this cell again")
    st.code(one_line(reproduce.command(record, whole.command)), language="sh", wrap_lines=True)
    st.text("this boot in a terminal")
    st.code(f"coldstart show {shlex.quote(one_line(record.boot_id))}", language="sh")


def table(rows: Rows, none: str) -> None:
    """Rows as a table without an index, or in words that there are none."""
    if rows:
        st.dataframe(rows, hide_index=True, width="stretch", row_height=None)
    elif none:
        st.text(none)


def lines(texts: Sequence[str]) -> None:
    if texts:
        st.text("\n".join(map(one_line, texts)))


def said(words: str) -> None:
    if words:
        st.caption(text.plain(words))


def links(found: Mapping[str, str]) -> None:
    """Links of our own making, one after the other."""
    st.markdown(" | ".join(f"[{name}]({link})" for name, link in found.items() if link))
