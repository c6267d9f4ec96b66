"""What would help: rules over the evidence of one finished boot, each hint with the measured seconds at stake.

A rule that lacks its evidence says nothing. The seconds of two hints may be the same seconds: they do not add up.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_coldstart.attribution import Hint
from pytest_coldstart.hints import host, model
from pytest_coldstart.hints.view import View
from pytest_coldstart.record import BootRecord

Rule = Callable[[View], Hint | None]

RULES: tuple[Rule, ...] = (
    host.imports,
    host.imports_again,
    host.bytecode,
    host.spawn,
    host.sleeps,
    host.unattributed,
    host.poll_delay,
    model.cache_not_reused,
    model.caches_empty,
    model.kernel_jit,
    model.weights,
    model.graph_capture,
    model.profile,
    model.ready_too_early,
)


def hints(record: BootRecord) -> tuple[Hint, ...]:
    """The hints for one boot, the one with most seconds at stake first.

    Needs ``phases``, ``attribution``, ``caches``, ``evidence`` and ``instants``; nothing under 0.2 s or 2 % of the
    boot is worth one.
    """
    view = View.of(record)
    found = [hint for rule in RULES if (hint := _said(rule, view)) and hint.seconds >= view.floor]
    return tuple(sorted(found, key=lambda hint: (-hint.seconds, hint.rule)))


def _said(rule: Rule, view: View) -> Hint | None:
    """What a rule says; nothing if it breaks: a hint is not worth the record of a boot."""
    try:
        return rule(view)
    except Exception:
        return None
