"""The sections of the page Compare, from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard import gate_command, place, text
from dashboard.charts import difference, ratios
from dashboard.charts.ratios import interval_words
from dashboard.compare_rows import NOT_JUDGED, Cell, Comparison, Row, measured, rows
from dashboard.data.compare import Answer, offered
from dashboard.data.sides import Chosen
from dashboard.phase_steps import NOT_ADDING
from pytest_coldstart.gate.comparison import MetricChange, Summary
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.report import gate_words
from pytest_coldstart.report.columns import one_line
from pytest_coldstart.stats.decide import NOT_DRAWN
from pytest_coldstart.store.home import Home

COLD_START = "cold_start"
#: Cells of one side alone, and refusals, that are listed before the rest is counted.
_LISTED = 12


def sides(answer: Answer) -> None:
    """What is compared."""
    for side in (answer.base, answer.head):
        if side.problem:
            st.error(text.plain(f"{side.name}: {one_line(side.problem)}."))
        else:
            notes = "".join(f"; {note}" for note in side.notes)
            st.text(one_line(f"{side.name}: {side.text}, {_boots(len(side.boots), _failed(answer, side))}{notes}"))
    if answer.problem:
        st.error(text.plain(one_line(answer.problem)))


def _failed(answer: Answer, side: Chosen) -> int:
    report = answer.comparison.report if answer.comparison else None
    if report is not None:
        return (report.base if side.name == "base" else report.head).failed
    place_ = 0 if side.name == "base" else 1
    return sum(cell.failed[place_] for cell in answer.comparison.cells) if answer.comparison else 0


def _boots(number: int, failed: int) -> str:
    words = f"{number} boot{'' if number == 1 else 's'} that count{'s' if number == 1 else ''}"
    return f"{words} ({failed} failed)" if failed else words


def unmatched(comparison: Comparison, allow: Sequence[str], query: dict[str, str]) -> None:
    """Cells that are not compared, and why; with links that allow what differs."""
    if comparison.missing:
        st.warning(text.plain(f"Medians alone, without intervals and outcomes: {comparison.missing}."))
    if not comparison.cells:
        st.warning("The two sides have no cell in common that can be compared. What differs:")
    lines = [f"not compared: {reason}" for reason in comparison.refused]
    lines += list(comparison.notes)
    if lines:
        shown = gate_words.first_of(lines, _LISTED)
        with st.expander(f"{len(lines)} remarks on what is compared", expanded=not comparison.cells):
            st.text("\n".join(map(one_line, shown)))
    new = [word for word in offered(comparison.refused) if word not in allow]
    if new:
        address = place.link(place.COMPARE, **query, allow=[*allow, *new])
        st.markdown(f"[Compare cells that differ in {text.plain(', '.join(new))} all the same]({address})")


def judged(comparison: Comparison) -> None:
    """By what the outcomes were found, and the head's SLOs that do not hold."""
    report = comparison.report
    if report is None:
        return
    if report.cells:
        words = f"Judged as coldstart gate does: {gate_words.counts(report)}; alpha {report.alpha:.3g}, policy {report.policy}"
        st.caption(text.plain(words))
    if report.broken:
        st.warning("SLOs of the head that are broken, which alone fails a gate:")
        st.text("\n".join(map(one_line, gate_words.first_of(report.broken, _LISTED))))


def cells(comparison: Comparison) -> None:
    """One line a cell, the worst first."""
    st.dataframe(
        [
            {
                "cell": one_line(cell.name),
                "tier": cell.tier,
                "outcome": cell.outcome,
                "cold_start": _headline(cell),
                "boots": f"{len(cell.base)} against {len(cell.head)}",
                "failed": f"{cell.failed[0]} against {cell.failed[1]}",
            }
            for cell in comparison.cells
        ],
        width="stretch",
        hide_index=True,
    )


def _headline(cell: Cell) -> str:
    row = next((row for row in rows(cell) if row.metric == COLD_START), None)
    return "unmeasured" if row is None else f"{_ratio(row)} [{interval_words(row)}]"


def headline(cell: Cell) -> None:
    """The outcome, the ratio of cold_start with its interval, and what has to be said of them."""
    row = next((row for row in rows(cell) if row.metric == COLD_START), None)
    left, right = st.columns([1, 2])
    with left:
        if row is not None:
            st.metric("cold\\_start, head over base", _ratio(row), help=text.plain(METRICS[COLD_START].help))
            st.caption(f"95 % interval: {interval_words(row)}")
    with right:
        st.markdown(f"**{cell.outcome}**" if cell.outcome != NOT_JUDGED else f"**{NOT_JUDGED}**")
        if row is not None:
            unit = METRICS[COLD_START].unit
            base, head = (gate_words.value_words(side, unit) for side in (row.base, row.head))
            st.text(f"base {base} (n = {len(cell.base)}), head {head} (n = {len(cell.head)})")
        st.text("\n".join(one_line(line) for line in _said(cell)))
    if min(len(cell.base), len(cell.head)) == 1:
        st.info("One boot on a side: a difference of times may be chance, and no interval can be given.")


