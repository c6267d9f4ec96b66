"""The contract between a boot and what tells of an engine's KV cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from pytest_coldstart.memory import KVCache


class KVReader(ABC):
    """Reads one engine's KV cache. Made for one boot, once its port is known; may keep what it read before."""

    #: Seconds after which the engine's own numbers are sure to be renewed; a burst is held at least that long.
    refresh: float = 0.0

    #: Whether the client's count of tokens may stand for the engine's: only where its blocks are those of the same moment.
    counted_by_client: bool = True

    def __init__(self, host: str, port: int, log: Path) -> None:
        self.host, self.port, self.log = host, port, log

    @abstractmethod
    def read(self, point: str) -> KVCache | None:
        """The cache now, everything in it of one instant; ``tokens`` as a total since :meth:`begin`.

        None where the engine gave no answer. Never raises for what an engine may answer.
        """

    def begin(self) -> None:  # noqa: B027  # most need nothing
        """Called just before the burst, with the engine idle: totals of tokens count from here."""
