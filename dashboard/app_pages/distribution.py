"""Distribution: how first tokens of warm requests scatter, and how cold ones compare."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard import bins, place, state, text
from dashboard.ask import ask
from dashboard.charts import palette
from dashboard.charts.histogram import Row, histograms
from dashboard.charts.strip import MOST, Strip, strips
from dashboard.data.distribution import Sample, samples
from dashboard.data.series import Series, all_series
from dashboard.source import empty
from pytest_coldstart import units
from pytest_coldstart.derive import P99_NEEDS
from pytest_coldstart.metrics import METRICS

#: Series that are shown, and warm requests of each.
_SERIES, _REQUESTS = 12, 5000
_RUNS = ("1", "3", "10", "30")


def main() -> None:
    home = place.home()
    series = ask(home, all_series)
    if not series:
        raise empty(home)
    st.title("Distribution")
    found = state.filtered(series)
    runs = int(state.choice("runs", _RUNS, label="newest runs of each series"))
    if not found:
        st.info(f"None of {len(series)} series is left; clear a filter.")
        return
    shown = found[:_SERIES]
    if len(found) > len(shown):
        st.caption(f"The {len(shown)} series seen last of {len(found)}; filter for others.")
    taken = ask(home, samples, tuple(item.id for item in shown), runs, _REQUESTS)
    names = {item.id: f"{item.engine} {item.cell_id}" for item in shown}
    _warm(shown, taken, names)
    _cold(shown, taken, names)


def _warm(shown: Sequence[Series], taken: Sequence[Sample], names: dict[str, str]) -> None:
    st.subheader("Jitter of the first token", help=text.plain(METRICS["warm_ttft_p50"].help))
    rows = [Row(names[item.id], item.engine, one.warm) for item, one in zip(shown, taken, strict=True) if one.warm]
    engines = sorted({item.engine for item in shown})
    if rows:
        st.altair_chart(histograms(rows, dict(zip(engines, palette.others(len(engines)), strict=True))))
        st.caption(
            "One row a series, no two mixed; all rows have the same bins and the same height for the same share of their requests. "
            f"Solid: p50. Dashed: p99, with fewer than {P99_NEEDS} requests the maximum. Warm requests alone, without the one "
            "that warm\\_first\\_token is judged on and without other prompt lengths."
        )
    else:
        st.info("No warm request gave a token in these runs.")
    if any(one.cut for one in taken):
        st.caption(f"Of each series the newest {_REQUESTS} requests alone.")
    st.dataframe(
        [_row(item, one, names) for item, one in zip(shown, taken, strict=True)],
        width="stretch",
        hide_index=True,
        column_config={
            "jitter": st.column_config.TextColumn(help=text.plain(METRICS["ttft_jitter"].help)),
            "skew": st.column_config.TextColumn(help=text.plain(METRICS["ttft_skew"].help)),
            "trend": st.column_config.LinkColumn(display_text="trend"),
        },
    )


def _row(item: Series, one: Sample, names: dict[str, str]) -> dict[str, str]:
    found = bins.summary(one.warm)
    high = units.show(found.high, "s") if found else "unmeasured"
    return {
        "series": names[item.id],
        "model": item.model,
        "hardware class": item.hardware,
        "N": str(len(one.warm)),
        "p50": units.show(found.p50, "s") if found else "unmeasured",
        "p99": high if found and found.is_p99 else f"unmeasured: needs {P99_NEEDS}",
        "max": units.show(max(one.warm), "s") if one.warm else "unmeasured",
        "jitter": units.show(found.jitter, "s") if found and found.jitter is not None else "unmeasured",
        "skew": units.show(found.skew, "count") if found and found.skew is not None else "unmeasured",
        "boots": f"{one.boots} ({one.failed} failed)" if one.failed else str(one.boots),
        "runs": str(one.runs),
        "without a token": str(one.silent),
        "trend": place.trend(item.id, "ttft_jitter"),
    }


def _cold(shown: Sequence[Series], taken: Sequence[Sample], names: dict[str, str]) -> None:
    st.subheader("Cold against warm", help=text.plain(METRICS["first_ttft"].help))
    rows = [
        Strip(names[item.id], one.warm, one.cold)
        for item, one in zip(shown, taken, strict=True)
        if one.warm or one.cold
    ]
    if not rows:
        st.info("No request gave a token in these runs.")
        return
    st.altair_chart(strips(rows))
    every = [value for row in rows for value in (*row.warm, *row.cold)]
    scale = "The axis is logarithmic. " if bins.logarithmic(every) else ""
    thinned = any(len(values) > MOST for row in rows for values in (row.warm, row.cold))
    drawn = f"Of more than {MOST} requests of a series, {MOST} evenly over their ranks are drawn." if thinned else ""
    st.caption(f"Diamonds: the first request of each boot (cold). Ticks: warm requests. {scale}{drawn}")
    st.dataframe([_compared(row) for row in rows], width="stretch", hide_index=True)


def _compared(row: Strip) -> dict[str, str]:
    first, later = bins.summary(row.cold), bins.summary(row.warm)
    return {
        "series": row.name,
        "cold p50": f"{units.show(first.p50, 's')} of {first.number}" if first else "unmeasured",
        "warm p50": f"{units.show(later.p50, 's')} of {later.number}" if later else "unmeasured",
        "cold over warm": f"{first.p50 / later.p50:.1f} x" if first and later and later.p50 else "unmeasured",
    }


main()
