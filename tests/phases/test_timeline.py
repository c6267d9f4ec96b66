"""Samples of one process -> its timeline: where each boundary lies, and what a gap belongs to."""

from __future__ import annotations

import pytest

from pytest_coldstart.phases.classify import Classifier
from pytest_coldstart.phases.rules import ALL_RULES
from pytest_coldstart.phases.timeline import Segment, gaps, timeline
from pytest_coldstart.phases.trace import ProcessTrace, Sample
from tests.phases.boots import COMPILE, IDLE, IMPORT, LOAD, NCCL, ON_CHILDREN, ON_THREADS, UNKNOWN

RULES = Classifier(ALL_RULES)


def made(*samples: Sample, python: float | None = 1.0, last: float | None = None) -> ProcessTrace:
    held = samples[-1].when if samples else 1.0
    return ProcessTrace(1, 0, 0.9, python, "full", samples=list(samples), last=held if last is None else last)


def shown(segments: list[Segment]) -> list[tuple[float, float, str, str, str]]:
    return [(round(part.begin, 6), round(part.end, 6), part.phase, part.wait, part.source) for part in segments]


def test_near_samples_share_the_time_between_them_and_far_ones_leave_it_to_the_later() -> None:
    trace = made(
        Sample(1.04, 0, IMPORT, 1, "torch"), Sample(1.1, 0, LOAD), Sample(1.14, 0, LOAD), Sample(2.0, 0, COMPILE)
    )
    assert shown(timeline(trace, RULES, 0.9, 2.0)) == [
        (0.9, 1.0, "spawn", "", "proc"),
        (1.0, 1.07, "imports", "", "probe"),
        (1.07, 1.14, "load_weights", "", "probe"),
        (1.14, 2.0, "compile", "", "probe gap"),
    ]
    assert gaps(trace) == pytest.approx(0.86)


def test_samples_in_time_have_no_gap() -> None:
    assert gaps(made(Sample(1.0, 0, LOAD), Sample(1.0625, 0, LOAD))) == 0.0


def test_what_comes_after_the_last_sample_is_not_seen() -> None:
    trace = made(Sample(1.0, 0, LOAD), last=5.0)
    assert shown(timeline(trace, RULES, 0.9, 6.0)) == [
        (0.9, 1.0, "spawn", "", "proc"),
        (1.0, 1.1, "load_weights", "", "probe"),
        (1.1, 6.0, "", "unseen", "probe"),
    ]


def test_without_a_sample_only_the_spawn_is_known() -> None:
    assert shown(timeline(made(), RULES, 0.9, 2.0)) == [
        (0.9, 1.0, "spawn", "", "proc"),
        (1.0, 2.0, "", "unseen", "probe"),
    ]
    assert shown(timeline(made(python=None, last=1.5), RULES, 0.9, 2.0))[0] == (0.9, 1.5, "spawn", "", "proc")


def test_the_interval_cuts() -> None:
    trace = made(Sample(1.0, 0, LOAD), Sample(1.08, 0, LOAD), Sample(1.16, 0, COMPILE))
    assert shown(timeline(trace, RULES, 1.0, 1.1)) == [(1.0, 1.1, "load_weights", "", "probe")]


@pytest.mark.parametrize(
    ("main", "others", "phase", "wait"),
    [
        (ON_THREADS, [LOAD], "load_weights", ""),
        (ON_THREADS, [UNKNOWN, LOAD], "load_weights", ""),
        (ON_THREADS, [IDLE, LOAD], "load_weights", ""),
        (IDLE, [LOAD], "load_weights", ""),
        (IDLE, [UNKNOWN], "", "idle"),
        (ON_THREADS, [UNKNOWN], "", ""),
        (ON_THREADS, [ON_CHILDREN], "", "children"),
        (IDLE, [NCCL], "distributed_init", "peers"),
        (ON_THREADS, [IDLE], "", "threads"),
        (ON_THREADS, [()], "", "threads"),
        # Native threads have no stack: the wait for them is the work it is part of.
        ((*LOAD, *ON_THREADS[-1:]), [IDLE], "load_weights", ""),
        (ON_CHILDREN, [LOAD], "", "children"),
        (UNKNOWN, [LOAD], "", ""),
    ],
)  # fmt: skip
def test_who_has_the_time_of_a_main_thread(main, others, phase: str, wait: str) -> None:  # type: ignore[no-untyped-def]
    threads = [Sample(1.0, 70 + index, frames) for index, frames in enumerate(others)]
    trace = made(*threads, *(Sample(1.0 + 0.05 * index, 0, main) for index in range(5)))
    segments = timeline(trace, RULES, 1.0, 1.2)
    assert [(part.phase, part.wait) for part in segments] == [(phase, wait)]


def test_a_thread_has_its_time_until_it_changes_or_ends() -> None:
    threads = [Sample(1.1, 7, LOAD), Sample(1.2, 7, COMPILE), Sample(1.3, 7, ())]
    main = [Sample(1.0 + 0.05 * index, 0, ON_THREADS) for index in range(9)]
    trace = made(*sorted((*threads, *main), key=lambda sample: sample.when))
    parts = [(part.phase, part.end - part.begin) for part in timeline(trace, RULES, 1.0, 1.4)]
    assert parts == [
        ("", pytest.approx(0.075)),
        ("load_weights", pytest.approx(0.1)),
        ("compile", pytest.approx(0.1)),
        ("", pytest.approx(0.125)),
    ]
