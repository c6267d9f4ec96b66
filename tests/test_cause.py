"""The sentence that says why an engine failed: lines of real logs, cut to those that matter."""

from __future__ import annotations

import pytest

from pytest_coldstart.cause import cause, explained
from pytest_coldstart.record import Failure


def said(text: str, until: float | None = None) -> str | None:
    return cause(text.strip("\n").splitlines(), until)


#: vLLM 0.32 on CPU, stopped by SIGTERM: harmless warnings, then the front end's complaint about it.
VLLM_STOPPED = """
[+  15.424] (APIServer pid=18719) WARNING 11-30 02:42:55 [system_utils.py:255] Found ulimit of 20000 and failed to automatically increase with error current limit exceeds maximum limit.
[+  45.244] (Worker pid=18771) WARNING 11-30 02:43:25 [utils.py:597] Failed to create oneDNN linear, fallback to torch linear. Exception: could not create a primitive descriptor
[+  47.405] (EngineCore pid=18759) WARNING 11-30 02:43:27 [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup.
[+  49.055] (APIServer pid=18719) INFO 11-30 02:43:28 [utils.py:628] [shutdown] Process manager: send sigterm to process EngineCore
[+  49.062] (APIServer pid=18719) ERROR 11-30 02:43:28 [async_llm.py:906] AsyncLLM output_handler failed.
[+  49.062] (APIServer pid=18719) ERROR 11-30 02:43:28 [async_llm.py:906] Traceback (most recent call last):
[+  49.062] (APIServer pid=18719) ERROR 11-30 02:43:28 [async_llm.py:906]   File "site-packages/vllm/v1/engine/core_client.py", line 1235, in get_output_async
[+  49.062] (APIServer pid=18719) ERROR 11-30 02:43:28 [async_llm.py:906]     raise self._format_exception(outputs) from None
[+  49.062] (APIServer pid=18719) ERROR 11-30 02:43:28 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.
[+  49.079] INFO:     Shutting down
[+  49.706] ~/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown
[+  49.706]   warnings.warn('resource_tracker: There appear to be %d '
"""

#: SGLang 0.5.14 on an H200, its second capture failed.
SGLANG = """
[+ 101.150] Traceback (most recent call last):
[+ 101.150]   File "site-packages/torch/fx/graph_module.py", line 447, in __call__
[+ 101.150]     return super(self.cls, obj).__call__(*args, **kwargs)  # type: ignore[misc]
[+ 101.150]            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
[+ 101.150] RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb )`
[+ 101.150] Call using an FX-traced Module, line 5 of the traced Module's generated forward function:
[+ 101.153] [2026-11-30 03:43:24] Scheduler hit an exception: Traceback (most recent call last):
[+ 101.154]     raise e.with_traceback(None)  # noqa: B904
[+ 101.154] RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb )`
[+ 101.154] During handling of the above exception, another exception occurred:
[+ 101.154] Traceback (most recent call last):
[+ 101.154]     raise Exception(
[+ 101.154] Exception: Capture prefill CUDA graph failed: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`
[+ 101.154] Possible solutions:
[+ 101.154] 1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
[+ 101.154] [2026-11-30 03:43:24] Received sigquit from a child process. It usually means the child failed.
"""

#: Triton 2.51 on a machine without a GPU: it says so and serves.
TRITON = """
[+   2.286] Error: Failed to initialize NVML
[+   2.287] W1130 02:47:00.679391 20272 metrics.cc:798] "DCGM unable to start: DCGM initialization error"
[+   2.287] I1130 02:47:00.679664 20272 metrics.cc:770] "Collecting CPU metrics"
"""

#: Triton 2.51, whose Python model raised at its start.
TRITON_MODEL = r"""
[+    0.922] I1130 16:55:45.421591 1278 pb_stub.cc:366] "Failed to initialize Python stub: RuntimeError: the weights are not where they should be\n\nAt:\n  /models/broken/1/model.py(3): initialize\n"
[+    1.297] E1130 16:55:45.796199 1278 backend_model.cc:692] "ERROR: Failed to create instance: RuntimeError: the weights are not where they should be\n\nAt:\n  /models/broken/1/model.py(3): initialize\n"
[+    1.297] E1130 16:55:45.796389 1278 model_lifecycle.cc:642] "failed to load 'broken' version 1: Internal: RuntimeError: the weights are not where they should be\n\nAt:\n  /models/broken/1/model.py(3): initialize\n"
[+    1.297] I1130 16:55:45.796419 1278 model_lifecycle.cc:777] "failed to load 'broken'"
[+    1.302] Error: Failed to initialize NVML
[+    1.303] error: creating server: Internal - failed to load all models
"""

