"""One finished boot as the rules of the hints look at it: seconds on its critical path, and which engine it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_coldstart.engines.families import family
from pytest_coldstart.record import BootRecord, Phase


@dataclass(frozen=True)
class View:
    """``path``: the pieces of the critical path. ``total``: seconds from the start to its end."""

    record: BootRecord
    path: tuple[Phase, ...]
    total: float

    @classmethod
    def of(cls, record: BootRecord) -> View:
        total = record.attribution.end
        if total is None:
            total = max((piece.end for piece in record.phases), default=0.0)
        return cls(record, record.phases, total)

    @property
    def floor(self) -> float:
        """Seconds below which nothing is worth a hint."""
        return max(0.2, 0.02 * self.total)

    @property
    def engine(self) -> str:
        """The engine's name; behind a plain command, the one that the command starts, or ``openai``."""
        return family(self.record.engine, self.record.command)

    @property
    def keeps_caches(self) -> bool:
        """Whether the caches are those of an earlier boot; of a boot that is there to fill them they are not.

        Where no cache is inventoried nobody knows: a generic command places its own.
        """
        kept = self.record.evidence.state.get("caches") == "kept"
        return self.record.role != "prime" and kept and bool(self.record.caches)

    def pieces(self, *names: str) -> list[Phase]:
        return [piece for piece in self.path if piece.name in names]

    def seconds(self, *names: str) -> float:
        return seconds(self.pieces(*names))


def seconds(pieces: Iterable[Phase]) -> float:
    return sum(piece.end - piece.begin for piece in pieces)


def clipped(pieces: Iterable[Phase], begin: float) -> list[tuple[Phase, float]]:
    """The pieces that lie after *begin*, whole or in part, and the seconds of each that do."""
    return [(piece, piece.end - max(piece.begin, begin)) for piece in pieces if piece.end > begin]


def sums(pairs: Iterable[tuple[str, float]], most: int) -> list[tuple[str, float]]:
    """Seconds added up by name: the largest ones, largest first."""
    found: dict[str, float] = {}
    for name, value in pairs:
        found[name] = found.get(name, 0.0) + value
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))[:most]
