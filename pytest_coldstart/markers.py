"""@pytest.mark.coldstart and @pytest.mark.slo -> frozen data; unknown arguments list the valid ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from pytest_coldstart.burst import spec_from
from pytest_coldstart.cell import Container
from pytest_coldstart.coldness import TIERS
from pytest_coldstart.slo import Bound, SLOError, parse_bound


class MarkerError(ValueError):
    """A mistake in a suite; the message says what is valid."""


@dataclass(frozen=True)
class ColdstartMark:
    """The merged arguments of a test's coldstart markers, the closest winning."""

    engine: str
    model: str | None = None
    matrix: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    include: Sequence[Mapping[str, Any]] = ()
    exclude: Sequence[Mapping[str, Any]] = ()
    tier: Any = "pristine"
    rounds: int | None = None
    warmup: Any = "none"
    options: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    command: Sequence[str] = ()
    container: Container | None = None
    port: int | None = None
    requests: int = 11
    prompt_words: Sequence[int] = (32,)
    burst: Any = None
    gpus: int | None = None


def coldstart_mark(item: pytest.Function | pytest.Item) -> ColdstartMark | None:
    """The item's markers merged, or None where it has none.

    :raises MarkerError: an unknown or missing argument, or one of the wrong kind.
    """
    marks = list(item.iter_markers("coldstart"))
    if not marks:
        return None
    arguments: dict[str, Any] = {}
    for mark in reversed(marks):
        if mark.args:
            raise MarkerError(f"coldstart takes keyword arguments only, got {mark.args[0]!r}; valid: {_valid()}")
        arguments.update(mark.kwargs)
    unknown = sorted(set(arguments) - {item.name for item in fields(ColdstartMark)})
    if unknown:
        raise MarkerError(f"coldstart has no argument {', '.join(map(repr, unknown))}; valid arguments: {_valid()}")
    if not arguments.get("engine") or not isinstance(arguments["engine"], str):
        raise MarkerError("coldstart needs engine=, the name of an engine")
    _check(arguments)
    return ColdstartMark(**arguments)


def _valid() -> str:
    return ", ".join(item.name for item in fields(ColdstartMark))


def _check(arguments: dict[str, Any]) -> None:
    """Kinds of the arguments; what they mean for an engine is checked with the cells."""
    for name, kind, words in (
        ("matrix", Mapping, "a dict of axis -> list of values"),
        ("options", Mapping, "a dict of engine options"),
        ("env", Mapping, "a dict of environment variables"),
    ):
        if name in arguments and not isinstance(arguments[name], kind):
            raise MarkerError(f"{name}={arguments[name]!r} is not {words}")
    for name, least in (("rounds", 1), ("requests", 1)):
        value = arguments.get(name, least)
        if name == "rounds" and value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise MarkerError(f"{name}={value!r} is not a whole number from {least}")
    gpus = arguments.get("gpus")
    if gpus is not None and (not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 0):
        raise MarkerError(f"gpus={gpus!r} is not a number of GPUs, a whole number from 0")
    if arguments.get("burst") is not None:
        try:
            spec_from(arguments["burst"])
        except ValueError as error:
            raise MarkerError(str(error)) from None
    port = arguments.get("port")
    if port is not None and (not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536):
        raise MarkerError(f"port={port!r} is not a port number, 1 to 65535")
    for name, value in dict(arguments.get("env", {})).items():
        if not isinstance(value, str) or not isinstance(name, str):
            raise MarkerError(f"env[{name!r}]={value!r} is not a string for a name that is a string")
        if not name or "=" in name or "\0" in name + value:
            raise MarkerError(
                f"env[{name!r}]={value!r}: a name is not empty and has no '=', and neither has a NUL byte"
            )
    _check_command(arguments)
    _check_matrix(arguments)
    words = arguments.get("prompt_words", (32,))
    if not words or not _all(words, lambda word: isinstance(word, int) and word > 0):
        raise MarkerError(f"prompt_words={words!r} is not a list of whole numbers from 1")


def _all(values: Any, right: Callable[[Any], bool]) -> bool:
    """Whether *values* is a list or tuple, each of its values right."""
    return isinstance(values, (list, tuple)) and all(right(value) for value in values)


