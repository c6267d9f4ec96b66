"""A boot's critical path in words: its waterfall, its hints, and what its sources did not tell or tell otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_coldstart import units
from pytest_coldstart.attribution import UNATTRIBUTED, Disagreement
from pytest_coldstart.derive import path_seconds
from pytest_coldstart.record import BootRecord
from pytest_coldstart.report.columns import fit, wrapped
from pytest_coldstart.report.waterfall import waterfall


def has_path(record: BootRecord) -> bool:
    """Whether a look inside the engine names any of the boot's time; the rest is known from outside."""
    return bool({item.name for item in record.phases} - {"spawn", "first_request", UNATTRIBUTED})


#: A cell's notes about its sources are at most so many.
_MOST_NOTES = 3


def source_notes(records: Sequence[BootRecord]) -> list[str]:
    """What the sources of a cell's paths did not tell, and where two of them differ; at most three lines of both."""
    found: dict[str, None] = {}
    for record in records:
        for item in record.attribution.unmatched:
            found[unmatched_words(item.engine, item.version, item.pattern)] = None
    for record in records:
        for differing in record.attribution.disagreements:
            found[f"round {record.round}: {disagreement_words(differing)}"] = None
    lines = [fit(text, 160) for text in found]
    if len(lines) > _MOST_NOTES:
        return [*lines[: _MOST_NOTES - 1], f"{len(lines) - _MOST_NOTES + 1} more such notes: see `coldstart show`"]
    return lines


def unmatched_words(engine: str, version: str, pattern: str) -> str:
    """``vllm 0.34: no line matched 'weights'``."""
    return f"{engine} {version}".strip() + f": no line matched {pattern!r}"


def disagreement_words(item: Disagreement) -> str:
    """``load_weights: probe says 2.10 s, log says 3.40 s (Loading weights took)``."""
    first, second = units.show(item.first_seconds, "s"), units.show(item.second_seconds, "s")
    words = f"{', '.join(item.phases)}: {item.first} says {first}, {item.second} says {second}"
    return f"{words} ({item.text})" if item.text else words


def path_lines(record: BootRecord, width: int = 100) -> list[str]:
    """The waterfall of a boot of which something is attributed, and the three hints with most at stake."""
    lines = waterfall(record.phases, width) if has_path(record) else []
    hints = hint_lines(record, width, most=3)
    return [*lines, *(["what would help:", *hints] if hints else [])]


def hint_lines(record: BootRecord, width: int = 100, most: int | None = None) -> list[str]:
    """The hints as :func:`hint_texts` says them, in lines of at most *width* columns."""
    return [line for text in hint_texts(record, most) for line in wrapped(text, width)]


def hint_texts(record: BootRecord, most: int | None = None) -> list[str]:
    """The hints, those with most seconds at stake first: ``12.3 s at stake: text``."""
    ordered = sorted(record.hints, key=lambda hint: -hint.seconds)[:most]
    return [f"{units.show(hint.seconds, 's')} at stake: {hint.text}" for hint in ordered]


def of_cell(record: BootRecord) -> dict[str, Any]:
    """What the terminal's summary needs to draw one boot of a cell: plain data, for a process of its own."""
    return {"path": path_lines(record, 98), "boot": record.boot_id, "seconds": path_seconds(record)}
