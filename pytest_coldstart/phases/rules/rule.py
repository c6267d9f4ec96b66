"""What a rule is: data that says what a frame on a stack, or a process by its name, means."""

from __future__ import annotations

from dataclasses import dataclass

#: What a wait rule can wait for.
WAITS = ("children", "threads", "peers", "idle")


@dataclass(frozen=True)
class Rule:
    """A frame's meaning. Of a stack the innermost frame that any rule matches decides.

    ``phase``: one of attribution.PHASES, or "" for a wait whose outer frames say what it is part of.
    ``module`` and ``function``: fnmatch patterns. ``function`` is tried on the qualified name and on its last
    part, so give the last part, which CPython 3.10 also knows. Module level code is matched by "<module>" alone.
    ``detail``: what to show; ``{package}``, ``{module}``, ``{function}`` and ``{importing}`` are filled in.
    ``wait``: "" for work; "children" for other processes of the tree; "threads" for another thread of the own
    process; "peers" for the other ranks, which counts as ``phase`` when none of them works; "idle" for requests.
    ``leaf``: matches only as the innermost frame, for a function that both waits and calls others.

    Of two rules that match one frame the later one wins: engines refine what is common, adapters both.
    """

    phase: str
    module: str
    function: str = "*"
    detail: str = ""
    wait: str = ""
    leaf: bool = False


@dataclass(frozen=True)
class ProcessRule:
    """What a process that is not Python does, by its name (fnmatch pattern on comm)."""

    phase: str
    name: str
    detail: str = ""
