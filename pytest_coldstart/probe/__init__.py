"""The probe: what runs inside the Python processes of an engine, how it is put there, how its files are read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pytest_coldstart.probe.answers import ASK, wait_for

__all__ = ["ASK", "DONE", "INSIDE", "ask", "environment", "finish", "wait_for"]

#: The folder that goes on an engine's PYTHONPATH; nothing in it needs anything of ours.
INSIDE = Path(__file__).with_name("inside")

#: A file of this name in the folder of the probe's output ends the sampling.
DONE = "done"


def environment(out: Path, mode: str, env: Mapping[str, str]) -> dict[str, str]:
    """Variables that put the probe into every Python process below one that has *env*.

    *mode*: ``marks`` or ``full``. The probe's folder comes first on PYTHONPATH, so that its
    sitecustomize is found; it runs the environment's own afterwards.
    """
    path = env.get("PYTHONPATH")
    return {
        "COLDSTART_PROBE": mode,
        "COLDSTART_PROBE_OUT": str(out.absolute()),
        "PYTHONPATH": os.pathsep.join([str(INSIDE), *([path] if path else [])]),
    }


def finish(out: Path) -> None:
    """Tell every probe that writes to *out* to stop sampling."""
    try:
        (out / DONE).touch()
    except OSError:
        pass  # then it goes on sampling; the boot is judged all the same


def ask(out: Path, point: str) -> None:
    """Ask every probe that writes to *out* for the statistics of torch's allocator, now and once.

    *point*: ready, held or after. At ready peaks are reset after the reading. Probes answer once they have stopped
    sampling, within about 0.3 s; :func:`wait_for` waits for it, and :func:`.read.read_allocators` reads the answers.
    """
    new = out / f"{ASK}.new"
    try:
        new.write_text(point)
        new.replace(out / ASK)  # whole, or not at all
    except OSError:
        pass  # then nobody answers, which is said where the answers are waited for
