"""What single stacks say: the innermost frame that a rule knows decides, and imports name their package."""

from __future__ import annotations

import pytest

from pytest_coldstart.attribution import PHASES, UNATTRIBUTED
from pytest_coldstart.phases.classify import Classifier, classify_sample
from pytest_coldstart.phases.rules import ALL_RULES, PROCESS_RULES, WAITS, Rule
from pytest_coldstart.phases.trace import Frame, Sample
from tests.phases.boots import COMPILE, IDLE, LOAD, MAIN, ON_CHILDREN, ON_THREADS, Stack, stack

RULES = Classifier(ALL_RULES, PROCESS_RULES)

ENGINES = ("vllm", "sglang", "sglang.srt", "transformers", "lmdeploy")
BOOTSTRAP = ("importlib._bootstrap:_find_and_load", "importlib._bootstrap_external:SourceLoader.exec_module")
LOADER = "vllm.model_executor.model_loader.default_loader:DefaultModelLoader.load_weights"


def said(frames: Stack, importing: str = "") -> tuple[str, str, str]:
    mark = RULES.mark(frames, importing)
    return mark.phase, mark.detail, mark.wait


@pytest.mark.parametrize(
    ("frames", "importing", "phase", "detail"),
    [
        ((MAIN, *BOOTSTRAP), "torch.cuda.amp", "imports", "torch"),
        ((MAIN, *BOOTSTRAP, "torch:<module>", "torch._tables:build"), "torch", "imports", "torch"),
        ((MAIN, *BOOTSTRAP, "torch:<module>", *BOOTSTRAP), "numpy.linalg", "imports", "numpy"),
        ((MAIN, *BOOTSTRAP, "vllm.envs:<module>", *BOOTSTRAP), "", "imports", "vllm"),
        ((MAIN, "_frozen_importlib:_find_and_load"), "encodings", "imports", "encodings"),
        ((MAIN, "importlib._bootstrap_external:SourceLoader.source_to_code", "importlib._bootstrap:_call"), "vllm.a",
         "imports", "vllm (bytecode)"),
        ((MAIN, "app:work", LOADER, *BOOTSTRAP), "safetensors", "imports", "safetensors"),
        ((MAIN, LOADER, "app:work"), "", "load_weights", "vLLM: weights"),
        ((MAIN, "__main__:main", "app:work"), "", "", ""),
        (("runpy:_run_module_as_main", "runpy:_get_module_details"), "", "imports", "runpy"),
        (("runpy:_run_module_as_main", "runpy:_run_code", "__main__:<module>", "app:work"), "", "", ""),
        ((MAIN, "torch.nn:forward", "triton.runtime.jit:JITFunction._do_compile"), "", "compile", "kernel JIT: Triton"),
        # CPython 3.10 knows a function's plain name alone.
        ((MAIN, "triton.runtime.jit:_do_compile"), "", "compile", "kernel JIT: Triton"),
        ((MAIN, "vllm.v1.worker.gpu_worker:Worker.determine_available_memory", "torch:mul"), "", "profile", ""),
        # A class body and a decorator of a module that is being imported.
        ((MAIN, "triton.runtime.jit:<module>", "triton.runtime.jit:JITFunction"), "", "imports", "triton"),
        # Code that was made at run time belongs to whoever made it.
        (("app:work", "torch.fx.graph_module:<module>"), "", "imports", "torch"),
        ((MAIN, "torch._inductor.runtime.compile_tasks.cabc:<module>"), "", "compile", "Inductor: code cache"),
    ],
)  # fmt: skip
def test_a_stack_says_its_phase(frames: tuple[str, ...], importing: str, phase: str, detail: str) -> None:
    assert said(stack(*frames), importing) == (phase, detail, "")


def test_module_level_code_without_a_file_is_no_import() -> None:
    made = Frame("torch.fx.graph_module", "<module>", "<eval_with_key>.1")
    assert said((*COMPILE, made))[0] == "compile"


