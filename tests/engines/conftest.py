"""Environments and checkpoints made by hand: what a real one has, as far as the adapters look at it."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import Engine
from pytest_coldstart.engines.base import LaunchSpec, Model
from pytest_coldstart.plan import Plan
from pytest_coldstart.warmup import create

MakeEnvironment = Callable[..., Path]


def safetensors(data: bytes = b"\x00" * 32, header: Any = None) -> bytes:
    """A safetensors file with one tensor of *data*: length of the header, the header in JSON, the data."""
    if header is None:
        header = {"w": {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [0, len(data)]}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def checkpoint_at(folder: Path, *names: str, config: str = '{"model_type": "qwen2"}') -> Path:
    """A folder with config.json and a whole safetensors file for each name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config)
    for name in names:
        (folder / name).write_bytes(safetensors())
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> MakeEnvironment:
    """Makes an environment: ``bin/python`` that sees the metadata of these distributions and no others.

    It is the running interpreter, with a folder of metadata in front, as a wrapper script.
    """

    def make(name: str = "env", scripts: tuple[str, ...] = (), **versions: str) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        site = home / "site"
        site.mkdir()
        for key, version in versions.items():
            distribution = key.replace("_", "-")
            info = site / f"{key}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        python = home / "bin" / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
        for script in scripts:
            (home / "bin" / script).write_text("#!/bin/sh\n")
            (home / "bin" / script).chmod(0o755)
        return python

    return make


def stand_in(home: Path, script: Path, names: tuple[str, ...], **versions: str) -> Path:
    """An environment whose commands *names* are *script*, run by the running interpreter; the path of its python.

    Like a real one it is open to what PYTHONPATH brings, such as the probe.
    """
    (home / "bin").mkdir(parents=True)
    for key, version in versions.items():
        info = home / "site" / f"{key}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {key.replace('_', '-')}\nVersion: {version}\n")
    for name in names:
        (home / "bin" / name).write_text(
            f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(script)!r}, run_name='__main__')\n"
        )
        (home / "bin" / name).chmod(0o755)
    python = home / "bin" / "python"
    site = home / "site"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{site}" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def plan_of(engine: Engine, cell: Cell, home: Path) -> Plan:
    """A plan for one boot of *cell*, with short times."""
    engine.check(cell)
    (home / "logs").mkdir(exist_ok=True)
    return Plan(
        cell,
        "cell",
        "nodeid",
        engine,
        engine.model(cell),
        create("none"),
        requests=2,
        boot_timeout=60.0,
        hang_timeout=60.0,
        cwd=home,
        caches=home / "caches",
        logs=home / "logs",
        keep_logs="all",
    )


def spec_of(engine: Engine, cell: Cell, model: Model | None = None) -> LaunchSpec:
    engine.check(cell)
    return LaunchSpec(
        cell, model or engine.model(cell), "127.0.0.1", 8123, cell.python or sys.executable, Path("/caches/x")
    )
