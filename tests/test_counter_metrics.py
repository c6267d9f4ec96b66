"""Counters of a boot from its caches and its processes, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_coldstart.attribution import Attribution, Process
from pytest_coldstart.metrics import METRICS, measure
from pytest_coldstart.record import BootRecord, Cache, Failure, Inventory, Value
from tests.store.samples import record

EMPTY, FULL = Inventory(0, 0, "e"), Inventory(8, 80, "f")


def cache(name: str, before: Inventory = EMPTY, **kinds: int) -> Cache:
    spelled = {kind.replace("_", " "): count for kind, count in kinds.items()}
    return Cache(name, f"/c/{name}", before, FULL, sum(kinds.values()), (), spelled, 1)


def process(pid: int, start: float, end: float | None, modules: int | None = None, missing: str = "") -> Process:
    return Process(pid, 1, f"p{pid}", start, end, probe="full" if modules else "off", missing=missing, modules=modules)


def boot(*processes: Process, caches: tuple[Cache, ...] = (), **changes: Any) -> BootRecord:
    plain: dict[str, Any] = {
        "instants": {"start": 0.0, "first_done": 20.0, "warmed": 21.0, "stopped": 30.0},
        "attribution": Attribution("full", 20.0, processes=processes),
        "caches": caches,
    }
    return record("b", **(plain | changes))


def value(made: BootRecord, name: str) -> Value:
    return measure(made)[name]


def test_what_was_compiled_is_counted_by_kind_over_all_caches() -> None:
    made = boot(
        caches=(
            cache("bytecode", modules=4861),
            cache("vllm", graphs=6, AOT_graphs=3, AOT_models=1, files=26),
            cache("triton", kernels=40, launchers=20, files=280),
            cache("cuda", entries=2, files=1),
            cache("hf", files=5),
        )
    )
    names = ("bytecode_compiled", "kernels_compiled", "graphs_compiled", "cache_files_written", "caches_missed")
    assert [value(made, name).value for name in names] == [4861, 42, 10, 384, 0]


def test_a_cache_that_was_full_and_got_more_of_what_is_compiled_was_missed() -> None:
    made = boot(
        caches=(
            cache("triton", FULL, kernels=1, files=7),
            cache("flashinfer", FULL, files=1),  # a log that each boot writes
            cache("inductor", FULL),
            cache("vllm", EMPTY, graphs=6),
            cache("bytecode", FULL, modules=2),
        )
    )
    assert value(made, "caches_missed").value == 2


def test_what_was_not_counted_has_a_reason_and_is_never_zero() -> None:
    uncounted = replace(cache("triton"), after=None, new_files=None)
    assert value(boot(caches=(uncounted,)), "kernels_compiled") == Value(
        None, None, "the cache 'triton' was not counted after the boot"
    )
    of_before_kinds = replace(cache("triton"), new_files=3)
    assert "was not told" in (value(boot(caches=(of_before_kinds,)), "kernels_compiled").reason or "")
    assert value(boot(caches=(cache("triton"),)), "bytecode_compiled").reason == (
        "the engine's adapter names no cache of bytecode, or it was not looked at"
    )
    assert value(boot(), "cache_files_written").reason == "the engine's adapter names no cache"


def test_modules_are_those_of_the_python_processes_that_run_when_the_path_ends() -> None:
    made = boot(
        process(7, 0.0, 29.9, 6816),
        process(8, 5.0, None, 7026),
        process(9, 2.0, 9.0, 6454, "its probe fell silent at 8.0 s"),  # ended before
        process(10, 6.0, None, missing="not Python"),
        process(11, 25.0, None, 99),  # began later
    )
    assert value(made, "modules_imported") == Value(6816 + 7026, "probe")


@pytest.mark.parametrize(
    ("processes", "changes", "why"),
    [
        ((process(7, 0.0, None, 3453, "its probe fell silent at 12.7 s"),), {}, "p7: its probe fell silent at 12.7 s"),
        ((process(7, 0.0, None, missing="the probe was not loaded, and why is unknown"),), {}, "p7: the probe was not"),
        ((process(7, 0.0, None),), {}, "no modules were counted: no process of it has a probe"),
        ((), {}, "no modules were counted"),
        ((process(7, 0.0, None, 40),), {"tier": "wake"}, "before it was woken"),
        ((process(7, 0.0, None, 40),), {"instants": {"start": 0.0}}, "known only after the engine has stopped"),
    ],
)
def test_modules_that_cannot_be_told_have_a_reason(
    processes: tuple[Process, ...], changes: dict[str, Any], why: str
) -> None:
    found = value(boot(*processes, **changes), "modules_imported")
    assert found.value is None
    assert why in (found.reason or "")


def test_modules_of_a_short_boot_need_two_seconds_more() -> None:
    short = {"attribution": Attribution("full", 1.0, processes=(process(7, 0.0, None, 40),))}
    soon = boot(**short, instants={"start": 0.0, "first_done": 1.0, "stopped": 2.5})
    assert value(soon, "modules_imported").reason == "modules are counted once a second, and it was stopped 1.5 s later"
    late = boot(**short, instants={"start": 0.0, "first_done": 1.0, "stopped": 3.0})
    assert value(late, "modules_imported").value == 40


def test_processes_that_come_and_go_are_not_counted() -> None:
    made = boot(
        process(7, -0.01, 29.9),
        process(8, 1.0, 15.0),  # lived long and ended before the answer
        process(9, 3.0, 3.4),  # a compiler
        process(10, 18.5, 25.0),  # runs when the path ends
        process(11, 21.0, None),  # began later
    )
    assert value(made, "processes_started") == Value(3.0, "proc")
    assert value(boot(), "processes_started").value is None


def test_a_failed_boot_has_no_counters_and_has_its_references() -> None:
    failed = boot(
        process(7, 0.0, None, 40),
        caches=(cache("triton", kernels=3),),
        outcome="failed",
        failure=Failure("exit", "it died", "start"),
        references={"reference_import": Value(0.04, "python 3.11.7")},
    )
    found = measure(failed)
    assert {found[name].reason for name, metric in METRICS.items() if metric.counter} == {"the boot failed"}
    assert found["reference_import"] == Value(0.04, "python 3.11.7")
    assert found["reference_read"].reason == "no reference workload was timed"
