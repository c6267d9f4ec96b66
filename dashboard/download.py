"""Files to download, made when they are asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dashboard.source import opened
from pytest_coldstart.store.export import write
from pytest_coldstart.store.home import Home

#: What a browser is told that each format is.
MIME = {"parquet": "application/vnd.apache.parquet", "csv": "text/csv", "json": "application/json"}


def maker(home: Home, format: str, run_ids: Sequence[str]) -> Callable[[], bytes]:
    """What gives the boots of *run_ids*, one row a boot, once it is called."""

    def make() -> bytes:
        with tempfile.TemporaryDirectory(prefix="coldstart-") as folder:
            path = Path(folder, "boots")
            with opened(home) as con:
                write(con, format, path, run_ids=run_ids)
            return path.read_bytes()

    return make


def file_name(run_id: str) -> str:
    """A run's id as part of a name: ids come from run files, which anybody may have written."""
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "-_") else "_" for sign in run_id)[:80]
