"""One boot whole, as text: where its time went, from what that is known, and what is not."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_coldstart import units
from pytest_coldstart.attribution import UNATTRIBUTED, Process, Reading
from pytest_coldstart.derive import path_seconds, phase_seconds
from pytest_coldstart.process import exit_words, printable
from pytest_coldstart.record import BootRecord, Phase
from pytest_coldstart.report import explain, memory
from pytest_coldstart.report.columns import fit, table, wrapped
from pytest_coldstart.report.path import disagreement_words, hint_lines, unmatched_words
from pytest_coldstart.report.waterfall import waterfall

#: A path of more pieces than this is printed without its shortest ones; --json has them all.
_MOST_PIECES = 60
#: Processes that the table shows: those that lived longest.
_MOST_PROCESSES = 25
#: So many of the packages that a process imported, of the packages that are installed, and of the log's last lines.
_PACKAGES, _VERSIONS, _LOG_LINES = 3, 6, 20

#: Titles of the tables of processes and of other sources.
PROCESS = ("process", "pid", "start", "end", "python", "torch", "cuda", "probe")
READING = ("phases", "seconds", "source", "process", "says")


def lines(record: BootRecord, host: Mapping[str, Any], width: int = 100) -> list[str]:
    """All sections that have something to say, each line at most *width* columns.

    *host*: what the table run holds of the boot's run, by column; empty where it is not known.
    """
    sections = (
        ("", _head(record, host, width)),
        ("instants", _instants(record, width)),
        ("critical path", _path(record, width)),
        ("phases", _phases(record, width)),
        ("unattributed time, hottest frames", _hottest(record, width)),
        ("processes", _processes(record, width)),
        ("ranks", _spreads(record, width)),
        ("other sources", _sources(record, width)),
        ("memory", memory.lines(record, width)),
        ("caches and tier", _wrap(explain.evidence_lines(record), width)),
        ("what would help", hint_lines(record, width)),
        ("failure", _failure(record, width)),
    )
    found: list[str] = []
    for title, body in sections:
        if body:
            found += [*([""] if found else []), *([title] if title else []), *body]
    return found


def _wrap(texts: Iterable[str], width: int) -> list[str]:
    return [line for text in texts for line in wrapped(text, width)]


def _indented(rows: Iterable[str]) -> list[str]:
    return [f"  {row}" for row in rows]


def _head(record: BootRecord, host: Mapping[str, Any], width: int) -> list[str]:
    found = [fit(f"boot {record.boot_id}", width)]
    for name, text in facts(record, host).items():
        found += wrapped(f"{name}: {text}", width)
    return found


def facts(record: BootRecord, host: Mapping[str, Any]) -> dict[str, str]:
    """What a boot is, by name; without what is not known."""
    versions = [f"{name} {version}" for name, version in record.versions.items()]
    place = [str(host[name]) for name in ("hostname", "cpu", "gpu", "hardware_class") if host.get(name)]
    commit = str(host.get("git_commit") or "")[:10]
    known = {
        "cell": record.cell_id,
        "engine": f"{record.engine} ({', '.join(versions[:_VERSIONS]) or 'version unknown'})",
        "model": str(record.model.get("name") or record.cell.get("model") or ""),
        "tier": f"{record.tier}, {record.role}, round {record.round}: {record.outcome}",
        "started": record.started_at,
        "host": ", ".join(place),
        "commit": f"{commit} (dirty)" if commit and host.get("git_dirty") else commit,
        "test": record.nodeid,
        "run": record.run_id,
        "command": shlex.join(record.command),
        "log": record.log_path or "",
    }
    return {name: text for name, text in known.items() if text}


def _instants(record: BootRecord, width: int) -> list[str]:
    at = {**record.instants, **{f"endpoint {name}": value for name, value in record.endpoints.items()}}
    rows = [(name, units.show(seconds, "s")) for name, seconds in sorted(at.items(), key=lambda item: item[1])]
    return _indented(table(("instant", "at"), rows, width - 2, numbers=(1,))) if rows else []


def path_text(record: BootRecord) -> str:
    """``total 69.8 s, unattributed 13.1 s (18.8%); probe full``, or why there is no path."""
    if not record.phases:
        return "none: " + "; ".join(record.attribution.missing) if record.attribution.missing else "none"
    total = path_seconds(record)
    unknown = phase_seconds(record.phases).get(UNATTRIBUTED, 0.0)
    share = f" ({unknown / total:.1%})" if total > 0 else ""
    return (
        f"total {units.show(total, 's')}, unattributed {units.show(unknown, 's')}{share}; "
        f"probe {record.attribution.probe}"
    )


def _path(record: BootRecord, width: int) -> list[str]:
    if not record.phases:
        return [f"  {path_text(record)}"]
    found = wrapped(path_text(record), width)
    kept = _longest(record.phases)
    rows = [
        (
            f"{item.begin:.3f}",
            f"{item.end:.3f}",
            units.show(item.end - item.begin, "s"),
            item.name,
            item.process,
            item.source,
            item.detail,
        )
        for item in kept
    ]
    found += _indented(waterfall(record.phases, width - 2, memory.tracks(record)))
    titles = ("begin s", "end s", "seconds", "phase", "process", "source", "detail")
    found += ["", *_indented(table(titles, rows, width - 2, numbers=(0, 1, 2)))]
    if len(kept) < len(record.phases):
        rest = sum(item.end - item.begin for item in record.phases) - sum(item.end - item.begin for item in kept)
        count = len(record.phases) - len(kept)
        found += wrapped(f"and {count} shorter pieces, {units.show(rest, 's')} together: --json has them", width)
    return found


def _longest(phases: Sequence[Phase]) -> list[Phase]:
    """The longest pieces, in their order."""
    if len(phases) <= _MOST_PIECES:
        return list(phases)
    limit = sorted((item.end - item.begin for item in phases), reverse=True)[_MOST_PIECES - 1]
    return [item for item in phases if item.end - item.begin >= limit][:_MOST_PIECES]


def _phases(record: BootRecord, width: int) -> list[str]:
    total = path_seconds(record)
    sums = sorted(phase_seconds(record.phases).items(), key=lambda item: -item[1])
    rows = [(name, units.show(seconds, "s"), f"{seconds / total:.1%}" if total > 0 else "-") for name, seconds in sums]
    return _indented(table(("phase", "seconds", "share"), rows, width - 2, numbers=(1, 2))) if rows else []


def _hottest(record: BootRecord, width: int) -> list[str]:
    rows = [(units.show(item.seconds, "s"), item.process, item.frame) for item in record.attribution.hottest]
    return _indented(table(("seconds", "process", "frame"), rows, width - 2, numbers=(0,))) if rows else []


def _processes(record: BootRecord, width: int) -> list[str]:
    everyone = record.attribution.processes
    found = sorted(everyone, key=lambda item: (item.end is not None, (item.start - item.end) if item.end else 0.0))
    found = sorted(found[:_MOST_PROCESSES], key=lambda item: item.start)
    more = len(everyone) - len(found)
    rows = [process_row(item) for item in found]
    lines = _indented(table(PROCESS, rows, width - 2, numbers=range(1, 7))) if rows else []
    rest = [f"and {more} that lived for less time: --json has them"] if more else []
    return [*lines, *_wrap((*rest, *(text for item in found for text in process_texts(item))), width)]


def process_row(item: Process) -> tuple[str, ...]:
    """The cells of a process below the titles :data:`PROCESS`."""
    return (
        item.name,
        str(item.pid),
        units.show(item.start, "s"),
        units.show(item.end, "s"),
        *(units.show(item.instants.get(name), "s") for name in ("python", "torch", "cuda")),
        item.probe,
    )


def process_texts(item: Process) -> Iterable[str]:
    """What a table has no room for: what it imported, why the probe told less, how it ended."""
    most = sorted(item.imports.items(), key=lambda one: -one[1])[:_PACKAGES]
    if most:
        words = ", ".join(f"{name} {units.show(seconds, 's')}" for name, seconds in most)
        yield f"{item.name} imported: {words}"
    if item.missing:
        yield f"{item.name}: {item.missing}"
    if item.exit_code:
        yield f"{item.name} ended with {exit_words(item.exit_code)}"


def _spreads(record: BootRecord, width: int) -> list[str]:
    return _wrap(spread_texts(record), width)


def spread_texts(record: BootRecord) -> list[str]:
    """When each of several ranks that were waited for was done."""
    texts = []
    for item in record.attribution.spreads:
        done = sorted(item.done.items(), key=lambda one: one[1])
        if done:
            words = ", ".join(f"{name} {units.show(at, 's')}" for name, at in done)
            spread = units.show(done[-1][1] - done[0][1], "s")
            texts.append(f"waited for from {units.show(item.begin, 's')}; done at: {words}; spread {spread}")
    return texts


def _sources(record: BootRecord, width: int) -> list[str]:
    rows = [reading_row(item) for item in record.attribution.readings]
    lines = _indented(table(READING, rows, width - 2, (1,))) if rows else []
    return [*lines, *_wrap(source_texts(record), width)]


def reading_row(item: Reading) -> tuple[str, ...]:
    """The cells of a reading below the titles :data:`READING`."""
    return (", ".join(item.phases), units.show(item.seconds, "s"), item.source, item.process, item.text)


def source_texts(record: BootRecord) -> list[str]:
    """Where sources disagree, what of a log did not match, and why some of the path is not known."""
    found = record.attribution
    texts = [f"disagreement: {disagreement_words(item)}" for item in found.disagreements]
    texts += [unmatched_words(item.engine, item.version, item.pattern) for item in found.unmatched]
    return [*texts, *(f"not known: {text}" for text in found.missing if record.phases)]


def _failure(record: BootRecord, width: int) -> list[str]:
    failure = record.failure
    if failure is None:
        return []
    found = _wrap([f"{failure.kind}: {failure.message}", f"last instant reached: {failure.instant or 'none'}"], width)
    # A stack's indentation tells its levels.
    found += [line for text in failure.diagnosis for line in _kept(printable(text), width)]
    tail = failure.log_tail.splitlines()[-_LOG_LINES:]
    log = [f"    {fit(line, width - 4)}" for line in tail]
    return [*found, *(["  end of the engine's log:", *log] if tail else [])]


def _kept(text: str, width: int) -> list[str]:
    indent = text[: len(text) - len(text.lstrip())]
    return wrapped(text, width, f"  {indent[:20]}")
