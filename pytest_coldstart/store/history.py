"""History: what earlier boots tell about the boots to come."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from pytest_coldstart.store.database import reader
from pytest_coldstart.store.errors import StoreLocked
from pytest_coldstart.store.home import Home

#: Boots of a cell that are asked at most, the newest: what it took long ago says little, and is much to read.
_NEWEST = 50

_BOOTS = f"""
SELECT boot_id, cell_digest FROM boot
WHERE role = 'measured' AND outcome = 'ok' AND list_contains(?, cell_digest)
QUALIFY row_number() OVER (PARTITION BY cell_digest ORDER BY started_at DESC NULLS LAST, boot_id DESC) <= {_NEWEST}
"""

#: Ids begin with the time of the boot: the bounds spare a big table's other parts.
_SOME = "boot_id BETWEEN $least AND $most AND boot_id IN (SELECT unnest($boots::VARCHAR[]))"
_SECONDS = f"""
SELECT boot_id, seconds + coalesce(value, 0)
FROM (SELECT boot_id, seconds FROM instant WHERE name = 'stopped' AND seconds IS NOT NULL AND {_SOME})
LEFT JOIN (SELECT boot_id, value FROM metric WHERE name = 'harness_time' AND {_SOME}) USING (boot_id)
"""


def expected_seconds(home: Home, cell_digests: Iterable[str], wait: float = 0.0) -> dict[str, float]:
    """For each cell with a history, the median seconds of one boot, our own work around it included, over its newest 50.

    Only boots that were measured and succeeded count: one that ran into its timeout says little
    about the next. Empty when there is no store or another process holds it for *wait* seconds.

    :raises StoreError: the store cannot be read.
    """
    if not home.database.exists():
        return {}
    try:
        con = reader(home.database, wait)
    except StoreLocked:
        return {}
    with con:
        cells = dict(con.execute(_BOOTS, [list(cell_digests)]).fetchall())
        if not cells:
            return {}
        values = {"boots": list(cells), "least": min(cells), "most": max(cells)}
        found: dict[str, list[float]] = {}
        for boot, seconds in con.execute(_SECONDS, values).fetchall():
            found.setdefault(cells[boot], []).append(seconds)
    return {cell: float(median(seconds)) for cell, seconds in found.items()}
