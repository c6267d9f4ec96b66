"""Where things are: the store that is shown, and links between pages."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

from dashboard.source import Unusable
from pytest_coldstart.dashboard import STORE_VARIABLE
from pytest_coldstart.store.errors import StoreError
from pytest_coldstart.store.home import Home

#: The addresses of the pages.
OVERVIEW, TREND, BOOT, COMPARE, MATRIX = "", "trend", "boot", "compare", "matrix"
DISTRIBUTION, FRAGMENTATION, RUNS, ALERTS = "distribution", "fragmentation", "runs", "alerts"

_USAGE = "streamlit run dashboard/app.py -- --store DIR"


@dataclass(frozen=True)
class Given:
    """What the server was started with. ``stores``: by the name that stands in the address; ``demo``: show made-up data;
    ``acknowledge``: change points may be acknowledged from the page."""

    stores: Mapping[str, Home]
    demo: bool = False
    acknowledge: bool = False


def given(arguments: Sequence[str], environ: Mapping[str, str]) -> Given:
    """``--store DIR`` (any number), else COLDSTART_STORE, else ``.coldstart``; ``--demo``; ``--acknowledge``.

    :raises Unusable: ``--store`` names nothing.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--store", action="append")
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--acknowledge", action="store_true")
    try:
        found = parser.parse_known_args(arguments)[0]
    except argparse.ArgumentError as error:
        what = "--store names no folder." if error.argument_name == "--store" else f"The dashboard's options: {error}."
        raise Unusable(what, " ".join(arguments), _USAGE) from None
    paths = found.store or [environ.get(STORE_VARIABLE) or ".coldstart"]
    if "" in paths:
        raise Unusable("--store names no folder.", " ".join(arguments), _USAGE)
    try:
        return Given({path: Home.at(Path(path)) for path in paths}, found.demo, found.acknowledge)
    except StoreError as error:
        raise Unusable("--store names no folder.", str(error), _USAGE) from None


def current() -> Given:
    """What this process was started with."""
    return given(sys.argv[1:], os.environ)


def home() -> Home:
    """The store that is shown: the one the address names, of those the server was started with."""
    now = current()
    if now.demo:
        return demo()
    asked = st.session_state.get("store") or st.query_params.get("store", "")
    return now.stores.get(asked) or next(iter(now.stores.values()))


@st.cache_resource(show_spinner="making the demo's boots")
def demo() -> Home:
    """A store of made-up boots, made once for each server in a folder that goes with it."""
    from dashboard.demo import made

    return made()


def link(page: str, **query: str | Sequence[str]) -> str:
    """A relative link to *page* with its choices; the store that is shown stays the same."""
    words = urlencode(asked(**query), doseq=True)
    return f"{page or '.'}?{words}" if words else page or "."


def asked(**query: str | Sequence[str]) -> dict[str, str | Sequence[str]]:
    """Choices for the address of another page, with the store that is shown."""
    return {**({"store": st.query_params["store"]} if "store" in st.query_params else {}), **query}


def trend(series: str, metric: str) -> str:
    return link(TREND, series=series, metric=metric)


def boot(boot_id: str) -> str:
    return link(BOOT, boot=boot_id)
