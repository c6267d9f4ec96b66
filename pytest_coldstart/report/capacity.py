"""How many tokens the KV cache holds, cold against warm: a compiled kernel or a captured graph may leave it less."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_coldstart.coldness import TIERS
from pytest_coldstart.fragmentation import kv_capacity
from pytest_coldstart.record import BootRecord


def readings(records: Iterable[BootRecord]) -> list[dict[str, Any]]:
    """What to compare of each boot, plain data; none of a boot whose capacity is not known."""
    return [
        {"family": record.base_digest, "tier": record.tier, "role": record.role, "tokens": tokens}
        for record in records
        if (tokens := _tokens(record)) is not None
    ]


def _tokens(record: BootRecord) -> int | None:
    value = kv_capacity(record.memory).value
    return None if value is None else int(value)


def difference(found: Iterable[Mapping[str, Any]]) -> str:
    """Of boots of one family of cells: a line where their capacities differ, coldest tier first, else nothing.

    A tier is by its smallest capacity, and its difference by the first one's.
    """
    order = list(TIERS)
    tiers: dict[tuple[int, bool, str], set[int]] = {}
    for item in found:
        prime, tier = item["role"] == "prime", item["tier"]
        place = order.index(tier) if tier in order else len(order)
        tiers.setdefault((place, not prime, f"{tier} (priming)" if prime else tier), set()).add(item["tokens"])
    if len(set().union(*tiers.values())) < 2:
        return ""
    words: list[str] = []
    first = 0
    for (_, _, name), tokens in sorted(tiers.items()):
        least, most = min(tokens), max(tokens)
        amount = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        change = f" ({(least - first) / first * 100:+.3g} %)" if first and least != first else ""
        words.append(f"{amount}{'' if words else ' tokens'} at {name}{change}")
        first = first or least
    return f"KV capacity differs: {', '.join(words)}"


def differences(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each family of the judged cells *rows*, each with its key ``capacity``."""
    families: dict[str, list[Mapping[str, Any]]] = {}
    names: dict[str, str] = {}
    for row in rows:
        for item in row.get("capacity", ()):
            families.setdefault(item["family"], []).append(item)
            names.setdefault(item["family"], row["name"])
    found = {family: difference(items) for family, items in families.items()}
    return [f"{names[family]}: {text}" for family, text in found.items() if text]
