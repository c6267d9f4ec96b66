"""What runs in one child pytest of a gate: cells alone, only the undecided ones, and no longer than the gate lives.

Run as ``python -P -m pytest_coldstart.gate.child ARGUMENTS``: like ``python -m pytest``, but this package comes from where the
gate has it, also where the folder that pytest starts in holds another version of it. Both sides are measured by one tool.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

#: JSON: gate, side, block and position of the boot (kept in the header of its run); the gate's pid, a file of node ids.
VARIABLE = "COLDSTART_GATE"

_PR_SET_PDEATHSIG = 1


def place(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the gate said of this boot; empty where there is no gate or where it cannot be read."""
    try:
        found = json.loads(environ.get(VARIABLE, ""))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def main() -> int:
    end_with(place(os.environ).get("pid"))
    sys.path.insert(0, str(Path.cwd()))
    # Not by -p: what a report says to reproduce a boot is made of the arguments.
    return int(pytest.main(sys.argv[1:], plugins=[sys.modules[__name__]]))


def end_with(pid: object) -> None:
    """Have SIGTERM sent to this process when the gate dies, however it does: pytest then ends its boots."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    except (AttributeError, OSError):
        return
    if isinstance(pid, int) and os.getppid() != pid:
        sys.exit(128 + signal.SIGTERM)  # it died before the line above


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what boots nothing, and the cells that are decided."""
    from pytest_coldstart.collect import param_of

    file = place(os.environ).get("only")
    only = None if file is None else set(json.loads(Path(file).read_text(encoding="utf-8")))
    keep: list[pytest.Item] = []
    drop: list[pytest.Item] = []
    for item in items:
        param = param_of(item)
        # A boot that the tests of a module share is named by the module and its cell.
        names = {item.nodeid, f"{item.nodeid.partition('::')[0]}[{param.matrix.id}]"} if param else set()
        (keep if names and (only is None or names & only) else drop).append(item)
    if drop:
        config.hook.pytest_deselected(items=drop)
        items[:] = keep


if __name__ == "__main__":
    sys.exit(main())
