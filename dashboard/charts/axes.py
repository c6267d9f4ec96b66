"""Axes: units, times, rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import altair as alt
import pyarrow  # type: ignore[import-untyped]

from pytest_coldstart import units


def axis_unit(largest: float, family: str) -> tuple[str, float]:
    """The unit of an axis up to *largest*, and its worth in the stored unit: the one that numbers are printed in.

    Where nobody may write a bound in that unit, as in KB/s, it is the stored one.
    """
    units_of = units.FAMILIES[family]
    suffix = units.show(largest, family).partition(" ")[2]
    return (suffix, units_of[suffix]) if suffix in units_of else (family, 1.0)


def titled(name: str, unit: str) -> str:
    """``cold_start (s)``."""
    return f"{name} ({unit})" if unit and unit not in ("count",) else name


def chart(rows: Iterable[Mapping[str, Any]]) -> alt.Chart:
    """A chart of plain rows."""
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def many(rows: Iterable[Mapping[str, Any]]) -> alt.Chart:
    """A chart of many plain rows, whose values of one name are of one type. Altair looks at each row of :func:`chart`, which takes
    half a second for 2000; at none of a table."""
    found = [dict(row) for row in rows]
    return alt.Chart(pyarrow.Table.from_pylist(found)) if found else chart(())


def iso(at: datetime) -> str:
    """Times of the store are UTC without a zone; a browser would take that for its own zone."""
    return f"{at.isoformat(timespec='milliseconds')}Z"


def time(title: str = "start of the boot (UTC)") -> alt.X:
    """The x axis of the field ``at``, made by :func:`iso`."""
    return alt.X("at:T", title=title, scale=alt.Scale(type="utc"))


def tooltip(*names: str) -> list[alt.Tooltip]:
    """The fields of a row that its mark shows when it is pointed at: as text, so that no name is read as a number."""
    return [alt.Tooltip(f"{name}:N") for name in names]
