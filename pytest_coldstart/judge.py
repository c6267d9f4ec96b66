"""Around a test's body: boot before it, stop and judge after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from pytest_coldstart.coldness import TierContradicted, TierRefused
from pytest_coldstart.collect import param_of
from pytest_coldstart.devices import DeviceBusy, DevicesMissing
from pytest_coldstart.errors import HarnessFault
from pytest_coldstart.handle import ColdBoot
from pytest_coldstart.markers import MarkerError, slo_levels
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.plan import Plan
from pytest_coldstart.report import capacity, explain, junit, memory, path
from pytest_coldstart.session import Session
from pytest_coldstart.slo import Bound, Verdict
from pytest_coldstart.store.errors import StoreError

#: On an item: the boot that its body runs on.
BOOT = pytest.StashKey[ColdBoot]()
#: On an item: what became of its cell, for the terminal's table.
OUTCOME = pytest.StashKey[dict[str, Any]]()
#: On an item: its body failed and --pdb keeps the engine up for a look.
BODY_FAILED = pytest.StashKey[bool]()


@contextmanager
def booted(session: Session, node: pytest.Item | pytest.Module, plan: Plan) -> Iterator[ColdBoot]:
    """Make the cell's rounds; the last boot is up inside, and surely gone after."""
    shared = not isinstance(node, pytest.Item)
    nodeid = f"{node.nodeid}[{plan.cell_id}]" if shared else node.nodeid
    declared = plan.cell.digest
    # A suite may have overridden the plan: the cell is what is really booted.
    shape = {**plan.cell.requests, "count": plan.requests, "words": list(plan.prompt_words)}
    plan = replace(plan, nodeid=nodeid, cell=replace(plan.cell, requests=shape, warmup=plan.warmup.spec()))
    bounds = [] if shared else _bounds(session, node, plan)
    rounds = session.rounds(plan)
    boot = ColdBoot(rounds, bounds)
    missing = ""
    try:
        rounds.run()
    except DevicesMissing as error:
        missing = str(error)
    except (TierContradicted, TierRefused, DeviceBusy, HarnessFault, StoreError) as error:
        raise pytest.fail.Exception(_fault(error), pytrace=False) from None
    if missing:
        session.refuse(plan.engine, missing, "run it on a host that has them, or ask for fewer")
    if shared:
        session.shared[(node.nodeid, declared)] = boot
    else:
        node.stash[BOOT] = boot
    try:
        yield boot
    finally:
        _finish(boot)
    if boot.fault:
        raise pytest.fail.Exception(boot.fault, pytrace=False)
    if isinstance(node, pytest.Item):
        _judge_unseen(session, node, boot)
    elif node.session.exitstatus != pytest.ExitCode.INTERRUPTED:
        _judge_shared(session, boot)


def _judge_shared(session: Session, boot: ColdBoot) -> None:
    """After a shared boot's last test: what only the stop tells, and a failed boot that no body has shown."""
    if boot.rounds.failed is not None and not boot.judged:
        raise pytest.fail.Exception(f"boot failed: {boot.rounds.failed.failure}", pytrace=False)
    verdicts = boot.rounds.judge(list(dict.fromkeys(boot.pending)))
    try:
        session.keep_verdicts(boot.plan, verdicts)
    except StoreError as error:
        raise pytest.fail.Exception(f"the verdicts could not be stored: {error}", pytrace=False) from None
    if any(verdict.broken for verdict in verdicts) and boot.records:
        text = explain.broken_slo(
            verdicts, boot.records, boot.plan.nodeid.partition("[")[0], session.reproduce_options()
        )
        raise pytest.fail.Exception(text, pytrace=False)


def _judge_unseen(session: Session, item: pytest.Item, boot: ColdBoot) -> None:
    """A body that never ran, since another fixture skipped or failed, hides no failed boot and no broken SLO."""
    interrupted = item.session.exitstatus == pytest.ExitCode.INTERRUPTED
    if item.stash.get(OUTCOME, None) is None and item.stash.get(BODY_FAILED, None) is None and not interrupted:
        _conclude(session, item, boot)


def _finish(boot: ColdBoot) -> None:
    """Stop the live boot; a fault of ours becomes an error at teardown and no failed test."""
    try:
        boot.rounds.finish()
    except (HarnessFault, StoreError) as error:
        boot.fault = _fault(error)


def _fault(error: Exception) -> str:
    """Why a cell gets no verdict, in words."""
    for kind, words in (
        (TierContradicted, "the evidence contradicts the tier"),
        (TierRefused, "the tier was refused"),
        (DeviceBusy, "a GPU is not idle"),
        (StoreError, "the boot could not be stored"),
    ):
        if isinstance(error, kind):
            return f"{words}: {error}"
    return f"no verdict is possible: {error}"


def _bounds(session: Session, item: Any, plan: Plan) -> list[Bound]:
    try:
        return session.bounds(slo_levels(item), plan.cell.tier)
    except MarkerError as error:  # a marker that was added after collection
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def boot_of(session: Session, item: pytest.Item) -> ColdBoot | None:
    """The boot under an item, its own or one that it shares."""
    own = item.stash.get(BOOT, None)
    if own is not None:
        return own
    if "shared_cold_boot" not in getattr(item, "fixturenames", ()):
        return None
    key = _shared_key(item)
    return session.shared.get(key) if key else None


