"""The KV cache of TensorRT-LLM, from its Prometheus text, its size from its log where the text lacks it."""

from __future__ import annotations

import re
from contextlib import suppress

from pytest_coldstart.kv.base import KVReader
from pytest_coldstart.kv.prometheus import count, whole
from pytest_coldstart.memory import KVCache
from pytest_coldstart.observe.scrape import fetch, samples

_PATH = "/prometheus/metrics"
_PREFIX = "trtllm_"
#: The size in tokens, said twice: of an estimate, then of the real one.
_CAPACITY = re.compile(rb"for max tokens in paged KV cache \((\d{1,15})\)")
_MOST_LOG = 16 << 20


class TensorRTLLMKV(KVReader):
    """Blocks in use and in all, and requests that run, of the last iteration.

    It counts no tokens that are held, so ``tokens`` is None and the client counts. Reused and missed blocks are counted
    whole: ``hits`` and ``queries`` are blocks times their size.
    """

    #: A background task takes over the numbers of an iteration; how long that takes is unverified.
    refresh = 1.0
    #: Its blocks may be as old as that, and our count would be of now.
    counted_by_client = False

    def read(self, point: str) -> KVCache | None:
        text = fetch(self.host, self.port, _PATH)
        if text is None:
            return None
        values = _values(text)
        size, total = whole(values.get("kv_cache_tokens_per_block")), whole(values.get("kv_cache_max_blocks"))
        capacity = whole(size * total) if size and total else self._capacity_of_log()
        reused, missed = values.get("kv_cache_reused_blocks_total"), values.get("kv_cache_missed_blocks_total")
        counted = size is not None and (reused is not None or missed is not None)
        return KVCache(
            point,
            block_size=size,
            total_blocks=total,
            used_blocks=whole(values.get("kv_cache_used_blocks")),
            capacity_tokens=capacity,
            running=whole(values.get("num_requests_running")),
            waiting=whole(values.get("num_requests_waiting")),
            hits=count((reused or 0.0) * (size or 0)) if counted else None,
            queries=count(((reused or 0.0) + (missed or 0.0)) * (size or 0)) if counted else None,
            source=_PATH,
        )

    def _capacity_of_log(self) -> int | None:
        with suppress(OSError), self.log.open("rb") as file:
            found = _CAPACITY.findall(file.read(_MOST_LOG))
            return int(found[-1]) if found else None
        return None


def _values(text: bytes) -> dict[str, float]:
    """Name without its prefix -> value; of several processes that bear one gauge, the largest: a rank's use is its own."""
    found: dict[str, float] = {}
    for name, _, value in samples(text):
        if not name.startswith(_PREFIX):
            continue
        with suppress(ValueError):
            number = float(value)
            if count(number) is not None:
                key = name.removeprefix(_PREFIX)
                found[key] = max(found.get(key, number), number)
    return found
