"""Checkpoints that are wrong in one way each, made of a random one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from pytest_coldstart import random_model


def copy(folder: Path, name: str = "random:qwen2-tiny") -> Path:
    """A whole checkpoint of its own."""
    geometry = random_model.named(name)
    assert geometry is not None
    return Path(shutil.copytree(random_model.make(geometry), folder / "checkpoint"))


def edit(checkpoint: Path, **changes: Any) -> Path:
    """Change its config.json alone."""
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return checkpoint


def truncated(folder: Path) -> Path:
    checkpoint = copy(folder)
    weights = next(checkpoint.glob("*.safetensors"))
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size // 2)
    return checkpoint


def without_weights(folder: Path) -> Path:
    checkpoint = copy(folder)
    for weights in checkpoint.glob("*.safetensors"):
        weights.unlink()
    return checkpoint


def misshapen(folder: Path) -> Path:
    """Whole by its header, and not what its config says."""
    return edit(copy(folder), intermediate_size=512)


def with_code(folder: Path) -> Path:
    """A checkpoint that brings its own code."""
    auto_map = {"AutoConfig": "mystery.MysteryConfig", "AutoModelForCausalLM": "mystery.MysteryForCausalLM"}
    checkpoint = edit(copy(folder), model_type="mystery", architectures=["MysteryForCausalLM"], auto_map=auto_map)
    (checkpoint / "mystery.py").write_text("raise SystemExit('this code must not run')\n")
    return checkpoint
