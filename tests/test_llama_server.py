"""The command line of a llama-server binary: flags as its own help names them."""

from __future__ import annotations

from pathlib import Path

from pytest_coldstart.cell import Cell
from pytest_coldstart.engines.base import LaunchSpec, Model
from pytest_coldstart.engines.llamacpp import LlamaCpp


def test_options_become_the_flags_of_the_binary(tmp_path: Path) -> None:
    options = {"n_ctx": 512, "mmap": False, "load_warmup": False, "fit": False, "flash_attn": "on", "verbosity": 3}
    cell = Cell("llamacpp", None, "restart", options=options, command=("llama-server",))
    spec = LaunchSpec(cell, Model("m", "m", path=Path("/models/m.gguf")), "127.0.0.1", 8123, "python3", tmp_path)
    words = LlamaCpp().command(spec)
    assert words[0] == "llama-server"
    text = " ".join(words)
    for flag in (
        "--model /models/m.gguf",
        "--host 127.0.0.1",
        "--port 8123",
        "--metrics",
        "--ctx-size 512",
        "--no-mmap",
        "--no-warmup",
        "--fit off",
        "--flash-attn on",
        "--verbosity 3",
    ):
        assert flag in text, flag
