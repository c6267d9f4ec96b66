"""A cell: one point of the config matrix, and the digest that is its identity in the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from pytest_coldstart.client import FIRST_PROMPT, FIRST_TOKENS, digest

#: The pinned first request: another one would start new series.
FIRST_REQUEST = f"{digest(FIRST_PROMPT)}/{FIRST_TOKENS}"


@dataclass(frozen=True)
class Container:
    """How a container that ``command`` starts is reached and ended.

    ``stop`` is the command that ends it, ``port`` the port inside, ``paths`` maps host folders
    to folders inside. ``{name}`` and ``{port}`` in ``stop`` and in the command are filled in.
    """

    stop: tuple[str, ...]
    port: int
    paths: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """engine x model x engine options x environment x interpreter x warm-up strategy x tier."""

    engine: str
    model: str | None
    tier: str
    options: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    command: tuple[str, ...] = ()
    warmup: Mapping[str, Any] = field(default_factory=lambda: {"strategy": "none"})
    #: How the timed requests are shaped: they decide the numbers, so they are identity too.
    requests: Mapping[str, Any] = field(default_factory=dict)
    container: Container | None = None
    #: What identity has instead of values: the name that a person gave (``pytest.param(..., id=...)``),
    #: a model's whole hub name, or None for an interpreter that the command line gave.
    labels: Mapping[str, str | None] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """What the cell is, as plain data. A model's path counts by its name, since the same cell
        lies elsewhere on another machine; so does an interpreter that was given an id."""
        model = self.model
        if model and ("/" in model or "\\" in model):
            model = PurePath(model).name
        return {
            "engine": self.engine,
            "model": self.labels.get("model", model),
            "tier": self.tier,
            "options": dict(sorted(self.options.items())),
            "env": dict(sorted(self.env.items())),
            "python": self.labels.get("python", self.python),
            "command": list(self.command),
            "warmup": dict(sorted(self.warmup.items())),
            "requests": {"first": FIRST_REQUEST, **dict(sorted(self.requests.items()))},
        }

    @property
    def digest(self) -> str:
        return _digest(self.content())

    @property
    def base_digest(self) -> str:
        """Identity without the tier: the owner of the cache roots, so that ``restart`` finds
        what ``pristine`` filled. The real paths count here, since caches hold them."""
        content = {**self.content(), "model": self.model, "python": self.python}
        for name in ("tier", "requests"):
            content.pop(name)
        return _digest(content)

    def at(self, tier: str) -> Cell:
        return replace(self, tier=tier)


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