def _check_command(arguments: dict[str, Any]) -> None:
    command = arguments.get("command", ())
    arguments["command"] = check_command(command)
    container = arguments.get("container")
    if container is not None and not isinstance(container, (Mapping, Container)):
        raise MarkerError(f"container={container!r} is not a dict with the keys 'stop', 'port' and 'paths'")
    if isinstance(container, Mapping):
        missing = sorted({"stop", "port", "paths"} - set(container))
        unknown = sorted(set(container) - {"stop", "port", "paths"})
        if missing or unknown:
            raise MarkerError(
                f"container= needs exactly the keys 'stop' (a command), 'port' (inside) and 'paths' (host -> inside); "
                f"missing: {missing or 'none'}, unknown: {unknown or 'none'}"
            )
        arguments["container"] = _container(container)
    refuse_bare_container(command, bool(container))


def check_command(command: Any) -> tuple[str, ...]:
    """A command as a tuple of words.

    :raises MarkerError: it is no list of strings.
    """
    if not _all(command, lambda word: isinstance(word, str) and "\0" not in word):
        raise MarkerError(f"command={command!r} is not a list of words, such as ['llama-server']")
    return tuple(command)


def refuse_bare_container(command: Sequence[str], has_container: bool) -> None:
    """Refuse a command that starts a container and says nothing of how to end it."""
    if command and command[0].rpartition("/")[2] in ("docker", "podman", "nerdctl") and not has_container:
        raise MarkerError(
            f"command={list(command)!r} starts a container: signals to its client may not end it. Give container="
            "{'stop': [...], 'port': ..., 'paths': {...}} too"
        )


def _container(given: Mapping[str, Any]) -> Container:
    stop, port, paths = given["stop"], given["port"], given["paths"]
    if not stop or not _all(stop, lambda word: isinstance(word, str)):
        raise MarkerError(f"container['stop']={stop!r} is not a list of words, such as ['docker', 'stop', '{{name}}']")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise MarkerError(f"container['port']={port!r} is not a port number, 1 to 65535")
    if not isinstance(paths, Mapping) or not _all([*paths, *paths.values()], lambda path: isinstance(path, str)):
        raise MarkerError(f"container['paths']={paths!r} is not a dict of host folder -> folder inside")
    return Container(tuple(stop), port, dict(paths))


def _check_matrix(arguments: dict[str, Any]) -> None:
    for axis, values in dict(arguments.get("matrix", {})).items():
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Sequence):
            raise MarkerError(f"matrix axis {axis!r}: {values!r} is not a list of values")
        if not values:
            raise MarkerError(f"matrix axis {axis!r} is empty: it would make no cell")
    for name in ("include", "exclude"):
        rows = arguments.get(name, ())
        if not _all(rows, lambda row: isinstance(row, Mapping)):
            raise MarkerError(f"{name}={rows!r} is not a list of dicts of axis -> value")


def slo_levels(item: pytest.Item) -> list[list[Bound]]:
    """The bounds of the item's slo markers, one level a node, the closest node first.

    :raises MarkerError: an argument that is no bound.
    """
    levels: list[list[Bound]] = []
    node_before: Any = None
    for node, mark in item.iter_markers_with_node("slo"):
        bounds = slo_bounds([mark])
        if node is node_before:
            levels[-1].extend(bounds)
        else:
            levels.append(bounds)
        node_before = node
    return levels


def slo_bounds(marks: Iterable[pytest.Mark]) -> list[Bound]:
    """The bounds of slo markers.

    :raises MarkerError: an argument that is no bound.
    """
    bounds: list[Bound] = []
    for mark in marks:
        if mark.kwargs:
            raise MarkerError(f"slo takes bounds as strings, such as slo('cold_start<=10s'), not {mark.kwargs!r}")
        if not mark.args:
            raise MarkerError("slo needs at least one bound, such as slo('cold_start<=10s')")
        bounds += [_bound(text) for text in mark.args]
    return bounds


def _bound(text: Any) -> Bound:
    if not isinstance(text, str):
        raise MarkerError(f"slo({text!r}): a bound is a string, such as 'cold_start<=10s'")
    try:
        return parse_bound(text, "marker", TIERS)
    except SLOError as error:
        raise MarkerError(str(error)) from None
