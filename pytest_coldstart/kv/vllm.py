"""The KV cache of vLLM, from one scrape of its metrics.

Usage, requests and counters of tokens are renewed together, after each step of an engine, in the event loop that also
answers the scrape: what stands in one answer belongs to one step.

Which tokens are held: all those of the prompts and all sampled ones, except the last of each running request. That one
has been sampled, and its keys and values are written by the step that reads it as input. With asynchronous scheduling
this next step has been scheduled by then, so a block for that token may be in use already; it is not counted as held,
and at most one token a request is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_coldstart.kv.base import KVReader
from pytest_coldstart.kv.prometheus import Samples, scrape, whole
from pytest_coldstart.memory import KVCache
from pytest_coldstart.observe.memory_log import read_sizes

#: The gauge of use, 0 to 1, by its names, newest first.
_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_HITS, _QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
#: Older versions have this alone, in blocks or in tokens.
_OLD_HITS = "vllm:gpu_prefix_cache_hits_total"


@dataclass(frozen=True)
class _Counters:
    """Totals since the engine's start. ``ended``: requests; ``old_hits``: of a unit that is not known."""

    tokens: float
    hits: float | None
    old_hits: float
    ended: float


@dataclass(frozen=True)
class _Geometry:
    """``block_size`` is None where no one size holds for all blocks; ``blocks``: of one engine; ``capacity``: of all."""

    engines: int
    block_size: int | None = None
    blocks: int | None = None
    capacity: int | None = None


class VLLMKV(KVReader):
    """Any vLLM; with several engines (data parallel) the sum over them.

    Hybrid models keep several groups of layers, each with blocks of its own for the same token: their blocks in use are
    told, and no ``block_size``, so that nothing can be made of tokens and blocks.
    """

    def __init__(self, host: str, port: int, log: Path) -> None:
        super().__init__(host, port, log)
        self._begin: _Counters | None = None
        #: Whether the block that is nobody's counts as used: so it was in the first versions of V1.
        self._null_counts = False
        #: What the log says of the capacity, once it was read.
        self._logged: tuple[int | None] | None = None

    def begin(self) -> None:
        samples = scrape(self.host, self.port)
        if samples is None:
            return
        self._begin = _counters(samples)
        idle = samples.total("vllm:num_requests_running") == 0
        blocks = self._geometry(samples).blocks
        if idle and blocks:
            self._null_counts = all(abs(sample.value * blocks - 1) < 0.5 for sample in samples.of(*_USAGE))

    def read(self, point: str) -> KVCache | None:
        samples = scrape(self.host, self.port)
        if samples is None:
            return None
        geometry = self._geometry(samples)
        running, waiting = (whole(samples.total(f"vllm:num_requests_{state}")) for state in ("running", "waiting"))
        tokens = self._tokens(samples, running)
        return KVCache(
            point,
            block_size=geometry.block_size,
            total_blocks=whole(geometry.blocks * geometry.engines) if geometry.blocks else None,
            used_blocks=self._used(samples, geometry.blocks),
            capacity_tokens=geometry.capacity,
            tokens=tokens,
            counted_by="metrics" if tokens is not None else "",
            running=running,
            waiting=waiting,
            hits=samples.total(_HITS),
            queries=samples.total(_QUERIES),
            source="metrics",
        )

    def _used(self, samples: Samples, blocks: int | None) -> int | None:
        """Blocks in use: the gauge is a share of all blocks but the first, which is nobody's."""
        shares = [sample.value for sample in samples.of(*_USAGE)]
        if not blocks or not shares or not all(0 <= share <= 1 for share in shares):
            return None
        if self._null_counts:
            return whole(sum(round(share * blocks) - 1 for share in shares))
        return whole(sum(round(share * (blocks - 1)) for share in shares))

    def _tokens(self, samples: Samples, running: int | None) -> int | None:
        """Tokens held since :meth:`begin`; None where that cannot be told, as once a request has ended.

        A block that several requests share holds its tokens once, so tokens found in the prefix cache do not count.
        """
        begin, now = self._begin, _counters(samples)
        if (
            begin is None
            or now is None
            or running is None
            or now.ended != begin.ended
            or now.old_hits != begin.old_hits
        ):
            return None
        hits = now.hits - begin.hits if now.hits is not None and begin.hits is not None else 0
        return whole(now.tokens - begin.tokens - hits - running)

    def _geometry(self, samples: Samples) -> _Geometry:
        labels = next((sample.labels for sample in samples.of("vllm:cache_config_info")), {})
        engines = max(1, len(samples.of(*_USAGE)))
        size, total = _number(labels, "block_size"), _number(labels, "num_gpu_blocks")
        capacity = _number(labels, "kv_cache_size_tokens") or self._from_log()
        if not size or not total:
            return _Geometry(engines)
        # Blocks are the sum over the engines, once the largest of them; the capacity is always one engine's.
        concurrency = labels.get("kv_cache_max_concurrency", "")
        fits = [blocks for blocks in (total // engines, total) if _one_group(blocks, size, capacity, concurrency)]
        blocks = fits[0] if fits else total // engines
        return _Geometry(engines, size if fits else None, blocks, whole(capacity * engines) if capacity else None)

    def _from_log(self) -> int | None:
        """The capacity of one engine in tokens by its log: older versions have no label for it."""
        if self._logged is None:
            try:
                with self.log.open("r", encoding="utf-8", errors="replace") as lines:
                    self._logged = (read_sizes(lines, "vllm").get("kv_tokens"),)
            except OSError:
                return None
        return self._logged[0]


def _one_group(blocks: int, size: int, capacity: int | None, concurrency: str) -> bool:
    """Whether a token takes a place in one block and no more.

    Then the capacity is blocks times size; newer versions state how often the longest request fits, times its length,
    and the longest request takes as many blocks as its tokens fill.
    """
    if not capacity:
        return False
    if capacity == blocks * size:
        return True
    try:
        times = float(concurrency)
        if not 0 < times < math.inf:
            return False
        longest = round(capacity / times)
        return math.isclose(blocks / times, math.ceil(longest / size), rel_tol=1e-9)
    except (ValueError, ZeroDivisionError, OverflowError):
        return False


def _counters(samples: Samples) -> _Counters | None:
    prompts, sampled = samples.total("vllm:prompt_tokens_total"), samples.total("vllm:generation_tokens_total")
    if prompts is None or sampled is None:
        return None
    hits = samples.total(_HITS)
    old_hits = samples.total(_OLD_HITS) or 0.0 if hits is None else 0.0
    return _Counters(prompts + sampled, hits, old_hits, samples.total("vllm:request_success_total") or 0.0)


def _number(labels: Mapping[str, str], name: str) -> int | None:
    text = labels.get(name, "")
    return int(text) or None if re.fullmatch("[0-9]{1,15}", text) else None
