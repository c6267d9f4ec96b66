"""``coldstart make-model``: writes a random-weight model."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

_HELP = {
    "hidden": "width of the model",
    "intermediate": "width inside the MLP",
    "layers": "number of layers",
    "heads": "attention heads; must divide the width",
    "kv_heads": "heads of keys and values; must divide the heads",
    "vocab": "number of tokens",
    "context": "longest context, tokens",
    "dtype": "bfloat16 or float32",
    "seed": "another seed gives other weights",
    "tied": "true: the output layer is the embedding table; false: a table of its own",
}


def add(commands: Any) -> None:
    """Add the command to the parser's sub-commands."""
    parser = commands.add_parser("make-model", help="write a model with random weights and a tokenizer")
    parser.add_argument("preset", nargs="?", default="", metavar="PRESET", help="such as qwen2-tiny; see --list")
    parser.add_argument("--list", action="store_true", help="the presets and the size of their weights")
    for field, words in _HELP.items():
        parser.add_argument(f"--{field.replace('_', '-')}", metavar=_metavar(field), help=words)
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: a folder in the cache, by the geometry")
    parser.set_defaults(run=_make_model)


def _metavar(field: str) -> str:
    return {"dtype": "TYPE", "tied": "BOOL"}.get(field, "N")


def _make_model(arguments: argparse.Namespace) -> int:
    from pytest_coldstart.random_model import PRESETS, Geometry, make, make_at, named
    from pytest_coldstart.random_model.geometry import PREFIX
    from pytest_coldstart.store.errors import why
    from pytest_coldstart.units import show

    if arguments.list:
        for preset, geometry in PRESETS.items():
            print(f"{preset}: {show(geometry.bytes, 'B')}, {geometry.parameters} parameters")
        return 0
    names = [field.name for field in fields(Geometry) if getattr(arguments, field.name, None) is not None]
    changes = [f"{name}={getattr(arguments, name)}" for name in names]
    name = ",".join([PREFIX + arguments.preset.removeprefix(PREFIX), *changes])
    try:
        chosen = named(name)
        assert chosen is not None  # the prefix is there
        folder = make_at(chosen, arguments.output) if arguments.output else make(chosen)
    except (ValueError, FileExistsError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename or 'the model'} could not be written: {why(error)}")
    print(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    model = str(folder) if arguments.output else name
    print(f"coldstart: {show(size, 'B')}, {chosen.parameters} parameters; model={model!r} in suites", file=sys.stderr)
    return 0


def _refuse(message: str) -> int:
    print(f"coldstart: {message}", file=sys.stderr)
    return 2
