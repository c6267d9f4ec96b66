"""A series that stays small however long it gets."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_coldstart.memory import Series

#: Samples after which every second one is left out.
MOST = 4000


class Samples:
    """Samples of some columns, a value or None each. Every time there are *most*, two neighbours become one.

    ``stride`` says of how many samples as they came one is made now: whoever takes them can take fewer.
    """

    def __init__(self, columns: tuple[str, ...], most: int = MOST) -> None:
        self.columns, self.most, self.stride = columns, most, 1
        self._times: list[float] = []
        self._values: dict[str, list[float | None]] = {name: [] for name in columns}

    def add(self, when: float, values: Mapping[str, float | None]) -> None:
        self._times.append(round(when, 3))
        for name, column in self._values.items():
            column.append(values.get(name))
        if len(self._times) >= self.most:
            self._thin()

    def _thin(self) -> None:
        """Keep the first of two neighbours; where it has no value, that of the second: seldom readings must not go."""
        self.stride *= 2
        self._times = self._times[::2]
        for name, column in self._values.items():
            seconds = [*column[1::2], None]
            self._values[name] = [b if a is None else a for a, b in zip(column[::2], seconds, strict=False)]

    def series(self) -> Series:
        """What there is; columns that were never read are left out."""
        found = {name: tuple(column) for name, column in self._values.items() if any(v is not None for v in column)}
        return Series(tuple(self._times), found)
