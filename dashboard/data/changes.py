"""Where the level of a trend changed, and who has acknowledged it: the history's own search on the runs that are shown."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from dashboard.data.series import Series
from dashboard.data.trend import Trend
from pytest_coldstart.history import acknowledge, points, read
from pytest_coldstart.history.acknowledge import Acknowledgement, Acknowledgements
from pytest_coldstart.history.points import History, Moved
from pytest_coldstart.history.read import RunPoint
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.home import Home

#: How many of the newest runs are searched here; ``coldstart history`` searches more.
SEARCHED = 300

NEEDS = "change points need the extra gate: pip install 'pytest-coldstart[gate]'"


@dataclass(frozen=True)
class Changes:
    """``history``: of the newest runs, which were searched; ``moved``: where the environment changed, by the first run with it,
    over all runs that are shown. ``reason``: why there are no change points, or fewer than there could be."""

    history: History
    moved: tuple[tuple[RunPoint, Moved], ...] = ()
    reason: str = ""


@lru_cache(maxsize=32)
def changes(series: Series, metric: str, trend: Trend, given: tuple[Acknowledgement, ...]) -> Changes:
    """The change points among the newest runs of *trend*, and all moves of its environment; once for each trend read."""
    if _missing():
        return unsearched(series, metric, trend, NEEDS)
    runs = trend.runs
    found = points.history(named(series), metric, runs[-SEARCHED:], given)
    skipped = f"only the newest {SEARCHED} of {len(runs)} runs were searched" if len(runs) > SEARCHED else ""
    return Changes(found, _moved(runs), "; ".join(filter(None, [found.reason, skipped])))


def unsearched(series: Series, metric: str, trend: Trend, reason: str) -> Changes:
    """All moves of the environment alone."""
    return Changes(History(named(series), metric, "", "", trend.runs[-SEARCHED:]), _moved(trend.runs), reason)


def _moved(runs: tuple[RunPoint, ...]) -> tuple[tuple[RunPoint, Moved], ...]:
    return tuple((runs[one.index], one) for one in points.moved(runs))


def _missing() -> bool:
    return find_spec("ruptures") is None or find_spec("numpy") is None


_LOCK = threading.Lock()
_loader: threading.Thread | None = None


def loaded() -> bool:
    """Whether a search can begin at once; else its libraries are being loaded, which takes longer than all else on a page."""
    global _loader
    with _LOCK:
        if _loader is None and not _missing() and "ruptures" not in sys.modules:
            _loader = threading.Thread(target=import_module, args=("ruptures",), daemon=True)
            _loader.start()
        return _loader is None or not _loader.is_alive()


def named(item: Series) -> read.Series:
    """*item* as the history names it."""
    return read.Series(item.id, item.cell_id, item.nodeid, item.engine, item.model, item.tier, item.boots, item.failed)


@dataclass(frozen=True)
class Given:
    """The acknowledgements of a store. ``problems``: what could not be read of them."""

    given: tuple[Acknowledgement, ...] = ()
    problems: tuple[str, ...] = ()


def acknowledgements(home: Home) -> Given:
    """What stands in the store's file of acknowledgements; read again only once that has changed."""
    path = home.root / acknowledge.FILE_NAME
    try:
        found = path.stat()
    except OSError:
        return Given()
    return _given(path, (found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=32)
def _given(path: Path, stamp: tuple[int, int, int]) -> Given:
    """*stamp* is the state of the file: another one is another question."""
    try:
        found: Acknowledgements = acknowledge.read(path)
    except StoreError as error:
        return Given(problems=(str(error),))
    return Given(tuple(found.given), tuple(found.problems))