VLLM_CORE = """
[+  12.001] (EngineCore pid=1) ERROR 11-30 02:42:55 [core.py:1] EngineCore failed to start.
[+  12.001] (EngineCore pid=1) ERROR 11-30 02:42:55 [core.py:1] Traceback (most recent call last):
[+  12.001] (EngineCore pid=1) ERROR 11-30 02:42:55 [core.py:1]   File "core.py", line 9, in run_engine_core
[+  12.001] (EngineCore pid=1) ERROR 11-30 02:42:55 [core.py:1]     raise ValueError(
[+  12.001] (EngineCore pid=1) ERROR 11-30 02:42:55 [core.py:1] ValueError: No available memory for the cache blocks.
[+  12.010] (EngineCore pid=1) Process EngineCore:
[+  12.010] (EngineCore pid=1) Traceback (most recent call last):
[+  12.010] (EngineCore pid=1)   File "process.py", line 314, in _bootstrap
[+  12.010] (EngineCore pid=1) ValueError: No available memory for the cache blocks.
[+  12.500] (APIServer pid=2) Traceback (most recent call last):
[+  12.500] (APIServer pid=2)   File "launcher.py", line 1, in main
[+  12.500] (APIServer pid=2) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}
"""


class TestRealLogs:
    def test_stop_of_vllm_explains_nothing(self) -> None:
        assert said(VLLM_STOPPED) is None

    def test_sglang_says_what_failed_and_where(self) -> None:
        text = said(SGLANG)
        assert text is not None
        assert text.startswith("Exception: Capture prefill CUDA graph failed: CUDA error: CUBLAS_STATUS_EXECUTION")

    def test_harmless_error_of_triton(self) -> None:
        assert said(TRITON) is None

    def test_pointer_of_the_front_end_is_passed_over(self) -> None:
        assert said(VLLM_CORE) == "ValueError: No available memory for the cache blocks."

    def test_colours_that_vllm_writes_into_pipes_too(self) -> None:
        """The log shows control characters escaped."""
        for escape in ("\x1b", "\\x1b"):
            line = f"{escape}[1;36m(EngineCore_DP0 pid=7){escape}[0;0m ERROR 11-30 02:42:55 [core.py:1] ValueError: it"
            assert cause([line]) == "ValueError: it"

    @pytest.mark.parametrize(
        "prefix",
        [
            "(EngineCore pid=1) ERROR 11-30 02:42:55 [core.py:1] ",
            "(Worker_TP0 pid=1) ERROR 11-30 02:42:55 [v1/worker/gpu_worker.py:571] ",
            "(EngineCore_DP0 pid=1) (RayWorkerWrapper pid=5, ip=10.0.0.1) ERROR 11-30 02:42:55 [core.py:1] ",
            "ERROR 10-20 12:00:00 engine.py:366] ",
            "ERROR 10-20 12:00:00 [core.py:366] ",
            "ERROR:    ",
            "CRITICAL: ",
            "(APIServer pid=4) ",
            "",
        ],
    )
    def test_prefixes_of_versions(self, prefix: str) -> None:
        assert said(f"[+   1.000] {prefix}torch.OutOfMemoryError: CUDA out of memory.") == (
            "torch.OutOfMemoryError: CUDA out of memory."
        )

    @pytest.mark.parametrize("level", ["WARNING", "INFO", "DEBUG"])
    def test_exception_that_was_logged_as_a_warning_was_handled(self, level: str) -> None:
        assert said(f"(Worker pid=1) {level} 11-30 02:42:55 [x.py:1] ValueError: no FlashAttention, using SDPA") is None


class TestUsage:
    def test_argparse_in_vllm(self) -> None:
        text = """
[+   9.001] usage: vllm [-h] [-v]
[+   9.001]             {chat,complete,serve,launch,bench} ...
[+   9.001] vllm: error: unrecognized arguments: --foo
"""
        assert said(text) == "vllm: error: unrecognized arguments: --foo"

    def test_argparse_of_a_subcommand_and_of_a_module(self) -> None:
        assert said("vllm serve: error: argument --dtype: invalid choice: 'x'") is not None
        assert said("api_server.py: error: unrecognized arguments: --foo") is not None

    def test_click_in_transformers(self) -> None:
        text = """
[+   4.2] Usage: transformers serve [OPTIONS] [FORCE_MODEL]
[+   4.2] Try 'transformers serve --help' for help.
[+   4.2] Error: No such option '--foo'.
[+   4.2] Available options for 'transformers serve':
"""
        assert said(text) == "Error: No such option '--foo'."

    def test_box_of_typer(self) -> None:
        text = """
[+   4.2] Usage: serve [OPTIONS]
[+   4.2] ╭─ Error ───────────────────────────────────────╮
[+   4.2] │ No such option: --foo                          │
[+   4.2] ╰────────────────────────────────────────────────╯
"""
        assert said(text) == "No such option: --foo"

    def test_llama_server_and_what_a_crash_of_cpp_says(self) -> None:
        assert said("error: invalid argument: --foo") == "error: invalid argument: --foo"
        text = (
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  CUDA error: out of memory"
        )
        assert said(text) == "what():  CUDA error: out of memory"


