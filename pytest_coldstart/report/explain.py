"""A broken SLO and a failed boot in words: the numbers, the evidence, how to reproduce."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from pytest_coldstart import reuse, units
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.process import printable
from pytest_coldstart.record import BootRecord, Cache
from pytest_coldstart.report.columns import fit
from pytest_coldstart.report.path import has_path, path_lines
from pytest_coldstart.slo import Verdict

#: Consecutive instants, and what happens between them.
PARTS = (
    ("start", "listen", "start to listen"),
    ("listen", "ready", "listen to ready"),
    ("ready", "first_token", "ready to first token"),
    ("first_token", "first_done", "first token to first answer"),
)


#: Last instant reached -> the phase in which a boot failed.
FAILED_AT = {
    "": "start",
    "start": "start, before it listened",
    "listen": "loading, before it was ready",
    "ready": "first_request",
    "first_token": "first_request",
    "first_text": "first_request",
    "first_done": "warmup",
    "warmed": "warm requests",
}
#: Kinds of failure that say more of the phase than the last instant does.
FAILED_IN = {"sleep": "sleep, before the wake that is timed", "wake": "wake"}


def parts(record: BootRecord) -> list[tuple[str, float]]:
    """The stretches between a boot's instants, seconds each; they add up to its cold start."""
    at = record.instants
    return [(name, at[end] - at[begin]) for begin, end, name in PARTS if begin in at and end in at]


def slowest_part(record: BootRecord) -> str:
    """``imports 20.1 s (server)``: the phase that kept one process longest; without a path the longest of the parts."""
    if has_path(record):
        own: dict[tuple[str, str], float] = {}
        for item in record.phases:
            key = (item.name, item.process)
            own[key] = own.get(key, 0.0) + item.end - item.begin
        name, process = max(own, key=lambda key: own[key])
        return f"{name} {units.show(own[name, process], 's')}" + (f" ({fit(process, 24)})" if process else "")
    found = parts(record)
    if not found:
        return "-"
    name, seconds = max(found, key=lambda part: part[1])
    return f"{name} {units.show(seconds, 's')}"


def slowest_boot(records: Sequence[BootRecord]) -> BootRecord | None:
    """The failed boot if there is one, else the one with the longest cold start."""
    return max(
        records, key=lambda record: math.inf if record.failed else record.instants.get("first_done", 0.0), default=None
    )


def verdict_line(verdict: Verdict, records: Sequence[BootRecord]) -> str:
    """``cold_start.max = 2.3 s breaks <= 10 s (bound from command line; source client; 3 rounds: ...)``."""
    name = f"{verdict.metric}.{verdict.stat}"
    limit = f"{verdict.op} {units.show(verdict.bound, verdict.unit)}"
    if verdict.verdict == "unmeasured":
        return f"{name} is unmeasured, which breaks {limit} (bound from {verdict.bound_source}): {verdict.reason}"
    word = {"fail": "breaks", "pass": "holds", "n/a": "n/a for"}[verdict.verdict]
    if verdict.value is None:
        return f"{name} {word} {limit} ({verdict.reason})"
    values = ", ".join(_round_value(record, verdict.metric) for record in records)
    return (
        f"{name} = {units.show(verdict.value, verdict.unit)} {word} {limit} (bound from {verdict.bound_source}; "
        f"source {verdict.value_source or 'client'}; rounds: {values})"
    )


def _round_value(record: BootRecord, metric: str) -> str:
    if record.failed:
        return "failed"
    value = record.metrics.get(metric)
    return units.show(value.value if value else None, METRICS[metric].unit)


