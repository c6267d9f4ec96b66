"""From a boot's parts to its record, as far as they are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_coldstart.attribution import Attribution
from pytest_coldstart.memory import Memory
from pytest_coldstart.process import Ended
from pytest_coldstart.record import INSTANTS, BootRecord, Stop

if TYPE_CHECKING:
    from pytest_coldstart.boot import Boot


def stop_of(boot: Boot, ended: Ended, port_free: bool) -> Stop:
    """How the boot's tree ended and what it left."""
    left = boot.shared_memory.left(ended.shm)
    return Stop(
        duration=ended.end - ended.begin,
        forced=ended.forced,
        exit_code=ended.code,
        leaked_processes=ended.leaked,
        leaked_shm=tuple(name for name, _ in left),
        leaked_bytes=None if boot.plan.parallel or not boot.shared_memory.known else sum(size for _, size in left),
        port_free=port_free,
    )


def record_of(boot: Boot) -> BootRecord:
    """The record of *boot* without what only its stop tells: caches after, leaks, metrics."""
    plan, readiness = boot.plan, boot.readiness
    phases, attribution = boot.insight.path(boot) if boot.insight else ((), Attribution())
    return BootRecord(
        boot_id=boot.boot_id,
        run_id=plan.run_id,
        nodeid=plan.nodeid,
        cell_id=plan.cell_id,
        cell=_cell(boot),
        cell_digest=plan.cell.digest,
        base_digest=plan.cell.base_digest,
        engine=plan.engine.name,
        tier=plan.cell.tier,
        role=boot.role,
        round=boot.round,
        outcome=boot.outcome,
        started_at=boot.started_at.isoformat(timespec="milliseconds"),
        instants=_with_python(boot.instants, attribution),
        endpoints=dict(readiness.seen) if readiness else {},
        poll_delay=readiness.poll_delay if readiness else None,
        phases=phases,
        attribution=attribution,
        memory=boot.footprint.memory(boot, phases, attribution.processes) if boot.footprint else Memory(),
        requests=tuple(boot.requests),
        evidence=boot.evidence,
        usage=boot.usage,
        failure=boot.failure,
        versions=boot.versions,
        model=boot.model,
        command=boot.command,
        environment=boot.environment,
        log_path=str(boot.log_path),
        load_average=boot.load_average,
    )


def _cell(boot: Boot) -> dict[str, Any]:
    """The cell's content, secrets taken out."""
    content = boot.plan.cell.content()
    content["env"] = boot.redactor.environment(content["env"])
    content["options"] = {
        name: boot.redactor.environment({name: value})[name] if isinstance(value, str) else value
        for name, value in content["options"].items()
    }
    content["command"] = list(boot.redactor.command(content["command"]))
    return content


def _with_python(instants: Mapping[str, float], attribution: Attribution) -> dict[str, float]:
    """The instants in their order, with the one at which the leader's interpreter was up."""
    leader = attribution.processes[0] if attribution.processes else None
    up = leader.instants.get("python") if leader else None
    found = {**instants, **({"python": up} if up is not None and up >= 0 else {})}
    return {name: found[name] for name in INSTANTS if name in found}
