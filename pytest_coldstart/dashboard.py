"""Starting the dashboard: where its pages are, and the command that serves them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_coldstart.store.home import Home

#: Names the store for pages that are started without ``--store``.
STORE_VARIABLE = "COLDSTART_STORE"


def serve(store: Path | None, port: int, browser: bool) -> int:
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
    words = command(script, port, browser)
    return os.execve(words[0], words, environment(store, os.environ))


def app() -> Path | None:
    """The dashboard's script: inside the installed package, or in dashboard/ of a checkout."""
    package = Path(__file__).parent
    scripts = [folder / "dashboard" / "app.py" for folder in (package / "_app", package.parent)]
    return next((script for script in scripts if script.is_file()), None)


def command(script: Path, port: int, browser: bool) -> list[str]:
    """The server's command line: this host alone can reach it, and nothing is reported to anybody."""
    return [
        # -P: a module of the working directory must not take the place of an installed one.
        *(sys.executable, "-P", "-m", "streamlit", "run", str(script)),
        *("--server.address", "localhost", "--server.port", str(port), "--server.showEmailPrompt", "false"),
        *("--server.headless", "false" if browser else "true", "--browser.gatherUsageStats", "false"),
    ]


def environment(store: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """*environ* with the store's absolute path; without *store*, its own COLDSTART_STORE holds."""
    chosen = store or Path(environ.get(STORE_VARIABLE) or ".coldstart")
    home = Home.at(chosen)
    return {**environ, STORE_VARIABLE: str(home.database if chosen.suffix == ".duckdb" else home.root)}
