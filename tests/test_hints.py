"""What would help: each rule with its evidence and without, with seconds that the test wrote itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.attribution import Attribution, Hint, HotFrame, Process
from pytest_coldstart.hints import RULES, hints
from pytest_coldstart.hints.settings import SETTINGS
from pytest_coldstart.hints.view import View
from pytest_coldstart.memory import Load, Memory
from pytest_coldstart.record import BootRecord, Cache, Evidence, FileResidency, Inventory, Phase

NAMES: dict[str, Any] = dict.fromkeys(("boot_id", "run_id", "nodeid", "cell_id", "cell_digest", "base_digest"), "x")

DOCS = Path(__file__).parents[1] / "docs" / "hints.md"


def path(*pieces: tuple[Any, ...]) -> tuple[Phase, ...]:
    """Pieces (name, seconds, process, detail) one after another."""
    found: list[Phase] = []
    for name, seconds, *rest in pieces:
        begin = found[-1].end if found else 0.0
        process, detail = (*rest, "", "")[:2]
        found.append(Phase(name, begin, begin + seconds, "probe", process, detail))
    return tuple(found)


def boot(*pieces: tuple[Any, ...], probe: str = "full", caches: str = "kept", **changes: Any) -> BootRecord:
    """A boot of vLLM 0.32 with this critical path, filled up to 100 s with server_start."""
    phases = path(*pieces, ("server_start", 100.0 - sum(piece[1] for piece in pieces), "APIServer"))
    attribution = Attribution(
        probe=probe,
        end=100.0,
        processes=changes.pop("processes", ()),
        hottest=changes.pop("hottest", ()),
        missing=changes.pop("missing", ()),
    )
    record = BootRecord(
        **NAMES,
        cell={"options": {}},
        engine="vllm",
        tier="restart",
        role="measured",
        round=1,
        outcome="ok",
        started_at="2026-11-30T10:00:00+00:00",
        versions={"vllm": "0.32.0"},
        phases=phases,
        attribution=attribution,
        evidence=Evidence(state={"caches": caches}),
    )
    return replace(record, **changes)


def only(record: BootRecord, rule: str) -> Hint:
    (found,) = (hint for hint in hints(record) if hint.rule == rule)
    return found


def rules(record: BootRecord) -> set[str]:
    return {hint.rule for hint in hints(record)}


def process(name: str, start: float, end: float | None = None, **changes: Any) -> Process:
    return Process(int(start * 10) + 1, 0, name, start, end, **changes)


def cache(name: str, before: int, after: int, new: int, kinds: dict[str, int] | None = None) -> Cache:
    root = f"/c/{name}"
    return Cache(name, root, Inventory(before, 0, "a"), Inventory(after, 0, "b"), new, (), kinds or {}, 1000 * new)


def weights(size: int, resident: int | None, device_read: int | None = None) -> Evidence:
    file = FileResidency("/m/model.safetensors", size, resident, "ext4", "proved")
    return Evidence((file,), state={"caches": "kept"}, device_read_bytes=device_read)


FRONT = process("APIServer", 0.0, imports={"torch": 9.0, "vllm": 6.0, "transformers": 4.0, "numpy": 0.5})
CORE = process("EngineCore", 21.0, imports={"torch": 8.0, "vllm": 5.0, "zmq": 0.3})


def test_imports_name_their_packages_and_processes() -> None:
    record = boot(("imports", 20.0, "APIServer"), ("imports", 14.0, "EngineCore"), processes=(FRONT, CORE))
    hint = only(record, "imports")
    assert hint.seconds == 34.0
    wanted = (
        "imports take 34.00 s of 100 s, most of it torch in APIServer 9.00 s, torch in EngineCore 8.00 s, vllm in API"
    )
    assert hint.text.startswith(wanted)
    assert "VLLM_PLUGINS" in hint.text


def test_imports_that_do_not_dominate_are_no_hint() -> None:
    assert "imports" not in rules(boot(("imports", 20.0, "APIServer"), processes=(FRONT,)))


def test_imports_of_unknown_packages_are_no_hint() -> None:
    assert "imports" not in rules(boot(("imports", 40.0, "APIServer")))


def test_what_a_second_process_imports_again_counts_while_the_boot_waits_for_it() -> None:
    record = boot(("imports", 20.0, "APIServer"), ("imports", 14.0, "EngineCore"), processes=(CORE, FRONT))
    hint = only(record, "imports_again")
    assert hint.seconds == 13.0  # torch 8 and vllm 5; zmq is new
    assert hint.text.startswith(
        "13.00 s go into importing again, in EngineCore, what an earlier process had imported (torch 8.00 s, "
    )
    assert "VLLM_WORKER_MULTIPROC_METHOD=fork" in hint.text


def test_what_is_imported_again_off_the_path_is_no_hint() -> None:
    assert "imports_again" not in rules(boot(("imports", 20.0, "APIServer"), processes=(FRONT, CORE)))


def test_a_boot_that_has_the_setting_is_not_told_to_set_it() -> None:
    record = boot(
        ("imports", 20.0, "APIServer"),
        ("imports", 14.0, "EngineCore"),
        processes=(FRONT, CORE),
        environment={"VLLM_WORKER_MULTIPROC_METHOD": "fork"},
    )
    assert "imports_again" not in rules(record)


GREW = cache("vllm", 36, 36, 12, {"AOT graphs": 8, "files": 4})


def test_kept_compile_cache_that_grew_is_named_with_the_seconds_of_compile() -> None:
    record = boot(("compile", 12.5, "EngineCore"))
    hint = only(replace(record, caches=(GREW, cache("triton", 340, 340, 0))), "cache_not_reused")
    assert hint.seconds == 12.5
    assert "vllm grew although full: 8 AOT graphs compiled again, 4 other files written again" in hint.text
    assert "triton" not in hint.text.partition("): ")[0]
    assert "VLLM_CACHE_ROOT" in hint.text


def test_kept_caches_that_all_stay_empty_are_named() -> None:
    record = replace(boot(("compile", 12.5)), caches=(cache("vllm", 0, 0, 0), cache("triton", 0, 0, 0)))
    assert "vllm ignored: empty and not used; triton ignored" in only(record, "cache_not_reused").text


def test_a_cache_that_no_inventory_covers_is_named() -> None:
    core = process("EngineCore", 1.0, cache_paths={"TRITON_CACHE_DIR": "/elsewhere"})
    record = replace(boot(("compile", 12.5), processes=(core,)), caches=(cache("vllm", 9, 9, 0),))
    assert "EngineCore used TRITON_CACHE_DIR=/elsewhere" in only(record, "cache_not_reused").text


def test_a_compile_cache_that_is_switched_off_is_to_be_switched_on() -> None:
    record = replace(boot(("compile", 12.5)), caches=(GREW,), environment={"VLLM_DISABLE_COMPILE_CACHE": "1"})
    assert only(record, "cache_not_reused").text.endswith(": unset VLLM_DISABLE_COMPILE_CACHE=1")


@pytest.mark.parametrize(
    "record",
    [
        replace(boot(("compile", 12.5)), caches=(cache("vllm", 36, 36, 0), cache("inductor", 0, 0, 0))),
        replace(boot(("load_weights", 12.5)), caches=(GREW,)),
        replace(boot(("compile", 12.5)), caches=(cache("bytecode", 9, 12, 3),)),
        replace(boot(("compile", 12.5), role="prime"), caches=(cache("vllm", 0, 36, 36),)),
    ],
    ids=["an empty cache beside a hit", "nothing compiled", "bytecode alone", "the boot that fills them"],
)
def test_caches_that_did_their_work_are_no_hint(record: BootRecord) -> None:
    assert "cache_not_reused" not in rules(record)


def test_compiling_into_empty_caches_says_what_a_filled_one_would_save() -> None:
    filled = cache("triton", 0, 41, 41, {"kernels": 41})
    hint = only(replace(boot(("compile", 60.0), caches="empty"), caches=(filled,)), "caches_empty")
    assert hint.seconds == 60.0
    assert "triton filled: empty before, 41 kernels compiled" in hint.text
    assert "caches_empty" not in rules(replace(boot(("compile", 60.0)), caches=(filled,)))


def test_compilers_that_run_as_children_count_where_the_boot_waits_for_them() -> None:
    """Compile is on the path from 10 to 40 s; compilers live from 5 to 15, 12 to 20 and 39 to 50 s: 11 s of it."""
    children = (process("ninja", 5.0, 15.0), process("nvcc", 12.0, 20.0), process("nvcc 2", 39.0, 50.0))
    everyone = (*children, process("python", 0.0))
    record = replace(boot(("imports", 10.0), ("compile", 30.0, "EngineCore"), processes=everyone), caches=(GREW,))
    hint = only(record, "kernel_jit")
    assert hint.seconds == pytest.approx(11.0)
    assert "(2 nvcc, 1 ninja)" in hint.text
    assert "kernel_jit" not in rules(replace(record, caches=())), "which caches there are is not known"
    assert "kernel_jit" not in rules(boot(("imports", 10.0), ("compile", 30.0), processes=children, caches="empty"))
    assert "kernel_jit" not in rules(boot(("compile", 30.0), processes=(process("python", 0.0, 50.0),)))


def test_kernels_that_the_probe_saw_compiled_count_and_those_it_saw_loaded_do_not() -> None:
    pieces = (
        ("compile", 6.0, "EngineCore", "kernel JIT: Triton"),
        ("compile", 9.0, "EngineCore", "kernel JIT: Triton, load"),
    )
    hint = only(replace(boot(*pieces, ("compile", 4.0, "EngineCore", "Dynamo")), caches=(GREW,)), "kernel_jit")
    assert hint.seconds == 6.0
    assert "(kernel JIT: Triton)" in hint.text


def test_loading_what_was_compiled_before_is_no_compiling() -> None:
    load = ("compile", 9.0, "EngineCore", "load of a compiled model")
    assert only(replace(boot(load, ("compile", 3.5)), caches=(GREW,)), "cache_not_reused").seconds == 3.5
    assert "cache_not_reused" not in rules(replace(boot(load), caches=(GREW,)))


def test_the_process_that_inspects_the_model_is_spared_by_its_cache() -> None:
    registry = process("vllm.model_executor.models.registry", 5.0, imports={"torch": 8.0})
    record = boot(("imports", 20.0, "APIServer"), ("imports", 14.0, registry.name), processes=(FRONT, registry))
    assert "modelinfos" in only(record, "imports_again").text
    other = replace(record, attribution=replace(record.attribution, processes=(FRONT, replace(registry, name="x"))))
    assert "imports_again" not in rules(other)


def test_weights_slower_than_the_disk_cost_the_difference() -> None:
    """10 GB in 20 s are 0.5 GB/s; 100 GB read in 100 s are 1 GB/s, at which they would have taken 10 s."""
    record = boot(("load_weights", 20.0), evidence=weights(10**10, 0, 10**11))
    hint = only(record, "weights")
    assert hint.seconds == pytest.approx(10.0)
    assert "come at 500 MB/s, 20.00 s, where the disk gave at least 1 GB/s" in hint.text
    assert "fastsafetensors" in hint.text


def test_resident_weights_that_come_slowly_are_held_up_by_their_loader() -> None:
    hint = only(boot(("load_weights", 9.5), evidence=weights(15 * 10**9, 15 * 10**9)), "weights")
    assert hint.seconds == 9.5
    assert "come at 1.58 GB/s, 9.50 s, though they were in the page cache" in hint.text


def test_a_load_bound_by_its_loader_is_told_what_the_slowest_reference_would_take() -> None:
    """15 GB in 9.375 s are 1.6 GB/s; at the 6.25 GB/s of a plain read they would have taken 2.4 s."""
    load = Load(15 * 10**9, 9.375, 6.25e9, 52e9, 63e9, "loader")
    record = boot(("load_weights", 9.375), evidence=weights(15 * 10**9, 15 * 10**9))
    hint = only(replace(record, memory=Memory(load=load)), "weights")
    assert hint.seconds == pytest.approx(6.975)
    assert (
        "the loader itself is the limit; a parallel or streaming loader could take it from 9.38 s to 2.40 s"
        in hint.text
    )
    assert "fastsafetensors" in hint.text


@pytest.mark.parametrize("bound", ["disk", "page_cache", "pcie"])
def test_a_load_at_the_limit_of_its_machine_is_no_hint(bound: str) -> None:
    load = Load(15 * 10**9, 9.375, 1.6e9, 52e9, 63e9, bound)
    record = boot(("load_weights", 9.375), evidence=weights(15 * 10**9, 15 * 10**9))
    assert "weights" not in rules(replace(record, memory=Memory(load=load)))


@pytest.mark.parametrize(
    "evidence",
    [
        weights(15 * 10**9, 0),
        weights(15 * 10**9, 0, 15 * 10**9),
        weights(60 * 10**9, 60 * 10**9),
        weights(10**6, 10**6),
        Evidence(),
    ],
    ids=["disk unknown", "disk not faster", "loader fast", "weights tiny", "no weights known"],
)
def test_weights_that_nothing_proves_slow_are_no_hint(evidence: Evidence) -> None:
    assert "weights" not in rules(boot(("load_weights", 9.5), evidence=evidence))


BYTECODE = (("imports", 5.0, "APIServer", "torch"), ("imports", 7.0, "APIServer", "torch (bytecode)"))


def test_bytecode_that_may_not_be_kept_names_the_variable() -> None:
    compiles = (process("APIServer", 0.0, modules=5000), process("EngineCore", 1.0, modules=600))
    record = boot(*BYTECODE, processes=compiles, environment={"PYTHONDONTWRITEBYTECODE": "1"})
    hint = only(record, "bytecode")
    assert hint.seconds == 7.0
    assert hint.text.startswith(
        "bytecode of up to 5600 modules, over all processes, is compiled at every boot, since PYTHONDONTWRITEBYTECODE=1"
    )


def test_bytecode_on_a_new_node_is_counted_by_the_inventory() -> None:
    filled = cache("bytecode", 0, 6606, 6606, {"modules": 6606})
    hint = only(replace(boot(*BYTECODE, caches="empty"), caches=(filled,)), "bytecode")
    assert hint.text.startswith("bytecode of 6606 modules is compiled on every new node, 7.00 s: ")


def test_bytecode_that_was_read_is_no_hint() -> None:
    assert "bytecode" not in rules(boot(("imports", 12.0, "APIServer", "torch")))


def test_sleeps_by_detail_and_by_hot_frame() -> None:
    hot = (HotFrame("EngineCore", "time:sleep", 3.0), HotFrame("EngineCore", "vllm.x:wait", 9.0))
    record = boot(("load_weights", 4.0, "EngineCore", "time.sleep"), ("unattributed", 3.0), hottest=hot)
    hint = only(record, "sleep")
    assert hint.seconds == 7.0
    assert "(time.sleep in EngineCore 4.00 s, time:sleep in EngineCore 3.00 s)" in hint.text


def test_words_that_hold_sleep_are_no_sleep() -> None:
    hot = (HotFrame("EngineCore", "vllm.sleep_mode:enable_sleep_mode", 3.0), HotFrame("a", "m:asleep", 9.0))
    assert "sleep" not in rules(boot(("load_weights", 4.0, "", "enable-sleep-mode"), hottest=hot))


def test_graph_capture_says_what_fewer_graphs_cost() -> None:
    hint = only(boot(("graph_capture", 5.0)), "graph_capture")
    assert hint.seconds == 5.0
    assert "cudagraph_capture_sizes" in hint.text
    assert "each token slower" in hint.text
    assert "graph_capture" not in rules(boot(("compile", 5.0)))


def test_profile_offers_what_the_version_has_and_the_cell_has_not() -> None:
    record = boot(("profile", 6.0))
    hint = only(record, "profile")
    assert hint.seconds == 6.0
    assert "kv_cache_memory_bytes" in hint.text
    assert "VLLM_ENABLE_STARTUP_PLAN=1" in hint.text
    older = only(replace(record, versions={"vllm": "0.25.1"}), "profile").text
    assert "kv_cache_memory_bytes" in older
    assert "VLLM_ENABLE_STARTUP_PLAN" not in older
    assert "profile" not in rules(replace(record, cell={"options": {"kv_cache_memory_bytes": 1 << 30}}))
    assert "profile" not in rules(replace(record, engine="llamacpp"))
    assert "profile" not in rules(boot(("compile", 6.0)))


def test_unattributed_time_names_its_hottest_frames_or_the_probe() -> None:
    hot = (HotFrame("EngineCore", "vllm.mystery:work", 4.0),)
    full = only(boot(("unattributed", 6.0), hottest=hot), "unattributed")
    assert (full.seconds, "vllm.mystery:work in EngineCore 4.00 s" in full.text) == (6.0, True)
    marks = only(boot(("unattributed", 6.0), probe="marks"), "unattributed")
    assert marks.text.endswith("(the probe was marks): --coldstart-probe=full samples stacks and names them")
    missing = only(boot(("unattributed", 6.0), missing=("the probe's folder is unwritable",)), "unattributed")
    assert missing.text.endswith(": the probe's folder is unwritable")
    assert "unattributed" not in rules(boot(("unattributed", 5.0), hottest=hot))


def test_poll_delay_counts_from_the_floor_on() -> None:
    assert only(boot(poll_delay=2.5), "poll_delay").seconds == 2.5
    assert "poll_delay" not in rules(boot(poll_delay=0.05))
    assert "poll_delay" not in rules(boot(poll_delay=None))


def test_loading_after_ready_is_a_lie_of_readiness() -> None:
    pieces = (("imports", 10.0), ("load_weights", 6.0), ("compile", 3.0), ("first_request", 1.0))
    record = replace(boot(*pieces, engine="transformers"), instants={"ready": 12.0})
    hint = only(record, "ready_too_early")
    assert hint.seconds == 7.0  # 4 of the 6 s of loading lie after ready
    assert "(load_weights 4.00 s, compile 3.00 s)" in hint.text
    assert "name the model on the command line" in hint.text
    assert "ready_too_early" not in rules(replace(record, instants={"ready": 19.0}))
    assert "ready_too_early" not in rules(replace(record, instants={}))


def test_spawns_count_where_there_are_several() -> None:
    record = boot(("spawn", 2.0, "APIServer"), ("imports", 3.0), ("spawn", 1.5, "EngineCore"))
    hint = only(record, "spawn")
    assert hint.seconds == 3.5
    assert "2 starts of processes (APIServer, EngineCore)" in hint.text
    assert "spawn" not in rules(boot(("spawn", 3.5, "APIServer")))


def test_hints_come_largest_first_and_none_below_the_floor() -> None:
    found = hints(boot(("graph_capture", 2.0), ("profile", 9.0), ("unattributed", 7.0)))
    assert [(hint.rule, hint.seconds) for hint in found] == [
        ("profile", 9.0),
        ("unattributed", 7.0),
        ("graph_capture", 2.0),
    ]
    assert "graph_capture" not in rules(boot(("graph_capture", 1.99)))


def test_floor_of_a_short_boot_is_a_fifth_of_a_second() -> None:
    record = boot()
    short = replace(
        record, phases=path(("graph_capture", 0.19), ("profile", 0.21)), attribution=Attribution("full", 0.4)
    )
    assert rules(short) == {"profile"}


def test_boot_without_a_path_has_no_hints() -> None:
    assert hints(replace(boot(), phases=(), attribution=Attribution())) == ()


def test_every_hint_has_a_number_and_ends_in_advice() -> None:
    record = replace(
        boot(
            ("spawn", 4.0, "APIServer"),
            ("imports", 30.0, "APIServer", "torch (bytecode)"),
            ("spawn", 4.0, "EngineCore"),
            ("imports", 13.0, "EngineCore"),
            ("compile", 6.0),
            ("graph_capture", 5.0),
            ("unattributed", 8.0),
            processes=(FRONT, CORE, process("ninja", 52.0, 60.0)),
        ),
        caches=(GREW,),
    )
    found = hints(record)
    assert len(found) == 8
    for hint in found:
        assert any(sign.isdigit() for sign in hint.text), hint
        assert not hint.text.endswith((": ", ":")), hint


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        (("python", "-m", "sglang.launch_server", "--model-path", "m"), "sglang"),
        (("/opt/v/bin/lmdeploy", "serve", "api_server"), "lmdeploy"),
        (("/opt/run.sh",), "openai"),
    ],
)
def test_engine_behind_a_plain_command_is_known_by_its_words(command: tuple[str, ...], engine: str) -> None:
    assert View.of(boot(engine="openai", command=command)).engine == engine


def test_every_advice_is_asked_for_and_every_rule_is_in_the_docs() -> None:
    text = DOCS.read_text("utf-8")
    names = {"sleep" if rule.__name__ == "sleeps" else rule.__name__ for rule in RULES}
    assert {name for name in names if f"| `{name}` |" not in text} == set()
    source = "".join(file.read_text("utf-8") for file in (DOCS.parents[1] / "pytest_coldstart/hints").glob("*.py"))
    assert {topic for topic in SETTINGS if source.count(f'"{topic}"') < 2} == set()


def test_a_rule_that_breaks_costs_its_own_hint_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    record = boot(("imports", 40.0, "APIServer", "torch"), processes=(FRONT,))
    expected = rules(record)
    assert "imports" in expected

    def breaks(view: object) -> Hint | None:
        raise ZeroDivisionError

    monkeypatch.setattr("pytest_coldstart.hints.RULES", (breaks, *RULES))
    assert rules(record) == expected
