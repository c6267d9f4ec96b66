"""Runs programs with the probe in them, in interpreters that are found on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_coldstart import probe
from pytest_coldstart.phases.trace import ProcessTrace, Sample
from pytest_coldstart.probe.read import read_folder

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.13t", "3.14t")

#: A busy loop; no test relies on how far it gets.
BUSY = """
import time
def busy(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: bytes
    err: bytes
    folder: Path

    @property
    def traces(self) -> list[ProcessTrace]:
        return read_folder(self.folder)

    @property
    def trace(self) -> ProcessTrace:
        (trace,) = self.traces
        return trace


def environment(folder: Path, mode: str = "full", **more: str) -> dict[str, str]:
    """An environment of nothing but the probe; mode "off": of nothing at all."""
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **more}
    return env if mode == "off" else {**env, **probe.environment(folder, mode, env)}


def start(
    words: Sequence[str], folder: Path, mode: str = "full", python: str = sys.executable, **more: str
) -> subprocess.Popen[bytes]:
    """An interpreter beside *folder*, where the probe's files go."""
    pipe = subprocess.PIPE
    env = environment(folder, mode, **more)
    home = next(parent for parent in folder.parents if parent.is_dir())
    return subprocess.Popen([python, *words], cwd=home, env=env, stdin=pipe, stdout=pipe, stderr=pipe)


def ended(process: subprocess.Popen[bytes], folder: Path, given: bytes = b"") -> Ran:
    out, err = process.communicate(given, timeout=60)
    return Ran(process.returncode, out, err, folder)


def run(words: Sequence[str], home: Path, mode: str = "full", python: str = sys.executable, **more: str) -> Ran:
    """Run an interpreter in *home*; the probe's files are in ``home/out``."""
    folder = home / "out"
    folder.mkdir(parents=True, exist_ok=True)
    return ended(start(words, folder, mode, python, **more), folder)


def run_program(text: str, home: Path, mode: str = "full", python: str = sys.executable, **more: str) -> Ran:
    home.mkdir(parents=True, exist_ok=True)
    (home / "program.py").write_text(text)
    return run(["program.py"], home, mode, python, **more)


def interpreter(version: str) -> str | None:
    """An interpreter of this version: on PATH or of pyenv."""
    found = [shutil.which(f"python{version}")]
    pyenv = Path.home() / ".pyenv" / "versions"
    plain, free = version.rstrip("t"), version.endswith("t")
    found += [
        str(path / "bin" / f"python{version}")
        for path in sorted(pyenv.glob(f"{plain}.*"))
        if free == ("t" in path.name)
    ]
    for path in found:
        if path and os.access(path, os.X_OK) and _is(path, plain):
            return path
    return None


def _is(path: str, version: str) -> bool:
    """Whether it starts, and is what its name says: a shim may stand for a version that is not there."""
    words = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def main_samples(trace: ProcessTrace) -> list[Sample]:
    return [sample for sample in trace.samples if sample.thread == 0]


def functions(sample: Sample) -> list[str]:
    """Names without what encloses them: CPython 3.10 has no others."""
    return [frame.function.rpartition(".")[2] for frame in sample.stack]


def within(trace: ProcessTrace, begin: float, end: float) -> Iterator[Sample]:
    """Main-thread samples of an interval of monotonic seconds."""
    return (sample for sample in main_samples(trace) if begin <= sample.when <= end)
