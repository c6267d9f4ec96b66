"""One ``[[alert]]`` of the file of rules, read with its mistakes and the lines that they stand in."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_coldstart import units
from pytest_coldstart.alerts.rules import (
    ANY,
    BETTER,
    FILTERS,
    MOST_NEW_RUNS,
    MOST_RUNS,
    NEW_RUNS,
    SEVERITIES,
    VERDICTS,
    WORSE,
    Changed,
    Condition,
    Failed,
    Judged,
    Rule,
    Stale,
)
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.slo import STATISTICS, SLOError, parse_bound
from pytest_coldstart.stats.changes import SIZE


@dataclass
class Source:
    """The text of a file that is read; its problems are collected, so that all are said at once."""

    path: Path
    text: str
    problems: list[str] = field(default_factory=list)

    def wrong(self, line: int, what: str) -> None:
        self.problems.append(f"{self.path}:{line}: {what}" if line else f"{self.path}: {what}")

    def line_of(self, key: str, first: int = 1, last: int | None = None) -> int:
        """The line between *first* and *last* that gives *key*, or *first*."""
        given = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]")
        lines = self.text.split("\n")
        return next(
            (number for number in range(first, (last or len(lines)) + 1) if given.match(lines[number - 1])), first
        )

    def tables(self, count: int) -> list[tuple[int, int]]:
        """The first and last line of each ``[[alert]]``, zeros where they cannot be told."""
        header = re.compile(r"\s*\[\[\s*[\"']?alert[\"']?\s*\]\]")
        lines = self.text.split("\n")
        begin = [number for number, line in enumerate(lines, 1) if header.match(line)]
        if not count or len(begin) != count:  # written as inline tables, or such a line stands in a text
            return [(0, 0)] * count
        return list(zip(begin, [*(number - 1 for number in begin[1:]), len(lines)], strict=True))


@dataclass
class Table:
    """One ``[[alert]]`` that is being read."""

    source: Source
    table: Mapping[str, Any]
    first: int
    last: int
    number: int

    def rule(self) -> Rule | None:
        """The rule, or None after its problems were said."""
        before = len(self.source.problems)
        kind = self._kind()
        for key in self.table:
            if key not in _KEYS:
                self.wrong(key, unknown("key", key, _KEYS))
            elif kind and _BELONGS.get(key, kind) != kind:
                self.wrong(
                    key, f"{key} says something of {_BELONGS[key]} alone, and this rule has {kind}; leave it out"
                )
        metric = self._metric(kind)
        condition = _CONDITIONS[kind](self, metric) if kind and metric is not None else None
        name, message = self._text("name", needed=True), self._text("message")
        severity, filters, runs = self._severity(), self._filters(), self._runs(kind)
        if len(self.source.problems) > before or condition is None:
            return None
        return Rule(name, condition, metric or "", filters, severity, runs, message, self.first)

    def wrong(self, key: str, what: str) -> None:
        name = self.table.get("name")
        which = f"alert {name!r}" if isinstance(name, str) and name else f"alert {self.number}"
        line = self.source.line_of(key, self.first, self.last) if self.first else 0
        self.source.wrong(line, f"{which}: {what}")

    def _kind(self) -> str:
        given = [key for key in _CONDITIONS if key in self.table]
        if len(given) == 1:
            return given[0]
        what = f"{' and '.join(given)} are several conditions" if given else "there is no condition"
        self.wrong(given[1] if given else "", f"{what}; give exactly one of {', '.join(_CONDITIONS)}")
        return ""

    def _metric(self, kind: str) -> str | None:
        """The metric's name, empty where none is needed, None where it is wrong."""
        found = self.table.get("metric")
        if kind in ("stale", "failed"):
            if found is not None:
                self.wrong("metric", f"metric: {kind} is of whole boots; leave the metric out")
            return ""
        if found is None:
            if kind in ("bound", "change"):
                self.wrong("", f'metric is missing; {kind} needs one, such as metric = "cold_start"')
                return None
            return ""
        if not isinstance(found, str) or found not in METRICS:
            self.wrong("metric", unknown("metric", found, METRICS))
            return None
        return found

    def _text(self, key: str, needed: bool = False) -> str:
        found = self.table.get(key, "")
        if not isinstance(found, str) or (needed and not found.strip()):
            missing = needed and key not in self.table
            self.wrong(
                key, f"{key} is missing; give each rule one" if missing else f"{key}: a text is needed, not {found!r}"
            )
            return ""
        if needed and "\n" in found.strip():
            self.wrong(key, f"{key}: it has to be on one line")
        return found.strip()

    def _severity(self) -> str:
        found = self.table.get("severity", "warning")
        if found not in SEVERITIES:
            self.wrong("severity", unknown("severity", found, SEVERITIES))
        return str(found)

    def _filters(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        found = []
        for key in FILTERS:
            given = self.table.get(key)
            if given is None:
                continue
            patterns = [given] if isinstance(given, str) else given
            if (
                not isinstance(patterns, list)
                or not patterns
                or not all(isinstance(one, str) and one for one in patterns)
            ):
                self.wrong(key, f'{key}: a pattern such as "vllm*" or a list of them is needed, not {given!r}')
                continue
            found.append((key, tuple(patterns)))
        return tuple(found)

    def _runs(self, kind: str) -> int:
        if "for" in self.table and kind in ("stale", "change"):
            self.wrong("for", f"for: {kind} has no runs in a row; leave it out")
        return self._count("for", 1, MOST_RUNS)

    def _count(self, key: str, default: int, most: int) -> int:
        found = self.table.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= most:
            self.wrong(key, f"{key}: {found!r} is not a whole number from 1 to {most}")
            return default
        return found

    # -- conditions

    def bound(self, metric: str) -> Condition | None:
        found, stat = self.table["bound"], self.table.get("stat", "")
        if not isinstance(stat, str) or (stat and stat not in STATISTICS):
            self.wrong("stat", unknown("statistic", stat, STATISTICS))
            return None
        unit = units.example(METRICS[metric].unit)
        if not isinstance(found, str) or not found.strip().startswith(("<=", ">=")):
            self.wrong("bound", f'bound: {found!r} does not begin with <= or >=; write it as in "<= {unit}"')
            return None
        text = f"{metric}{f'.{stat}' if stat else ''}{found}"
        try:
            return parse_bound(text, "alert", ())
        except SLOError as error:
            said = str(error).removeprefix(f"SLO {text!r}: ") if ": " in str(error) else f"{found!r} cannot be read"
            self.wrong("bound", f'bound: {said}; write it as in "<= {unit}"')
            return None

    def verdict(self, metric: str) -> Condition | None:
        found = self.table["verdict"]
        words = [found] if isinstance(found, str) else found
        if not isinstance(words, list) or not words or any(word not in VERDICTS for word in words):
            self.wrong(
                "verdict", f"verdict: {found!r} is none that can fire; valid: {', '.join(VERDICTS)}, or a list of both"
            )
            return None
        return Judged(tuple(dict.fromkeys(words)))

    def change(self, metric: str) -> Condition | None:
        found = self.table["change"]
        words = found.split(maxsplit=1) if isinstance(found, str) else []
        valid = f'write it as in "{WORSE} 5%" ({WORSE}, {BETTER} or {ANY}, and the least size)'
        if not words or words[0] not in (WORSE, BETTER, ANY):
            self.wrong("change", f"change: {found!r} names no way to change; {valid}")
            return None
        try:
            size = units.parse(words[1], "fraction") if len(words) == 2 else SIZE
        except units.QuantityError as error:
            self.wrong("change", f"change: {error}; {valid}")
            return None
        if size < SIZE:
            self.wrong("change", f"change: nothing below {SIZE:.0%} is looked for; give {SIZE:.0%} or more")
            return None
        if "runs" in self.table and "days" in self.table:
            self.wrong("days", "runs and days: give one of them")
        if "days" in self.table:
            return Changed(words[0], size, seconds=self._days("days", self.table["days"]))
        return Changed(words[0], size, runs=self._count("runs", NEW_RUNS, MOST_NEW_RUNS))

    def stale(self, metric: str) -> Condition | None:
        return Stale(self._days("stale", self.table["stale"]))

    def failed(self, metric: str) -> Condition | None:
        return Failed(self._count("failed", 1, 1_000_000))

    def _days(self, key: str, found: Any) -> float:
        try:
            return days(found)
        except ValueError as error:
            self.wrong(key, f"{key}: {error}")
            return 1.0


def days(value: Any) -> float:
    """Seconds of ``"3d"``, ``"36h"``, or of a number of days.

    :raises ValueError: it is no duration, or not above zero.
    """
    if isinstance(value, str):
        number = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*d\s*", value)
        try:
            seconds = float(number[1]) * 86_400 if number else units.parse_duration(value)
        except units.QuantityError as error:
            raise ValueError(f"{error}, or 'd' for days") from None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(min(value, 1e9)) * 86_400
    else:
        raise ValueError(f'{value!r} is no duration; write it as in "3d" or "36h"')
    if not 0 < seconds < math.inf:
        raise ValueError(f"{value!r}: a duration must be greater than zero")
    return seconds


def unknown(what: str, word: object, valid: Iterable[str]) -> str:
    names = sorted(valid) if isinstance(valid, Mapping) else list(valid)
    near = difflib.get_close_matches(word, names, 1, 0.6) if isinstance(word, str) else []
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {word!r}; {hint}valid: {', '.join(names)}"


_CONDITIONS: Mapping[str, Callable[[Table, str], Condition | None]] = {
    "bound": Table.bound,
    "verdict": Table.verdict,
    "change": Table.change,
    "stale": Table.stale,
    "failed": Table.failed,
}

_KEYS = ("name", "metric", *_CONDITIONS, "stat", "runs", "days", *FILTERS, "severity", "for", "message")

#: Keys that one kind of condition alone has.
_BELONGS = {"stat": "bound", "runs": "change", "days": "change"}
