"""What an engine's log says of its phases: a last resort and a cross-check, which says when it stops matching."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_coldstart.attribution import Reading, Unmatched
from pytest_coldstart.observe.log_patterns import Format, Pattern, load, parse_version

#: Of a longer line the rest is not read: what is looked for stands near the beginning.
_MOST = 16 * 1024
#: Where a line may name its process.
_PREFIX = 300
#: A log file's own offset of a line, seconds since the start.
_OFFSET = re.compile(r"\[\+ {0,12}(\d{1,9}\.\d{1,6})\] ?")
#: Colours, as they are or as logs show them.
_COLOUR = re.compile(r"(?:\x1b|\\x1b|\\033)\[[\d;]{0,20}m")
#: A log that was cut here may have lost any line.
_LEFT_OUT = "[output over the limit was left out here]"
#: A duration that ended at a line cannot have begun before the boot; so much may a line come early, seconds.
_SLACK = 0.5


@dataclass(frozen=True)
class LogReading:
    """What was read, in the order of the patterns, and the patterns that should have matched a line and did not."""

    readings: tuple[Reading, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()


@dataclass(frozen=True)
class _Line:
    """``at``: seconds since the start; ``clock``: the engine's own, whose zero is unknown; None where unknown."""

    text: str
    at: float | None
    clock: float | None
    process: str
    #: With its pid, which tells two processes of one name apart.
    owner: str


@dataclass(frozen=True)
class _Match:
    owner: tuple[str, str]
    process: str
    seconds: float
    resolution: float
    begin: float | None
    end: float | None


@dataclass
class _Finds:
    """What one pattern found so far; ``open``: the line that began an interval, by process and what it is of."""

    pattern: Pattern
    matches: list[_Match] = field(default_factory=list)
    intervals: list[tuple[_Line, _Line, tuple[str, str]]] = field(default_factory=list)
    open: dict[tuple[str, str], _Line] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        return bool(self.matches or self.intervals)

    def look(self, line: _Line) -> None:
        """Keep what the pattern finds in *line*."""
        pattern = self.pattern
        if pattern.regex is not None:
            found = pattern.regex.search(line.text)
            match = _stated(pattern, found, line) if found else None
            if match:
                self.matches.append(match)
        elif pattern.begin is not None and pattern.end is not None:
            if ended := pattern.end.search(line.text):
                owner = (line.owner, ended.groupdict().get("key") or "")
                if owner in self.open:
                    self.intervals.append((self.open.pop(owner), line, owner))
            elif begun := pattern.begin.search(line.text):
                self.open[line.owner, begun.groupdict().get("key") or ""] = line


def read_log(
    lines: Iterable[str],
    engine: str,
    version: str | None = None,
    options: Mapping[str, Any] | None = None,
    complete: bool = True,
) -> LogReading:
    """The phases that the *lines* of an engine's log state.

    A version that is newer than all patterns is read with the newest; without one, every pattern is tried.
    *options* are the engine's, such as ``{"enforce_eager": True}``: some lines are not printed with them.
    A boot that is not *complete* (it failed, or was woken) lacks lines without fault, so nothing is unmatched.
    An engine without patterns has no readings and no complaint. Never raises for what a log holds.
    """
    form = load(engine)
    if form is None:
        return LogReading()
    known = parse_version(version)
    finds = [_Finds(pattern) for pattern in form.patterns if _holds(pattern, known)]
    conditions = {regex for item in finds for regex in (item.pattern.when, *item.pattern.unless) if regex}
    said = {regex for regex in conditions for name, value in (options or {}).items() if regex.search(f"{name}={value}")}
    #: Added to the engine's clock it gives the boot's: a line can only come late, so the least delay is nearest.
    shift: float | None = None
    for line in _lines(lines, form):
        if line.at is not None and line.clock is not None:
            shift = min(line.at - line.clock, line.at - line.clock if shift is None else shift)
        complete = complete and _LEFT_OUT not in line.text
        said.update(regex for regex in conditions - said if regex.search(line.text))
        for item in finds:
            item.look(line)
    for item in finds:
        item.matches += (match for pair in item.intervals if (match := _between(*pair, shift)))
    readings, unmatched = [], []
    for name in dict.fromkeys(item.pattern.name for item in finds):
        alternatives = [item for item in finds if item.pattern.name == name]
        matching = next((item for item in alternatives if item.matches), None)
        if matching:
            readings.append(_reading(matching))
        elif complete and not any(item.any for item in alternatives) and _due(alternatives, said):
            unmatched.append(Unmatched(engine, version or "", name))
    return LogReading(tuple(readings), tuple(unmatched))