def evidence_lines(record: BootRecord) -> list[str]:
    """How cold the boot was found to be."""
    evidence = record.evidence
    lines = []
    share = evidence.resident_fraction
    if evidence.weights:
        size = units.show(evidence.weight_bytes, "B")
        before = "residency unknown" if share is None else f"{share:.1%} resident before the start"
        read = "unknown" if evidence.tree_read_bytes is None else units.show(evidence.tree_read_bytes, "B")
        lines.append(f"weights: {size}, {before}; read from storage by the tree: {read}")
    lines += [f"cache {cache.name}: {cache_words(cache)}" for cache in record.caches]
    lines += [f"cache: {text}" for text in reuse.outside(record)]
    lines += [f"contradicts the tier: {text}" for text in evidence.contradictions]
    lines += [f"unprovable: {text}" for text in evidence.unprovable]
    if record.stop.leaked_processes:
        lines.append(f"left by the engine and swept: {', '.join(record.stop.leaked_processes)}")
    if record.load_average is not None:
        lines.append(f"host: load average {record.load_average:.2f} at the start")
    return lines


def cache_words(cache: Cache) -> str:
    """What a boot did with one cache: hit, filled, grew although full, ignored or unknown."""
    return reuse.statement(cache).text


def notes(records: Sequence[BootRecord]) -> list[str]:
    """What a reader of a passing cell must know: what could not be proved, which caches grew again."""
    found: dict[str, None] = {}
    for record in records:
        for text in record.evidence.unprovable:
            found[f"unprovable: {text}"] = None
        if record.stop.port_free is False:
            found[f"round {record.round}: the port was still in use after the stop"] = None
        if record.evidence.state.get("caches") == "kept":
            words = [f"{cache.name} {cache_words(cache)}" for cache in record.caches if cache.before.files]
            if words:
                found[f"round {record.round}: caches: {'; '.join(words)}"] = None
            elif record.caches:
                found[f"round {record.round}: caches are kept and all were empty: nothing is written to them"] = None
            for text in reuse.outside(record):
                found[f"caches: {text}"] = None
    return [*found, *(f"caches: {text}" for text in reuse.moved(records))]


def reproduce(nodeid: str, extra: Sequence[str]) -> str:
    return " ".join(["pytest", "--coldstart", shlex.quote(nodeid), *(shlex.quote(word) for word in extra)])


def broken_slo(verdicts: Sequence[Verdict], records: Sequence[BootRecord], nodeid: str, extra: Sequence[str]) -> str:
    """The failure text of a cell whose boots went well and whose numbers did not."""
    record = slowest_boot(records)
    assert record is not None
    lines = [f"SLO broken: {record.engine} {record.cell_id}, tier {record.tier}, {_rounds(len(records))}", ""]
    lines += [f"  {verdict_line(verdict, records)}" for verdict in verdicts if verdict.broken]
    lines += ["", f"slowest boot, round {record.round}:"]
    lines += [f"  {name}: {units.show(seconds, 's')}" for name, seconds in parts(record)]
    lines += [f"  {line}" for line in path_lines(record, 98)]
    lines += ["evidence:", *(f"  {line}" for line in evidence_lines(record))]
    return "\n".join([*lines, f"reproduce: {reproduce(nodeid, extra)}"])


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def failed_boot(record: BootRecord, nodeid: str, extra: Sequence[str], logs_kept: bool) -> str:
    """The failure text of a cell with a boot that did not come up."""
    failure = record.failure
    assert failure is not None
    phase = FAILED_IN.get(failure.kind) or FAILED_AT.get(failure.instant, failure.instant)
    if record.tier == "wake" and "process" not in record.evidence.state and failure.kind not in FAILED_IN:
        phase = "the boot or the sleep before the wake that is timed"
    lines = [
        f"boot failed ({failure.kind}): {record.engine} {record.cell_id}, tier {record.tier}, round {record.round}",
        "",
        f"  {failure.message}",
        f"  failed at {phase}; last instant reached: {failure.instant or 'none'}",
        f"  command: {shlex.join(record.command)}",
        *(f"  {line}" for line in map(printable, failure.diagnosis)),
        *(f"  {line}" for line in path_lines(record, 98)),
        "evidence:",
        *(f"  {line}" for line in evidence_lines(record)),
        "end of the engine's log:",
        *(f"  {line}" for line in failure.log_tail.splitlines()),
    ]
    if logs_kept and record.log_path:
        lines.append(f"whole log: {record.log_path}")
    return "\n".join([*lines, f"reproduce: {reproduce(nodeid, extra)}"])
