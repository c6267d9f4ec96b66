"""The demo's store: run files of made-up boots, ingested as those of real ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pytest_coldstart.coldness import TIERS
from pytest_coldstart.demo.boots import Place, boot, later
from pytest_coldstart.demo.cells import DemoCell
from pytest_coldstart.demo.failures import failing
from pytest_coldstart.demo.history import UPGRADE, DemoRun, is_made, runs
from pytest_coldstart.demo.log import lines
from pytest_coldstart.record import BootRecord
from pytest_coldstart.slo import DEFAULTS, Bound, effective, judge, parse_bound
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
from pytest_coldstart.store.runfile import RunFile

#: What the suite of the demo asks for, beside the defaults.
_SLOS = (
    *("cold_start<=90s@pristine", "cold_start<=35s@redeploy", "cold_start<=20s@restart", "cold_start<=3s@wake"),
    *("warm_first_token<=150ms", "ttft_jitter<=250ms"),
)
#: Of so many of the newest runs, and of boots that failed, the engine's log is kept.
_LOGS = 2
#: The run in which something evicted the weights of a boot that was to find them resident.
_EVICTED = 41


def write(home: Home, now: datetime | None = None, seed: int = 1) -> None:
    """Fill the store at *home*, which is prepared and empty. The same seed and time give the same boots.

    :raises StoreError: it cannot be written.
    """
    order = random.Random(seed)
    made = list(runs(now or datetime.now(UTC), order))
    for place, run in enumerate(made):
        _run(home, run, order, keep=len(made) - place <= _LOGS)
    problems = ingest(home).problems
    assert not problems, problems


def _run(home: Home, run: DemoRun, order: random.Random, keep: bool) -> None:
    file = RunFile(home, run.id, "main", run.header(), durable=False)
    at, broken = run.at + timedelta(seconds=2), False
    for item in run.host.cells:
        if not is_made(item, run):
            continue
        records: list[BootRecord] = []
        for place in _places(run, item):
            record = boot(replace(place, at=at), failing(item, run.day, order), order)
            at = later(at, record)
            if keep or record.failed:
                record = _logged(home, record)
            file.boot(record)
            records.append(record)
        for verdict in judge(_bounds(item.tier), records, _impossible(records)):
            broken = broken or verdict.broken
            file.verdict(item.digest, item.name, item.tier, item.nodeid, verdict)
    file.close(1 if broken else 0)


def _places(run: DemoRun, item: DemoCell) -> list[Place]:
    """The boots of a cell in one run: after an upgrade, one first that fills the caches and does not count."""
    places = [Place(run, item, run.at, round=number + 1) for number in range(item.rounds)]
    if item.engine.name == "sglang" and UPGRADE <= run.day < UPGRADE + 1.5:
        places.insert(0, Place(run, item, run.at, role="prime"))
    if run.number == _EVICTED and item.engine.name == "llamacpp" and item.tier == "restart":
        places[0] = replace(places[0], evicted=True)
    return places


def _bounds(tier: str) -> list[Bound]:
    texts = ((_SLOS, "marker"), (DEFAULTS, "default"))
    return effective([[parse_bound(_for(text), source, TIERS) for text in level] for level, source in texts], tier)


def _for(text: str) -> str:
    """``metric<=bound@tier`` as bounds are written: the tier behind the metric."""
    bound, _, tier = text.partition("@")
    return bound.replace("<=", f"@{tier}<=") if tier else bound


def _impossible(records: Sequence[BootRecord]) -> dict[str, str]:
    return next((record.memory.impossible for record in records if not record.failed), {})


def _logged(home: Home, record: BootRecord) -> BootRecord:
    path = home.logs / f"{record.boot_id}.log"
    path.write_text(lines(record))
    return replace(record, log_path=str(path), log_bytes=path.stat().st_size)
