"""Colours and shapes. The colours are Okabe and Ito's (2008), which people with any colour vision can tell apart, chosen
to be legible on white and on near black; whatever a colour says, a shape, a dash or a word says too."""

from __future__ import annotations

import zlib

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW, GREY = "#56B4E9", "#CC79A7", "#B9A900", "#8C8C8C"

#: Kinds of boots: colour and shape.
STATES = {
    "ok": (BLUE, "circle"),
    "failed": (VERMILION, "cross"),
    "unmeasured": (GREY, "diamond"),
    "error": (ORANGE, "triangle-up"),
    "prime": (SKY, "square"),
}
VERDICTS = {"fail": VERMILION, "unmeasured": ORANGE, "not judged": GREY, "pass": GREEN, "n/a": GREY}
BOUND, MEDIAN, CHANGE, MOVED = VERMILION, GREEN, PURPLE, GREY

#: One colour a phase, the same on every page. Neighbours on a usual path differ most.
PHASES = {
    "spawn": "#999999",
    "imports": "#56B4E9",
    "device_init": "#F0E442",
    "distributed_init": "#8A6FDF",
    "load_weights": "#0072B2",
    "kv_alloc": "#CC79A7",
    "profile": "#B07D2B",
    "compile": "#D55E00",
    "graph_capture": "#E69F00",
    "warmup": "#7BC8A4",
    "tokenizer": "#AA4499",
    "server_start": "#44AA99",
    "first_request": "#009E73",
    "unattributed": "#555555",
}
_OTHERS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, GREY)


def phase(name: str) -> str:
    """The colour of a phase; one that an adapter made up has one of its own, always the same."""
    return PHASES.get(name) or _OTHERS[zlib.crc32(name.encode()) % len(_OTHERS)]


def others(number: int) -> list[str]:
    """*number* colours for things without a fixed one, such as engines; they repeat after eight."""
    return [_OTHERS[n % len(_OTHERS)] for n in range(number)]
