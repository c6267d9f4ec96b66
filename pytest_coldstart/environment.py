"""The environment of a run: host, hardware class, git, CI. Nothing here names an engine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pytest_coldstart.observe.nvml import NVML
from pytest_coldstart.redact import Redactor

_LIBRARIES = ("pytest", "pytest-coldstart", "duckdb", "pytest-xdist", "pytest-benchmark")
_CI = {
    "GITHUB_ACTIONS": (
        "GITHUB_SERVER_URL",
        "GITHUB_REPOSITORY",
        "GITHUB_RUN_ID",
        "GITHUB_RUN_ATTEMPT",
        "GITHUB_REF",
        "GITHUB_SHA",
        "RUNNER_NAME",
    ),
    "GITLAB_CI": (
        "CI_PROJECT_PATH",
        "CI_PIPELINE_ID",
        "CI_PIPELINE_URL",
        "CI_JOB_ID",
        "CI_JOB_URL",
        "CI_COMMIT_REF_NAME",
        "CI_COMMIT_SHA",
    ),
    "BUILDKITE": (
        "BUILDKITE_PIPELINE_SLUG",
        "BUILDKITE_BUILD_NUMBER",
        "BUILDKITE_BUILD_URL",
        "BUILDKITE_JOB_ID",
        "BUILDKITE_BRANCH",
        "BUILDKITE_COMMIT",
    ),
}


def collect(root: Path, argv: list[str]) -> dict[str, Any]:
    """Everything that belongs to a run and not to a boot, secrets taken out."""
    gpus = gpu_names()
    cpu, cores, memory = cpu_model(), os.cpu_count() or 0, memory_bytes()
    redactor = Redactor(os.environ)
    return {
        "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "hostname": socket.gethostname(),
        "cpu": cpu,
        "cores": cores,
        "memory_bytes": memory,
        "kernel": platform.release(),
        "os": platform.system(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "steal_fraction": steal_fraction(),
        "gpu": ", ".join(gpus) or None,
        "driver": gpu_driver(),
        "hardware_class": hardware_class(cpu, cores, memory, gpus),
        **git_state(root),
        "ci": ci_ids(os.environ),
        "gate": gate_place(os.environ),
        "versions": {"python": platform.python_version(), **library_versions()},
        "command": list(redactor.command(argv)),
    }


def hardware_class(cpu: str, cores: int, memory: int | None, gpus: list[str]) -> str:
    """Machines whose boots may share a series: same CPU model, cores, memory in GiB and GPUs."""
    text = f"{cpu}|{cores}|{round((memory or 0) / 2**30)}|{'|'.join(sorted(gpus))}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def hardware_name(cpu: str | None, cores: int | None, memory: int | None, gpu: str | None) -> str:
    """What tells one hardware class from another, in words; *gpu* are the names of all."""
    size = f"{round(memory / 2**30)} GiB" if memory else "memory unknown"
    return f"{cpu or 'CPU unknown'}, {cores or '?'} cores, {size}, {gpu or 'no GPU'}"


def library_versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def steal_fraction() -> float | None:
    """Share of all CPU time since the host's boot that its hypervisor took away; None if unknown."""
    try:
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except (OSError, ValueError):
        return None
    total = sum(fields[:8])
    return fields[7] / total if len(fields) > 7 and total else None


def gpu_names() -> list[str]:
    """Names of the NVIDIA GPUs that NVML shows; empty where there are none or no NVML."""
    with NVML() as nvml:
        return [device.name for device in nvml.devices() if device.name]


def has_gpu() -> bool:
    """Whether an NVIDIA GPU is visible, by NVML or, without its Python module, by the driver's own folder."""
    return bool(gpu_names()) or any(Path("/proc/driver/nvidia/gpus").glob("*"))


def can_open_gpu(amd: bool) -> bool:
    """Whether a process of ours could use an NVIDIA GPU, with *amd* also one of AMD's, whatever NVML says."""
    files = [*Path("/dev").glob("nvidia[0-9]*"), *([Path("/dev/kfd")] if amd else [])]
    return any(os.access(file, os.R_OK | os.W_OK) for file in files)


def gpu_driver() -> str | None:
    with NVML() as nvml:
        return nvml.driver()


def git_state(root: Path) -> dict[str, Any]:
    """Commit, branch and whether tracked files differ from it; all None outside a checkout."""
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return {"git_commit": None, "git_branch": None, "git_dirty": None}
    status = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {
        "git_commit": commit,
        "git_branch": _git(root, "rev-parse", "--abbrev-ref", "HEAD"),
        "git_dirty": None if status is None else bool(status),
    }


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def ci_ids(environ: Mapping[str, str]) -> dict[str, str]:
    for flag, names in _CI.items():
        if environ.get(flag):
            return {"system": flag, **{name: environ[name] for name in names if name in environ}}
    return {}


def gate_place(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Which boot of which gate this run is: gate, side, block, position. None where it is of none or that cannot be read."""
    try:
        found = json.loads(environ.get("COLDSTART_GATE", ""))
        return {
            "gate": str(found["gate"]),
            "side": str(found["side"]),
            "block": int(found["block"]),
            "position": int(found["position"]),
        }
    except (ValueError, TypeError, KeyError, IndexError, OverflowError):
        return None


def is_linux() -> bool:
    return sys.platform == "linux"
