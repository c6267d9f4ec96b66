"""What stands beside the path: names, what is missing, and other sources that agree, fill or disagree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_coldstart.attribution import Disagreement, Reading, Unmatched
from pytest_coldstart.phases.attribute import Inputs, attribute
from pytest_coldstart.phases.trace import ProcessTrace
from tests.phases.boots import COMPILE, IDLE, IMPORT, LOAD, ON_CHILDREN, UNKNOWN, Act, life, stack, trace

NEAR = 0.08


def inputs(end: float, *traces: ProcessTrace, **more: object) -> Inputs:
    return Inputs(**{"mode": "full", "origin": 0.0, "leader": 1, "end": end, "traces": traces, **more})  # type: ignore[arg-type]


def named(pid: int, argv: tuple[str, ...], names: tuple[str, ...] = ()) -> ProcessTrace:
    made = trace(pid, [Act(1.0, LOAD)])
    return replace(made, argv=argv, names=[(0.1, name) for name in names])


def test_processes_have_short_names_of_their_own() -> None:
    traces = (
        named(1, ("python", "-m", "vllm.entrypoints.cli.main", "serve")),
        named(2, ("python", "-c", "from multiprocessing.spawn import spawn_main"), ("MainProcess", "EngineCore")),
        named(3, (), ("EngineCore", "VLLM::Worker_TP0")),
        named(4, ("/env/bin/python3.12", "-Im", "torch._inductor.compile_worker")),
        named(5, ("/env/bin/python3.12", "-X", "faulthandler", "/env/bin/tool.py", "-m")),
        named(6, ("/env/bin/tool.py",)),
        named(7, ("python", "-c", "from multiprocessing.resource_tracker import main;main(9)")),
        named(8, (), ("SpawnProcess-3",)),
    )
    lives = (
        *(life(9, "ninja", 0.2, 0.5), life(10, "ninja", 0.6, 0.8)),
        life(8, "sglang::schedul", 0.0, 1.0),
    )
    _, found = attribute(inputs(1.0, *traces, lives=lives))
    assert {process.pid: process.name for process in found.processes} == {
        1: "server",
        2: "EngineCore",
        3: "VLLM::Worker_TP0",
        4: "torch._inductor.compile_worker",
        5: "tool.py",
        6: "tool.py 2",
        7: "resource_tracker",
        8: "sglang::schedul",
        9: "ninja",
        10: "ninja 2",
    }


def test_why_a_process_is_not_known_is_said() -> None:
    lives = (
        life(1, "python3", 0.0, None, parent=0),
        life(2, "python3", 0.5, 3.0, command="/usr/bin/python3 -I -m tool"),
        life(3, "python3", 0.5, 3.0, command="/usr/bin/python3 -S tool.py"),
        life(4, "python3", 0.5, 3.0, command="/usr/bin/python3 other.py -I"),
        life(5, "nvidia-smi", 0.5, 3.0),
        life(6, "python3", 0.5, 0.9, command="/usr/bin/python3 -I short.py"),
        life(7, "ptxas", 0.5, 3.0),
    )
    lost = replace(trace(8, [Act(3.0, LOAD)]), lost="the disk is full")
    _, found = attribute(inputs(3.5, trace(1, [Act(3.4, LOAD)]), lost, lives=lives, missing=("before",)))
    missing = {process.pid: process.missing for process in found.processes if process.missing}
    assert missing.keys() == {2, 3, 4, 5, 8}
    assert missing[2].startswith("started with -I")
    assert missing[3].startswith("started with -S")
    assert "unknown" in missing[4]
    assert missing[5] == "not Python"
    assert missing[8] == "the disk is full"
    assert found.missing[0] == "before"
    assert len(found.missing) == 6
    assert "nvidia-smi: not Python" in found.missing


def test_what_is_missing_of_many_of_a_kind_is_one_sentence() -> None:
    lives = [life(10 + index, "sleep", 0.2, 2.0) for index in range(3)]
    # What a shell started says what it did.
    lives += [life(20, "sh", 0.2, 2.0), life(21, "ptxas", 0.2, 2.0, parent=20)]
    _, found = attribute(inputs(3.0, trace(1, [Act(3.0, LOAD)]), lives=lives))
    assert found.missing == ("sleep and 2 more like it: not Python",)


def test_names_that_say_nothing_make_no_ranks() -> None:
    leader = trace(1, [Act(4.0, ON_CHILDREN)])
    children = [named(pid, (), (f"Process-{pid}",)) for pid in (2, 3)]
    _, found = attribute(inputs(4.1, leader, *children))
    assert found.spreads == ()


def test_a_child_that_fell_silent_has_its_parents_phase() -> None:
    inspect = stack("__main__:<module>", "vllm.model_executor.models.registry:_run_in_subprocess", "subprocess:run")
    leader = trace(1, [Act(4.0, inspect)])
    child = trace(2, [Act(2.0, LOAD)])
    phases, found = attribute(inputs(4.0, leader, child, lives=(life(2, "python3", 0.0, 3.5),)))
    silent = [phase for phase in phases if phase.process == "prog2" and phase.name == "imports"]
    assert [phase.detail for phase in silent] == ["model inspection: its probe fell silent"]
    assert silent[0].end == 3.5
    assert (phases[-1].name, phases[-1].process, phases[-1].detail) == ("imports", "server", "model inspection")
    assert found.missing == (f"prog2: its probe fell silent at {child.last:.1f} s",)


def test_a_silent_probe_is_said_and_nobody_is_given_its_time() -> None:
    leader = trace(1, [Act(1.0, IMPORT, "vllm")])
    child = trace(2, [Act(4.0, LOAD)], started=1.0)
    lives = (life(1, "python3", 0.0, None, parent=0),)
    phases, found = attribute(inputs(5.0, leader, child, lives=lives))
    assert found.missing == (f"server: its probe fell silent at {leader.last:.1f} s",)
    assert [(phase.name, phase.detail) for phase in phases][-1] == ("unattributed", "its probe fell silent")


def test_a_wrapper_that_is_not_python_hands_on() -> None:
    child = trace(2, [Act(3.0, LOAD)], started=0.2)
    lives = (life(1, "sh", 0.0, None, parent=0, command="sh -c 'python serve.py'"),)
    phases, _ = attribute(inputs(3.0, child, lives=lives))
    loads = [phase for phase in phases if phase.name == "load_weights"]
    assert sum(phase.end - phase.begin for phase in loads) == pytest.approx(2.7, abs=NEAR)
    assert loads[0].process == "prog2"


def test_an_exec_keeps_the_process() -> None:
    first = trace(1, [Act(1.0, IMPORT, "uv")])
    second = replace(trace(1, [Act(2.0, LOAD)], started=0.0, spawn=1.2), parent=1)
    phases, found = attribute(inputs(3.1, first, second))
    assert len(found.processes) == 1
    # The second interpreter's start is a spawn of its own.
    assert [phase.name for phase in phases] == ["spawn", "imports", "spawn", "load_weights"]


def test_one_id_of_two_processes_is_two_processes() -> None:
    leader = trace(1, [Act(4.0, ON_CHILDREN)])
    lives = (life(7, "ptxas", 0.2, 1.0), life(7, "ninja", 2.0, 3.0))
    _, found = attribute(inputs(4.1, leader, lives=lives))
    assert sorted(process.name for process in found.processes) == ["ninja", "ptxas", "server"]


def test_stamps_and_costs_are_kept() -> None:
    leader = replace(
        trace(1, [Act(1.0, LOAD)]),
        stamps={"torch": 100.7},
        started=100.0,
        python=100.2,
        probe_cpu=0.01,
        modules=812,
        cache_paths={"TRITON_CACHE_DIR": "/cache"},
        samples=[],
    )
    lives = (life(1, "python3", 100.0, 102.0, parent=0),)
    _, found = attribute(inputs(1.0, leader, origin=99.9, lives=lives))
    (process,) = found.processes
    assert process.instants == {"torch": pytest.approx(0.8), "python": pytest.approx(0.3)}
    assert (process.start, process.end) == (pytest.approx(0.1), pytest.approx(2.1))
    assert (process.probe_cpu, process.modules, process.cache_paths) == (0.01, 812, {"TRITON_CACHE_DIR": "/cache"})


def test_marks_alone_prove_the_spawn_and_readings_fill_the_rest() -> None:
    leader = replace(trace(1, []), mode="marks", last=9.0)
    child = replace(trace(2, [], started=3.0), mode="marks", last=9.0)
    readings = (
        Reading(("load_weights",), 4.0, "span", "Load model", "EngineCore", 2.0, 6.0),
        Reading(("compile",), 1.0, "log", "compile", "", 3.0, 4.0),
        Reading(("profile", "kv_alloc"), 1.0, "log", "both", "", 6.0, 7.0),
    )
    phases, found = attribute(inputs(9.0, leader, child, mode="marks", readings=readings))
    assert [(phase.name, phase.begin, phase.end, phase.source) for phase in phases] == [
        ("spawn", 0.0, 0.1, "proc"),
        ("unattributed", 0.1, 2.0, "probe"),
        ("load_weights", 2.0, 3.0, "span"),
        ("compile", 3.0, 4.0, "log"),
        ("load_weights", 4.0, 6.0, "span"),
        ("unattributed", 6.0, 9.0, "probe"),
    ]
    assert found.missing == ()
    assert found.readings == readings


def test_a_reading_fills_no_time_in_which_another_process_was_seen_to_work() -> None:
    leader = trace(1, [Act(3.0, UNKNOWN)])
    own = Reading(("tokenizer",), 1.0, "span", "own", "server", 1.0, 2.0)
    other = Reading(("load_weights",), 1.0, "span", "other", "EngineCore", 0.5, 3.0)
    phases, _ = attribute(inputs(3.1, leader, readings=(own, other)))
    assert {phase.name for phase in phases} == {"spawn", "unattributed", "tokenizer"}
    assert [(phase.begin, phase.end) for phase in phases if phase.name == "tokenizer"] == [(1.0, 2.0)]


def test_without_a_probe_clocked_readings_are_the_path() -> None:
    readings = (Reading(("load_weights",), 1.0, "log", "load", "", 0.5, 1.5),)
    phases, _ = attribute(inputs(3.0, mode="off", instants={"ready": 2.0, "first_done": 3.0}, readings=readings))
    assert [(phase.name, phase.begin, phase.end, phase.source) for phase in phases] == [
        ("unattributed", 0.0, 0.5, "client"),
        ("load_weights", 0.5, 1.5, "log"),
        ("unattributed", 1.5, 2.0, "client"),
        ("first_request", 2.0, 3.0, "client"),
    ]


def test_sources_that_differ_are_both_kept() -> None:
    leader = trace(1, [Act(1.0, IMPORT, "vllm"), Act(6.0, ON_CHILDREN)])
    core = trace(2, [Act(4.0, LOAD), Act(2.0, COMPILE), Act(0.5, IDLE)], started=1.0, name="VLLM::EngineCore")
    readings = (
        Reading(("load_weights",), 4.1, "log", "took", "EngineCore"),
        # A part of it, and it was in that time; then one that is claimed where something else was seen.
        Reading(("load_weights",), 1.0, "span", "a", "EngineCore", 1.5, 2.5),
        Reading(("load_weights",), 2.0, "span", "b", "pid 2", 2.0, 3.5),
        Reading(("graph_capture",), 2.0, "span", "c", "pid 2", 5.5, 7.5),
        Reading(("compile",), 3.0, "log", "compile"),
        Reading(("tokenizer",), 0.1, "log", "small"),
        Reading(("warmup",), 9.0, "log", "elsewhere", "Nobody"),
    )
    unmatched = (Unmatched("vllm", "0.34", "weights"),)
    _, found = attribute(inputs(7.1, leader, core, readings=readings, unmatched=unmatched))
    shown = {(item.phases, item.first, item.second): item for item in found.disagreements}
    assert shown.keys() == {
        (("graph_capture",), "probe", "span"),
        (("load_weights",), "log", "span"),
        (("compile",), "probe", "log"),
    }
    assert shown[("graph_capture",), "probe", "span"] == Disagreement(("graph_capture",), "probe", 0, "span", 2.0, "c")
    both = shown[("load_weights",), "log", "span"]
    assert both == Disagreement(("load_weights",), "log", 4.1, "span", 2.0, "took / a / b")
    assert found.unmatched == unmatched


def test_a_reading_of_a_parent_is_held_against_all_below_it() -> None:
    leader = trace(1, [Act(0.5, IMPORT, "vllm"), Act(5.0, ON_CHILDREN)])
    core = trace(2, [Act(4.0, ON_CHILDREN)], started=0.6, name="EngineCore")
    worker = trace(3, [Act(3.0, COMPILE)], parent=2, started=0.8, name="Worker")
    reading = Reading(("compile",), 3.0, "log", "compile", "EngineCore")
    _, found = attribute(inputs(5.6, leader, core, worker, readings=(reading,)))
    assert found.disagreements == ()


def test_a_figure_that_was_rounded_disagrees_only_beyond_its_rounding() -> None:
    leader = trace(1, [Act(4.0, LOAD)])
    rounded = Reading(("load_weights",), 4.4, "log", "weights took 4 secs", resolution=0.5)
    assert attribute(inputs(4.0, leader, readings=(rounded,)))[1].disagreements == ()
    exact = replace(rounded, resolution=0.0)
    (found,) = attribute(inputs(4.0, leader, readings=(exact,)))[1].disagreements
    assert (found.second, found.second_seconds) == ("log", 4.4)
