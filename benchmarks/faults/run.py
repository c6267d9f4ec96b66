"""One fault: its suite, its run of pytest, what is left of it, and what of its expectation does not hold."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_coldstart.observe.proc import tree
from pytest_coldstart.ports import is_free
from pytest_coldstart.supervisor import shared_memory, stat_fields, tagged

SUITE = """
from pathlib import Path
import pytest

@pytest.mark.coldstart(**{marker!r})
@pytest.mark.slo("cold_start<=600s", "warm_first_token<=60s", "readiness_lie<=600s")
def test_fault(cold_boot):
    Path(__file__).with_name("cold_started").touch()
"""

#: The boot timeout of every fault, seconds: none may need it.
BOOT_TIMEOUT = 400
#: In the environment of every process of these runs.
OURS = "ENGINE_FAULTS"

Make = Callable[[Path], Path]


@dataclass(frozen=True)
class Fault:
    """What is provoked and what a user must then see. Empty ``kinds``: nothing may boot."""

    name: str
    what: str
    expected: str
    engine: str
    code: int
    #: Regular expressions; the line that a user reads must match all of them.
    says: tuple[str, ...]
    marker: Mapping[str, Any] = field(default_factory=dict)
    make: Make | None = None
    kinds: tuple[str, ...] = ()
    #: The last instant that the failed boot may have reached.
    reached: tuple[str, ...] = ()
    #: Seconds until pytest has ended; after the blow where there is one.
    within: float = 30
    words: tuple[str, ...] = ()
    strike: str = ""
    leaked: bool = False
    port_taken: bool = False
    #: Whether the marker's python= is the engine's own, else --coldstart-python is given.
    own_python: bool = True


@dataclass
class Seen:
    """What the processes below pytest were and had: when each was born, files in /dev/shm."""

    born: dict[int, str] = field(default_factory=dict)
    memory: set[str] = field(default_factory=set)


@dataclass
class Outcome:
    fault: Fault
    code: int | None
    seconds: float
    message: str
    boots: list[dict[str, Any]]
    left: list[str]
    struck: float | None
    problems: list[str] = field(default_factory=list)


def provoke(fault: Fault, pythons: Mapping[str, str]) -> Outcome:
    """Run one fault in a folder of its own and check it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"fault-{fault.name}-")))
        marker = _marker(fault, folder)
        if fault.port_taken:
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            marker["port"] = server.getsockname()[1]
        (folder / "test_fault.py").write_text(SUITE.format(marker=marker))
        shutil.copy(Path(__file__).with_name("witness.py"), folder / "conftest.py")
        seen = Seen()
        code, began, ended = _pytest(fault, folder, pythons, seen)
        text = (folder / "output.txt").read_text(errors="replace")
        lines = folder / "boots.jsonl"
        boots = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
        struck = folder / "struck"
        blow = float(struck.read_text().split()[0]) if struck.exists() else None
        left = _left(seen, boots)
        outcome = Outcome(fault, code, ended - began, _message(fault, text, boots), boots, left, blow and ended - blow)
        outcome.problems = [*_problems(outcome, text, (folder / "cold_started").exists())]
        outcome.message = _without_paths(outcome.message, folder, pythons)
        if outcome.problems:
            print(f"--- output of {fault.name}:\n{text}\n---", file=sys.stderr, flush=True)
        return outcome


def _marker(fault: Fault, folder: Path) -> dict[str, Any]:
    marker = {
        "engine": fault.engine,
        "tier": "scale_out",
        "rounds": 1,
        "requests": 2,
        **fault.marker,
        # Bytecode lies compiled in the environment: what is provoked here is no matter of coldness.
        "env": {"HF_HUB_OFFLINE": "1", "PYTHONPYCACHEPREFIX": "", **fault.marker.get("env", {})},
    }
    if fault.engine == "vllm":
        marker["options"] = {"max_model_len": 512, "enforce_eager": True, **fault.marker.get("options", {})}
        marker["env"] = {"VLLM_CPU_KVCACHE_SPACE": "1", **marker["env"]}
    if fault.make:
        marker["model"] = str(fault.make(folder))
    return marker