class TestWhich:
    def test_nothing_raised(self) -> None:
        assert said("") is None
        assert said("loading\nINFO:     Started server process [1]\nReady: Error handling is on") is None

    def test_last_of_several(self) -> None:
        assert said("KeyError: 'a'\nOSError: b\nlast words") == "OSError: b"

    @pytest.mark.parametrize(
        "line",
        [
            "x.py:1: FutureWarning: `torch_dtype` is deprecated",
            "/usr/lib/x.py:9: DeprecationWarning: RuntimeError: will be raised",
            "KeyboardInterrupt",
            "SystemExit: 1",
            "asyncio.exceptions.CancelledError",
            "BrokenPipeError: [Errno 32] Broken pipe",
            "EOFError",
            "Exception: WorkerProc initialization failed due to an exception in a background process.",
            "RuntimeError: Worker failed with error 'x', please check the stack trace above for the root cause",
            "RuntimeError: Initialization failed. Please see the error messages above.",
            "Error loading theme: ValueError",
            "    raise ValueError: no",
        ],
    )
    def test_lines_that_explain_nothing(self, line: str) -> None:
        assert cause(["Traceback (most recent call last):", line]) is None
        assert cause(["ValueError: the reason", line]) == "ValueError: the reason"

    def test_what_python_ignored_comes_after_the_reason(self) -> None:
        text = """
RuntimeError: the reason
Exception ignored in: <function LLM.__del__ at 0x7f>
Traceback (most recent call last):
  File "llm.py", line 9, in __del__
AttributeError: 'LLM' object has no attribute 'engine'
"""
        assert said(text) == "RuntimeError: the reason"

    @pytest.mark.parametrize(
        "line",
        ["jinja2.exceptions.TemplateNotFound: chat", "queue.Empty", "EOFError: Ran out of input", "AssertionError"],
    )
    def test_any_exception_right_after_a_traceback(self, line: str) -> None:
        assert cause(["Traceback (most recent call last):", '  File "x.py", line 1, in f', "    x()", line]) == line

    def test_reason_of_pydantic_is_below_its_first_line(self) -> None:
        text = """
(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
(APIServer pid=1)   Value error, max_model_len (9000) is greater than 2048. [type=value_error, input_value=ArgsKwargs((), {'model':
(APIServer pid=1)     For further information visit https://errors.pydantic.dev/2.12/v/value_error
"""
        name = "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig"
        assert said(text) == f"{name} Value error, max_model_len (9000) is greater than 2048."
        text = """
pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig
gpu_memory_utilization
  Input should be less than or equal to 1 [type=less_than_equal, input_value=2.0, input_type=float]
"""
        assert (said(text) or "").endswith("CacheConfig gpu_memory_utilization Input should be less than or equal to 1")

    def test_lines_after_the_failure_come_of_the_stop(self) -> None:
        text = "[+   1.000] ValueError: the reason\n[+   5.000] RuntimeError: cancelled by the stop"
        assert said(text) == "RuntimeError: cancelled by the stop"
        assert said(text, until=4.0) == "ValueError: the reason"
        assert said(text, until=0.5) is None


class TestExplained:
    def test_reason_is_said_once(self) -> None:
        failure = Failure("exit", "it ended", "start")
        first = explained(failure, ["[+ 1.0] ValueError: no memory"])
        assert first.message == "it ended; the engine said: ValueError: no memory"
        assert explained(first, ["[+ 1.0] ValueError: no memory"]).message == first.message

    def test_reason_that_the_message_shows_already_is_not_repeated(self) -> None:
        failure = Failure("exit", "it ended; last line: 'ValueError: no memory'", "start")
        assert explained(failure, ["[+ 1.0] ValueError: no memory"]).message == failure.message

    def test_long_lines_and_long_logs_are_cut(self) -> None:
        lines = [f"[+ 1.0] line {number}" for number in range(50)] + ["ValueError: " + "x" * 5000]
        found = explained(Failure("exit", "it ended", "start"), lines)
        assert len(found.message) < 500
        tail = found.log_tail.splitlines()
        assert tail[0] == "[+ 1.0] line 21"
        assert len(tail) == 30
        assert max(map(len, tail)) <= 500


def test_triton_says_which_model_did_not_load_and_why() -> None:
    assert said(TRITON_MODEL) == (
        "failed to load 'broken' version 1: Internal: RuntimeError: the weights are not where they should be"
    )
    stub = """
E1130 16:35:36.878795 4969 model_lifecycle.cc:642] "failed to load 'words' version 1: Not found: no stub"
error: creating server: Internal - failed to load all models
"""
    assert said(stub) == "failed to load 'words' version 1: Not found: no stub"
