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


def test_what_the_tree_used_is_kept_over_time_from_the_start() -> None:
    observer = TreeObserver(os.getpid())
    origin = time.monotonic()
    for _ in range(3):
        observer.take()
    found = observer.usage(origin)
    assert len(found.series.times) == found.samples == 4
    assert 0 <= found.series.times[0] <= found.series.times[-1] <= time.monotonic() - origin
    assert max(value or 0 for value in found.series.columns["rss"]) == found.peak_rss
    cpu = found.series.columns["cpu_time"]
    assert list(cpu) == sorted(value for value in cpu if value is not None)


def test_a_long_boot_keeps_no_more_samples_than_a_record_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "_KEPT", 8)
    observer = TreeObserver(os.getpid())
    for _ in range(50):
        observer.take()
    assert len(observer.usage(time.monotonic()).series.times) < 8
