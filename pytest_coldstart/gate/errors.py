"""What stops a comparison before it has a verdict: a user's mistake, in one sentence."""

from __future__ import annotations

from importlib.util import find_spec


class GateError(ValueError):
    """A side, an option or a policy that cannot be used; the message says what is valid and what to do."""


class NothingBooted(GateError):
    """A side cannot be booted: its pytest made no boot, or what prepares it failed. ``side``: base or head."""

    def __init__(self, side: str, message: str) -> None:
        super().__init__(message)
        self.side = side


def require_extra(what: str) -> None:
    """:raises GateError: the libraries of the extra gate are not installed, without which *what* does not work."""
    if not all(find_spec(name) for name in ("numpy", "scipy", "ruptures")):
        raise GateError(f"{what} needs the extra gate: pip install 'pytest-coldstart[gate]'")
