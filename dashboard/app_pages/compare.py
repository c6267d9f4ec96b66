"""Compare: two boots, runs, commits or configs."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard import compare_view, place, state
from dashboard.ask import ask
from dashboard.compare_rows import Cell, Comparison
from dashboard.data import sides
from dashboard.data.compare import Answer, Asked, answer
from dashboard.data.sides import BOOTS, COMMITS, CONFIGS, KINDS
from dashboard.source import empty
from pytest_coldstart.gate.match import ALLOWED
from pytest_coldstart.gate.policy import find
from pytest_coldstart.report.columns import one_line
from pytest_coldstart.stats.decision import OUTCOMES
from pytest_coldstart.store.home import Home

#: How many of the newest runs of a config are compared.
DEPTHS = {"1": "newest run", "5": "newest 5 runs", "20": "newest 20 runs"}
#: What of the hardware is never compared here.
_HARDWARE = ("gpu", "hardware")


def main() -> None:
    home = place.home()
    st.title("Compare")
    kind = state.choice("kind", list(KINDS), label="compare two")
    listed = ask(home, sides.listed, kind)
    if not listed and not ask(home, sides.listed, BOOTS):
        raise empty(home)
    words = {item.id: item.words for item in listed}
    base, head = _sides(home, kind, words)
    asked = _asked(kind, base, head)
    found = ask(home, answer, asked)
    compare_view.sides(found)
    if found.comparison is not None:
        _shown(home, asked, found, found.comparison)


def _sides(home: Home, kind: str, words: dict[str, str]) -> tuple[str, str]:
    """The base and the head: those of the address, unless another kind was chosen since."""
    fresh = st.session_state.get("compared kind") not in (None, kind)
    st.session_state["compared kind"] = kind
    usual = dict(zip(("base", "head"), ask(home, sides.usual, kind), strict=True))
    found = []
    for column, name in zip(st.columns(2), ("base", "head"), strict=True):
        if fresh or name not in st.session_state:
            asked = "" if fresh else st.query_params.get(name, "")
            st.session_state[name] = asked or usual[name] or None
        with column:
            found.append(_picked(name, kind, words))
    st.button("Swap base and head", on_click=_swap)
    return found[0], found[1]


def _picked(name: str, kind: str, words: dict[str, str]) -> str:
    now = st.session_state[name]
    picked = st.selectbox(
        name,
        [*words, *([now] if now and now not in words else ())],
        format_func=lambda id: one_line(words.get(str(id), str(id))),
        key=name,
        accept_new_options=True,
        placeholder=f"an id of a {KINDS[kind][0]}, or its beginning",
        help=f"The newest {sides.LISTED} are listed; any id, or the beginning of one, can be typed.",
    )
    word = str(picked or "").strip()
    st.query_params[name] = word
    return word


def _swap() -> None:
    now = st.session_state
    now["base"], now["head"] = now["head"], now["base"]


def _asked(kind: str, base: str, head: str) -> Asked:
    gates, depth = False, 1
    allow: tuple[str, ...] = ()
    if kind == COMMITS:
        gates = state.switch("gates", "with runs of gates", "Their boots are of any two commits, in random order.")
    if kind == CONFIGS:
        depth = int(state.choice("depth", list(DEPTHS), lambda key: DEPTHS[key], "boots of"))
    if kind not in (BOOTS, CONFIGS):
        allow = tuple(_allowed())
    policy = find((), Path.cwd())
    changed = policy.stat().st_mtime_ns if policy and policy.exists() else 0
    return Asked(kind, base, head, gates, depth, allow, (str(policy), changed) if policy else None)


def _allowed() -> list[str]:
    """What may differ between cells that are compared; none where nothing is chosen."""
    names = [name for name in ALLOWED if name not in _HARDWARE]
    asked = [name for name in st.query_params.get_all("allow") if name not in (*names, *_HARDWARE)]
    found: list[str] = st.multiselect(
        "may differ",
        [*names, *asked],
        key="allow",
        bind="query-params",
        placeholder="nothing",
        help="What may differ between two cells that are compared, as coldstart gate --allow takes it.",
    )
    return found


def _shown(home: Home, asked: Asked, found: Answer, comparison: Comparison) -> None:
    query = {"kind": asked.kind, "base": found.base.id, "head": found.head.id}
    compare_view.unmatched(comparison, asked.allow, {**query, **({"gates": "true"} if asked.gates else {})})
    if not comparison.cells:
        compare_view.commands(found, None, home)
        return
    compare_view.judged(comparison)
    if len(comparison.cells) > 1:
        compare_view.cells(comparison)
    cell = _cell(comparison)
    compare_view.headline(cell)
    compare_view.metrics(cell)
    compare_view.phases(cell)
    compare_view.caches(cell)
    compare_view.environment(cell)
    compare_view.commands(found, cell, home)
    compare_view.boots(cell)


def _cell(comparison: Comparison) -> Cell:
    """The cell that the address names, else the one with the worst outcome."""
    order = {word: place for place, word in enumerate(OUTCOMES)}
    found = {cell.key: cell for cell in sorted(comparison.cells, key=lambda cell: order.get(cell.outcome, len(order)))}
    if len(found) == 1:
        return next(iter(found.values()))
    if st.query_params.get("cell") not in found:  # one of the comparison that was shown before
        st.query_params.pop("cell", None)
    key = state.choice("cell", list(found), lambda key: f"{found[key].name} | {found[key].tier} | {found[key].outcome}")
    return found[key]


main()
