"""A checkpoint: a model as Hugging Face keeps it, by path, by hub name or made on the spot.

What can be seen from the files without an engine is checked here, before anything boots: a
folder without weights, an index that names missing shards, a safetensors file that was cut.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_coldstart.engines.base import EngineError, Model

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_RANDOM = "random:"
#: ``model-00001-of-00003.safetensors``
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})(\.\w+)")
_LFS = b"version https://git-lfs"
#: A header of a safetensors file is a few hundred kilobytes; the format allows 100 MB.
_MOST_HEADER = 100 << 20


class _Lacks(EngineError):
    """Something is not there, which a download may bring; what is there and wrong stays wrong."""


def find(name: str, environ: Mapping[str, str], weights_needed: bool = True, revision: str = "main") -> Model:
    """The checkpoint *name*: ``random:PRESET``, the path of a folder, or ``OWNER/NAME`` of the hub.

    A hub name is looked for in the local hub cache that *environ* points to, at its *revision*.
    One that is not there, or not whole, is left to the engine to fetch, unless *environ* says offline.

    :raises EngineError: no such folder, a checkpoint that is not whole, or a hub name while offline.
    """
    if name.startswith(_RANDOM):
        return _random(name)
    path = _expanded(name, environ)
    if path.is_dir():
        return of_folder(path, name, weights_needed)
    if path.exists():
        raise EngineError(f"model {name!r} is a file; give the folder with config.json and weights: {path.parent}?")
    if name.startswith(("/", "./", "../", "~")) or not _HUB_NAME.fullmatch(name):
        raise EngineError(
            f"model {name!r}: no such folder; valid models: 'random:qwen2-tiny' and its like (coldstart make-model "
            "--list), the path of a folder with config.json, or OWNER/NAME of the hub"
        )
    return _of_hub(name, environ, weights_needed, revision)


def without_weights(model: Model) -> Model:
    """Where none are loaded, none are evicted or proved; what is served is the same."""
    pending = model.pending
    return replace(model, files=(), pending=(lambda: without_weights(pending())) if pending else None)


def _random(name: str) -> Model:
    from pytest_coldstart import random_model

    try:
        geometry = random_model.named(name)
    except ValueError as error:
        raise EngineError(f"model {error}") from None
    assert geometry is not None

    def make() -> Model:
        return of_folder(random_model.make(geometry), name, True)

    return Model(name, served=name, pending=make)


def _of_hub(name: str, environ: Mapping[str, str], weights_needed: bool, revision: str) -> Model:
    snapshot = hub_snapshot(name, environ, revision)
    problem = f"the hub cache {hub_cache(environ)} does not hold it"
    if snapshot is not None:
        try:
            found = of_folder(snapshot, name, weights_needed)
            return Model(name, name, found.files, snapshot)
        except _Lacks as error:
            problem = f"the hub cache does not hold it whole ({str(error).removeprefix(f'model {name!r}: ')})"
    offline = next((key for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if _true(environ.get(key))), None)
    if offline:
        raise EngineError(
            f"model {name!r} is a hub name, {offline} is set and {problem}; fetch it first (hf download {name}"
            f"{'' if revision == 'main' else f' --revision {revision}'}), give a local folder, or unset {offline}"
        )
    return Model(name, served=name)


def _true(text: str | None) -> bool:
    return (text or "").strip().upper() in ("1", "ON", "YES", "TRUE")


def _expanded(text: str, environ: Mapping[str, str]) -> Path:
    """*text* with ``~`` and ``$NAME`` as a process with *environ* reads them."""
    text = re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda found: environ.get(found[1] or found[2], found[0]), text)
    home = environ.get("HOME")
    if home and (text == "~" or text.startswith("~/")):
        return Path(home + text[1:])
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~nobody
        return Path(text)


def hub_cache(environ: Mapping[str, str]) -> Path:
    """Where huggingface_hub keeps its files, by its own variables in their order."""
    if path := environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE"):
        return _expanded(path, environ)
    cache = environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = environ.get("HF_HOME") or f"{cache}/huggingface"
    return _expanded(home, environ) / "hub"


def hub_snapshot(name: str, environ: Mapping[str, str], revision: str = "main") -> Path | None:
    """The folder of *name* at *revision* (a branch, a tag or a commit) in the hub cache, or None."""
    folder = hub_cache(environ) / ("models--" + name.replace("/", "--"))
    try:
        commit = (folder / "refs" / revision).read_text().strip()
    except OSError:
        commit = revision
    snapshot = folder / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def of_folder(path: Path, name: str, weights_needed: bool = True) -> Model:
    """The checkpoint in a folder.

    :raises EngineError: no config.json, no weights though they are needed, missing shards or cut files.
    """
    path = path.resolve()
    config = path / "config.json"
    if not config.is_file():
        inner = sorted(found.parent for found in (*path.glob("*/config.json"), *path.glob("snapshots/*/config.json")))
        hint = f"did you mean {inner[0]}?" if inner else "give the folder that holds config.json, tokenizer and weights"
        raise _Lacks(f"model {name!r}: the folder {path} has no config.json; {hint}")
    try:
        json.loads(config.read_bytes())
    except OSError as error:
        raise EngineError(f"model {name!r}: {config} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise EngineError(f"model {name!r}: {config} is not JSON: {error}; copy it again") from None
    files = weight_files(path)
    if not files and weights_needed:
        raise _Lacks(
            f"model {name!r}: {path} has config.json and no weights (*.safetensors or *.bin); copy them there, or boot "
            "without weights where the engine can (vLLM: load_format='dummy')"
        )
    if weights_needed:
        _check_whole(path, name, files)
    return Model(name, served=name, files=tuple(file.resolve() for file in files), path=path)


def weight_files(path: Path) -> list[Path]:
    """The files that hold the weights: safetensors where there are any, else PyTorch's own.

    ``consolidated*.safetensors`` are a second copy in another layout, which engines leave alone
    where the first one is there.
    """
    found = sorted(path.glob("*.safetensors"))
    usual = [file for file in found if not file.name.startswith("consolidated")]
    return usual or found or sorted({*path.glob("*.bin"), *path.glob("*.pt")} - {path / "training_args.bin"})


def _check_whole(path: Path, name: str, files: list[Path]) -> None:
    # An index of the other kind may lie there without its shards: one kind is enough.
    kinds = {".safetensors", *(file.suffix for file in files)}
    for index in sorted(found for kind in kinds for found in path.glob(f"*{kind}.index.json")):
        try:
            shards = {str(shard) for shard in json.loads(index.read_bytes())["weight_map"].values()}
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            raise EngineError(
                f"model {name!r}: {index} is no index of weights (JSON with a weight_map of tensor -> file); copy it again"
            ) from None
        _refuse_missing(path, name, [shard for shard in sorted(shards) if not (path / shard).exists()], index.name)
    _refuse_missing(path, name, _gaps(files), "the number in the names of the others")
    for file in files:
        if not file.exists():
            raise _Lacks(f"model {name!r}: {file} is a link to {os.readlink(file)}, which is gone; fetch it again")
        if problem := _lfs_problem(file) or safetensors_problem(file):
            raise EngineError(f"model {name!r}: {file} {problem}")


def _refuse_missing(path: Path, name: str, missing: Sequence[str], named_by: str) -> None:
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise _Lacks(f"model {name!r}: {path} lacks {shown}, which {named_by} asks for; copy or fetch the rest")


def _gaps(files: Sequence[Path]) -> list[str]:
    """Names of the shards that ``-00001-of-00003`` in the names of the others says there are."""
    series = {match.groups() for file in files if (match := _SHARD.fullmatch(file.name))}
    wanted = {f"{stem}-{n:05}-of-{total}{end}" for stem, total, end in series for n in range(1, int(total) + 1)}
    return sorted(wanted - {file.name for file in files})


def _lfs_problem(file: Path) -> str:
    with file.open("rb") as opened:
        pointer = opened.read(len(_LFS)) == _LFS
    return "is a pointer of Git LFS and not the file itself; run git lfs pull in its folder" if pointer else ""


def safetensors_problem(file: Path) -> str:
    """What is wrong with a safetensors file by its own header, or an empty string.

    Layout: 8 bytes little-endian length of the header, the header in JSON with
    ``data_offsets`` [begin, end) of each tensor, then the data.
    """
    if file.suffix != ".safetensors":
        return ""
    size = file.stat().st_size
    with file.open("rb") as opened:
        start = opened.read(8)
        if len(start) < 8:
            return f"is cut: it has {size} bytes and no header; copy it again"
        (length,) = struct.unpack("<Q", start)
        if length > _MOST_HEADER or 8 + length > size:
            return (
                f"is cut or no safetensors file: its header should have {length} bytes and the file has {size}; "
                "copy it again"
            )
        try:
            header = json.loads(opened.read(length))
            ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
            wanted = 8 + length + max(ends, default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return "has a header that is none of safetensors; copy it again"
    if size < wanted:
        return f"is cut: its header promises {wanted} bytes and the file has {size}; copy it again"
    if size > wanted:
        return f"is not what it was: its header promises {wanted} bytes and the file has {size}; copy it again"
    return ""


def effective_environ(env: Mapping[str, str]) -> dict[str, str]:
    """The variables an engine will see: this process's with those of its cell on top."""
    return {**os.environ, **env}
