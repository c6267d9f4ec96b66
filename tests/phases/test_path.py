"""The critical path of made boots: every second is where the boot was made to spend it."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from pytest_coldstart.phases.attribute import Inputs, attribute
from pytest_coldstart.phases.trace import ProcessTrace, Sample
from pytest_coldstart.record import Phase
from tests.phases.boots import (
    COMPILE,
    GRAPHS,
    IDLE,
    IMPORT,
    LOAD,
    NCCL,
    ON_CHILDREN,
    ON_THREADS,
    UNKNOWN,
    Act,
    life,
    stack,
    trace,
)

#: A boundary between two acts is known to half a sample on average, a whole one at worst.
NEAR = 0.08


def sums(phases: Sequence[Phase]) -> dict[tuple[str, str], float]:
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for phase in phases:
        found[phase.name, phase.process] += phase.end - phase.begin
    return dict(found)


def assert_partition(phases: Sequence[Phase], end: float) -> None:
    assert phases[0].begin == 0.0
    assert phases[-1].end == end
    for before, after in pairwise(phases):
        assert before.end == after.begin
    assert all(phase.end > phase.begin for phase in phases)
    assert sum(phase.end - phase.begin for phase in phases) == pytest.approx(end, abs=1e-9)


def inputs(end: float, *traces: ProcessTrace, **more: object) -> Inputs:
    return Inputs(**{"mode": "full", "origin": 0.0, "leader": 1, "end": end, "traces": traces, **more})  # type: ignore[arg-type]


def test_each_phase_of_one_process_gets_its_time() -> None:
    acts = [Act(2.0, IMPORT, "torch.cuda"), Act(1.0, LOAD), Act(1.5, COMPILE), Act(0.8, UNKNOWN), Act(0.6, GRAPHS)]
    phases, attribution = attribute(inputs(6.0, trace(1, acts)))
    assert_partition(phases, 6.0)
    found = sums(phases)
    assert found["spawn", "server"] == pytest.approx(0.1)
    assert found["imports", "server"] == pytest.approx(2.0, abs=NEAR)
    assert found["load_weights", "server"] == pytest.approx(1.0, abs=NEAR)
    assert found["compile", "server"] == pytest.approx(1.5, abs=NEAR)
    assert found["graph_capture", "server"] == pytest.approx(0.6, abs=NEAR)
    assert found["unattributed", "server"] == pytest.approx(0.8, abs=NEAR)
    assert attribution.hottest[0].frame == "app.nobody:think"
    assert attribution.hottest[0].seconds == pytest.approx(0.8, abs=NEAR)
    assert attribution.processes[0].imports == {"torch": pytest.approx(2.0, abs=NEAR)}


def test_a_call_that_holds_the_gil_gets_the_gap_it_makes() -> None:
    acts = [Act(1.0, IMPORT, "torch"), Act(3.0, LOAD, held=True), Act(1.0, COMPILE)]
    phases, attribution = attribute(inputs(5.1, trace(1, acts)))
    found = sums(phases)
    assert found["load_weights", "server"] == pytest.approx(3.0, abs=NEAR)
    assert found["imports", "server"] == pytest.approx(1.0, abs=NEAR)
    held = [phase for phase in phases if phase.source == "probe gap"]
    assert [phase.name for phase in held] == ["load_weights"]
    assert attribution.processes[0].gaps == pytest.approx(3.0, abs=NEAR)


def test_a_wait_for_children_is_handed_on_and_the_childs_own_wait_too() -> None:
    leader = trace(1, [Act(1.0, IMPORT, "vllm"), Act(6.0, ON_CHILDREN)], name="APIServer")
    core = trace(2, [Act(1.0, IMPORT, "torch"), Act(4.0, IDLE), Act(0.8, GRAPHS)], started=1.2, name="EngineCore")
    worker = trace(3, [Act(3.5, LOAD)], parent=2, started=2.4, name="Worker")
    worker = replace(worker, parent=2)
    core = replace(core, parent=1)
    phases, _ = attribute(inputs(7.1, leader, core, worker))
    assert_partition(phases, 7.1)
    found = sums(phases)
    assert found["imports", "APIServer"] == pytest.approx(1.0, abs=NEAR)
    assert found["imports", "EngineCore"] == pytest.approx(1.0, abs=NEAR)
    assert found["load_weights", "Worker"] == pytest.approx(3.5, abs=NEAR)
    assert found["graph_capture", "EngineCore"] == pytest.approx(0.8, abs=NEAR)
    assert found["spawn", "EngineCore"] == pytest.approx(0.1, abs=NEAR)
    # What is left: before the core was born, around the worker, and after the core had ended.
    assert sum(seconds for (name, _), seconds in found.items() if name == "unattributed") == pytest.approx(0.5, abs=0.2)


def ranks(slow: int, peers: bool) -> tuple[ProcessTrace, ...]:
    wait = [Act(2.0, NCCL)] if peers else [Act(2.0, IDLE)]
    early = [Act(1.0, IMPORT, "torch"), Act(1.0, LOAD), *wait, Act(0.5, GRAPHS)]
    late = [Act(1.0, IMPORT, "torch"), Act(3.0, LOAD), Act(0.5, GRAPHS)]
    return (
        trace(1, [Act(0.5, IMPORT, "vllm"), Act(5.0, ON_CHILDREN)]),
        *(trace(pid, late if pid == slow else early, started=0.7, name=f"VLLM::Worker_TP{pid - 2}") for pid in (2, 3)),
    )


@pytest.mark.parametrize("slow", [2, 3])
@pytest.mark.parametrize("peers", [True, False])
def test_the_slowest_rank_is_the_path(slow: int, peers: bool) -> None:
    phases, attribution = attribute(inputs(5.3, *ranks(slow, peers)))
    assert_partition(phases, 5.3)
    found = sums(phases)
    loads = sum(seconds for (name, _), seconds in found.items() if name == "load_weights")
    assert loads == pytest.approx(3.0, abs=NEAR)
    assert ("distributed_init", f"VLLM::Worker_TP{slow - 2}") not in found
    assert sum(seconds for (name, _), seconds in found.items() if name == "distributed_init") < NEAR
    assert len(attribution.spreads) == 1
    assert set(attribution.spreads[0].done) == {"VLLM::Worker_TP0", "VLLM::Worker_TP1"}


def test_a_rank_that_is_done_early_is_in_the_spread() -> None:
    leader = trace(1, [Act(0.5, IMPORT, "vllm"), Act(4.0, ON_CHILDREN), Act(0.5, GRAPHS)])
    fast = trace(2, [Act(1.0, LOAD), Act(4.0, IDLE)], started=0.6, name="Worker_TP0")
    slow = trace(3, [Act(3.8, LOAD), Act(1.0, IDLE)], started=0.6, name="Worker_TP1")
    phases, attribution = attribute(inputs(5.1, leader, fast, slow))
    assert sums(phases)["load_weights", "Worker_TP1"] == pytest.approx(3.8, abs=NEAR)
    (spread,) = attribution.spreads
    assert spread.done["Worker_TP0"] == pytest.approx(1.7, abs=NEAR)
    assert spread.done["Worker_TP1"] == pytest.approx(4.5, abs=NEAR)


def test_a_compiler_without_a_probe_has_the_time_its_parent_waits() -> None:
    leader = trace(1, [Act(1.0, IMPORT, "torch"), Act(3.0, ON_CHILDREN), Act(1.0, LOAD)])
    ninja, nvcc = life(7, "ninja", 1.1, 4.1), life(8, "nvcc", 1.3, 3.9, parent=7)
    phases, attribution = attribute(inputs(5.1, leader, lives=(ninja, nvcc)))
    found = sums(phases)
    assert found["compile", "nvcc"] == pytest.approx(2.6, abs=NEAR)
    assert found["compile", "ninja"] == pytest.approx(0.4, abs=NEAR)
    assert attribution.missing == ()


def test_an_unknown_child_has_its_parents_phase_or_none() -> None:
    within = stack("__main__:<module>", "torch._inductor.compile_fx:compile_fx", "subprocess:Popen.communicate")
    leader = trace(1, [Act(2.0, within), Act(2.0, ON_CHILDREN)])
    phases, attribution = attribute(inputs(4.1, leader, lives=(life(7, "sh", 0.2, 2.0), life(8, "mystery", 2.2, 4.0))))
    found = sums(phases)
    assert found["compile", "sh"] == pytest.approx(1.8, abs=NEAR)
    assert found["unattributed", "mystery"] == pytest.approx(1.8, abs=NEAR)
    assert any(phase.detail == "mystery" for phase in phases)
    assert attribution.missing == ("sh: not Python", "mystery: not Python")


def test_a_wait_before_the_child_was_born_is_not_filled() -> None:
    leader = trace(1, [Act(4.0, ON_CHILDREN)])
    child = trace(2, [Act(2.0, LOAD)], started=2.0)
    found = sums(attribute(inputs(4.1, leader, child))[0])
    assert found["unattributed", "server"] == pytest.approx(1.9, abs=NEAR)
    assert found["load_weights", "prog2"] == pytest.approx(2.0, abs=NEAR)


def test_two_that_wait_for_each_other_are_unattributed_and_named() -> None:
    leader = trace(1, [Act(1.0, LOAD), Act(2.0, ON_CHILDREN)])
    child = trace(2, [Act(2.9, IDLE)], started=0.0)
    phases, attribution = attribute(inputs(3.1, leader, child))
    assert sums(phases)["unattributed", "server"] == pytest.approx(2.0, abs=NEAR)
    assert any(phase.detail == "waits, and what for is not known: app.main:run" for phase in phases)
    assert attribution.hottest[0].frame == "app.main:run"


def test_another_thread_has_the_time_the_main_one_waits_for_it() -> None:
    leader = trace(1, [Act(1.0, IMPORT, "torch"), Act(3.0, ON_THREADS)])
    leader.samples += [Sample(1.5, 77, LOAD), Sample(3.5, 77, ())]
    leader.samples.sort(key=lambda sample: sample.when)
    found = sums(attribute(inputs(4.1, leader))[0])
    assert found["load_weights", "server"] == pytest.approx(2.0, abs=NEAR)
    assert found["unattributed", "server"] == pytest.approx(1.0, abs=NEAR)


def test_a_thread_that_only_waits_takes_nothing_over() -> None:
    leader = trace(1, [Act(1.0, LOAD), Act(2.0, IDLE)])
    leader.samples.insert(0, Sample(0.1, 77, stack("threading:Thread._bootstrap", "threading:Condition.wait")))
    leader.samples.insert(0, Sample(0.1, 78, UNKNOWN))
    found = sums(attribute(inputs(3.1, leader))[0])
    assert found == {
        ("spawn", "server"): pytest.approx(0.1),
        ("load_weights", "server"): pytest.approx(1.0, abs=NEAR),
        ("unattributed", "server"): pytest.approx(2.0, abs=NEAR),
    }


def test_after_ready_the_request_has_what_nothing_better_has() -> None:
    leader = trace(1, [Act(2.0, LOAD), Act(3.0, IDLE)])
    worker = trace(2, [Act(1.9, IDLE), Act(1.0, IDLE), Act(0.7, COMPILE), Act(1.2, IDLE)])
    more = {"instants": {"ready": 3.0, "first_done": 5.0}, "poll_delay": 0.25}
    phases, _ = attribute(inputs(5.0, leader, worker, **more))
    assert_partition(phases, 5.0)
    found = sums(phases)
    assert found["compile", "prog2"] == pytest.approx(0.7, abs=NEAR)
    assert found["first_request", ""] == pytest.approx(1.3, abs=NEAR)
    assert found["server_start", "server"] == pytest.approx(0.25)
    assert found["unattributed", "server"] == pytest.approx(0.65, abs=NEAR)


def test_a_process_killed_in_a_call_leaves_the_rest_unattributed() -> None:
    leader = trace(1, [Act(1.0, IMPORT, "torch"), Act(3.0, LOAD, held=True)], killed=True)
    phases, attribution = attribute(inputs(4.0, leader, lives=(life(1, "python3", 0.0, 3.9, parent=0),)))
    found = sums(phases)
    assert found["unattributed", "server"] == pytest.approx(2.9, abs=2 * NEAR)
    assert ("load_weights", "server") not in found
    assert attribution.missing[0].startswith("server: its probe fell silent at 1.")


def test_a_process_without_samples_is_spawn_and_then_unknown() -> None:
    leader = replace(trace(1, []), last=0.1)
    lives = (life(1, "python3", 0.0, None, parent=0),)
    phases, attribution = attribute(inputs(2.0, leader, lives=lives))
    assert sums(phases) == {("spawn", "server"): pytest.approx(0.1), ("unattributed", "server"): pytest.approx(1.9)}
    assert attribution.missing == ("server: its probe took no samples",)


def test_a_forked_child_and_one_that_outlives_its_parents_wait() -> None:
    leader = trace(1, [Act(0.5, IMPORT, "torch"), Act(2.0, ON_CHILDREN), Act(1.0, GRAPHS)])
    forked = replace(trace(2, [Act(6.0, LOAD)], started=0.6, spawn=0.0), forked=True)
    phases, _ = attribute(inputs(3.6, leader, forked))
    assert_partition(phases, 3.6)
    found = sums(phases)
    assert found["load_weights", "prog2"] == pytest.approx(2.0, abs=NEAR)
    assert found["graph_capture", "server"] == pytest.approx(1.0, abs=NEAR)
    assert ("spawn", "prog2") not in found


def test_the_start_and_the_end_lie_outside_what_was_seen() -> None:
    leader = trace(1, [Act(1.0, LOAD)], started=0.3)
    phases, _ = attribute(inputs(2.0, leader))
    assert_partition(phases, 2.0)
    assert sums(phases)["spawn", "server"] == pytest.approx(0.4)
    assert phases[-1].detail == "the leader has ended"


def test_without_traces_the_path_is_what_the_instants_tell() -> None:
    more = {"mode": "off", "instants": {"ready": 3.0, "first_done": 4.0}}
    phases, attribution = attribute(inputs(4.0, **more))
    assert phases == (Phase("unattributed", 0.0, 3.0, "client"), Phase("first_request", 3.0, 4.0, "client"))
    assert (attribution.probe, attribution.end, attribution.processes) == ("off", 4.0, ())
    assert attribute(inputs(0.0, **more))[0] == ()
    failed = attribute(inputs(2.0, mode="off"))[0]
    assert failed == (Phase("unattributed", 0.0, 2.0, "client"),)


def test_details_that_alternate_fast_are_one_and_no_phase_changes_its_sum() -> None:
    acts = [Act(0.03, IMPORT, name) for _ in range(40) for name in ("torch", "numpy")] + [Act(1.0, LOAD)]
    phases, attribution = attribute(inputs(3.5, trace(1, acts, rate=100)))
    assert_partition(phases, 3.5)
    assert sums(phases)["imports", "server"] == pytest.approx(2.4, abs=NEAR)
    imports = [phase for phase in phases if phase.name == "imports"]
    assert len(imports) == 1 or all(phase.end - phase.begin >= 0.1 for phase in imports)
    assert attribution.processes[0].imports["torch"] == pytest.approx(1.2, abs=0.2)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_boot_the_path_is_a_partition(seed: int) -> None:
    chance = random.Random(seed)
    stacks = [IMPORT, LOAD, COMPILE, NCCL, GRAPHS, UNKNOWN, IDLE, ON_CHILDREN, ON_THREADS]
    traces, lives = [], []
    for pid in range(1, chance.randint(2, 8)):
        acts = [
            Act(chance.uniform(0.01, 1.5), chance.choice(stacks), "torch.x", chance.random() < 0.2)
            for _ in range(chance.randint(0, 12))
        ]
        start = 0.0 if pid == 1 else chance.uniform(0, 3)
        name = chance.choice(["", "Worker_TP0", "Worker_TP1"])
        made = trace(pid, acts, parent=chance.randint(1, pid), started=start, name=name, seed=seed)
        traces.append(made)
        if chance.random() < 0.5:
            lives.append(life(pid, "python3", start, chance.choice([None, made.last + chance.uniform(0, 3)])))
    for pid in range(20, 20 + chance.randint(0, 4)):
        begin = chance.uniform(0, 4)
        lives.append(life(pid, chance.choice(["ptxas", "sh"]), begin, begin + 1, parent=chance.randint(1, 22)))
    end = chance.uniform(0.2, 9)
    ready = chance.uniform(0, end)
    instants = {} if seed % 3 == 0 else {"ready": ready, "first_done": end}
    more = {"lives": lives, "instants": instants, "poll_delay": 0.1}
    phases, attribution = attribute(inputs(end, *traces, **more))
    assert_partition(phases, end)
    assert len({process.name for process in attribution.processes}) == len(attribution.processes)
    for node in attribution.processes:
        assert sum(node.imports.values()) <= end + 1e-9


def test_time_before_a_process_that_was_not_the_one_started_is_no_spawn() -> None:
    other = trace(2, [Act(1.0, LOAD)], started=5.0)
    phases, _ = attribute(inputs(7.0, other, leader=1))
    assert_partition(phases, 7.0)
    assert phases[0].name == "unattributed"
    assert phases[0].detail == "not seen"
    assert phases[0].end == pytest.approx(5.0)


def test_a_probe_that_began_late_leaves_what_was_before_open() -> None:
    late = trace(1, [Act(2.0, LOAD)], started=0.0)
    first = late.samples[0].when
    late.samples[:] = [replace(sample, when=sample.when + 3.0) for sample in late.samples]
    late.python, late.late, late.last = None, True, late.last + 3.0
    phases, _ = attribute(inputs(5.0, late))
    assert_partition(phases, 5.0)
    assert (phases[0].name, phases[0].detail) == ("unattributed", "its probe began later")
    assert phases[0].end == pytest.approx(first + 3.0, abs=0.2)