def _holds(pattern: Pattern, version: tuple[int, ...] | None) -> bool:
    if version is None:
        return True
    return (pattern.since or ()) <= version and (pattern.until is None or version < pattern.until)


def _due(alternatives: Sequence[_Finds], said: set[re.Pattern[str]]) -> bool:
    """Whether a boot that said this should have printed a line for one of these patterns."""
    return any(
        item.pattern.expected
        and (item.pattern.when is None or item.pattern.when in said)
        and said.isdisjoint(item.pattern.unless)
        for item in alternatives
    )


def _lines(lines: Iterable[str], form: Format) -> Iterator[_Line]:
    """Lines without offset and colours; a progress bar's parts are lines of their own."""
    for raw in lines:
        offset = _OFFSET.match(raw)
        at = float(offset[1]) if offset else None
        for part in (raw[offset.end() :] if offset else raw).split("\r"):
            text = _COLOUR.sub("", part[:_MOST]).strip() if part else ""
            if not text:
                continue
            process = owner = ""
            if form.process:
                for named in form.process.finditer(text[:_PREFIX]):  # the last is the innermost
                    process, owner = named["name"], f"{named['name']} {named.groupdict().get('pid')}"
            clock = form.clock.search(text[:_PREFIX]) if form.clock else None
            yield _Line(text, at, _clock(clock) if clock else None, process, owner)


def _clock(found: re.Match[str]) -> float:
    return int(found["m"]) * 60 + int(found["s"]) + int(found["ms"]) / 1e3 + int(found["us"]) / 1e6


def _stated(pattern: Pattern, found: re.Match[str], line: _Line) -> _Match | None:
    """The duration that a line states; None for one that cannot be: it would have begun before the boot."""
    groups = found.groupdict()
    digits, unit = (groups["ms"], 1e-3) if groups.get("ms") else (groups["seconds"], 1.0)
    seconds = float(digits) * unit
    resolution = 0.5 * 10.0 ** -len(digits.partition(".")[2]) * unit
    if line.at is not None and seconds > line.at + resolution + _SLACK:
        return None
    end = line.at if pattern.ends else None
    begin = max(0.0, end - seconds) if end is not None else None
    return _Match((line.owner, ""), line.process, seconds, resolution, begin, end)


def _between(first: _Line, last: _Line, owner: tuple[str, str], shift: float | None) -> _Match | None:
    """The time between two lines, by the engine's own clock where it has one; None where neither has a time."""
    begin, end = first.at, last.at
    if first.clock is not None and last.clock is not None:
        seconds = last.clock - first.clock
        begin, end = (first.clock + shift, last.clock + shift) if shift is not None else (None, None)
    elif begin is not None and end is not None:
        seconds = end - begin
    else:
        return None
    return _Match(owner, last.process, seconds, 0.0, begin, end) if seconds >= 0 else None


def _reading(finds: _Finds) -> Reading:
    """One reading of all matches: put together within each process, and then the slowest process."""
    pattern = finds.pattern
    owners: dict[tuple[str, str], list[_Match]] = {}
    for match in finds.matches:
        owners.setdefault(match.owner, []).append(match)
    slowest = max((_together(matches, pattern.each) for matches in owners.values()), key=lambda match: match.seconds)
    return Reading(
        phases=pattern.phases,
        seconds=slowest.seconds,
        source="log",
        text=pattern.name,
        process=slowest.process,
        begin=slowest.begin,
        end=slowest.end,
        resolution=slowest.resolution,
    )


def _together(matches: Sequence[_Match], each: str) -> _Match:
    if each == "last" or len(matches) == 1:
        return matches[-1]
    if each == "max":
        return max(matches, key=lambda match: match.seconds)
    first = matches[0]  # a sum of several has no one place
    seconds, resolution = sum(match.seconds for match in matches), sum(match.resolution for match in matches)
    return _Match(first.owner, first.process, seconds, resolution, None, None)
