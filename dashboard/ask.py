"""Questions to the store, each asked once for each state of its file.

While a run writes, the database is locked for a moment: what was answered last is shown meanwhile, and said to be so.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import duckdb
import streamlit as st

from dashboard.source import Held, opened
from pytest_coldstart.store.home import Home

P = ParamSpec("P")
T = TypeVar("T")

#: Size and time of the database and of its log: what changes whenever a run has written.
Stamp = tuple[tuple[int, int, int] | None, ...]

#: Answers that are kept for all pages and readers together.
_KEPT = 400
#: Seconds to wait for the lock where an older answer can be shown instead.
_IMPATIENT = 0.2


@dataclass
class _Answers:
    lock: threading.Lock = field(default_factory=threading.Lock)
    kept: OrderedDict[Any, tuple[Stamp, Any]] = field(default_factory=OrderedDict)


@st.cache_resource(show_spinner=False)
def _answers() -> _Answers:
    return _Answers()


def ask(
    home: Home, question: Callable[Concatenate[duckdb.DuckDBPyConnection, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """``question(connection, *args)``, from memory where the store has not changed since. The answer is shared: nobody may
    change it. Arguments are hashable.

    :raises Unusable: the store cannot be read, and nothing was answered before.
    """
    answers, seen = _answers(), stamp(home)
    key = (str(home.database), question.__module__, question.__qualname__, args, tuple(sorted(kwargs.items())))
    with answers.lock:
        kept = answers.kept.get(key)
        if kept is not None:
            answers.kept.move_to_end(key)
    if kept is not None and kept[0] == seen:
        return kept[1]  # type: ignore[no-any-return]
    try:
        with opened(home, *((_IMPATIENT,) if kept is not None else ())) as con:
            answer = question(con, *args, **kwargs)
    except Held:
        if kept is None:
            raise
        st.session_state["held"] = True
        return kept[1]  # type: ignore[no-any-return]
    with answers.lock:
        answers.kept[key] = (seen, answer)
        while len(answers.kept) > _KEPT:
            answers.kept.popitem(last=False)
    return answer


def stamp(home: Home) -> Stamp:
    """The state of the store's file, without opening it."""
    return _of(home.database), _of(Path(f"{home.database}.wal"))


def _of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
