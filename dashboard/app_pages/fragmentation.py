"""Fragmentation: the ratios at ready, held and after, by block size and share of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import fragmentation_rows as view
from dashboard import place, state, text
from dashboard.ask import ask
from dashboard.charts.fragmentation import Row, by, points
from dashboard.data.fragmentation import Found, derived, memories
from dashboard.data.newest import configs
from dashboard.data.series import Series, all_series
from dashboard.source import empty
from pytest_coldstart import fragmentation as of
from pytest_coldstart import units
from pytest_coldstart.metrics import METRICS

#: Series whose memory is read, and those that are drawn point by point.
_READ, _DRAWN = 40, 12


def main() -> None:
    home = place.home()
    series = ask(home, all_series)
    if not series:
        raise empty(home)
    st.title("Fragmentation", help=text.plain(METRICS["fragmentation"].help))
    chosen = state.filtered(series)
    if not chosen:
        st.info(f"None of {len(series)} series is left; clear a filter.")
        return
    shown = {item.id: item for item in chosen[:_READ]}
    if len(chosen) > _READ:
        st.caption(f"The {_READ} series seen last of {len(chosen)}; filter for others.")
    found = ask(home, memories, tuple(shown))
    options = {name: config.options for name, config in ask(home, configs).items() if name in shown}
    _charts([_row(one, shown[one.series], options[one.series]) for one in found], found)
    _impossible(found, shown)
    st.subheader("Ratios")
    st.dataframe(
        [_ratios(one, shown[one.series], options[one.series]) for one in found],
        width="stretch",
        hide_index=True,
        column_config={
            **{f"{part} over the burst": _help(name) for part, name in view.JUDGED.items()},
            "trend": st.column_config.LinkColumn(display_text="trend"),
            "boot": st.column_config.LinkColumn(display_text="boot"),
        },
    )
    st.subheader("Diagnostics")
    st.dataframe(
        [_diagnostics(one, shown[one.series]) for one in found],
        width="stretch",
        hide_index=True,
        column_config={name: _help(name) for name in (*_DIAGNOSTICS, "leaked_gpu_memory")},
    )


def _help(metric: str) -> Any:
    return st.column_config.TextColumn(help=text.plain(METRICS[metric].help))


def _name(item: Series) -> str:
    return f"{item.engine} {item.cell_id}"


def _row(one: Found, item: Series, options: Mapping[str, object]) -> Row:
    found = view.ratios(one.memory) if one.memory else {}
    values = {key: value.value for key, value in found.items() if value.value is not None}
    setting = view.setting(one.memory, options)
    return Row(_name(item), item.engine, setting.block, setting.share.partition(" ")[0], values)


def _charts(rows: Sequence[Row], found: Sequence[Found]) -> None:
    bounds = sorted({bound for one in found for bound in one.bounds} or {view.BOUND})
    drawn = [row for row in rows if row.values]
    if not drawn:
        st.info("Nothing of these series' memory is measured; the table says why.")
        return
    st.subheader("At ready, held and after, and over the burst")
    st.altair_chart(points(drawn[:_DRAWN], bounds))
    st.caption(
        "Of each series the boot of its newest run with the largest fragmentation. What SLOs judge is the line burst: the "
        "allocator by its peaks over the burst, the KV cache while the burst is held. Ready, held and after are diagnostics: at "
        "rest, what is reserved and not active tells of idleness. Combined: the worst part, once each that can exist is measured. "
        f"Dashed: the SLO, {', '.join(units.show(bound, 'fraction') for bound in bounds)}."
    )
    if len(drawn) > _DRAWN:
        st.caption(f"The {_DRAWN} series seen last of {len(drawn)} that have a ratio; filter for others.")
    judged = [row for row in drawn if any(place == view.BURST for place, _ in row.values)]
    if judged:
        st.subheader("By block size")
        st.altair_chart(by(judged, "block", bounds))
        st.subheader("By share of memory")
        st.altair_chart(by(judged, "share", bounds))


def _impossible(found: Sequence[Found], shown: Mapping[str, Series]) -> None:
    """What cannot exist, once for each engine and reason."""
    said: dict[tuple[str, str, str], None] = {}
    for one in found:
        for part, name in view.JUDGED.items():
            if one.memory and name in one.memory.impossible:
                said[shown[one.series].engine, part, one.memory.impossible[name]] = None
    if said:
        st.subheader("What cannot exist")
        st.dataframe(
            [{"engine": engine, "part": part, "why": why} for engine, part, why in sorted(said)],
            width="stretch",
            hide_index=True,
        )


def _ratios(one: Found, item: Series, options: Mapping[str, object]) -> dict[str, str]:
    setting = view.setting(one.memory, options)
    words: dict[str, str] = {}
    for at in reversed(view.PLACES):
        for part, name in view.JUDGED.items():
            title = f"{part} over the burst" if at == view.BURST else f"{part} {at}"
            if one.memory is None:
                words[title] = f"failed: {one.failure}"
            else:
                words[title] = view.said(view.ratio(one.memory, at, part), name, one.memory)
    return {
        "series": _name(item),
        "block size": setting.block,
        "share of memory": setting.share,
        **words,
        "boots": f"{one.boots} ({one.failed} failed)" if one.failed else str(one.boots),
        "boot": place.boot(one.boot_id),
        "trend": place.trend(item.id, "fragmentation"),
    }


_DIAGNOSTICS = {
    "pool_slack_held": of.pool_slack,
    "inactive_split": of.inactive_split,
    "requested_waste": of.requested_waste,
    "stranded": of.stranded,
    "kv_capacity_tokens": of.kv_capacity,
    "graph_memory": of.graph_memory,
}


def _diagnostics(one: Found, item: Series) -> dict[str, str]:
    words = {}
    for name, derive in _DIAGNOSTICS.items():
        words[name] = (
            view.said(derived(derive, one.memory), name, one.memory, METRICS[name].unit)
            if one.memory
            else f"failed: {one.failure}"
        )
    leaked = one.leaked
    return {
        "series": _name(item),
        "leaked_gpu_memory": units.show(leaked.value, "B")
        if leaked.value is not None
        else f"unmeasured: {leaked.reason}",
        "allocator retries": view.retries(one.memory) if one.memory else "unmeasured",
        **words,
        "burst": one.memory.burst.digest or "none" if one.memory else "none",
    }


main()
