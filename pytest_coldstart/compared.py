"""A boot's record beside what its machine can do: reference workloads, a copy to the device, a bare CUDA context.

Timed after the boot has stopped. Before it, the copy would load the driver's libraries for it, and a boot that is to be
cold has to pay for them itself.
"""

from __future__ import annotations

import time
from dataclasses import replace

from pytest_coldstart import metrics, workload
from pytest_coldstart.coldness import TIERS
from pytest_coldstart.hints import hints
from pytest_coldstart.load import load_of
from pytest_coldstart.memory import GPU
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord, Value
from pytest_coldstart.reference import UNTIMED, Copy, References


def compared(record: BootRecord, plan: Plan, references: References) -> BootRecord:
    """*record*, of a stopped boot of *plan*, with its references; each that could be none has its reason.

    Weight files are left in another state: the next boot's preparation brings them into its tier's.
    """
    if plan.parallel:
        record = replace(record, references=workload.untimed(workload.PARALLEL))
    else:
        begin = time.monotonic()
        found = workload.timed(plan.model.files)
        if why := _uncopied(record, plan):
            found[workload.COPY] = Value(None, None, why)
        else:
            copy = references.copy(plan.gpus[0])
            record = _loaded(record, plan, references, copy)
            found[workload.COPY] = Value(copy.speed, "cuda" if copy.speed else None, copy.reason or None)
        found[workload.TIME] = Value(time.monotonic() - begin, "client")
        record = replace(record, references=found)
    return replace(record, metrics=metrics.measure(record))


def _uncopied(record: BootRecord, plan: Plan) -> str:
    """Why the load of a boot has nothing to be compared with; empty where it has."""
    if record.outcome != "ok":
        return "the boot failed: it has no load to compare"
    if not plan.gpus:
        return "no GPU of this boot is known"
    return "" if plan.model.files else "no weight files are known"


def _loaded(record: BootRecord, plan: Plan, references: References, copy: Copy) -> BootRecord:
    """*record* with its load beside the references of its weights and its device."""
    state = TIERS[plan.cell.tier].weights
    first = record.memory.gpus[0] if record.memory.gpus else None
    load = load_of(
        record.phases,
        record.evidence.weight_bytes or None,
        UNTIMED if state == "any" else references.read_speed(plan.model.files, evict=state == "evicted"),
        (copy.speed, copy.reason),
        first.pcie_gen if first else None,
        first.pcie_width if first else None,
        plan.cell.tier,
        devices=max(1, len(plan.gpu_environ.get("CUDA_VISIBLE_DEVICES", "").split(","))),
    )
    gpus = tuple(_with_contexts(gpu, copy.context_bytes) for gpu in record.memory.gpus)
    record = replace(record, memory=replace(record.memory, gpus=gpus, load=load))
    return replace(record, hints=hints(record))


def _with_contexts(gpu: GPU, size: int | None) -> GPU:
    """What a process used when it was first seen is less than its context, which grows for some tenths of a second."""
    return gpu if size is None else replace(gpu, context_bytes=dict.fromkeys(gpu.process_bytes, size))
