"""How boots of the demo fail: as engines do."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_coldstart.demo.cells import DemoCell
from pytest_coldstart.demo.history import BAD_NIGHT
from pytest_coldstart.record import Failure


@dataclass(frozen=True)
class Kind:
    """A way to fail. ``phase``: the last one that is on the path."""

    kind: str
    message: str
    instant: str
    phase: str
    log: str
    diagnosis: tuple[str, ...] = ()

    def failure(self) -> Failure:
        return Failure(self.kind, self.message, self.instant, self.log, self.diagnosis)


_OUT_OF_MEMORY = Kind(
    "exit",
    "the engine ended with exit code 1 after 11.84 s, the last instant was 'python'",
    "python",
    "device_init",
    "ERROR [core.py:708] EngineCore failed to start.\n"
    "ValueError: Free memory on device (64.2/140.4 GiB) on startup is less than desired GPU memory utilization "
    "(0.9, 126.36 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n",
)
_HANG = Kind(
    "hang",
    "no output, no CPU and no I/O for 120 s, waiting for ready 139.2 s after the start",
    "python",
    "distributed_init",
    "[TRT-LLM] [I] Starting to init MPI session with 1 workers\n",
    (
        "distributed_init of mpi worker since 17.1 s: mpi4py.MPI.Comm.Barrier",
        "mpi worker (pid 4188) waits on a socket of server (pid 4101)",
    ),
)
_DEADLINE = Kind(
    "deadline",
    "the instant 'ready' was not reached within its deadline of 60 s",
    "listen",
    "graph_capture",
    "Capturing batches (bs=128 avail_mem=9.61 GB): 17%|#7        | 4/23 [00:41<03:16, 10.34s/it]\n",
)
_REFUSED = Kind(
    "request",
    "the first request failed: HTTP 500: failed to decode the batch, n_tokens = 16",
    "ready",
    "server_start",
    "llama_decode: failed to decode, ret = -3\nsrv    send_error: task id = 0, error: failed to decode the batch\n",
)

_KINDS: Mapping[str, Kind] = {
    "vllm": _OUT_OF_MEMORY,
    "tensorrt_llm": _HANG,
    "sglang": _DEADLINE,
    "llamacpp": _REFUSED,
}


def failing(item: DemoCell, day: float, order: random.Random) -> Kind | None:
    """How a boot fails; few do, and one engine had a bad night."""
    found = _KINDS.get(item.engine.name)
    bad = item.engine.name == "tensorrt_llm" and BAD_NIGHT <= day < BAD_NIGHT + 1.5
    return found if order.random() < (1.0 if bad else 0.012) else None
