"""Matrix: any metric over any two axes, and which config to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import pareto_front, place, state, text
from dashboard.ask import ask
from dashboard.charts.heatmap import heatmap, legend
from dashboard.charts.pareto import pareto
from dashboard.data.matrix import Result, results
from dashboard.data.newest import configs
from dashboard.data.series import Series, all_series
from dashboard.matrix_rows import Square, label, ordered, places, squares
from dashboard.pareto_front import Candidate
from dashboard.source import empty
from pytest_coldstart import units
from pytest_coldstart.metrics import METRICS, Metric

#: Series that the front is made of, at most.
_MOST = 300


def main() -> None:
    home = place.home()
    series = ask(home, all_series)
    if not series:
        raise empty(home)
    st.title("Matrix")
    shown = state.filtered(series)
    if not shown:
        st.info(f"None of {len(series)} series is left; clear a filter.")
        return
    found = places(shown, ask(home, configs))
    metric, axes = _chosen(list(found))
    st.caption(f"{text.plain(metric.name)}: {text.plain(metric.help)}")
    read = ask(home, results, *dict.fromkeys((metric.name, *pareto_front.TIMES, *pareto_front.MEMORY)))
    _maps(squares(shown, found, axes, read, metric), axes, metric)
    st.subheader("Which config should I run")
    _front(shown, read)


def _chosen(names: list[str]) -> tuple[Metric, tuple[str, str]]:
    left, middle, right = st.columns(3)
    with left:
        metric = METRICS[state.choice("metric", list(METRICS), label="metric")]
    with middle:
        x = state.choice("x", names, show=label, label="across")
    others = [name for name in names if name != x]
    if st.session_state.get("y", st.query_params.get("y")) == x:
        st.session_state["y"] = others[0]
    with right:
        y = state.choice("y", others, show=label, label="down")
    return metric, (x, y)


def _maps(found: Sequence[Square], axes: tuple[str, str], metric: Metric) -> None:
    for tier in ordered(item.tier for item in found):
        if tier:
            st.markdown(f"**Tier {text.plain(tier)}**")
        part = [item for item in found if item.tier == tier]
        st.altair_chart(heatmap(part, axes, metric, found, tier, lambda item: place.trend(item.series, metric.name)))
    st.caption(
        "A square is the median over the boots that count of the newest run of a series (a gate's runs are left out); "
        f"several series in it: the worst one. {text.plain(legend(found, metric))} A red border with \u2717: an SLO is broken; "
        "dashed with ?: it is unmeasured, which counts as broken. Stripes: unmeasured. A square leads to its trend."
    )
    st.dataframe(
        _rows(found, axes, metric),
        width="stretch",
        hide_index=True,
        column_config={"trend": st.column_config.LinkColumn(display_text="trend")},
    )


def _rows(found: Sequence[Square], axes: tuple[str, str], metric: Metric) -> list[dict[str, str]]:
    ranks = {
        name: rank for rank, name in enumerate(ordered(word for item in found for word in (item.tier, item.y, item.x)))
    }
    return [
        {
            label(axes[1]): item.y,
            label(axes[0]): item.x,
            **({"tier": item.tier} if item.tier else {}),
            metric.name: item.shown,
            "SLO": item.mark or "-",
            "series": str(item.number),
            "note": "; ".join(item.notes) or "-",
            "trend": place.trend(item.series, metric.name),
        }
        for item in sorted(found, key=lambda item: (ranks[item.tier], ranks[item.y], ranks[item.x]))
    ]


def _front(shown: Sequence[Series], found: Mapping[tuple[str, str], Result]) -> None:
    groups: dict[str, list[Series]] = {}
    for item in shown:
        groups.setdefault(" | ".join((item.model or "no model", item.tier, item.hardware)), []).append(item)
    names = sorted(groups, key=lambda name: (-_measured(groups[name], found), name))
    chosen = groups[state.choice("among", names, label="model | tier | hardware class")]
    memory = pareto_front.memory_metric(chosen, found)
    placed, left = pareto_front.front(chosen[:_MOST], found, memory)
    st.caption(
        "Only series of one model, tier and hardware class are compared. A config is on the Pareto front if no other is at least "
        f"as good in all of {text.plain(', '.join((*pareto_front.TIMES, memory)))} and better in one, by the medians of the "
        "newest runs: whether a small difference is one, the page Compare tells. The size of a mark is its memory."
    )
    if len(chosen) > _MOST:
        st.caption(f"The {_MOST} series seen last of {len(chosen)} are compared.")
    words = {item.id: f"{item.engine} {item.cell_id}" for item in chosen}
    if placed:
        st.altair_chart(pareto(placed, words, memory))
        st.dataframe(_placed(placed, words, memory), width="stretch", hide_index=True, column_config=_helps(memory))
    else:
        st.info("No config has all three numbers.")
    if left:
        st.markdown("**Left out**")
        st.dataframe(
            [{"config": words[item.series], "why": item.why} for item in left], width="stretch", hide_index=True
        )


def _measured(group: Sequence[Series], found: Mapping[tuple[str, str], Result]) -> int:
    times = [found.get((item.id, pareto_front.TIMES[0])) for item in group]
    return sum(one is not None and one.value is not None for one in times)


def _placed(placed: Sequence[Candidate], words: Mapping[str, str], memory: str) -> list[dict[str, str]]:
    names = (*pareto_front.TIMES, memory)
    return [
        {
            "": str(number),
            "config": words[item.series],
            "on the front": "yes" if item.best else "no",
            **{name: units.show(value, METRICS[name].unit) for name, value in zip(names, item.values, strict=True)},
            "dominated by": _list([words[other] for other in item.dominated]),
        }
        for number, item in enumerate(placed, 1)
    ]


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more if names else "-"


def _helps(memory: str) -> dict[str, Any]:
    return {
        name: st.column_config.TextColumn(help=text.plain(METRICS[name].help)) for name in (*pareto_front.TIMES, memory)
    }


main()