def test_waits_keep_what_they_are_part_of() -> None:
    assert said(IDLE) == ("", "", "idle")
    assert said(ON_CHILDREN) == ("", "", "children")
    assert said(ON_THREADS) == ("", "", "threads")
    # A wait for a process is made of one for a descriptor, and the process is what matters.
    assert said((*COMPILE, *stack("subprocess:Popen.communicate", "selectors:PollSelector.select"))) == (
        *("compile", "Inductor"),
        "children",
    )
    assert said((*LOAD, *stack("concurrent.futures._base:Future.result", "threading:Condition.wait"))) == (
        *("load_weights", "vLLM"),
        "threads",
    )


def test_a_wait_is_named_by_who_waits() -> None:
    assert RULES.mark(ON_CHILDREN).frame == "app.main:run"
    assert RULES.mark(COMPILE).frame == "app.nobody:lower"


def test_leaf_rules_match_the_innermost_frame_alone() -> None:
    runner = stack(MAIN, "asyncio.runners:Runner.run")
    assert said(runner)[2] == "idle"
    assert said((*runner, *stack("app:handler")))[2] == ""


def test_a_forked_child_is_not_in_its_birth_for_life() -> None:
    birth = stack(MAIN, "multiprocessing.popen_fork:Popen.__init__", "multiprocessing.popen_fork:Popen._launch")
    assert said(birth)[0] == "spawn"
    assert said((*birth, *stack("multiprocessing.process:BaseProcess._bootstrap", "app:work")))[0] == ""


def test_the_later_rule_wins_and_details_are_filled_in() -> None:
    extra = Rule("warmup", "vllm.v1.worker.*", "load_model", "{package} {module} {function}")
    mark = Classifier((*ALL_RULES, extra)).mark(LOAD)
    assert (mark.phase, mark.detail) == ("warmup", "vllm vllm.v1.worker.gpu_worker load_model")


def test_a_sample_says_what_its_thread_waits_for() -> None:
    assert classify_sample(Sample(0.0, 0, LOAD)) == ("load_weights", "vLLM")
    assert classify_sample(Sample(0.0, 0, IDLE)) == ("", "waits for something to do")
    assert classify_sample(Sample(0.0, 0, ())) == ("", "")


def test_processes_are_known_by_name() -> None:
    assert {name: rule.phase for name in ("ptxas", "cc1plus", "clang-18") if (rule := RULES.process(name))} == {
        "ptxas": "compile",
        "cc1plus": "compile",
        "clang-18": "compile",
    }
    assert RULES.process("bash") is None


def test_no_rule_catches_all() -> None:
    for rule in ALL_RULES:
        literal = rule.module.split("*")[0].split("?")[0].split("[")[0]
        assert len(literal) >= 2, rule
        assert rule.phase in PHASES or (not rule.phase and rule.wait), rule
        assert rule.phase != UNATTRIBUTED, rule
        assert rule.wait in ("", *WAITS), rule
        # A rule for all functions of an engine would take any work of it for one phase.
        assert rule.function != "*" or rule.module.rstrip("*.") not in ("torch", *ENGINES), rule


@pytest.mark.parametrize(
    "frame",
    ["app.main:run", "__main__:main", "vllm.nobody:work", "torch.nn.modules.module:Module.__call__", "json:loads",
     "sglang.srt.managers.scheduler:Scheduler.run_batch", "vllm.v1.engine.core:EngineCore.__init__", ":f", "x:y",
     "multiprocessing.process:BaseProcess.run", "threading:Thread.run", "asyncio.events:Handle._run"],
)  # fmt: skip
def test_an_arbitrary_frame_is_matched_by_no_rule(frame: str) -> None:
    assert RULES.rules_of(stack(frame)[0]) == ()


def test_the_same_rule_is_not_there_twice() -> None:
    keys = [(rule.module, rule.function) for rule in ALL_RULES]
    assert len(keys) == len(set(keys))
