"""Rules on what an engine's processes do before and between its work on the model: start, import, sleep."""

from __future__ import annotations

import re

from pytest_coldstart.attribution import UNATTRIBUTED, Hint
from pytest_coldstart.hints.settings import advice
from pytest_coldstart.hints.view import View, seconds, sums
from pytest_coldstart.units import show

#: Imports are worth a hint from this share of the boot on, unattributed time above this one.
IMPORTS_SHARE, UNATTRIBUTED_SHARE = 0.25, 0.05

#: What a stretch of phase imports is called in which bytecode is compiled.
_BYTECODE = "(bytecode)"

#: Processes that a hint names.
_NAMED = 3
_SLEEP = re.compile(r"(?<![\w-])sleep(ing)?(?![\w-])")


def imports(view: View) -> Hint | None:
    """Imports dominate: of which packages, in which process."""
    stake = view.seconds("imports")
    if stake < IMPORTS_SHARE * view.total:
        return None
    costs = [
        (f"{package} in {process.name}", value)
        for process in view.record.attribution.processes
        for package, value in process.imports.items()
    ]
    if not costs:
        return None
    top = ", ".join(f"{name} {show(value, 's')}" for name, value in sums(costs, 3))
    text = f"imports take {show(stake, 's')} of {show(view.total, 's')}, most of it {top}: {advice(view, 'imports')}"
    return Hint("imports", text.removesuffix(": "), stake)


def imports_again(view: View) -> Hint | None:
    """A process imports what one before it has imported, while the boot waits for it."""
    seen: set[str] = set()
    stake, repeated, where = 0.0, [], []
    for process in sorted(view.record.attribution.processes, key=lambda process: process.start):
        again = {package: value for package, value in process.imports.items() if package in seen}
        seen |= process.imports.keys()
        waited = seconds(piece for piece in view.pieces("imports") if piece.process == process.name)
        lost = min(waited, sum(again.values()))
        if lost > 0:
            stake += lost
            repeated += list(again.items())
            where.append(process.name)
    what = advice(view, "imports_again")
    if not where or not what:
        return None
    top = ", ".join(f"{name} {show(value, 's')}" for name, value in sums(repeated, 3))
    names = ", ".join(where)
    text = (
        f"{show(stake, 's')} go into importing again, in {names}, what an earlier process had imported ({top}): {what}"
    )
    return Hint("imports_again", text, stake)


def bytecode(view: View) -> Hint | None:
    """Python's bytecode is compiled during the boot instead of being read."""
    stake = seconds(piece for piece in view.pieces("imports") if piece.detail.endswith(_BYTECODE))
    if not stake:
        return None
    forbidden = view.record.environment.get("PYTHONDONTWRITEBYTECODE", "")
    caches = [cache for cache in view.record.caches if cache.name == "bytecode"]
    written = sum(cache.new_kinds.get("modules", 0) for cache in caches)
    count = f"bytecode of {written} modules" if written else "bytecode"
    if forbidden:
        loaded = sum(process.modules or 0 for process in view.record.attribution.processes)
        count = f"bytecode of up to {loaded} modules, over all processes," if loaded else "bytecode"
        when = f"at every boot, since PYTHONDONTWRITEBYTECODE={forbidden} forbids keeping it"
    else:
        when = "although caches are kept" if view.keeps_caches else "on every new node"
    text = f"{count} is compiled {when}, {show(stake, 's')}: {advice(view, 'bytecode')}"
    return Hint("bytecode", text, stake)


def spawn(view: View) -> Hint | None:
    """Processes are started one after another while nothing else happens."""
    pieces = view.pieces("spawn")
    stake = seconds(pieces)
    what = advice(view, "spawn")
    if len(pieces) < 2 or not what:
        return None
    who = list(dict.fromkeys(piece.process for piece in pieces if piece.process)) or ["unnamed"]
    names = ", ".join(who[:_NAMED]) + (f" and {len(who) - _NAMED} more" if len(who) > _NAMED else "")
    text = f"{len(pieces)} starts of processes ({names}) take {show(stake, 's')} of the boot: {what}"
    return Hint("spawn", text, stake)


def sleeps(view: View) -> Hint | None:
    """Somebody sleeps on the critical path."""
    found = [
        (f"{piece.detail} in {piece.process}" if piece.process else piece.detail, piece.end - piece.begin)
        for piece in view.path
        if _SLEEP.search(piece.detail)
    ]
    if not any(_SLEEP.search(piece.detail) for piece in view.pieces(UNATTRIBUTED)):
        hottest = view.record.attribution.hottest
        found += [(f"{hot.frame} in {hot.process}", hot.seconds) for hot in hottest if _SLEEP.search(hot.frame)]
    if not found:
        return None
    stake = sum(value for _, value in found)
    top = ", ".join(f"{name} {show(value, 's')}" for name, value in sums(found, 3))
    text = f"{show(stake, 's')} of the boot are slept ({top}): wait for the event itself instead of a fixed time"
    return Hint("sleep", text, stake)


def unattributed(view: View) -> Hint | None:
    """More is unattributed than a reader should accept: look where it was spent, or turn the probe up."""
    stake = view.seconds(UNATTRIBUTED)
    if stake <= UNATTRIBUTED_SHARE * view.total:
        return None
    attribution = view.record.attribution
    what = f"{show(stake, 's')} of {show(view.total, 's')} are unattributed"
    if attribution.hottest:
        hot = [(f"{frame.frame} in {frame.process}", frame.seconds) for frame in attribution.hottest]
        what += ", most of it in " + ", ".join(f"{name} {show(value, 's')}" for name, value in sums(hot, 3))
    if attribution.probe != "full":
        what += f" (the probe was {attribution.probe}): --coldstart-probe=full samples stacks and names them"
    elif attribution.missing:
        what += f": {attribution.missing[0]}"
    return Hint("unattributed", what, stake)


def poll_delay(view: View) -> Hint | None:
    """Readiness was seen late."""
    stake = view.record.poll_delay
    what = advice(view, "poll_delay")
    if stake is None or not what:
        return None
    text = f"readiness was seen up to {show(stake, 's')} late, by the time that its endpoint took to answer: {what}"
    return Hint("poll_delay", text, stake)
