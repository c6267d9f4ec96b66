"""The store of the demo: made once for a server, in a folder that goes with it."""

from __future__ import annotations

import atexit
import tempfile
from pathlib import Path

from pytest_coldstart import demo
from pytest_coldstart.store.home import Home


def made() -> Home:
    """A store of made-up boots in a temporary folder, which is removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="coldstart-demo-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    home = Home.at(Path(folder.name) / "demo")
    home.prepare()
    demo.write(home)
    return home
