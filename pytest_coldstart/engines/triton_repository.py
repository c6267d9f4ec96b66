"""A model repository, as Triton keeps models: NAME/config.pbtxt and NAME/VERSION/, one folder a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pytest_coldstart.engines.base import EngineError, Model

#: The repository that comes with this package.
BUILT_IN = "words"
_BUILT_IN = Path(__file__).parent / "repositories" / "triton"
_BACKEND = re.compile(r'^[ \t]*(?:backend|platform)[ \t]*:[ \t]*"([^"]+)"', re.MULTILINE)
#: What Triton or Python writes there by itself.
_NOT_A_MODEL = ("__pycache__",)


def find(name: str, asked: str | None) -> Model:
    """The repository *name*: a folder, or ``words``. *asked*: the model of it that requests go to.

    :raises EngineError: no such folder, a folder that is no repository, or several models and none is asked for.
    """
    path = _BUILT_IN if name == BUILT_IN else Path(name).expanduser().resolve()
    if not path.is_dir():
        kind = "a file" if path.exists() else "no such folder"
        raise EngineError(
            f"model {name!r}: {kind}; valid models: {BUILT_IN!r} (comes with this package) or the path of a model "
            "repository, a folder that holds NAME/config.pbtxt and NAME/1/"
        )
    if _versions(path) or (path / "config.pbtxt").is_file():
        raise EngineError(f"model {name!r} is one model and not a repository of them; give its parent: {path.parent}?")
    models = _models(path)
    if not models:
        raise EngineError(f"model {name!r}: {path} holds no model; put NAME/config.pbtxt and NAME/1/model.py there")
    problems = [problem for folder in models.values() if (problem := _problem(folder))]
    if problems:
        raise EngineError(f"model {name!r}: {'; '.join(problems)}")
    return Model(name, _chosen(name, models, asked), _files(path), path)


def backend(repository: Path, model: str) -> str | None:
    """The backend that a model's config.pbtxt names, if it names one."""
    return _backend(repository / model)


def _chosen(name: str, models: Mapping[str, Path], asked: str | None) -> str:
    if asked is not None and asked not in models:
        raise EngineError(f"option 'model_name': {name!r} has no model {asked!r}; it has {', '.join(models)}")
    if asked is None and len(models) > 1:
        raise EngineError(f"model {name!r} holds {', '.join(models)}; say with model_name= which one requests go to")
    return asked or next(iter(models))


def _models(path: Path) -> dict[str, Path]:
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    return {folder.name: folder for folder in folders if folder.name not in _NOT_A_MODEL}


def _versions(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if entry.is_dir() and entry.name.isdecimal() and entry.name[0] != "0"]


def _problem(folder: Path) -> str:
    """Why Triton would not load the model in *folder*, as far as its files tell."""
    versions = _versions(folder)
    if not versions:
        has = "config.pbtxt and" if (folder / "config.pbtxt").is_file() else "neither config.pbtxt nor"
        lack = "no version folder" if has.endswith("and") else "a version folder"
        return f"{folder.name} has {has} {lack}, such as {folder.name}/1/ (an ensemble's is empty)"
    if _backend(folder) == "python" and not any(_holds_python(folder, version) for version in versions):
        return f"{folder.name} is on the Python backend and lacks {folder.name}/{versions[0].name}/model.py"
    return ""


def _holds_python(folder: Path, version: Path) -> bool:
    # The config may name another file.
    return (version / "model.py").is_file() or "default_model_filename" in _config(folder)


def _backend(folder: Path) -> str | None:
    found = _BACKEND.search(_config(folder))
    return found[1] if found else None


def _config(folder: Path) -> str:
    file = folder / "config.pbtxt"
    try:
        return _text(file, file.stat().st_mtime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=256)
def _text(file: Path, mtime: int) -> str:
    """Read once for each state of a file: a boot asks again after the repository was evicted from the page cache."""
    return file.read_text(encoding="utf-8", errors="replace")


def _files(path: Path) -> tuple[Path, ...]:
    """Every file of the repository but Python's bytecode, which boots write there."""
    found = (file for file in sorted(path.rglob("*")) if file.is_file() and "__pycache__" not in file.parts)
    return tuple(file.resolve() for file in found)
