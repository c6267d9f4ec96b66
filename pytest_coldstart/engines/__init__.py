"""Engines by name: ours and those that other distributions add, all through one entry point group."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

from pytest_coldstart.engines.base import Engine, EngineError

GROUP = "pytest_coldstart.engines"


class EngineRegistry:
    """Engine adapters; entry points are loaded at the first look, hook results are added."""

    def __init__(self) -> None:
        self._points = {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}
        self._engines: dict[str, Engine] = {}

    def add(self, kind: type[Engine]) -> None:
        self._engines[kind.name] = kind()

    def names(self) -> list[str]:
        return sorted({*self._points, *self._engines})

    def get(self, name: str) -> Engine:
        """The adapter called *name*.

        :raises EngineError: no such engine, or its entry point cannot be loaded.
        """
        if name not in self._engines:
            if name not in self._points:
                raise EngineError(f"unknown engine {name!r}; valid engines: {', '.join(self.names())}")
            self._engines[name] = self._load(name)
        return self._engines[name]

    def all(self) -> Iterable[Engine]:
        return [self.get(name) for name in self.names()]

    def _load(self, name: str) -> Engine:
        point = self._points[name]
        try:
            kind = point.load()
        except Exception as error:
            raise EngineError(
                f"engine {name!r}: its entry point {point.value!r} cannot be loaded: {error!r}"
            ) from error
        if not (isinstance(kind, type) and issubclass(kind, Engine)):
            raise EngineError(
                f"engine {name!r}: {point.value!r} is not a subclass of pytest_coldstart.engines.base.Engine"
            )
        return kind()


__all__ = ["GROUP", "Engine", "EngineError", "EngineRegistry"]
