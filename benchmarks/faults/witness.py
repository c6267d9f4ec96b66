"""The conftest.py beside each generated suite: keeps what a boot left, and strikes one of its processes.

``FAULT_STRIKE="core KILL health 3"`` sends SIGKILL to the engine core 3 s after /health first said 200;
``born`` counts from the process's first sight. It is copied, so it imports nothing of the benchmarks.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def pytest_configure() -> None:
    if os.environ.get("FAULT_STRIKE"):
        threading.Thread(target=_strike, args=os.environ["FAULT_STRIKE"].split(), daemon=True).start()


def pytest_coldstart_boot_finished(record: Any) -> None:
    cold_start = record.metrics["cold_start"].value
    left = {
        "outcome": record.outcome,
        "kind": record.failure.kind if record.failure else "",
        "message": record.failure.message if record.failure else "",
        "instant": record.failure.instant if record.failure else "",
        "cold_start": cold_start if cold_start != float("inf") else None,
        "leaked": record.stop.leaked_processes,
        "port_free": record.stop.port_free,
        "command": record.command,
        "stopped": record.instants.get("stopped"),
    }
    with (HERE / "boots.jsonl").open("a") as file:
        file.write(json.dumps(left) + "\n")


def _strike(target: str, name: str, when: str, seconds: str) -> None:
    while (pid := _find(target)) is None:
        time.sleep(0.1)
    while when == "health" and not _healthy():
        time.sleep(0.05)
    time.sleep(float(seconds))
    (HERE / "struck").write_text(f"{time.time()} {pid}")
    os.kill(pid, getattr(signal, f"SIG{name}"))


def _processes() -> dict[int, list[str]]:
    """The command lines of this pytest's descendants."""
    from pytest_coldstart.observe.proc import tree

    found = {}
    for pid in tree(os.getpid())[1:]:
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace").rstrip("\0").split("\0")
        except OSError:
            continue
    return found


def _find(target: str) -> int | None:
    for pid, words in _processes().items():
        if words[0].startswith("VLLM::EngineCore") if target == "core" else "--port" in words:
            return pid
    return None


def _healthy() -> bool:
    ports = [words[words.index("--port") + 1] for words in _processes().values() if "--port" in words]
    try:
        return bool(ports) and urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/health", timeout=2).status == 200
    except OSError:
        return False
