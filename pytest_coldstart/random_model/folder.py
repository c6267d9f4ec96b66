"""A model's folder: made beside its place and renamed into it, so that what is there is whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_coldstart.random_model import tokenizer, weights
from pytest_coldstart.random_model.geometry import Geometry

try:
    import fcntl
except ImportError:  # pragma: no cover - not on this platform, where nothing boots
    fcntl = None  # type: ignore[assignment]

#: What was made here and how large each file is, so that a folder can be told whole without being read.
MANIFEST = "coldstart.json"


def models_home() -> Path:
    """The folder that made models are kept in and found again."""
    if own := os.environ.get("COLDSTART_MODELS"):
        return Path(own).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "pytest-coldstart" / "models"


def make(geometry: Geometry, home: Path | None = None) -> Path:
    """The folder of this geometry's model, made if it is not there yet.

    Several processes may ask at once: one makes it, the others wait. What a killed process left
    is removed by the next one that asks for the same model.

    :raises OSError: it cannot be written.
    """
    folder = (models_home() if home is None else home).absolute() / geometry.name
    if not is_whole(folder, geometry):
        _make(geometry, folder)
    return folder


def make_at(geometry: Geometry, folder: Path) -> Path:
    """The same in a folder of the caller's choice.

    :raises FileExistsError: something else is there.
    :raises OSError: it cannot be written.
    """
    folder = folder.absolute()
    if is_whole(folder, geometry):
        return folder
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not this model; choose another or remove it")
    _make(geometry, folder)
    return folder


def is_whole(folder: Path, geometry: Geometry) -> bool:
    """Whether *folder* holds this model, by its manifest and the size of each file."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        sizes = manifest["files"].items()
        return manifest["digest"] == geometry.digest and all((folder / n).stat().st_size == size for n, size in sizes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _make(geometry: Geometry, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / f".{folder.name}.lock"):
        if is_whole(folder, geometry):  # another process made it while this one waited
            return
        # Under the lock nobody else writes here, so what is there was left by a process that died.
        partial = folder.parent / f".{folder.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            _write(geometry, partial)
            if folder.exists():  # not whole: rename replaces no folder that holds files
                shutil.rmtree(folder)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The lock lies beside the model, since hosts that share the folder do not share /tmp."""
    with open(path, "a") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(geometry: Geometry, folder: Path) -> None:
    weights.write(geometry, folder)
    _write_json(folder / "config.json", config(geometry))
    _write_json(folder / "generation_config.json", {**_ids(), "do_sample": False})
    _write_json(folder / "tokenizer.json", tokenizer.tokenizer(geometry.vocab))
    _write_json(folder / "tokenizer_config.json", tokenizer.tokenizer_config(geometry.context))
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    _write_json(folder / MANIFEST, {"digest": geometry.digest, "geometry": asdict(geometry), "files": files})
    for path in folder.iterdir():
        _sync(path)


def _sync(path: Path) -> None:
    """To storage now: pages that were never written there cannot be evicted by a cold tier."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _ids() -> dict[str, int]:
    return {
        "bos_token_id": tokenizer.BEGIN_ID,
        "eos_token_id": tokenizer.END_ID,
        "pad_token_id": tokenizer.BEGIN_ID,
    }


def config(geometry: Geometry) -> dict[str, Any]:
    """The content of config.json."""
    qwen2 = geometry.architecture == "qwen2"
    return {
        "architectures": ["Qwen2ForCausalLM" if qwen2 else "LlamaForCausalLM"],
        "model_type": geometry.architecture,
        "hidden_size": geometry.hidden,
        "intermediate_size": geometry.intermediate,
        "num_hidden_layers": geometry.layers,
        "num_attention_heads": geometry.heads,
        "num_key_value_heads": geometry.kv_heads,
        "vocab_size": geometry.vocab,
        "max_position_embeddings": geometry.context,
        "tie_word_embeddings": geometry.tied,
        "torch_dtype": geometry.dtype,
        **_ids(),
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0 if qwen2 else 10000.0,
        "use_cache": True,
        **({"use_sliding_window": False} if qwen2 else {"attention_bias": False, "mlp_bias": False}),
    }
