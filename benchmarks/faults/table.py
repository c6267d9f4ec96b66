"""The faults: those that boot nothing first, then each engine's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from faults import models
from faults.run import Fault

#: Requests enough to be busy with when the blow comes.
BUSY: Mapping[str, Any] = {"requests": 3000}
#: Address space of each process of vLLM: more than its imports need, less than its KV cache of 8 GiB.
ADDRESS_SPACE = 4 << 30


def faults(pythons: Mapping[str, str]) -> list[Fault]:
    """Every fault of the engines that *pythons* has an environment of."""
    found = [*_before_a_boot(), *_vllm_ends(pythons.get("vllm", "")), *_vllm_struck(), *_transformers()]
    return [fault for fault in found if fault.engine in pythons]


def _before_a_boot() -> list[Fault]:
    hub: Mapping[str, Any] = {"model": "nobody/not-there", "env": {"HF_HUB_OFFLINE": "1"}}
    refused = "refused at collection"
    cut = (r"test_fault\.py:\d+: test_fault: .*is cut: its header promises \d+ bytes and the file has \d+",)
    offline = (r"'nobody/not-there' is a hub name, HF_HUB_OFFLINE is set .*hf download",)
    without = (r"'vllm' is not installed in .*to enable: pip install vllm",)
    other: Mapping[str, Any] = {"python": sys.executable}
    missing = (r"test_fault\.py:\d+: .*'/no/such/python' is no executable file",)
    required = ("--coldstart-require=vllm",)
    return [
        Fault("truncated", "safetensors cut in half", f"{refused}, sizes", "vllm", 2, cut, make=models.truncated),
        Fault(
            "no-weights", "config.json without weights", refused, "vllm", 2,
            (r"test_fault\.py:\d+: .*has config.json and no weights",), make=models.without_weights,
        ),
        Fault("hub-offline", "hub name not cached, offline", f"{refused}, hint", "vllm", 2, offline, hub),
        Fault("python-missing", "python= that does not exist", refused, "vllm", 2, missing, {"python": "/no/such/python"}),
        Fault("python-other", "python= without vLLM", "skipped, reason", "vllm", 5, without, other),
        Fault("python-required", "the same with --coldstart-require", "failed", "vllm", 1, without, other, words=required),
        Fault(
            "port-taken", "port= that another server has", "refused before the launch", "vllm", 1,
            (r"no verdict is possible: port \d+ is already in use by python\S* \(pid \d+\)",), port_taken=True, within=60,
        ),
        Fault("tf-truncated", "safetensors cut in half", f"{refused}, sizes", "transformers", 2, cut, make=models.truncated),
        Fault("tf-hub-offline", "hub name not cached, offline", f"{refused}, hint", "transformers", 2, offline, hub),
    ]  # fmt: skip


def _vllm_ends(python: str) -> list[Fault]:
    """Faults that vLLM finds itself."""
    limited = {
        "command": ["prlimit", f"--as={ADDRESS_SPACE}", python, "-m", "vllm.entrypoints.cli.main", "serve"],
        "env": {"VLLM_CPU_KVCACHE_SPACE": "8"},
    }
    return [
        Fault(
            "unknown-option", "an option that this vLLM lacks", "its usage message", "vllm", 1,
            ("vllm: error: unrecognized arguments: --no-such-thing",), {"options": {"no_such_thing": 1}},
            kinds=("exit",), reached=("start",), within=120,
        ),
        Fault(
            "remote-code", "a checkpoint that brings code", "vLLM's refusal", "vllm", 1,
            ("trust_remote_code",), make=models.with_code, kinds=("exit",), reached=("start",), within=180,
        ),
        Fault(
            "misshapen", "weights of another shape than config.json says", "vLLM's message", "vllm", 1,
            ("the engine said: .*(?i:size|shape)",), make=models.misshapen, kinds=("exit",), reached=("start",), within=240,
        ),
        Fault(
            "memory", "too little memory to load", "the message says memory", "vllm", 1,
            ("the engine said: .*(?i:memory)",), limited, kinds=("exit",), reached=("start",), within=240,
        ),
        Fault(
            "head-dim", "heads of 16 values: 200, then the first request kills it", "failed at first_request, its message",
            "vllm", 1, ("the engine said: .*(?i:head)",), {"model": "random:qwen2-tiny,heads=8,kv_heads=4"},
            kinds=("exit", "request"), reached=("ready",), within=300,
        ),
    ]  # fmt: skip


def _vllm_struck() -> list[Fault]:
    """Faults that come from outside while vLLM boots or is up."""
    up = ("ready", "first_token", "first_text", "first_done", "warmed")
    return [
        Fault(
            "core-killed-loading", "EngineCore killed while it loads", "failed, the core named", "vllm", 1,
            ("had ended: .*VLLM::EngineCor|EngineCore ended with signal SIGKILL",), kinds=("exit",), reached=("start",), strike="core KILL born 8", within=60,
        ),
        Fault(
            "core-killed-ready", "EngineCore killed once /health is 200", "failed, the core named", "vllm", 1,
            ("had ended: VLLM::EngineCor",), BUSY, kinds=("exit", "request"), reached=up, strike="core KILL health 0", within=60,
        ),
        Fault(
            "core-killed-warm", "EngineCore killed amid warm requests", "failed, the core named", "vllm", 1,
            ("had ended: VLLM::EngineCor",), BUSY, kinds=("exit", "request"), reached=("warmed",), strike="core KILL health 4",
            within=60,
        ),
        Fault(
            "core-frozen", "EngineCore stopped (SIGSTOP) amid warm requests", "hang, soon after its timeout", "vllm", 1,
            ("no output, no CPU and no I/O for 15 s",), BUSY, kinds=("hang",), reached=("warmed",),
            strike="core STOP health 4", within=100, words=("--coldstart-hang-timeout=15s",),
        ),
        Fault(
            "front-killed", "front end killed, EngineCore lives", "failed, SIGKILL; orphans swept", "vllm", 1,
            ("ended with signal SIGKILL",), BUSY, kinds=("exit",), reached=up, strike="front KILL health 2", within=60,
            leaked=True,
        ),
    ]  # fmt: skip


def _transformers() -> list[Fault]:
    shape = ("the engine said: .*(?i:size|shape)",)
    lazy = {"options": {"preload": False}}
    return [
        Fault(
            "tf-remote-code", "a checkpoint that brings code", "its refusal", "transformers", 1,
            ("trust_remote_code",), make=models.with_code, kinds=("exit",), reached=("start", "listen"), within=120,
        ),
        Fault(
            "tf-misshapen", "weights of another shape than config.json says", "its message", "transformers", 1,
            shape, make=models.misshapen, kinds=("exit",), reached=("start", "listen"), within=120,
        ),
        Fault(
            "tf-lazy-misshapen", "the same, loaded by the first request: 200 before", "failed at first_request, its message",
            "transformers", 1, shape, lazy, make=models.misshapen, kinds=("request", "exit"), reached=("ready",), within=120,
        ),
    ]  # fmt: skip
