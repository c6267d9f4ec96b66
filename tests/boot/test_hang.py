"""From which CPU use on an engine counts as doing something: its processes poll each other while nothing is asked of it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_coldstart import watch as module
from pytest_coldstart.errors import BootFailed
from pytest_coldstart.observe.proc import Sample
from pytest_coldstart.watch import Watch


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def hangs(monkeypatch: pytest.MonkeyPatch, share: float, processes: int, seconds: int = 60) -> bool:
    """Whether a tree that uses *share* of a core all the time is told hung within *seconds* at a timeout of 15 s."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    plan: Any = SimpleNamespace(hang_timeout=15.0, observe=True, cell=SimpleNamespace(container=None))
    tree: Any = SimpleNamespace(log_bytes=0, last_line="")
    readiness = SimpleNamespace(listen=1.0, ready=1.0, last_answer="", listening=threading.Event())
    exchange: Any = SimpleNamespace(readiness=readiness, last_refusal="")
    observer: Any = SimpleNamespace(latest=None)
    watch = Watch(plan, tree, exchange, observer, 1, {}, lambda *_: None, 0.0, {}, str)
    for step in range(1, seconds * 4):
        clock.now = step / 4
        ticks = int(share * clock.now * 100)  # the kernel counts in hundredths
        observer.latest = Sample(clock.now, processes, 0, ticks / 100, 0, 0, 0, 0)
        try:
            watch._check_hang(clock.now, "an answer")
        except BootFailed as error:
            return error.kind == "hang"
    return False


@pytest.mark.parametrize(
    ("share", "processes", "hung"),
    [
        (0.0, 1, True),
        (0.02, 1, True),  # answers polls
        (0.1, 1, False),
        (0.03, 5, True),  # vLLM whose core is frozen: the worker polls on
        (0.2, 5, False),
        (0.2, 40, True),
        (0.4, 40, False),  # however many there are, some of a core is work
    ],
)
def test_polls_of_many_processes_are_no_work(
    monkeypatch: pytest.MonkeyPatch, share: float, processes: int, hung: bool
) -> None:
    assert hangs(monkeypatch, share, processes) is hung
