"""What engines print of their phases, as data: one TOML file an engine, read into patterns.

``docs/log-patterns.md`` says how they are written.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

Version = tuple[int, ...]

#: Bounded, so that a line of digits costs no more than its length.
_NUMBER = r"\d{1,12}(?:\.\d{1,9})?"
#: What stands for a number in a pattern. A unit that is none of these matches nothing: no number beats a wrong one.
_PLACEHOLDERS = {
    "<time>": rf"(?:(?P<seconds>{_NUMBER}) ?s(?:ec(?:ond)?s?)?\b|(?P<ms>{_NUMBER}) ?ms\b)",
    "<bare seconds>": rf"(?P<seconds>{_NUMBER})(?![\d.])",
    "<number>": rf"-?{_NUMBER}",
}


@dataclass(frozen=True)
class Pattern:
    """One thing that an engine says of its phases.

    Patterns of one name are alternatives: the first that matches a line is read, and the name is unmatched
    only when none does. Either ``regex`` states the duration, or it is the time from a line that matches
    ``begin`` to one that matches ``end``. ``phases`` are all those that may run within it.
    """

    name: str
    phases: tuple[str, ...]
    regex: re.Pattern[str] | None = None
    begin: re.Pattern[str] | None = None
    end: re.Pattern[str] | None = None
    #: Versions for which it holds: from ``since`` on, before ``until``.
    since: Version | None = None
    until: Version | None = None
    #: A boot of these versions always prints it, ...
    expected: bool = False
    #: ... where some line matches ``when``, and no line and no option (as ``name=value``) matches ``unless``.
    when: re.Pattern[str] | None = None
    unless: tuple[re.Pattern[str], ...] = ()
    #: Of several matches in one process: "sum", "last" or "max". Of several processes the slowest counts.
    each: str = "sum"
    #: The duration ended as its line was printed, so that it has a place on the boot's clock.
    ends: bool = True


@dataclass(frozen=True)
class Format:
    """How one engine writes its log.

    ``process``: where a line names its process, with a group ``name`` and perhaps one ``pid``. ``clock``: a clock
    of the engine's own, with groups ``m``, ``s``, ``ms`` and ``us`` that add up.
    """

    patterns: tuple[Pattern, ...]
    process: re.Pattern[str] | None = None
    clock: re.Pattern[str] | None = None


@cache
def load(engine: str) -> Format | None:
    """The patterns of *engine*, or None for one that has none."""
    file = next((entry for entry in files(__package__).iterdir() if entry.name == f"{engine}.toml"), None)
    if file is None:
        return None
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    return Format(
        patterns=tuple(_pattern(item, data.get("when")) for item in data["pattern"]),
        process=_compiled(data.get("process")),
        clock=_compiled(data.get("clock")),
    )


def parse_version(text: str | None) -> Version | None:
    """The numbers a version begins with: ``v0.11.1rc2`` is (0, 11, 1).

    None for one without (``b6123``), and for what a build far from any tag calls itself (``0.1.dev7+g1d6428``).
    """
    found = re.match(r"(?!v?0\.[01](?:\.0)*\.?dev)v?(\d{1,9}(?:\.\d{1,9}){0,5})", text or "")
    return tuple(int(part) for part in found[1].split(".")) if found else None


def _pattern(item: dict[str, Any], when: str | None) -> Pattern:
    return Pattern(
        **{
            **item,
            "phases": tuple(item["phases"]),
            "since": parse_version(item.get("since")),
            "until": parse_version(item.get("until")),
            "unless": tuple(re.compile(text) for text in item.get("unless", ())),
            "when": _compiled(item.get("when", when)),
            **{name: _compiled(item.get(name)) for name in ("regex", "begin", "end")},
        }
    )


def _compiled(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    for placeholder, regex in _PLACEHOLDERS.items():
        text = text.replace(placeholder, regex)
    return re.compile(text)
