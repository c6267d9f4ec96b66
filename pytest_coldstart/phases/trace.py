"""What was seen of an engine's processes: from inside by the probe, from outside by the table of processes.

Every instant here is a second of the monotonic clock of the machine, not yet an offset from a boot's start.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Frame:
    """One frame of a Python stack.

    ``module`` is the ``__name__`` of the frame's globals, "" unknown. ``function`` is the qualified name on
    CPython >= 3.11 ("Class.method"), the plain name before; "<module>" for module level code.
    """

    module: str
    function: str
    file: str


@dataclass(frozen=True)
class Sample:
    """One thread's stack, outermost frame first; ``when`` the sampler held the GIL.

    ``thread`` is 0 for the main thread. ``line`` is the line in the innermost frame. ``importing`` names the
    module that the innermost ``importlib._find_and_load`` is finding or loading, "" if there is none.
    """

    when: float
    thread: int
    stack: tuple[Frame, ...]
    line: int = 0
    importing: str = ""


@dataclass
class ProcessTrace:
    """One interpreter's life as its probe wrote it.

    ``started``: start of the process, from /proc. ``python``: the interpreter was up. ``stamps``: main, torch,
    cuda, plugin. ``names``: the process's multiprocessing name or title as it changed.
    ``samples`` holds all threads in order of time. A thread other than the main one is written only when its
    stack changed: its last sample holds until its next one, or until one with an empty stack (it ended).
    ``last``: the last record. ``lost``: why records are missing. ``forked``: began by a fork without exec.
    """

    pid: int
    parent: int
    started: float
    python: float | None
    mode: str
    argv: tuple[str, ...] = ()
    stamps: dict[str, float] = field(default_factory=dict)
    names: list[tuple[float, str]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    last: float = 0.0
    probe_cpu: float | None = None
    modules: int | None = None
    cache_paths: dict[str, str] = field(default_factory=dict)
    lost: str = ""
    forked: bool = False
    #: The probe began long after the interpreter did.
    late: bool = False


@dataclass(frozen=True)
class Life:
    """One process of the tree as seen from outside. ``name``: its comm. ``ended``: seen gone, None while it lived on."""

    pid: int
    parent: int
    name: str
    command: str
    started: float
    ended: float | None
    exit_code: int | None = None
