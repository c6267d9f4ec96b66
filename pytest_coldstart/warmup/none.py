"""No warm-up: the first request is all the engine has seen."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_coldstart.warmup.base import Send, Warmup


@dataclass(frozen=True)
class NoWarmup(Warmup):
    """Send nothing."""

    name = "none"

    def run(self, send: Send) -> None:
        return
