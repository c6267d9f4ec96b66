"""One boot as plain rows of text for tables, in the words of ``coldstart show`` wherever it has some."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dashboard import text
from dashboard.data.boot import Whole
from pytest_coldstart import reuse, units
from pytest_coldstart.attribution import Process
from pytest_coldstart.derive import path_seconds, phase_seconds
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.record import BootRecord, FileResidency, Inventory, Request, Value
from pytest_coldstart.report import show
from pytest_coldstart.report.columns import one_line
from pytest_coldstart.report.waterfall import Row as Stretch
from pytest_coldstart.slo import Verdict

#: Pieces of the path, processes and requests that a table lists; the longest, the longest lived, the first.
PIECES, PROCESSES, REQUESTS = 1000, 200, 2000

#: The metrics at the top of the page; those that an SLO judges come besides.
KEY = ("cold_start", "warm_first_token", "fragmentation", "ready", "first_ttft")

Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Key:
    """One metric at the top: its value in words, ``why`` there is none, and what its SLOs were found to be in the run."""

    name: str
    value: str
    why: str
    verdicts: tuple[str, ...]
    help: str


def keys(whole: Whole) -> list[Key]:
    judged = [item.metric for item in whole.verdicts]
    return [_key(whole, name) for name in dict.fromkeys((*KEY, *judged))]


def _key(whole: Whole, name: str) -> Key:
    record = whole.record
    value = record.metrics.get(name)
    metric = METRICS.get(name)
    verdicts = tuple(verdict_words(item) for item in whole.verdicts if item.metric == name)
    help = metric.help if metric else "This version has no such metric."
    if record.failed and (value is None or value.value is None):
        return Key(name, "failed", record.failure.message if record.failure else "the boot failed", verdicts, help)
    if value is None or value.value is None:
        word = "n/a" if name in record.memory.impossible else "unmeasured"
        return Key(name, word, reason(value), verdicts, help)
    return Key(name, units.show(value.value, metric.unit if metric else "count"), "", verdicts, help)


def reason(value: Value | None) -> str:
    if value is None:
        return "the version that made this boot had no such metric"
    return value.reason or "no reason is stored"


def verdict_words(item: Verdict) -> str:
    """``max <= 10 s: pass (3 rounds: 2.31 s)``."""
    metric = METRICS.get(item.metric)
    rounds = "1 round" if item.rounds == 1 else f"{item.rounds} rounds"
    found = units.show(item.value, metric.unit if metric else item.unit) if item.value is not None else item.reason
    return f"{item.stat} {item.op} {units.show(item.bound, item.unit)}: {item.verdict} ({rounds}: {found or 'failed'})"


def facts(whole: Whole) -> Rows:
    """What the boot is, as ``coldstart show`` begins."""
    return _pairs(show.facts(whole.record, whole.host), "what", "value")


def instants(record: BootRecord) -> Rows:
    at = {**record.instants, **{f"endpoint {name}": value for name, value in record.endpoints.items()}}
    ordered = sorted(at.items(), key=lambda item: item[1])
    return [{"instant": one_line(name), "at": units.show(seconds, "s")} for name, seconds in ordered]


def pieces(record: BootRecord) -> tuple[Rows, str]:
    """The critical path piece by piece, and in words what is left out."""
    total = path_seconds(record) if record.phases else 0.0
    kept = sorted(record.phases, key=lambda item: item.begin - item.end)[:PIECES]
    found = [
        {
            "begin s": f"{item.begin:.3f}",
            "end s": f"{item.end:.3f}",
            "seconds": units.show(item.end - item.begin, "s"),
            "share": _share(item.end - item.begin, total),
            "phase": one_line(item.name),
            "process": one_line(item.process),
            "source": one_line(item.source),
            "detail": one_line(item.detail),
        }
        for item in sorted(kept, key=lambda item: item.begin)
    ]
    left = len(record.phases) - len(kept)
    return found, f"{left} shorter pieces are left out here: `coldstart show --json` has them." if left else ""


def sums(record: BootRecord) -> Rows:
    """Seconds and share of each phase, with its sources and its longest details; the longest phase first."""
    total = path_seconds(record) if record.phases else 0.0
    found = sorted(phase_seconds(record.phases).items(), key=lambda item: -item[1])
    return [
        {
            "phase": one_line(name),
            "seconds": units.show(seconds, "s"),
            "share": _share(seconds, total),
            "sources": one_line(", ".join(_longest(record, name, "source"))),
            "details": one_line(", ".join(_longest(record, name, "detail"))),
        }
        for name, seconds in found
    ]


def _longest(record: BootRecord, phase: str, field: str) -> list[str]:
    """The values of a field in a phase, those of most seconds first."""
    own: dict[str, float] = {}
    for item in record.phases:
        if item.name == phase and getattr(item, field):
            own[getattr(item, field)] = own.get(getattr(item, field), 0.0) + item.end - item.begin
    return sorted(own, key=lambda word: -own[word])[:3]


def _share(seconds: float, total: float) -> str:
    return f"{seconds / total:.1%}" if total > 0 else "-"


def stretch(item: Stretch) -> str:
    """``load_weights of server, 78 ms to 331 ms (253 ms)``."""
    name, process = item.main
    of = f" of {process}" if process else ""
    begin, end = units.show(item.begin, "s"), units.show(item.end, "s")
    return one_line(f"{name}{of}, {begin} to {end} ({units.show(item.seconds, 's')})")


def longest_lived(record: BootRecord, most: int) -> list[Process]:
    """The processes that lived longest, in the order of their starts."""
    everyone = record.attribution.processes
    found = sorted(everyone, key=lambda item: (item.end is not None, (item.start - item.end) if item.end else 0.0))
    return sorted(found[:most], key=lambda item: item.start)


def processes(record: BootRecord) -> tuple[Rows, str]:
    found = longest_lived(record, PROCESSES)
    left = len(record.attribution.processes) - len(found)
    rows = [
        {**_cells(show.PROCESS, show.process_row(item)), "says": one_line("; ".join(show.process_texts(item)))}
        for item in found
    ]
    return rows, f"{left} that lived for less time are left out: `coldstart show --json` has them." if left else ""


def readings(record: BootRecord) -> Rows:
    return [_cells(show.READING, show.reading_row(item)) for item in record.attribution.readings]


def hottest(record: BootRecord) -> Rows:
    return [
        {"seconds": units.show(item.seconds, "s"), "process": one_line(item.process), "frame": one_line(item.frame)}
        for item in record.attribution.hottest
    ]


def caches(record: BootRecord) -> Rows:
    return [
        {
            "cache": one_line(item.name),
            "statement": one_line(reuse.statement(item).text),
            "before": _inventory(item.before),
            "after": _inventory(item.after),
            "path": one_line(item.path),
        }
        for item in record.caches
    ]


def _inventory(item: Inventory | None) -> str:
    if item is None:
        return "not counted"
    return f"{item.files} file{'' if item.files == 1 else 's'}, {units.show(item.bytes, 'B')}"


def residency(record: BootRecord) -> Rows:
    """Each file that was looked at before the start: weights first."""
    evidence = record.evidence
    return [
        {
            "file": one_line(item.path),
            "what": what,
            "size": units.show(item.bytes, "B"),
            "resident": _resident(item),
            "file system": one_line(item.filesystem),
            "status": one_line(item.status + (f": {item.reason}" if item.reason else "")),
        }
        for what, files in (("weights", evidence.weights), ("libraries", evidence.libraries))
        for item in files
    ]


def _resident(item: FileResidency) -> str:
    if item.resident_bytes is None:
        return "unmeasured"
    return f"{item.resident_bytes / item.bytes:.1%}" if item.bytes else "empty"


def read_bytes(record: BootRecord) -> Rows:
    """What was read while the engine loaded, and what of each device was in use before anything of ours ran."""
    evidence = record.evidence
    found = {
        "read from storage by the tree": evidence.tree_read_bytes,
        "read from the device of the weights": evidence.device_read_bytes,
        **{f"idle memory of GPU {gpu.index}": gpu.idle_bytes for gpu in record.memory.gpus},
    }
    state = {f"state of the {name}": word for name, word in evidence.state.items()}
    said = {name: "unmeasured" if size is None else units.show(size, "B") for name, size in found.items()}
    return _pairs({**state, **said}, "evidence", "value")


def requests(record: BootRecord) -> tuple[Rows, str]:
    found = [_request(item) for item in record.requests[:REQUESTS]]
    left = len(record.requests) - len(found)
    return found, f"{left} later requests are left out." if left else ""


def _request(item: Request) -> dict[str, str]:
    counts = {"prompt tokens": item.prompt_tokens, "tokens": item.completion_tokens, "events": item.events}
    return {
        "kind": one_line(item.kind),
        "index": str(item.index),
        "sent": units.show(item.sent, "s"),
        "TTFT": units.show(item.ttft, "s"),
        "engine's TTFT": units.show(item.engine_ttft, "s"),
        "duration": units.show(None if item.done is None else item.done - item.sent, "s"),
        **{name: "-" if count is None else f"{count:,}" for name, count in counts.items()},
        "attempts": str(item.attempts),
        "finish": one_line(item.finish_reason or ""),
        "error": one_line(item.error or ""),
        "prompt": one_line(item.prompt_digest),
    }


def metrics(record: BootRecord) -> Rows:
    """Every metric that the boot has, in the order of the registry, then those that it lacks here."""
    order = [*(name for name in METRICS if name in record.metrics), *(n for n in record.metrics if n not in METRICS)]
    return [_metric(record, name) for name in order]


def _metric(record: BootRecord, name: str) -> dict[str, str]:
    value, metric = record.metrics[name], METRICS.get(name)
    unit = metric.unit if metric else "count"
    word = "n/a" if name in record.memory.impossible else "unmeasured"
    return {
        "metric": one_line(name),
        "value": word if value.value is None else units.show(value.value, unit),
        "unit": metric.unit if metric else "",
        "source": one_line(value.source or ""),
        "reason": one_line(value.reason or "") if value.value is None else "",
        "better": metric.better if metric else "",
        "what it is": metric.help if metric else "This version has no such metric.",
    }


def environment(whole: Whole) -> Rows:
    """Host, commit, versions, model, cell and variables, by name."""
    record = whole.record
    host = {f"host: {name}": _plain(value) for name, value in whole.host.items()}
    versions = {f"version: {name}": version for name, version in record.versions.items()}
    model = {f"model: {name}": _plain(value) for name, value in record.model.items()}
    cell = {f"cell: {name}": _plain(value) for name, value in record.cell.items()}
    variables = {f"variable: {name}": value for name, value in record.environment.items()}
    return _pairs({**host, **versions, **model, **cell, **variables}, "name", "value")


def _plain(value: object) -> str:
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def used(record: BootRecord) -> Rows:
    """What the process tree used in sum until first_done."""
    usage = record.usage
    found = {
        "peak of the resident memory": (usage.peak_rss, "B"),
        "CPU time": (usage.cpu_time, "s"),
        "read from storage": (usage.read_bytes, "B"),
        "minor faults": (usage.minor_faults, "count"),
        "major faults": (usage.major_faults, "count"),
    }
    said = {name: "unmeasured" if v is None else units.show(v, unit) for name, (v, unit) in found.items()}
    return _pairs(said, "the process tree's", "value")


def title(record: BootRecord) -> str:
    return one_line(f"{record.engine} {record.cell_id}")


def standing(whole: Whole, age: str) -> list[str]:
    """The lines below the title: tier and outcome, when, commit, host."""
    record, host = whole.record, whole.host
    number = f"round {record.round}" if record.role == "measured" else record.role
    commit = text.commit(host.get("git_commit"), host.get("git_branch"), host.get("git_dirty"))
    place = [str(host[name]) for name in ("hostname", "cpu", "gpu") if host.get(name)]
    return [
        one_line(f"tier {record.tier}, {number}: {record.outcome}"),
        f"started {text.moment(whole.started_at)}, {age}",
        one_line(f"commit {commit}; host {', '.join(place) or 'unknown'}"),
    ]


def _cells(titles: Sequence[str], cells: Iterable[str]) -> dict[str, str]:
    return dict(zip(titles, map(one_line, cells), strict=True))


def _pairs(found: Mapping[str, str], first: str, second: str) -> Rows:
    return [{first: one_line(name), second: one_line(value)} for name, value in found.items()]
