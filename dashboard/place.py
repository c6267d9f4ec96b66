"""Where things are: the store that is shown, and links between pages."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode

from dashboard.source import Unusable
from pytest_coldstart.dashboard import STORE_VARIABLE
from pytest_coldstart.store.home import Home

#: The address of the trend page.
TREND = "trend"


def home() -> Home:
    """The store of this process: its arguments, else the environment, else the working directory."""
    return chosen(sys.argv[1:], os.environ)


def chosen(arguments: Sequence[str], environ: Mapping[str, str]) -> Home:
    """The store that ``--store DIR``, else COLDSTART_STORE names; ``.coldstart`` by default.

    :raises Unusable: ``--store`` names nothing.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--store")
    try:
        named = parser.parse_known_args(arguments)[0].store
    except argparse.ArgumentError:
        raise Unusable(
            "--store names no folder.", " ".join(arguments), "streamlit run dashboard/app.py -- --store DIR"
        ) from None
    return Home.at(Path(named or environ.get(STORE_VARIABLE) or ".coldstart"))


def trend(series: str, metric: str) -> str:
    """A relative link to the trend of *metric* of *series*."""
    return f"{TREND}?{urlencode({'series': series, 'metric': metric})}"
