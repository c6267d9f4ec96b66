"""Which phase is blamed: paths of known lengths, in every state that a record can be in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pytest_coldstart.attribution import Attribution, HotFrame, Process
from pytest_coldstart.gate.blame import Blame, blame
from pytest_coldstart.gate.comparison import SideBoot
from pytest_coldstart.record import BootRecord, Cache, Evidence, Failure, FileResidency, Inventory, Phase
from tests.store.samples import HEADER, record

#: (phase, process, seconds) or (phase, process, seconds, detail), one after the other from the start.
Path = Sequence[tuple[Any, ...]]


def boot(path: Path, **changes: Any) -> SideBoot:
    at, items = 0.0, []
    for name, process, seconds, *detail in path:
        items.append(Phase(name, at, at + seconds, "probe", process, *detail))
        at += seconds
    plain = {
        "phases": tuple(items),
        "instants": {"start": 0.0, "first_done": at},
        "caches": (),
        "attribution": Attribution("full", at),
    }
    return SideBoot(record("b", **{**plain, **changes}), HEADER)


def side(*paths: Path, **changes: Any) -> list[SideBoot]:
    return [boot(path, **changes) for path in paths]


def path(load: float = 1.0, imports: float = 3.0, process: str = "EngineCore") -> Path:
    return (("imports", "server", imports), ("load_weights", process, load), ("first_request", "", 0.5))


def test_the_phase_that_grew_is_first_with_its_medians_share_and_process() -> None:
    found = blame(side(path(1.0), path(1.1), path(1.2)), side(path(2.0), path(2.2), path(2.1)))
    first = found.phases[0]
    assert (first.phase, first.process) == ("load_weights", "EngineCore")
    assert (first.base, first.head, first.share) == (pytest.approx(1.1), pytest.approx(2.1), pytest.approx(1.0))
    assert len(found.phases) == 1  # the others did not move


def test_of_an_improvement_the_phase_that_shrank_most_is_first_and_the_one_that_grew_is_last() -> None:
    found = blame(side(path(5.0, 3.0)), side(path(2.0, 4.0)))
    assert [item.phase for item in found.phases] == ["load_weights", "imports"]
    assert [item.share for item in found.phases] == [pytest.approx(1.5), pytest.approx(-0.5)]


def test_phases_that_cancel_each_other_have_no_share_of_what_is_left() -> None:
    found = blame(side(path(1.0, 3.0)), side(path(4.0, 0.5)))
    assert [item.phase for item in found.phases] == ["load_weights", "imports"]
    assert [item.share for item in found.phases] == [None, None]


def test_one_phase_in_several_processes_is_summed_and_the_detail_tells_them_apart() -> None:
    def of(server: float, core: float) -> Path:
        return (
            ("imports", "server", server),
            ("imports", "EngineCore", core),
            ("compile", "ptxas", 0.5),
            ("compile", "ptxas 2", 0.5),
        )

    first = blame(side(of(1, 1)), side(of(4, 3))).phases[0]
    assert (first.phase, first.process, first.base, first.head) == ("imports", "", 2, 7)
    assert first.detail.startswith("server +3.00 s, EngineCore +2.00 s")


def test_work_that_moves_between_numbered_processes_of_one_name_is_no_change() -> None:
    base = (("compile", "ptxas", 0.5), ("compile", "ptxas 2", 1.5), ("imports", "server", 1.0))
    head = (("compile", "ptxas 7", 2.0), ("imports", "server", 1.5))
    assert [item.phase for item in blame(side(base), side(head)).phases] == ["imports"]
    more = (("compile", "ptxas", 1.5), ("compile", "ptxas 2", 2.5), ("imports", "server", 1.0))
    first = blame(side(base), side(more)).phases[0]
    assert (first.phase, first.process, first.change) == ("compile", "ptxas", 2.0)


def test_a_process_with_another_name_on_the_head_is_the_same_by_its_position() -> None:
    first = blame(side(path(1.0, process="Worker")), side(path(3.0, process="ModelRunner"))).phases[0]
    assert (first.base, first.head, first.process) == (1.0, 3.0, "ModelRunner (Worker on the base)")


def test_a_phase_that_varies_more_within_a_side_is_unclear_and_counts_half() -> None:
    base = side(path(1.0, 2.0), path(1.01, 3.0), path(1.02, 4.0))
    head = side(path(1.7, 3.0), path(1.71, 4.0), path(1.72, 5.0))
    clear, unclear = blame(base, head).phases
    assert (clear.phase, unclear.phase) == ("load_weights", "imports")  # 0.7 s against a half of 1.0 s
    assert unclear.detail.startswith("unclear: varies by 2.00 s within a side")
    assert "unclear" not in clear.detail


def test_of_imports_the_package_and_what_became_of_the_bytecode_are_named() -> None:
    def imported(torch: float, detail: str, cache: Cache) -> SideBoot:
        packages = {"torch": torch, "numpy": 0.5}
        processes = (
            Process(1, 0, "server", 0.0, imports=packages),
            Process(2, 1, "beside", 0.0, imports={"x": torch * 9}),
        )
        return boot(
            (("imports", "server", torch + 0.5, detail),),
            attribution=Attribution("full", processes=processes),
            caches=(cache,),
        )

    full = Inventory(10, 100, "a")
    base = imported(1.0, "torch", Cache("bytecode", "/c/b", full, full, 0))
    head = imported(
        3.0, "torch (bytecode)", Cache("bytecode", "/c/b", Inventory(0, 0, ""), full, 10, (), {"modules": 10}, 100)
    )
    found = blame([base], [head])
    assert found.phases[0].detail == (
        "most by the package torch: +2.00 s; compiling bytecode: +3.50 s; "
        "bytecode: hit on the base, filled on the head: 10 modules"
    )
    assert found.caches == ("bytecode: hit on the base, filled on the head: 10 modules",)


def test_of_compile_the_part_of_it_and_the_cache_that_was_not_hit_are_named() -> None:
    full = Inventory(10, 100, "a")
    hit, grew = (
        Cache("vllm", "/c/v", full, full, 0),
        Cache("vllm", "/c/v", full, full, 41, (), {"kernels": 41, "files": 3}, 9),
    )
    base = boot((("compile", "EngineCore", 0.5, "load of a compiled model"),), caches=(hit,))
    head = boot((("compile", "EngineCore", 4.0, "Inductor"),), caches=(grew,))
    found = blame([base], [head])
    assert found.caches == ("vllm: hit on the base, grew although full on the head: 41 kernels",)
    assert found.phases[0].detail == f"most by Inductor: +4.00 s; {found.caches[0]}"


def test_caches_that_were_used_alike_are_not_told_and_other_counts_are() -> None:
    def filled(kernels: int) -> SideBoot:
        cache = Cache("triton", "/c/t", Inventory(0, 0, ""), Inventory(9, 9, "b"), 9, (), {"kernels": kernels}, 9)
        unused = Cache("cuda", "/c/c", Inventory(0, 0, ""), Inventory(0, 0, ""), 0)
        return boot(path(), caches=(cache, unused))

    assert blame([filled(40)], [filled(42)]).caches == ()
    assert blame([filled(40)], [filled(80)]).caches == (
        "triton: filled on both, 40 kernels on the base, 80 kernels on the head",
    )


def test_a_cache_that_varies_within_a_side_says_so() -> None:
    full = Inventory(1, 1, "a")
    hit = boot(path(), caches=(Cache("vllm", "/c", full, full, 0),))
    grew = boot(path(), caches=(Cache("vllm", "/c", full, full, 1, (), {"graphs": 1}, 1),))
    assert blame([hit, hit], [hit, grew]).caches == (
        "vllm: hit on the base, varies (grew although full, hit) on the head: 1 graph",
    )


def test_of_weights_the_bytes_from_storage_and_the_speed_are_named() -> None:
    def loaded(seconds: float, read: int) -> SideBoot:
        weights = (FileResidency("/m/w", 1_000_000_000, 0, "ext4", "proved"),)
        return boot(path(seconds), evidence=Evidence(weights, tree_read_bytes=read))

    detail = blame([loaded(1.0, 0)], [loaded(2.0, 1_000_000_000)]).phases[0].detail
    assert detail == "0 B read from storage on the base, 1 GB on the head; 1 GB/s on the base, 500 MB/s on the head"


def test_of_time_that_nothing_explains_the_hottest_frame_is_named_else_the_instants_around_it() -> None:
    def dark(seconds: float, *frames: HotFrame) -> SideBoot:
        instants = {
            "start": 0.0,
            "listen": 0.5,
            "ready": 0.5 + seconds,
            "first_token": 1 + seconds,
            "first_done": 1.5 + seconds,
        }
        return boot(
            (("unattributed", "server", 1.5 + seconds),), attribution=Attribution(hottest=frames), instants=instants
        )

    assert blame([dark(1.0)], [dark(3.0)]).phases[0].detail == "most from listen to ready: +2.00 s"
    found = blame([dark(1.0)], [dark(3.0, HotFrame("server", "ggml:alloc", 1.75))])
    assert found.phases[0].detail == "most in ggml:alloc of server: +1.75 s"


def test_a_side_into_which_nobody_looked_is_not_compared_phase_by_phase() -> None:
    found = blame(
        side(path(1.0, 3.0)),
        side((("spawn", "server", 0.5), ("unattributed", "server", 4.5), ("first_request", "", 0.5))),
    )
    assert [(item.phase, item.base, item.head) for item in found.phases] == [
        ("unattributed", 4.0, 4.5),
        ("spawn", 0.0, 0.5),
    ]
    assert "nobody looked into the engine on the head" in found.phases[0].detail


def test_one_boot_whose_probe_fell_silent_is_left_out_of_its_side() -> None:
    silent = (("unattributed", "server", 9.0), ("first_request", "", 0.5))
    found = blame(side(path(1.0)), side(path(2.0), silent))
    assert [(item.phase, item.head) for item in found.phases] == [("load_weights", 2.0)]


FAILED = {"outcome": "failed", "failure": Failure("exit", "exited with\n1", "listen")}


def test_the_phase_in_which_the_boots_of_one_side_failed_comes_first_and_has_no_share() -> None:
    cut = (("imports", "server", 3.0), ("load_weights", "EngineCore", 0.25))
    found = blame(side(path(1.0), path(1.0)), [boot(path(3.0)), boot(cut, **FAILED)])
    first, second = found.phases
    assert (first.phase, first.process, first.failed, first.share) == ("load_weights", "EngineCore", True, None)
    assert first.detail == "1 of 2 boots of the head failed, at loading, before it was ready: exited with 1"
    assert (second.phase, second.failed, second.head) == ("load_weights", False, 3.0)


@pytest.mark.parametrize("outcome", ["base", "head", "both"])
def test_sides_whose_boots_all_failed_before_anything_was_seen_break_nothing(outcome: str) -> None:
    bad, good = side((), **FAILED), side(path())
    base, head = (bad if outcome in (name, "both") else good for name in ("base", "head"))
    found = blame(base, head).phases
    assert [item.phase for item in found] == ([] if outcome == "both" else ["unattributed"])


def test_no_boots_and_boots_without_a_path_blame_nothing() -> None:
    assert blame([], []) == Blame()
    assert blame(side(()), side(path())).phases == ()


def test_primes_and_boots_that_contradict_their_tier_are_passed_over() -> None:
    base = [*side(path(1.0)), boot(path(9.0), role="prime"), boot(path(9.0), outcome="error")]
    assert blame(base, side(path(2.0))).phases[0].base == 1.0


def run(command: Sequence[str], commit: str | None = "0123abcdef01234", **changes: Any) -> SideBoot:
    made: BootRecord = record("b", **changes)
    return SideBoot(made, {"command": list(command), "git_commit": commit})


def test_the_reproduce_command_boots_that_cell_once_with_the_options_that_its_boots_depend_on() -> None:
    command = [
        "pytest",
        "--coldstart",
        "suites",
        "--coldstart-rounds=9",
        "--coldstart-slo",
        "cold_start<=1s",
        "--coldstart-cpu",
    ]
    command += [
        "--coldstart-python",
        "llamacpp=/v/bin/python",
        "--coldstart-python=vllm=/w/bin/python",
        "--coldstart-store",
        "/s",
    ]
    found = blame([run([])], [run(command)]).reproduce
    assert found == (
        "pytest --coldstart 'test_a.py::test_boot[x]' --coldstart-rounds=1 --coldstart-cpu --coldstart-python llamacpp=/v/bin/python"
    )


def test_a_head_at_another_commit_is_reproduced_in_a_checkout_of_it() -> None:
    found = blame([run([], "aaaa")], [run([], "bbbbbbbbbbbbbbbb")]).reproduce
    assert found == "pytest --coldstart 'test_a.py::test_boot[x]' --coldstart-rounds=1  # in a checkout of bbbbbbbbbbbb"
