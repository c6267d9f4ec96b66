"""Made boots whose truth is known: what each process did when, and the samples a probe would have taken of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_coldstart.phases.trace import Frame, Life, ProcessTrace, Sample

Stack = tuple[Frame, ...]


def stack(*frames: str) -> Stack:
    """Frames from "module:function", the outermost first."""
    return tuple(Frame(*frame.rsplit(":", 1), f"/site/{frame.partition(':')[0]}.py") for frame in frames)


MAIN = "__main__:<module>"
IMPORT = stack(MAIN, "importlib._bootstrap:_find_and_load", "importlib._bootstrap:_call_with_frames_removed")
LOAD = stack(MAIN, "vllm.v1.worker.gpu_worker:Worker.load_model", "app.nobody:read")
COMPILE = stack(MAIN, "torch._inductor.compile_fx:compile_fx", "app.nobody:lower")
NCCL = stack(MAIN, "torch.distributed.distributed_c10d:init_process_group")
GRAPHS = stack(MAIN, "vllm.v1.worker.gpu_model_runner:GPUModelRunner.capture_model")
UNKNOWN = stack(MAIN, "app.main:run", "app.nobody:think")
IDLE = stack(MAIN, "app.main:run", "asyncio.base_events:BaseEventLoop._run_once", "selectors:EpollSelector.select")
ON_CHILDREN = stack(MAIN, "app.main:run", "subprocess:Popen.wait")
ON_THREADS = stack(MAIN, "app.main:run", "threading:Condition.wait")


@dataclass(frozen=True)
class Act:
    """``seconds`` with one stack; ``held``: in a call that holds the GIL, so no sample can be taken."""

    seconds: float
    stack: Stack
    importing: str = ""
    held: bool = False


def trace(
    pid: int,
    acts: Sequence[Act],
    *,
    parent: int = 1,
    started: float = 0.0,
    spawn: float = 0.1,
    name: str = "",
    seed: int = 0,
    rate: float = 20.0,
    killed: bool = False,
) -> ProcessTrace:
    """The process as a sampler with jitter sees it. It starts at *started*, its interpreter is up *spawn* later."""
    chance = random.Random(seed * 1000 + pid)
    begin = started + spawn
    plan: list[tuple[float, float, Act]] = []
    for act in acts:
        plan.append((begin, begin + act.seconds, act))
        begin += act.seconds
    samples: list[Sample] = []
    at = started + spawn + chance.uniform(0, 1 / rate)
    while at < begin:
        _, right, act = next(item for item in plan if item[0] <= at < item[1])
        if act.held:
            # The sampler gets the GIL when the call returns, and still finds its caller.
            at = right - 1e-6
            if killed and right == begin:
                break
        samples.append(Sample(at, 0, act.stack, 1, act.importing))
        at += chance.uniform(0.7, 1.3) / rate
    names = [(started + spawn, name)] if name else []
    last = samples[-1].when if samples else started + spawn
    return ProcessTrace(
        pid, parent, started, started + spawn, "full", (f"prog{pid}",), names=names, samples=samples, last=last
    )


def life(pid: int, name: str, started: float, ended: float | None, parent: int = 1, command: str = "") -> Life:
    return Life(pid, parent, name, command or name, started, ended)
