"""A boot beside what its machine can do: when that is timed, and what of a record changes."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.compared import compared
from pytest_coldstart.memory import GPU, Memory
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord, Failure, Phase, Value
from pytest_coldstart.reference import Copy, References, Speed
from pytest_coldstart.rounds import Rounds
from tests.conftest import MakePlan
from tests.store.samples import record

MIB = 1 << 20


class Timed(References):
    """Notes when it is asked, and which processes run in *home* then."""

    def __init__(self, home: Path, fault: BaseException | None = None) -> None:
        super().__init__()
        self.asked: list[tuple[float, list[str]]] = []
        self.home, self.fault = home, fault

    def copy(self, uuid: str) -> Copy:
        if self.fault:
            raise self.fault
        self.asked.append((time.monotonic(), _running(self.home)))
        return Copy(50e9, "", 518 * MIB)

    def read_speed(self, files: Any, evict: bool) -> Speed:
        return 2e9, ""


def _running(home: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").resolve(strict=True) == home:
                found.append((entry / "comm").read_text())
        except OSError:
            continue
    return found


@pytest.fixture
def plan(make_plan: MakePlan, tmp_path: Path) -> Plan:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(os.urandom(MIB))
    return replace(make_plan(tier="restart", options={"weights": str(weights)}), gpus=("GPU-1",), rounds=2)


def test_it_is_timed_when_the_boot_is_gone_and_never_before_the_first_one(plan: Plan) -> None:
    kept: list[BootRecord] = []
    references = Timed(plan.cwd)
    rounds = Rounds(plan, keep=kept.append, references=references)
    begin = time.monotonic()
    rounds.run()
    rounds.finish()
    assert len(kept) == len(references.asked) == 2
    first = kept[0].instants["stopped"]
    assert [running for _, running in references.asked] == [[], []]
    assert references.asked[0][0] - begin > first, "a whole boot came before it"
    assert [item.memory.load.copy_speed for item in kept] == [50e9, 50e9]
    assert [item.memory.load.read_speed for item in rounds.records] == [2e9, 2e9]
    assert [item.references["reference_copy"] for item in kept] == [Value(50e9, "cuda")] * 2
    assert all(item.metrics[name].value for item in kept for name in ("reference_import", "reference_read"))


def test_an_interrupted_reference_costs_no_record(plan: Plan) -> None:
    kept: list[BootRecord] = []
    rounds = Rounds(plan, keep=kept.append, references=Timed(plan.cwd, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        rounds.run()
    assert [(item.outcome, item.memory.load.copy_speed) for item in kept] == [("ok", None)]


def test_metrics_are_derived_anew(plan: Plan) -> None:
    """1 MiB in half a second are 2 MiB/s; a context of 518 MiB is no stranded memory."""
    gpu = GPU(0, "GPU-1", "H200", total_bytes=1000 * MIB, process_bytes={"7": 600 * MIB}, pcie_gen=5, pcie_width=16)
    phases = (Phase("load_weights", 1.0, 1.5, "probe"),)
    made = record("b", memory=Memory(gpus=(gpu,)), phases=phases)
    made = replace(made, evidence=replace(made.evidence, weights=()))
    found = compared(made, plan, Timed(plan.cwd))
    assert found.memory.gpus[0].context_bytes == {"7": 518 * MIB}
    assert found.memory.load.link_speed == pytest.approx(63.015e9, rel=1e-4)
    assert found.metrics["load_speed"].value is None, "the evidence knows of no weights"


def test_boots_in_parallel_have_no_references_and_say_why(plan: Plan) -> None:
    references = Timed(plan.cwd)
    found = compared(record("b", memory=Memory()), replace(plan, parallel=True), references)
    assert references.asked == []
    assert found.memory == Memory()
    assert {value.value for value in found.references.values()} == {None}
    assert {found.metrics[name].reason for name in found.references} == {
        "boots run in parallel, and another one would slow a reference down"
    }


def test_a_boot_without_a_gpu_has_the_references_that_need_none(plan: Plan) -> None:
    references = Timed(plan.cwd)
    found = compared(record("b", memory=Memory()), replace(plan, gpus=()), references)
    assert references.asked == []
    assert found.memory == Memory()
    assert (found.metrics["reference_import"].value or 0) > 0
    assert (found.metrics["reference_read"].value or 0) > 0
    assert (found.metrics["reference_time"].value or 0) >= (found.metrics["reference_import"].value or 0)
    assert found.metrics["reference_copy"].reason == "no GPU of this boot is known"


def test_a_failed_boot_has_references_and_no_load(plan: Plan) -> None:
    references = Timed(plan.cwd)
    failed = record("b", outcome="failed", failure=Failure("exit", "it died", "start"), memory=Memory())
    found = compared(failed, plan, references)
    assert references.asked == []
    assert found.memory == Memory()
    assert (found.metrics["reference_import"].value or 0) > 0
    assert found.metrics["reference_copy"].reason == "the boot failed: it has no load to compare"


def test_the_load_of_a_boot_that_failed_meanwhile_has_no_speed(make_plan: MakePlan, boots: Any) -> None:
    boot = boots(make_plan("exit_at_once"))
    boot.run()
    load = boot.stop().memory.load
    assert (load.speed, load.missing) == (None, ("the boot did not come so far that its load is known to be whole",))