def _said(cell: Cell) -> list[str]:
    lines = [cell.why] if cell.why else []
    if not cell.interleaved:
        lines.append(NOT_DRAWN)
    lines += [f"{change.metric} {change.outcome}: {_own(change)}" for change in cell.changes if _own(change)]
    return [*lines, *cell.notes]


def _own(change: MetricChange) -> str:
    """The reason of a change without what is said of the whole cell."""
    return change.reason.replace(NOT_DRAWN, "").strip("; ")


def metrics(cell: Cell) -> None:
    """The chart and the table of every metric."""
    st.subheader("Metrics")
    found = rows(cell)
    shown = ratios.drawn(found)
    if shown:
        st.altair_chart(ratios.ratios(found), width="stretch")
        left = len(found) - len(shown)
        st.caption(
            f"Head over base; those that moved most on top{f', {left} more metrics are in the table alone' if left else ''}. "
            "Worse and better say which way a metric with an interval on one side of 1 moved. Each interval is at 95 % for "
            "itself: of a hundred equal metrics about five lie beside 1. Outcomes are the gate's."
        )
    else:
        st.info("No metric has a ratio: nothing is measured and finite on both sides.")
    helps = {"metric": st.column_config.TextColumn(pinned=True), "why": st.column_config.TextColumn(width="large")}
    st.dataframe([_line(row) for row in found], width="stretch", hide_index=True, column_config=helps)
    with st.expander("What the metrics are"):
        st.dataframe(
            [{"metric": row.metric, "better": METRICS[row.metric].better, "definition": METRICS[row.metric].help} for row in found],
            width="stretch",
            hide_index=True,
        )  # fmt: skip


def _line(row: Row) -> dict[str, str]:
    unit = METRICS[row.metric].unit
    return {
        "metric": row.metric,
        "base": gate_words.value_words(row.base, unit),
        "head": gate_words.value_words(row.head, unit),
        "ratio": _ratio(row),
        "interval": interval_words(row),
        "n": f"{_n(row.base)} against {_n(row.head)}",
        "outcome": row.outcome,
        "moved": row.points,
        "why": one_line(row.why) or "-",
    }


def _n(side: Summary) -> str:
    return f"{measured(side)}{f' ({side.failed} failed)' if side.failed else ''}"


def _ratio(row: Row) -> str:
    return "-" if row.ratio is None else f"x {row.ratio:.3g}"


def phases(cell: Cell) -> None:
    """The waterfall of the difference."""
    st.subheader("Where the difference is")
    found = cell.steps
    if found.problem:
        st.info(text.plain(one_line(found.problem)))
    else:
        st.altair_chart(difference.difference(found.steps), width="stretch")
        words = "One boot a side: the changes add up to the difference of cold_start."
        if not found.exact:
            words = "Medians of cold_start and of each phase."
        if any(step.name == NOT_ADDING for step in found.steps):
            words += f" The median of a sum is not the sum of medians: the bar '{NOT_ADDING}' is what is left."
        failed = f" Failed boots that are left out: {found.failed}." if found.failed else ""
        st.caption(text.plain(words + failed))
    if found.unmeasured:
        st.caption(text.plain(f"Unmeasured phases: {'; '.join(f'{name}: {one_line(why)}' for name, why in found.unmeasured[:3])}"
                              f"{' ...' if len(found.unmeasured) > 3 else ''}"))  # fmt: skip


def caches(cell: Cell) -> None:
    st.subheader("Caches that were used otherwise")
    if cell.caches:
        st.text("\n".join(map(one_line, cell.caches)))
    else:
        st.text("No cache was used otherwise on one side than on the other, as far as their inventories tell.")


def environment(cell: Cell) -> None:
    st.subheader("What differs between the environments")
    if not cell.differences:
        st.text("Nothing that is stored differs.")
        return
    table = [{"what": one_line(item.what), "base": one_line(item.base), "head": one_line(item.head)} for item in cell.differences]  # fmt: skip
    st.dataframe(table, width="stretch", hide_index=True)


def commands(answer: Answer, cell: Cell | None, home: Home) -> None:
    """The gate that decides it."""
    st.subheader("Decide it")
    command, note = gate_command.stored(answer.base, answer.head, cell, answer.allow, home)
    if command:
        st.code(command, language="sh", wrap_lines=True)
    if note:
        st.caption(text.plain(note))
    report = answer.comparison.report if answer.comparison else None
    again = gate_command.interleaved(report, [cell.nodeid] if cell else [])
    if again:
        st.caption("Both commits booted now, in random order, so that a drift of the machine is in neither:")
        st.code(again, language="sh", wrap_lines=True)
    if cell and cell.reproduce:
        st.caption("One boot of the head's cell:")
        st.code(cell.reproduce, language="sh", wrap_lines=True)


def boots(cell: Cell) -> None:
    """Links to the boots of both sides."""
    with st.expander(f"Boots: {len(cell.base)} against {len(cell.head)}"):
        table = [
            {"side": side, "boot": id, "open": place.boot(id)}
            for side, ids in (("base", cell.base), ("head", cell.head))
            for id in ids
        ]
        st.dataframe(
            table,
            width="stretch",
            hide_index=True,
            column_config={"open": st.column_config.LinkColumn(display_text="open")},
        )
