"""Runs: every run with what it ran on and what came of it, downloads, and whether the store is whole."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard import download, place, run_rows, state, text
from dashboard.ask import Stamp, ask, stamp
from dashboard.data import health
from dashboard.data.runs import Detail, Run, count, detail, run, runs, within
from dashboard.data.series import all_series
from dashboard.source import empty, named
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.store.home import Home

#: Runs, boots of a run, and boots in one download, at most.
_MOST_RUNS, _MOST_BOOTS, _MOST_DOWNLOADED = 500, 500, 10_000


def main() -> None:
    home = place.home()
    if not ask(home, all_series):
        raise empty(home)
    st.title("Runs")
    found = ask(home, runs, _MOST_RUNS)
    total = ask(home, count)
    if total > len(found):
        st.caption(f"The newest {len(found)} of {total} runs.")
    _listed(found)
    _downloads(home, found)
    st.subheader("One run")
    _detail(home, found)
    st.subheader("Store")
    _health(home)


def _listed(found: Sequence[Run]) -> None:
    links = {
        "CI": st.column_config.LinkColumn(
            display_text="CI job", help="The job's page, where the run has stored where it is."
        ),
        "open": st.column_config.LinkColumn(display_text="open"),
        "gate": st.column_config.TextColumn(help="The side, where the run is one of a gate."),
    }
    st.dataframe(run_rows.listed(found), width="stretch", hide_index=True, column_config=links)


def _downloads(home: Home, found: Sequence[Run]) -> None:
    taken = within(found, _MOST_DOWNLOADED)
    boots = sum(item.boots for item in taken)
    with st.expander("Download the boots of these runs"):
        st.caption(
            f"One row a boot, each metric a column in its unit: {boots} boots of the newest {len(taken)} runs. "
            + (
                f"At most {_MOST_DOWNLOADED} boots are in one download; for all of them run:"
                if taken != tuple(found)
                else ""
            )
        )
        if taken != tuple(found):
            st.code(f"coldstart export --format csv --output boots.csv --store {named(home)}", language="sh")
        if taken:
            _buttons(home, [item.id for item in taken], "coldstart-boots", "these runs")


def _buttons(home: Home, run_ids: Sequence[str], name: str, what: str) -> None:
    """A button a format. The file is made when it is asked for."""
    with st.container(horizontal=True, gap="small"):
        for format, mime in download.MIME.items():
            st.download_button(
                f"{format} of {what}",
                download.maker(home, format, tuple(run_ids)),
                file_name=f"{name}.{format}",
                mime=mime,
                key=f"download-{what}-{format}",
                on_click="ignore",
                icon=":material/download:",
            )


def _detail(home: Home, found: Sequence[Run]) -> None:
    by_id = {item.id: item for item in found}
    asked = st.query_params.get("run")
    older = ask(home, run, asked) if asked and asked not in by_id else None
    if older:
        by_id[older.id] = older
    chosen = state.choice("run", list(by_id), show=lambda id: run_rows.label(by_id[id]), label="run")
    shown = ask(home, detail, chosen, _MOST_BOOTS)
    if shown is None:  # it was pruned since the list was read
        return
    st.caption(
        text.plain(
            f"{run_rows.boots(shown.run)} boots; verdicts: {run_rows.verdicts(shown.run.verdicts)}; {run_rows.ended(shown.run)}"
        )
    )
    if shown.run.ci_url:
        st.link_button(text.plain(f"{shown.run.ci_system} job"), shown.run.ci_url, icon=":material/open_in_new:")
    _buttons(home, [chosen], f"coldstart-{download.file_name(chosen)}", "this run")
    _tables(shown)


def _tables(shown: Detail) -> None:
    boots, verdicts, environment, references = st.tabs(["Boots", "Verdicts", "Environment", "References"])
    with boots:
        if shown.run.boots > len(shown.boots):
            st.caption(f"The newest {len(shown.boots)} of {shown.run.boots} boots.")
        _table(
            run_rows.of_boots(shown.boots),
            "The run has no boots.",
            {
                "open": st.column_config.LinkColumn(display_text="boot"),
                "cold_start": st.column_config.TextColumn(help=text.plain(METRICS["cold_start"].help)),
            },
        )
    with verdicts:
        _table(run_rows.of_verdicts(shown.verdicts), "The run judged no SLO, or ended before it did.")
    with environment:
        _table(run_rows.of_environment(shown), "Nothing is known of the run's environment.")
        if shown.command:
            st.code(shlex.join(shown.command), language="sh", wrap_lines=True)
    with references:
        st.caption(
            "Small fixed work that is timed after each boot's stop: where it is slower than usual, the machine was, not the engine."
        )
        _table(run_rows.of_references(shown.references), "No boot of the run has timed a reference.")
        for item in shown.references:
            st.caption(f"{text.plain(item.metric)}: {text.plain(METRICS[item.metric].help)}")


def _table(rows: Sequence[Mapping[str, str | None]], none: str, columns: Mapping[str, Any] | None = None) -> None:
    if rows:
        st.dataframe(rows, width="stretch", hide_index=True, column_config=dict(columns or {}))
    else:
        st.info(none)


@st.cache_data(ttl=30, show_spinner=False)
def _files(root: str, database: str, seen: Stamp, _ingested: Mapping[str, int]) -> health.Files:
    """Looked up again once the store has changed, and every half minute."""
    return health.files(Home(Path(root), Path(database)), _ingested)


def _health(home: Home) -> None:
    tables = ask(home, health.tables)
    files = _files(str(home.root), str(home.database), stamp(home), tables.ingested)
    left, right = st.columns(2)
    with left:
        _table(run_rows.of_store(tables, files), "")
    with right:
        _table(run_rows.of_counts(tables), "")
    if files.unread:
        st.warning(
            f"Run files that are not in the database as they are: {files.unread_total}.", icon=":material/warning:"
        )
        if files.unread_total > len(files.unread):
            st.caption(f"The first {len(files.unread)} of them.")
        _table(run_rows.of_files(files.unread), "")
        st.text("To take them in (a broken one is named again, with the line at fault):")
        st.code(f"coldstart ingest --store {named(home)}", language="sh")
    else:
        st.success("Every run file beside the database is in it.", icon=":material/check:")
    st.text("To see which runs would go if those of the last 90 days were kept (without --dry-run they go):")
    st.code(f"coldstart prune --keep-days 90 --dry-run --store {named(home)}", language="sh")


main()
