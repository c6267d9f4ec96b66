"""Starting the dashboard: where its pages are, and the command that serves them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_coldstart.store.home import Home

#: Names the store for pages that are started without ``--store``.
STORE_VARIABLE = "COLDSTART_STORE"


#: This host alone can reach the server, nothing is reported to anybody, nothing is asked for. dashboard/.streamlit/config.toml
#: says it as well; options go before what a person's own configuration says.
OPTIONS: Mapping[str, str] = {
    "server.address": "localhost",
    "server.showEmailPrompt": "false",
    "browser.gatherUsageStats": "false",
}


@dataclass(frozen=True)
class Shown:
    """What the server shows. ``stores``: none given means the environment's, or ``.coldstart``; ``demo``: made-up boots
    instead; ``acknowledge``: change points may be acknowledged from the page."""

    stores: Sequence[Path] = ()
    demo: bool = False
    acknowledge: bool = False

    def arguments(self) -> list[str]:
        """For the pages, behind ``--``."""
        stores = [word for store in self.stores for word in ("--store", _absolute(store))]
        return [*stores, *(["--demo"] if self.demo else []), *(["--acknowledge"] if self.acknowledge else [])]


def serve(shown: Shown, port: int, browser: bool) -> int:
    """Become the server of the dashboard; returns 1 after a message where something is not installed."""
    missing = [name for name in ("streamlit", "altair") if importlib.util.find_spec(name) is None]
    script = app()
    if missing or script is None:
        what = " and ".join(missing) or "its pages"
        print(
            f"coldstart: the dashboard needs {what}; install: pip install 'pytest-coldstart[dashboard]'",
            file=sys.stderr,
        )
        return 1
    words = command(script, shown, port, browser)
    return os.execv(words[0], words)


def app() -> Path | None:
    """The dashboard's script: inside the installed package, or in dashboard/ of a checkout."""
    package = Path(__file__).parent
    scripts = [folder / "dashboard" / "app.py" for folder in (package / "_app", package.parent)]
    return next((script for script in scripts if script.is_file()), None)


def command(script: Path, shown: Shown, port: int, browser: bool) -> list[str]:
    """The server's command line."""
    options = {**OPTIONS, "server.port": str(port), "server.headless": "false" if browser else "true"}
    return [
        # -P: a module of the working directory must not take the place of an installed one.
        *(sys.executable, "-P", "-m", "streamlit", "run", str(script)),
        *(word for name, value in options.items() for word in (f"--{name}", value)),
        *("--", *shown.arguments()),
    ]


def _absolute(store: Path) -> str:
    """:raises StoreError: it begins with the home of a user that does not exist."""
    home = Home.at(store)
    return str(home.database if store.suffix == ".duckdb" else home.root)
