"""Overview: are we inside our SLOs now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from dashboard import place, state, text, tiles
from dashboard.ask import ask
from dashboard.charts.sparkline import sparkline
from dashboard.data.overview import RunMedian, branches, medians, standings
from dashboard.data.series import all_series
from dashboard.source import empty
from dashboard.tiles import SLOS, Tile
from pytest_coldstart.metrics import METRICS

#: Tiles, and rows of the table of SLOs, at most.
_MOST, _MOST_SLOS = 24, 2000
#: Characters of a reason or a name on a tile.
_LENGTH = 160
#: No branch can have a space in its name.
_EVERY = "every branch"

#: The colour and the mark of each verdict; the word stands beside them.
_MARKS = {
    "fail": ("red", "close"),
    "unmeasured": ("orange", "question_mark"),
    "not judged": ("gray", "remove"),
    "pass": ("green", "check"),
    "n/a": ("gray", "block"),
}
_BADGES = {word: f":{colour}-badge[:material/{mark}: {word}]" for word, (colour, mark) in _MARKS.items()}
_WORDS = {word: f":{colour}[:material/{mark}: {word}]" for word, (colour, mark) in _MARKS.items()}
_STALE = ":orange-badge[:material/schedule: stale]"
_ANSWERS = {"fail": (st.error, "close"), "stale": (st.warning, "schedule"), "pass": (st.success, "check")}


def main() -> None:
    home = place.home()
    series = ask(home, all_series)
    if not series:
        raise empty(home)
    st.title("Overview")
    top = st.container()
    shown = state.filtered(series)
    branch = _branch(ask(home, branches))
    if not shown:
        st.info(f"None of {len(series)} series is left; clear a filter.")
        return
    now = datetime.now(UTC).replace(tzinfo=None)
    found = tiles.tiles(shown, ask(home, standings, branch), now, branch is None)
    if len(found) < len(shown):
        st.caption(f"{len(shown) - len(found)} series have no run on this branch that is none of a gate.")
    if not found:
        return
    with top:
        sentence, bad = tiles.answer(found)
        show, icon = _ANSWERS[bad]
        show(text.plain(sentence), icon=f":material/{icon}:")
    ids = tuple(tile.series.id for tile in found[:_MOST])
    _grid(found[:_MOST], ask(home, medians, ids, SLOS[0], branch), now)
    _tables(found, now)


def _branch(names: Sequence[str]) -> str | None:
    if len(names) < 2 and "branch" not in st.query_params:
        return None
    help = "The newest run of each series on this branch. Runs of gates are left out: they boot any two commits."
    chosen = state.choice("branch", [_EVERY, *names], label="branch", help=help)
    return None if chosen == _EVERY else chosen


def _grid(found: Sequence[Tile], runs: dict[str, tuple[RunMedian, ...]], now: datetime) -> None:
    with st.container(horizontal=True, gap="small"):
        for tile in found:
            with st.container(border=True, width=352, gap="small"):
                _tile(tile, runs.get(tile.series.id, ()), now)


def _tile(tile: Tile, runs: Sequence[RunMedian], now: datetime) -> None:
    item = tile.series
    badges = f"{_BADGES.get(tile.verdict, text.plain(tile.verdict))} {_STALE if tile.stale else ''}"
    st.markdown(f"**{_short(item.engine)}** {_short(item.cell_id)}  \n{badges}")
    st.caption(_short(f"tier {item.tier}, {item.test.partition('[')[0]}"))
    st.markdown(_slos(tile), help=_help(tile))
    if runs:
        metric = METRICS[SLOS[0]]
        st.vega_lite_chart(spec=sparkline(runs, metric, tile.bound), width="stretch", key=f"sparkline-{item.id}")
    st.caption("  \n".join(_short(word) for word in (*_notes(tile), _last(tile, now))))
    with st.container(horizontal=True, gap="small"):
        _link("trend", place.TREND, "Trend", series=item.id, metric=tile.first)
        if tile.standing:
            _link("boot", place.BOOT, "Newest boot", boot=tile.standing.boot_id)
            if tile.standing.failed_boot not in (None, tile.standing.boot_id):
                _link("boot", place.BOOT, "Failed boot", boot=str(tile.standing.failed_boot))


def _slos(tile: Tile) -> str:
    """A line an SLO: its name, value, bound and verdict."""
    lines = []
    for name, item in tile.slos:
        verdict = item.verdict if item else "not judged"
        value = f" **{text.plain(tiles.value(item))}**" if item and item.value is not None else ""
        bound = f" ({text.plain(tiles.bound(item))})" if item else ""
        lines.append(f":small[{text.plain(name)}{value}{bound} {_WORDS.get(verdict, text.plain(verdict))}]")
    return "  \n".join(lines)


def _help(tile: Tile) -> str:
    """The definitions of the metrics on the tile."""
    names = dict.fromkeys(name for name, _ in tile.slos if name in METRICS)
    return "\n\n".join(f"**{text.plain(name)}**: {text.plain(METRICS[name].help)}" for name in names)


def _notes(tile: Tile) -> list[str]:
    """Why it is stale, why a boot failed, and why a broken SLO has no value."""
    found = [f"Stale: {tile.stale}."] if tile.stale else []
    if tile.standing and tile.standing.failed:
        found.append(f"Failed: {tile.standing.failure or 'no reason is stored'}")
    reasons = [(name, item.reason) for name, item in tile.slos if item and item.verdict == "unmeasured" and item.reason]
    return [*found, *(f"{name}: {reason}" for name, reason in reasons)]


def _last(tile: Tile, now: datetime) -> str:
    run = tile.standing
    if run is None:
        return "Only gates have booted this series; their runs are not judged here."
    wrong = [f"{count} {word}" for count, word in ((run.failed, "failed"), (run.errors, "error")) if count]
    boots = f"{run.boots} boot{'s' if run.boots != 1 else ''}{' (' + ', '.join(wrong) + ')' if wrong else ''}"
    words = [
        f"Last run {text.age(run.last, now)} ({text.moment(run.last)})",
        boots,
        run.branch and f"branch {run.branch}",
    ]
    return ", ".join(word for word in words if word)


def _short(words: str) -> str:
    return text.plain(words if len(words) <= _LENGTH else f"{words[: _LENGTH - 3]}...")


def _link(page: str, name: str, label: str, **query: str) -> None:
    st.page_link(f"app_pages/{page}.py", label=label, query_params=place.asked(**query), width="content")


def _tables(found: Sequence[Tile], now: datetime) -> None:
    st.subheader("All series")
    if len(found) > _MOST:
        st.caption(f"The tiles are the {_MOST} worst of {len(found)} series; all of them are in this table.")
    links = {
        "trend": st.column_config.LinkColumn(display_text="trend"),
        "newest boot": st.column_config.LinkColumn(display_text="boot"),
    }
    helps = {name: st.column_config.TextColumn(help=text.plain(METRICS[name].help)) for name in SLOS}
    st.dataframe(tiles.rows(found, now), width="stretch", hide_index=True, column_config={**links, **helps})
    with st.expander("Every SLO of the newest runs"):
        rows = tiles.slo_rows(found)
        if len(rows) > _MOST_SLOS:
            st.caption(f"The first {_MOST_SLOS} of {len(rows)}, those of the worst series.")
        st.dataframe(rows[:_MOST_SLOS], width="stretch", hide_index=True)


main()