def _pytest(fault: Fault, folder: Path, pythons: Mapping[str, str], seen: Seen) -> tuple[int | None, float, float]:
    """pytest's exit code, its first and its last second."""
    words = [sys.executable, "-m", "pytest", "--coldstart", "-p", "no:cacheprovider", "-rs", "test_fault.py"]
    words += ["--coldstart-cpu", f"--coldstart-boot-timeout={BOOT_TIMEOUT}s", *fault.words]
    if fault.own_python:
        words += [f"--coldstart-python={fault.engine}={pythons[fault.engine]}"]
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("COLDSTART_", "PYTEST_", "HF_"))}
    environ |= {"COLUMNS": "400", OURS: str(os.getpid()), "FAULT_STRIKE": fault.strike}
    began = time.time()
    with (folder / "output.txt").open("wb") as output:
        run = subprocess.Popen(words, cwd=folder, env=environ, stdout=output, stderr=output)
        done = threading.Event()
        looker = threading.Thread(target=_look, args=(run.pid, seen, done))
        looker.start()
        try:
            code: int | None = run.wait(BOOT_TIMEOUT + 120)
        except subprocess.TimeoutExpired:
            run.kill()
            code = None
            run.wait()
        ended = time.time()
        done.set()
        looker.join()
    return code, began, ended


def _look(root: int, seen: Seen, done: threading.Event) -> None:
    while not done.wait(0.2):
        pids = tree(root)[1:]
        for pid in pids:
            if pid not in seen.born:
                seen.born[pid] = _born(pid)
        seen.memory |= shared_memory(pids)


def _born(pid: int) -> str:
    """What tells a process from a later one with the same number; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _left(seen: Seen, boots: Sequence[dict[str, Any]]) -> list[str]:
    """Processes, ports and files in /dev/shm that a run left, after a few seconds to settle."""
    deadline = time.monotonic() + 5
    ports = {boot["command"][boot["command"].index("--port") + 1] for boot in boots if "--port" in boot["command"]}
    while True:
        living = {pid for pid, born in seen.born.items() if born and _born(pid) == born}
        living |= set(tagged(f"{OURS}={os.getpid()}".encode()))
        states = [fields for pid in living if (fields := stat_fields(pid)) and fields[1] not in "ZX"]
        left = [f"process {name}" for _, _, name in states]
        left += [f"port {port}" for port in ports if not is_free(int(port))]
        left += [path for path in seen.memory if os.path.exists(path)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def _message(fault: Fault, text: str, boots: Sequence[dict[str, Any]]) -> str:
    """The line of pytest's output that says what is wrong."""
    lines = [line.strip().removeprefix("E ").strip() for line in text.splitlines()]
    if boots and boots[-1]["message"] in lines:
        return f"boot failed ({boots[-1]['kind']}): {boots[-1]['message']}"
    return next((line for line in lines if re.search(fault.says[0], line)), "")


def _problems(outcome: Outcome, text: str, cold_started: bool) -> list[str]:
    """What of the expectation does not hold."""
    fault, boots = outcome.fault, outcome.boots
    found = []
    if outcome.code != fault.code:
        found.append(f"exit code {outcome.code} and not {fault.code}")
    found += [f"the message lacks {word!r}" for word in fault.says if not re.search(word, outcome.message)]
    if cold_started or any(boot["outcome"] == "ok" or boot["cold_start"] is not None for boot in boots):
        found.append("it was reported as a cold start")
    if bool(boots) != bool(fault.kinds):
        found.append(f"{len(boots)} boots")
    for boot in boots:
        if boot["kind"] not in fault.kinds or (fault.reached and boot["instant"] not in fault.reached):
            found.append(f"failed by {boot['kind']} after {boot['instant']!r}")
        if fault.leaked and not boot["leaked"]:
            found.append("no leaked process was reported")
        if not boot["port_free"]:
            found.append("the port was not free after the stop")
    if fault.strike and outcome.struck is None:
        found.append("the blow did not come")
    taken = outcome.seconds if outcome.struck is None else outcome.struck
    if taken > fault.within:
        found.append(f"{taken:.0f} s, which is over {fault.within:g} s")
    if re.search("INTERNALERROR|no end after the boot timeout", text):
        found.append("an internal error or the boot timeout")
    return found + [f"left: {item}" for item in outcome.left]


def _without_paths(text: str, folder: Path, pythons: Mapping[str, str]) -> str:
    for path, word in (
        *((str(Path(python).parent.parent), "ENV") for python in pythons.values()),
        (str(folder.resolve()), "SUITE"),
        (str(folder), "SUITE"),
        (sys.prefix, "VENV"),
        (str(Path.home()), "~"),
    ):
        text = text.replace(path, word)
    return text
