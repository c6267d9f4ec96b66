"""Making an environment: a virtual environment, pip, and a mark that tells it whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_coldstart.environments.requirements import Requirements
from pytest_coldstart.locks import HostLock

#: In the environment's folder: what it was made from, and whether it was made to the end.
MARK = "coldstart-environment.json"
_LAST_LINES = 15
_NAME = "import platform, sys; print(sys.implementation.name, platform.python_version())"
_PLACE = "import sysconfig; print(sysconfig.get_path('purelib'))"


class EnvironmentFailed(Exception):
    """An environment could not be made; nothing of it is left. The message ends with the last words of the tool."""


def make(
    requirements: Requirements,
    folder: Path,
    python: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Path:
    """The interpreter of the environment in *folder*, which is made unless it is there already.

    :param python: the interpreter to base it on; default the running one.
    :param say: told what goes on, since pip takes minutes.
    :raises FileExistsError: the folder holds something else.
    :raises EnvironmentFailed: the interpreter, venv or pip failed.
    """
    folder = folder.absolute()
    base = python or sys.executable
    mark = {
        "environment": requirements.environment,
        "version": requirements.version,
        "requirements": requirements.digest,
        "python": _asked(base, _NAME),
    }
    # Named after the folder and not in it, since an environment that failed is removed whole.
    lock = HostLock(f"environment-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}")
    if not lock.try_acquire():
        say(f"waiting for another process that makes {folder}")
        lock.acquire()
    try:
        if not _is_there(folder, mark):
            _build(requirements, folder, base, mark, lock.fileno(), say)
    finally:
        lock.remove()
    return interpreter(folder)


def interpreter(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _is_there(folder: Path, mark: dict[str, Any]) -> bool:
    """Whether the folder holds just what is asked for; what a killed process left is removed."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    try:
        found = json.loads((folder / MARK).read_text())
        whole = bool(found.pop("whole"))
    except (OSError, ValueError, AttributeError, KeyError):
        raise FileExistsError(f"{folder} exists and was not made by this command; choose another folder") from None
    if not whole:
        shutil.rmtree(folder)
        return False
    other = [f"{name} {found.get(name)!r}, not {mark[name]!r}" for name in mark if found.get(name) != mark[name]]
    if other:
        raise FileExistsError(
            f"{folder} holds an environment made from {'; '.join(other)}; remove it or choose another folder"
        )
    return True


def _build(
    requirements: Requirements, folder: Path, base: str, mark: dict[str, Any], lock: int, say: Callable[[str], None]
) -> None:
    say(f"making {requirements.title} in {folder} with Python {mark['python'].split()[-1]}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_mark(folder, {**mark, "whole": False})
        _run([base, "-I", "-m", "venv", str(folder)], "venv", lock)
        say(f"installing {len(requirements.lines)} requirements; engines take minutes")
        python = str(interpreter(folder))
        words = ["install", "--no-input", "--disable-pip-version-check"]
        # -I keeps a caller's PYTHONPATH out; pip's own configuration and variables stay in force.
        _run(
            [python, "-I", "-m", "pip", *words, *["--no-deps"] * requirements.no_deps, "-r", str(requirements.file)],
            "pip",
            lock,
        )
        for name, version in requirements.provides.items():
            _provide(Path(_asked(python, _PLACE)), name, version)
        for source, target in requirements.copies:
            _copy(Path(_asked(python, _PLACE)), ".".join(mark["python"].split()[-1].split(".")[:2]), source, target)
        _write_mark(folder, {**mark, "whole": True})
    except BaseException as error:  # also an interrupt: half an environment is worse than none
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise EnvironmentFailed(f"{folder} could not be written: {error}") from error
        raise


def _write_mark(folder: Path, content: dict[str, Any]) -> None:
    (folder / MARK).write_text(json.dumps(content, indent=1) + "\n")


def _provide(site: Path, name: str, version: str) -> None:
    """Metadata of a distribution that has no files, so that it is found, listed and can be uninstalled."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "INSTALLER").write_text("coldstart\n")
    (folder / "RECORD").write_text("".join(f"{folder.name}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD")))


def _copy(site: Path, version: str, source: str, target: str) -> None:
    """Put a file of one distribution where a program looks for it."""
    found, to = (site / name.replace("{python}", version) for name in (source, target))
    if not found.is_file():
        raise EnvironmentFailed(f"nothing installed brings {found}; another Python version may have it")
    shutil.copy2(found, to)


def _run(command: list[str], tool: str, lock: int) -> None:
    """Run a tool. It holds the lock too: should this process be killed, the tool may still be writing."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, pass_fds=(lock,)
    )
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("WARNING: Location")]
        last = "".join(f"\n  {line}" for line in lines[-_LAST_LINES:])
        raise EnvironmentFailed(f"{tool} failed with exit status {done.returncode}; its last lines:{last}")


def _asked(python: str, question: str) -> str:
    try:
        done = subprocess.run([python, "-I", "-c", question], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailed(f"the interpreter {python} does not run: {error}") from error
    if done.returncode:
        raise EnvironmentFailed(f"the interpreter {python} does not run: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()
