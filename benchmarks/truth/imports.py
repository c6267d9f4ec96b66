"""The imports of an engine's processes: by samples, and as CPython's own clock has them (-X importtime)."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_coldstart.phases import timeline
from pytest_coldstart.phases.trace import ProcessTrace, Sample
from pytest_coldstart.probe.read import read_folder
from pytest_coldstart.record import BootRecord

#: What each engine's front end imports before it reads its command line, as its own code says it.
ENTRY = {
    "vllm": "import vllm.entrypoints.cli.main; import vllm.entrypoints.cli.benchmark.main, vllm.entrypoints.cli.collect_env, "
    "vllm.entrypoints.cli.download_kernels, vllm.entrypoints.cli.launch, vllm.entrypoints.cli.openai, "
    "vllm.entrypoints.cli.preload, vllm.entrypoints.cli.run_batch, vllm.entrypoints.cli.serve, vllm.entrypoints.cli.snapshot",
    "transformers": "from transformers.cli.transformers import main",
}
#: Functions that go on importing for the main module.
_MAINS = ("vllm.entrypoints.cli.main:main",)
_IMPORT_SYSTEM = ("importlib._bootstrap:", "_frozen_importlib:")
_SELF = re.compile(rb"^import time:\s+(\d+) \|", re.MULTILINE)


#: Samples and clock may differ by this share.
WITHIN = 0.15


def agrees(sampled: float, clocked: float) -> bool:
    return abs(sampled - clocked) <= WITHIN * clocked


def timed(text: bytes) -> float:
    """Seconds that the modules of an importtime report took, each without those that it imported itself."""
    return sum(map(int, _SELF.findall(text))) / 1e6


def alone(python: str, engine: str, env: Mapping[str, str], repeat: int) -> list[float]:
    """The engine's entry imported by itself, with nothing else in the process: seconds by importtime."""
    argv = [python, "-X", "importtime", "-c", ENTRY[engine]]
    runs = [subprocess.run(argv, env={**os.environ, **env}, capture_output=True, check=True) for _ in range(repeat)]
    return [timed(run.stderr) for run in runs]


def entry(record: BootRecord) -> float:
    """Seconds of the front end's samples in the imports that :data:`ENTRY` names: those that its main module, or
    its main function, asked for itself."""
    traces = {trace.pid: trace for trace in _traces(record)}
    server = traces[record.attribution.processes[0].pid]
    weights = weighted(server)
    return sum(seconds for sample, seconds in weights if _is_entry(sample))


def weighted(trace: ProcessTrace) -> list[tuple[Sample, float]]:
    """Each sample of the main thread with the seconds that are its own."""
    ticks = [sample for sample in trace.samples if sample.thread == 0]
    spans = timeline._spans([tick.when for tick in ticks], trace.python or ticks[0].when)
    return [(tick, right - left) for tick, (left, _, right, _) in zip(ticks, spans, strict=True)]


def _is_entry(sample: Sample) -> bool:
    frames = [f"{frame.module}:{frame.function}" for frame in sample.stack]
    if frames[:1] != ["__main__:<module>"]:
        return False
    depth = 2 if frames[1:2] and frames[1] in _MAINS else 1
    asked = frames[depth : depth + 1]
    return bool(asked) and asked[0].startswith(_IMPORT_SYSTEM)


def by_process(record: BootRecord, folder: Path) -> list[tuple[str, float, float]]:
    """Of a boot whose processes were told to time their imports: name, seconds by samples, seconds by importtime."""
    rows = []
    for process in record.attribution.processes:
        file = folder / f"{process.pid}.importtime"
        if file.exists():
            rows.append((process.name, sum(process.imports.values()), timed(file.read_bytes())))
    return rows


def caches(record: BootRecord) -> dict[str, str]:
    """The variable that makes another process read the bytecode that the boot read."""
    found = record.attribution.processes[0].cache_paths.get("PYTHONPYCACHEPREFIX")
    return {"PYTHONPYCACHEPREFIX": found} if found else {}


def median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f}, n={len(values)})"


def _traces(record: BootRecord) -> list[ProcessTrace]:
    return read_folder(Path(record.attribution.samples_path or ""))
