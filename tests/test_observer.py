"""The observer of a process tree: what it may cost the boot that it watches."""

from __future__ import annotations

import os
import time

import pytest

from pytest_coldstart.observe import proc
from pytest_coldstart.observe.proc import TreeObserver


@pytest.mark.parametrize(("cost", "least", "most"), [(0.0, 3, 100), (0.03, 1, 1)])
def test_samples_that_cost_much_are_taken_seldom(
    monkeypatch: pytest.MonkeyPatch, cost: float, least: int, most: int
) -> None:
    """Hundreds of threads make a sample dear: at 1 % of a core, one of 30 ms is followed by 3 s of nothing."""
    real = proc.sample

    def dear(supervisor: int) -> proc.Sample:
        begin = time.thread_time()
        while time.thread_time() - begin < cost:
            pass
        return real(supervisor)

    observer = TreeObserver(os.getpid(), every=0.02)
    monkeypatch.setattr(proc, "sample", dear)
    observer.start()
    time.sleep(1.0)
    observer.close()
    assert least <= observer.samples <= most
