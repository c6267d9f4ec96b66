"""The KV cache of SGLang, from its load report, its metrics and its server information.

``/v1/loads`` tells slots in use and requests as of the last prefill or of one of the last 15 decode steps; on an H200
0.5.14 still told of a burst that had ended. The gauges of ``/metrics`` are renewed by prefills and each ``decode_log_interval`` decode steps, 40
by default, and then stay as they were for half a minute of idleness; they alone tell how long the running sequences are.
Its counters of tokens count a request once it has ended, so they tell nothing of what is held.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_coldstart.kv.base import KVReader
from pytest_coldstart.kv.prometheus import count, whole
from pytest_coldstart.memory import KVCache
from pytest_coldstart.observe import scrape

_PREFIX = "sglang:"


@dataclass(frozen=True)
class _Use:
    """Slots in use and requests, of one instant."""

    used: int
    capacity: int | None
    running: int | None
    waiting: int | None
    source: str


class SGLangKV(KVReader):
    """Slots are counted in whole pages, so that a page with one token in it is all in use."""

    #: Forty decode steps of 25 ms.
    refresh = 1.0

    def __init__(self, host: str, port: int, log: Path) -> None:
        super().__init__(host, port, log)
        self._page: int | None = None
        self._hits_before = 0.0

    def begin(self) -> None:
        self._hits_before = _metrics(self._get("/metrics")).get("hits", 0.0)

    def read(self, point: str) -> KVCache | None:
        metrics, load = _metrics(self._get("/metrics")), _load(self._get("/v1/loads?include=core"))
        gauges = _gauges(metrics)
        use = load or gauges
        if use is None:
            return None
        page, tokens = self._page_size(metrics), None
        if point != "held" and use.used:
            # Nothing is asked of it, so nothing is in use: these are the numbers of its last step, which it did not renew.
            pages = use.capacity // page if page and use.capacity else None
            reading = KVCache(point, None, page, pages, capacity_tokens=use.capacity, source=use.source)
            return _with_prefixes(reading, metrics)
        if use.used == 0 or page == 1:
            tokens = use.used
        elif page and gauges and gauges.running == use.running and metrics.get("decode_sum_seq_lens"):
            # Each sequence in full, so that what it found in the cache is held once only.
            use, shared = gauges, metrics.get("hits", 0.0) - self._hits_before
            tokens = min(use.used, max(0, round(metrics["decode_sum_seq_lens"] - shared)))
        reading = KVCache(
            point=point,
            block_size=page,
            total_blocks=use.capacity // page if page and use.capacity else None,
            used_blocks=math.ceil(use.used / page) if page else None,
            capacity_tokens=use.capacity,
            tokens=tokens,
            counted_by="" if tokens is None else "metrics",
            running=use.running,
            waiting=use.waiting,
            source=use.source,
        )
        return _with_prefixes(reading, metrics)

    def _page_size(self, metrics: Mapping[str, float]) -> int | None:
        if self._page is None:
            told = metrics.get("page_size") or _info(self._get("/server_info") or self._get("/get_server_info"))
            self._page = whole(told) or None
        return self._page

    def _get(self, path: str) -> bytes | None:
        return scrape.fetch(self.host, self.port, path)


def _metrics(text: bytes | None) -> dict[str, float]:
    """Gauges by name without their prefix, and the prefix cache's ``hits`` and ``misses`` in tokens.

    Ranks that work on the same requests say the same, of which the largest counts; replicas add up.
    """
    found: dict[tuple[str, str], float] = {}
    for key, labels, number in scrape.samples(text or b""):
        if not key.startswith(_PREFIX) or (value := _number(number)) is None:
            continue
        of = scrape.labels_of(labels)
        if key == "sglang:realtime_tokens_total":
            key = {"prefill_cache": "hits", "prefill_compute": "misses"}.get(of.get("mode", ""), "")
        key = key.removeprefix(_PREFIX)
        place = (key, of.get("dp_rank", ""))
        found[place] = max(value, found.get(place, value))
    totals: dict[str, float] = {}
    for (key, _), value in found.items():
        totals[key] = value if key == "page_size" else totals.get(key, 0.0) + value
    return totals


def _with_prefixes(reading: KVCache, metrics: Mapping[str, float]) -> KVCache:
    """With the tokens that were found in the prefix cache, and all that were looked up."""
    hits, misses = metrics.get("hits"), metrics.get("misses")
    looked_up = hits + misses if hits is not None and misses is not None else None
    return replace(reading, hits=hits, queries=looked_up)


def _gauges(metrics: Mapping[str, float]) -> _Use | None:
    used = metrics.get("kv_used_tokens", metrics.get("num_used_tokens"))
    if used is None:
        return None
    wanted = ("max_total_num_tokens", "num_running_reqs", "num_queue_reqs")
    capacity, running, waiting = (whole(metrics.get(name)) for name in wanted)
    slots = whole(used)
    return None if slots is None else _Use(slots, capacity, running, waiting, "metrics")


def _load(body: bytes | None) -> _Use | None:
    """The sum over the replicas in an answer of ``/v1/loads``; None for what is no such answer."""
    try:
        loads = json.loads(body or b"")["loads"]
        names = ("num_used_tokens", "max_total_num_tokens", "num_running_reqs", "num_waiting_reqs")
        counts = [[whole(load[name]) for load in loads] for name in names]
        used, capacity, running, waiting = (whole(sum(of)) for of in counts)  # type: ignore[arg-type]  # None raises
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return _Use(used, capacity, running, waiting, "loads") if used is not None and capacity else None


def _info(body: bytes | None) -> int | None:
    """``page_size`` in an answer of ``/server_info``."""
    try:
        told: Any = json.loads(body or b"")["page_size"]
        return whole(told)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return count(value)
