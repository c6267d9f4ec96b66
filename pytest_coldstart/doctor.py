"""What is installed, what will be skipped and why, what can be proved here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pytest_coldstart import environment, residency
from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import EngineError, EngineRegistry
from pytest_coldstart.engines.base import Engine, ModelMissing


def engine_line(engine: Engine, python: str | None = None) -> str:
    """``llamacpp 2026.10`` or ``openai (any command ...)``; found by metadata, never by import."""
    found = engine.availability(Cell(engine.name, None, "restart", python=python))
    if found.ok:
        return f"{engine.name} {found.version}" if found.version else f"{engine.name} ({found.reason or 'found'})"
    return f"{engine.name} missing"


def report(store: Path) -> list[str]:
    """The lines of ``coldstart doctor``."""
    lines = [f"platform: {sys.platform}, kernel {os.uname().release if hasattr(os, 'uname') else '?'}"]
    if not environment.is_linux():
        lines.append("boots: not possible here; they need Linux (/proc, subreaper, page-cache control)")
        return lines
    names = environment.gpu_names()
    lines.append(f"GPUs: {', '.join(names) or 'none that NVML shows'}")
    for engine in EngineRegistry().all():
        lines += _engine(engine)
    lines += _proofs(store)
    return lines


def _engine(engine: Engine) -> list[str]:
    cell = Cell(engine.name, None, "restart")
    found = engine.availability(cell)
    if not found.ok:
        return [f"engine {engine.name}: skipped: {found.reason}; to enable: {found.enable}"]
    lines = [f"engine {engine.name}: {found.version or found.reason or 'found'}"]
    lines += [f"  note: {trap}" for trap in engine.traps]
    if engine.default_model is None:
        return lines
    try:
        model = engine.model(cell)
    except ModelMissing as error:
        return [*lines, f"  model {engine.default_model}: skipped: {error}; to enable: {error.enable}"]
    except EngineError as error:
        return [*lines, f"  model {engine.default_model}: {error}"]
    lines.append(f"  model {model.name}: {model.path}, {model.bytes / 1e6:.0f} MB")
    for path in model.files:
        lines += [f"  {text}" for text in _file(path)]
    return lines


def _file(path: Path) -> list[str]:
    untold = residency.can_tell(path)
    stuck = residency.cannot_evict(path, residency.mapped_by([path]))
    if untold:
        return [f"residency cannot be told ({untold}): tiers are unprovable for it"]
    if stuck:
        return [f"cannot be evicted now ({stuck}): pristine and redeploy are refused for it"]
    return [f"on {residency.filesystem(path)}: residency can be read and evicted, every tier can be proved"]


def _proofs(store: Path) -> list[str]:
    folder = store if store.is_dir() else Path.cwd()
    drop = Path("/proc/sys/vm/drop_caches")
    return [
        f"store: {store} on {residency.filesystem(folder)}",
        f"process tree: children lists {'yes' if Path('/proc/self/task').is_dir() else 'no'}, pidfd "
        f"{'yes' if hasattr(os, 'pidfd_open') else 'no'}, /dev/shm {'yes' if Path('/dev/shm').is_dir() else 'no'}",
        f"whole-host cache drop (not needed): {'possible' if os.access(drop, os.W_OK) else 'not permitted'}",
        f"load average: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores",
    ]
