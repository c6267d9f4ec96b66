"""From a boot's parts to its record, as far as they are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_coldstart.process import Ended
from pytest_coldstart.record import BootRecord, Phase, Stop

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
        instants=dict(boot.instants),
        endpoints=dict(readiness.seen) if readiness else {},
        poll_delay=readiness.poll_delay if readiness else None,
        phases=_phases(boot.instants),
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


def _phases(instants: Mapping[str, float]) -> tuple[Phase, ...]:
    """What is known without a look inside: the first request, and all before it unattributed."""
    ready, done = instants.get("ready"), instants.get("first_done")
    if ready is None:
        return ()
    phases = [Phase("unattributed", 0.0, ready, "client")]
    if done is not None:
        phases.append(Phase("first_request", ready, done, "client"))
    return tuple(phases)
