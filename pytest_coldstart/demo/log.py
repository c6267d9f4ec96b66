"""The log of a demo boot: what the engine would have printed about each phase, with its offset from the start."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_coldstart.record import BootRecord, Phase

#: What is printed at the end of a phase.
_ENDS: Mapping[str, str] = {
    "imports": "{process}: modules imported",
    "device_init": "{process}: CUDA initialised on device 0",
    "distributed_init": "{process}: rank 0 of 1, backend nccl",
    "load_weights": "Loading weights took {seconds:.2f} seconds",
    "kv_alloc": "KV cache allocated in {seconds:.2f} s",
    "profile": "Memory profiling takes {seconds:.2f} seconds",
    "compile": "Compiling took {seconds:.2f} s in total ({detail})",
    "graph_capture": "Graph capturing finished in {seconds:.1f} secs ({detail})",
    "warmup": "Warm-up done ({detail})",
    "server_start": "Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)",
    "first_request": 'INFO:     127.0.0.1:40212 - "POST /v1/completions HTTP/1.1" 200 OK',
}


def lines(record: BootRecord) -> str:
    """The text of the log."""
    found = [_line(0.02, f"demo: this log is made up, as is the boot {record.boot_id}")]
    found += [_line(phase.end, _text(phase)) for phase in record.phases if phase.name in _ENDS]
    if record.failure:
        found += [_line(record.phases[-1].end, text) for text in record.failure.log_tail.splitlines()]
    return "".join(found)


def _text(phase: Phase) -> str:
    return _ENDS[phase.name].format(process=phase.process, detail=phase.detail, seconds=phase.end - phase.begin)


def _line(at: float, text: str) -> str:
    return f"[+{at:10.3f}] {text}\n"
