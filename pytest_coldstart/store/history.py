"""History: what earlier boots tell about the boots to come."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_coldstart.store.database import reader
from pytest_coldstart.store.errors import StoreLocked
from pytest_coldstart.store.home import Home

_SQL = """
WITH took AS (
    SELECT b.boot_id, b.cell_digest, max(i.seconds) + coalesce(max(m.value), 0) AS seconds
    FROM boot b
    JOIN instant i ON i.boot_id = b.boot_id AND i.name = 'stopped'
    LEFT JOIN metric m ON m.boot_id = b.boot_id AND m.name = 'harness_time'
    WHERE b.role = 'measured' AND b.outcome = 'ok' AND list_contains(?, b.cell_digest)
    GROUP BY b.boot_id, b.cell_digest
)
SELECT cell_digest, median(seconds) FROM took GROUP BY cell_digest
"""


def expected_seconds(home: Home, cell_digests: Iterable[str], wait: float = 0.0) -> dict[str, float]:
    """For each cell with a history, the median seconds of one boot, our own work around it included.

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
        return {digest: float(seconds) for digest, seconds in con.execute(_SQL, [list(cell_digests)]).fetchall()}