def note_shared(session: Session, items: Sequence[pytest.Item]) -> None:
    """Remember which tests share which boot, so that it is stopped after the last of them."""
    for item in items:
        key = _shared_key(item)
        if key is not None:
            session.users.setdefault(key, []).append(item.nodeid)


def _shared_key(item: pytest.Item) -> tuple[str, str] | None:
    param = param_of(item)
    if param is None or "shared_cold_boot" not in getattr(item, "fixturenames", ()):
        return None
    module = item.getparent(pytest.Module)
    return (module.nodeid if module else "", param.matrix.cell.digest)


def forget(item: pytest.Item) -> None:
    """Before a rerun of the same item: its last attempt's boot and outcome are not this one's."""
    if BOOT in item.stash:
        del item.stash[BOOT]
    if OUTCOME in item.stash:
        del item.stash[OUTCOME]
    item.user_properties[:] = [pair for pair in item.user_properties if not pair[0].startswith("coldstart.")]


def refuse_body(session: Session, item: pytest.Item) -> None:
    """A failed boot fails the test where its body would run: there is no engine to run it on."""
    boot = boot_of(session, item)
    if boot is not None and boot.rounds.failed is not None:
        _conclude(session, item, boot)


def after_body(session: Session, item: pytest.Item, body_failed: bool) -> None:
    """Stop, sweep and judge; a broken SLO fails the test even where its body asserted nothing.

    A shared boot is stopped after its last test. With --pdb a failed body keeps its engine up
    for the debugger; the fixture's end stops it.
    """
    boot = boot_of(session, item)
    if boot is None or item.stash.get(OUTCOME, None) is not None:
        return
    if body_failed and item.config.getoption("usepdb", False):
        item.stash[BODY_FAILED] = True
        return
    key = _shared_key(item)
    if key is None or session.last_user(key, item.nodeid):
        _finish(boot)
    else:
        bounds = _bounds(session, item, boot.plan)
        boot.pending += [bound for bound in bounds if METRICS[bound.metric].after_stop]
    if boot.fault:
        return  # an error, raised when the fixture ends
    _conclude(session, item, boot, raising=not body_failed)


def _conclude(session: Session, item: pytest.Item, boot: ColdBoot, raising: bool = True) -> None:
    plan = replace(boot.plan, nodeid=item.nodeid)
    verdicts = boot.rounds.judge(_bounds(session, item, plan))
    try:
        session.keep_verdicts(plan, verdicts)
    except StoreError as error:
        boot.fault = f"the verdicts could not be stored: {error}"
    failed = boot.rounds.failed
    broken = [verdict for verdict in verdicts if verdict.broken]
    text = ""
    options = session.reproduce_options()
    if failed is not None:
        text = explain.failed_boot(failed, session.here(item), options, session.settings.keep_logs != "none")
    elif broken:
        text = explain.broken_slo(verdicts, boot.records, session.here(item), options)
    boot.judged = True
    item.stash[OUTCOME] = _outcome(session, item, boot, verdicts)
    item.user_properties.extend(junit.properties(boot.records, verdicts))
    if text and raising:
        pytest.fail(text, pytrace=False)
    if text:
        item.add_report_section("call", "coldstart", text)


def _outcome(session: Session, item: pytest.Item, boot: ColdBoot, verdicts: list[Verdict]) -> dict[str, Any]:
    records = boot.records
    slowest = explain.slowest_boot(records)
    drawn = boot.rounds.failed or slowest
    failed = sum(record.failed for record in records) or int(boot.rounds.failed is not None)
    bad = [verdict.verdict for verdict in verdicts if verdict.broken]
    word = "failed" if failed else ("fail" if "fail" in bad else bad[0]) if bad else "pass"
    return {
        "status": "judged",
        "name": _row_name(item, boot),
        "nodeid": item.nodeid,
        "tier": boot.cell.tier,
        "rounds": len(records),
        "failed": failed,
        "verdict": word,
        "verdicts": [verdict.to_dict() for verdict in verdicts],
        "slowest": explain.slowest_part(slowest) if slowest else "-",
        "notes": [*explain.notes(records), *path.source_notes(records)],
        "memory": memory.cell_line(records),
        # A live boot is not kept yet; one that is counts once.
        "capacity": [*session.capacities.get(boot.cell.base_digest, ()), *capacity.readings(records)],
        **(path.of_cell(drawn) if drawn else {}),
    }


def _row_name(item: pytest.Item, boot: ColdBoot) -> str:
    """Engine, test and axes; the tier has a column of its own."""
    axes = boot.plan.cell_id.removesuffix(boot.cell.tier).removesuffix("-")
    return " ".join(word for word in (boot.plan.engine.name, getattr(item, "originalname", item.name), axes) if word)


def outcome_for_report(item: pytest.Item, report: pytest.TestReport) -> dict[str, Any] | None:
    """What the controller needs to know of an item's cell: plain data that survives pytest-xdist."""
    if report.when == "call":
        return item.stash.get(OUTCOME, None)
    param = param_of(item)
    if param is None or report.when != "setup" or report.passed:
        return None
    crash = getattr(report.longrepr, "reprcrash", None)
    reason = (
        report.longrepr[2] if isinstance(report.longrepr, tuple) else crash.message if crash else str(report.longrepr)
    )
    return {
        "status": "skipped",
        "name": f"{param.engine.name} {getattr(item, 'originalname', item.name)} {param.matrix.id}",
        "nodeid": item.nodeid,
        "reason": reason.removeprefix("Skipped: ").splitlines()[0] if reason else report.outcome,
    }
