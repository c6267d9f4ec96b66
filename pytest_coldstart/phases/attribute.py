"""Everything that was seen of one boot -> its critical path and what that was made from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_coldstart.attribution import (
    UNATTRIBUTED,
    Attribution,
    HotFrame,
    Process,
    Reading,
    Spread,
    Unmatched,
)
from pytest_coldstart.phases import timeline
from pytest_coldstart.phases.chain import kind_of
from pytest_coldstart.phases.classify import Classifier, package_of
from pytest_coldstart.phases.compare import disagreements, filled, with_our_names
from pytest_coldstart.phases.names import name_all, why_missing
from pytest_coldstart.phases.path import Step, dissolved, merged, walk
from pytest_coldstart.phases.rules import ALL_RULES, PROCESS_RULES, Rule
from pytest_coldstart.phases.trace import Life, ProcessTrace
from pytest_coldstart.phases.tree import Node, grown
from pytest_coldstart.record import Phase

#: /proc counts the start of a process in hundredths of a second.
_TICK = 0.01
#: Of unattributed time: how many frames are named, and from how many seconds on.
_HOTTEST, _HOT_SECONDS = 10, 0.05


@dataclass(frozen=True)
class Inputs:
    """What is known of one boot.

    ``mode``: of the probe, off, marks or full. ``origin``: monotonic second of the start; traces and lives are on
    that clock, all else is in seconds from the start. ``end``: first_done or the failure.
    """

    mode: str
    origin: float
    leader: int | None
    end: float
    instants: Mapping[str, float] = field(default_factory=dict)
    poll_delay: float | None = None
    traces: Sequence[ProcessTrace] = ()
    lives: Sequence[Life] = ()
    readings: Sequence[Reading] = ()
    unmatched: Sequence[Unmatched] = ()
    rules: Sequence[Rule] = ALL_RULES
    missing: Sequence[str] = ()


def attribute(inputs: Inputs) -> tuple[tuple[Phase, ...], Attribution]:
    """The critical path, a partition of [0, end], and what it was made from."""
    classifier = Classifier(inputs.rules, PROCESS_RULES)
    nodes = grown(inputs.traces, inputs.lives, inputs.leader, inputs.origin + inputs.end, classifier)
    name_all(nodes)
    steps, spreads = _path(inputs, nodes)
    readings = with_our_names(inputs.readings, nodes)
    steps = merged(filled(steps, readings))
    reasons = {node: _reason(node, classifier, inputs) for node in nodes}
    attribution = Attribution(
        probe=inputs.mode,
        end=inputs.end,
        processes=tuple(_process(node, inputs, reasons[node]) for node in nodes),
        readings=tuple(readings),
        disagreements=disagreements(steps, nodes, readings, inputs.origin, inputs.end),
        unmatched=tuple(inputs.unmatched),
        spreads=tuple(spreads),
        hottest=_hottest(steps),
        missing=(*inputs.missing, *_sentences(reasons)),
    )
    return tuple(_phase(step) for step in dissolved(steps)), attribution


def _phase(step: Step) -> Phase:
    return Phase(step.phase, step.begin, step.end, step.source, step.process, step.detail)


def _path(inputs: Inputs, nodes: Sequence[Node]) -> tuple[list[Step], list[Spread]]:
    if inputs.end <= 0:
        return [], []
    if nodes and any(trace for node in nodes for trace in node.traces):
        leads = inputs.leader is None or nodes[0].pid == inputs.leader
        return walk(nodes, inputs.origin, inputs.end, inputs.instants, inputs.poll_delay, leads)
    return _from_instants(inputs), []


def _from_instants(inputs: Inputs) -> list[Step]:
    """What is known without a look inside: the first request, and all before it unattributed."""
    ready = min(inputs.instants.get("ready", inputs.end), inputs.end)
    steps = [Step(0.0, ready, UNATTRIBUTED, "client", open=True)]
    if "ready" in inputs.instants:
        steps.append(Step(ready, inputs.end, "first_request", "client"))
    return merged(steps)


def _reason(node: Node, classifier: Classifier, inputs: Inputs) -> str:
    if inputs.mode == "off":
        return ""
    known = bool(node.life and classifier.process(node.life.name))
    return why_missing(node, known, inputs.origin, inputs.mode)


def _sentences(reasons: Mapping[Node, str]) -> list[str]:
    """One sentence a reason and kind of process."""
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for node, reason in reasons.items():
        if reason:
            groups[kind_of(node.name), reason].append(node.name)
    return [
        f"{names[0]}: {reason}" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more like it: {reason}"
        for (_, reason), names in groups.items()
    ]


def _process(node: Node, inputs: Inputs, reason: str) -> Process:
    last = node.traces[-1] if node.traces else None
    life, origin = node.life, inputs.origin
    ended = life.ended if life else None
    instants = {name: when - origin for trace in node.traces for name, when in trace.stamps.items()}
    for trace in node.traces:
        if trace.python is not None:
            instants["python"] = trace.python - origin
    spent = [trace.probe_cpu for trace in node.traces if trace.probe_cpu is not None]
    return Process(
        pid=node.pid,
        parent=node.parent_pid,
        name=node.name,
        start=0.0 if abs(node.begin - origin) < _TICK else node.begin - origin,
        end=None if ended is None else ended - origin,
        exit_code=life.exit_code if life else None,
        command=life.command if life else " ".join(last.argv if last else ()),
        probe=last.mode if last else "off",
        missing=reason,
        instants=instants,
        imports=_imports(node),
        modules=last.modules if last else None,
        samples=sum(sample.thread == 0 for trace in node.traces for sample in trace.samples),
        probe_cpu=sum(spent) if spent else None,
        gaps=sum(timeline.gaps(trace) for trace in node.traces),
        cache_paths=dict(last.cache_paths) if last else {},
    )


def _imports(node: Node) -> dict[str, float]:
    """Top-level package -> seconds, the longest first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for segment in node.segments:
        if segment.phase == "imports" and not segment.wait:
            seconds[package_of(segment.detail)] += segment.seconds
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _hottest(steps: Sequence[Step]) -> tuple[HotFrame, ...]:
    """Where the path's unattributed time was, the longest first."""
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for step in steps:
        if step.phase == UNATTRIBUTED and step.frame:
            seconds[step.process, step.frame] += step.seconds
    found = sorted(seconds.items(), key=lambda item: -item[1])[:_HOTTEST]
    return tuple(HotFrame(*key, value) for key, value in found if value >= _HOT_SECONDS)
