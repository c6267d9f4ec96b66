"""Triton's server as the wheel nvidia-pytriton brings it, run without pytriton itself.

Facts read off 0.7.0: the Python backend looks for its stub, the program that embeds a Python, beside its library; the
wheel has one for each Python version in another folder, and pytriton copies it at its start. The stub needs libpython,
and takes the environment of the ``python3`` that PATH finds first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pytest_coldstart.engines.interpreter import ask

DISTRIBUTION = "nvidia-pytriton"
_STUB = "triton_python_backend_stub"

_FIND = """
import ctypes, importlib.metadata as m, json, os, sys, sysconfig
found = None
for file in m.files(sys.argv[1]) or []:
    if file.name == "tritonserver" and file.parent.name == "bin":
        found = str(file.locate())
version = "%d.%d" % sys.version_info[:2]
name = "libpython%s.so.1.0" % version
folder = sysconfig.get_config_var("LIBDIR") or ""
if not os.path.exists(os.path.join(folder, name)):
    folder = ""
    try:
        ctypes.CDLL(name)
    except OSError:
        folder = None
print(json.dumps([found, version, folder]))
"""


@dataclass(frozen=True)
class Bundle:
    """``python``: version of the environment's interpreter, such as 3.11; ``libpython``: the folder of its shared
    library, empty where the loader finds it by itself, None where there is none."""

    server: Path
    python: str
    libpython: str | None

    @property
    def backends(self) -> Path:
        return self.server.parent.parent / "backends"

    @property
    def stub(self) -> Path:
        """Where the Python backend looks for its stub."""
        return self.backends / "python" / _STUB

    @property
    def shipped_stub(self) -> Path:
        return self.server.parent.parent / "python_backend_stubs" / self.python / _STUB

    def problem(self) -> tuple[str, str]:
        """Why no Python model can run, and what enables it; two empty texts if one can."""
        if not self.shipped_stub.is_file():
            found = sorted(folder.name for folder in self.shipped_stub.parent.parent.glob("3.*"))
            return f"{DISTRIBUTION} has no stub for Python {self.python}", f"use Python {', '.join(found)}"
        if not self.stub.is_file():
            return f"its Python backend lacks {self.stub}", f"cp {self.shipped_stub} {self.stub.parent}"
        if self.libpython is None:
            wanted = f"libpython{self.python}.so.1.0"
            return f"its Python backend needs {wanted}", f"install {wanted}, or a Python that was built with it"
        return "", ""

    def environment(self, python: str, environ: Mapping[str, str]) -> dict[str, str]:
        """Variables with which the stub finds libpython and the packages of the environment of *python*."""
        found = {"PATH": _before(str(Path(python).parent), environ.get("PATH"))}
        if self.libpython:
            found["LD_LIBRARY_PATH"] = _before(self.libpython, environ.get("LD_LIBRARY_PATH"))
        return found


def _before(folder: str, path: str | None) -> str:
    return os.pathsep.join([folder, *([path] if path else [])])


@lru_cache(maxsize=16)
def find(python: str, python_path: str | None) -> Bundle | None:
    """The bundle in an interpreter's environment, or None."""
    found = ask(python, _FIND, (DISTRIBUTION,), python_path)
    return Bundle(Path(found[0]), found[1], found[2]) if found and found[0] else None
