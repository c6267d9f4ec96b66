"""The KV cache of LMDeploy's TurboMind: blocks from its log, tokens from its counters.

Its gauges have no geometry and are renewed each 10 s; its counters of tokens are new at each step, while requests run.
With ``TM_CACHE_LOG_INTERVAL=1`` each step of its scheduler prints how many sequences there are and what its allocator
holds, since 0.15. A cache block, one allocation, holds a fixed number of tokens of one sequence; blocks of one size are
packed into slabs, slabs are made of pages, pages of one region. Nothing is printed while the engine is idle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_coldstart.kv.base import KVReader
from pytest_coldstart.kv.prometheus import Samples, scrape, whole
from pytest_coldstart.memory import KVCache

#: Bytes of the log's end that are read: some hundred steps.
_TAIL = 128 << 10
#: Bytes of the log's beginning, where the configuration is printed.
_HEAD = 4 << 20
#: No line of a report is longer; a configuration may be, and is read apart.
_LONGEST_LINE = 4 << 10
_SIZE = r"\d{1,15}(?:\.\d{1,6})?(?:[KMGT]iB|B)"
_COUNTS = re.compile(rb"dp(\d{1,9}) total: \d{1,15}, eligible: (\d{1,15}), active: (\d{1,15})(?!\d)")
_RANK = re.compile(rb"dp(\d{1,9}) cache stats:")
#: What of a report's line follows this mark.
_MARK = b"[cache] "
_REGION = re.compile(
    rf"region={_SIZE} (?:live=[^|]*)?live_alloc=\d{{1,15}} \| pages \d{{1,15}}/(\d{{1,15}}) used.*page_size=({_SIZE})".encode()
)
_SLAB = re.compile(rf"  slab obj={_SIZE} slab=({_SIZE}) cap=(\d{{1,15}}) .*obj (\d{{1,15}})/\d{{1,15}} used".encode())
_COUNTERS = ("prompt_tokens_total", "generation_tokens_total", "cached_tokens_total", "request_prompt_tokens_sum")
_BLOCK_SIZE = re.compile(rb"cache_block_seq_len=(\d{1,15})(?!\d)")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True)
class _Stats:
    """One report of one replica: blocks in use, and how many there can be."""

    used: int
    total: int


class TurboMindKV(KVReader):
    """Blocks as of the last step of the scheduler, while a burst is held; at rest that step is history.

    *block_size*: tokens in one block where the cell says so, else read in the log. *keeps_prefixes*: whether blocks stay
    in use after their requests, which their number then does not tell.
    """

    def __init__(
        self, host: str, port: int, log: Path, block_size: int | None = None, keeps_prefixes: bool = False
    ) -> None:
        super().__init__(host, port, log)
        self._block_size, self._keeps_prefixes = block_size, keeps_prefixes
        self._before: float | None = None

    def begin(self) -> None:
        self._before = _held(self._counters())

    def read(self, point: str) -> KVCache | None:
        held = point == "held"
        # Before the log, so that blocks are never older than what is in them: a step more of waste is seen, at most.
        counters = self._counters()
        counted = _held(counters) if held else None
        stats, counts = _reports(_end(self.log))
        found = [item for item in stats.values() if item]
        if not found or len(found) < len(stats):
            return None
        block, total = self._tokens_a_block(), sum(item.total for item in found)
        tokens = whole(counted - self._before) if counted is not None and self._before is not None else None
        active = sum(running for _, running in counts.values())
        return KVCache(
            point=point,
            block_size=block,
            total_blocks=whole(total),
            used_blocks=whole(sum(item.used for item in found)) if held and not self._keeps_prefixes else None,
            capacity_tokens=whole(total * block) if block else None,
            tokens=tokens,
            counted_by="" if tokens is None else "metrics",
            running=whole(active) if held and counts else None,
            waiting=whole(sum(wanted for wanted, _ in counts.values()) - active) if held and counts else None,
            hits=counters.get("cached_tokens_total") if self._keeps_prefixes else None,
            queries=counters.get("request_prompt_tokens_sum") if self._keeps_prefixes else None,
            source="log",
        )

    def _counters(self) -> dict[str, float]:
        """Counters of tokens by name, over all replicas."""
        samples = scrape(self.host, self.port) or Samples()
        totals = {name: samples.total(f"lmdeploy:{name}") for name in _COUNTERS}
        return {name: total for name, total in totals.items() if total is not None}

    def _tokens_a_block(self) -> int | None:
        if self._block_size is None:
            match = _BLOCK_SIZE.search(_beginning(self.log))
            self._block_size = (int(match[1]) or None) if match else None
        return self._block_size


def _held(counters: Mapping[str, float]) -> float | None:
    """Tokens of prompts and answers, which are counted as they are computed."""
    names = ("prompt_tokens_total", "generation_tokens_total")
    return sum(counters[name] for name in names) if set(names) <= set(counters) else None


def _reports(text: bytes) -> tuple[dict[int, _Stats | None], dict[int, tuple[int, int]]]:
    """Of each rank its last whole report, and how many sequences can run and do.

    A report is None where it cannot be read, or has blocks of several sizes, as for models with recurrent layers: which of
    them hold tokens is not told.
    """
    stats: dict[int, _Stats | None] = {}
    counts: dict[int, tuple[int, int]] = {}
    rank, region, slabs = None, None, 0
    for line in text.split(b"\n")[:-1]:  # the last one is not written to its end
        if len(line) > _LONGEST_LINE:
            if rank is not None and _MARK in line:
                stats[rank] = None
            rank = None
        elif (at := line.find(_MARK)) >= 0:
            said = line[at + len(_MARK) :]
            if said.startswith(b"region="):
                region = _region(said)
            elif rank is not None and said.startswith(b"  slab "):
                slabs += 1
                stats[rank] = _stats(region, said) if slabs == 1 else None
        else:
            begun = _RANK.search(line)
            rank, region, slabs = int(begun[1]) if begun else None, None, 0
            if told := _COUNTS.search(line):
                counts[int(told[1])] = int(told[2]), int(told[3])
    return stats, counts


def _region(said: bytes) -> int | None:
    """Bytes of the region that a line of a report tells of."""
    found = _REGION.match(said)
    return int(found[1]) * _bytes(found[2]) if found else None


def _stats(region: int | None, said: bytes) -> _Stats | None:
    found = _SLAB.match(said)
    slab = _bytes(found[1]) if found else 0
    if not found or not region or not slab:
        return None
    total = region // slab * int(found[2])
    return _Stats(int(found[3]), total) if total else None


def _bytes(size: bytes) -> int:
    """A size as :data:`_SIZE` finds it."""
    number = size.rstrip(b"KMGTiB")
    return round(float(number) * _UNITS[size[len(number) :].decode()])


def _end(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            return file.read(_TAIL)
    except OSError:
        return b""


def _beginning(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""
