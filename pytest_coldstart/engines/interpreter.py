"""What another interpreter's environment holds, asked of that interpreter. Nothing of an engine is imported."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

_ASK = """
import importlib.metadata as m, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@lru_cache(maxsize=64)
def versions_of(python: str, distributions: Sequence[str], python_path: str | None = None) -> dict[str, str] | None:
    """Versions in another interpreter's environment, by its metadata; None if it does not run."""
    if python == sys.executable and python_path is None:
        return _own_versions(distributions)
    found = ask(python, _ASK, distributions, python_path)
    return dict(found) if isinstance(found, dict) else None


def ask(python: str, code: str, words: Sequence[str], python_path: str | None) -> Any:
    """What *code* prints as JSON in another interpreter; None where it does not run."""
    environ = {**os.environ, "PYTHONPATH": python_path} if python_path is not None else None
    try:
        done = subprocess.run(
            [python, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False, env=environ
        )
        return json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


_FIND_LIBRARIES = """
import importlib.metadata as m, json, os, sys
found = set()
for distribution in m.distributions():
    name = (distribution.metadata["Name"] or "").lower()
    if not name.startswith(tuple(sys.argv[1:])):
        continue
    for file in distribution.files or []:
        if ".so" in file.name:
            path = os.path.realpath(file.locate())
            if os.path.isfile(path) and os.path.getsize(path) >= 1 << 20:
                found.add(path)
print(json.dumps(sorted(found)))
"""


@lru_cache(maxsize=64)
def large_libraries(python: str, prefixes: Sequence[str], python_path: str | None) -> tuple[str, ...]:
    """Paths of the shared libraries of at least 1 MB there, of distributions by the beginning of their names."""
    return tuple(ask(python, _FIND_LIBRARIES, prefixes, python_path) or ())


def console_script(python: str, name: str) -> str | None:
    """The command *name* that lies beside an interpreter, as in every virtual environment."""
    script = Path(shutil.which(python) or python).with_name(name)
    return str(script) if script.is_file() and os.access(script, os.X_OK) else None


def _own_versions(distributions: Sequence[str]) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in distributions:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
