"""A stack of frames -> what its thread was doing, by rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from pytest_coldstart.phases.rules import ALL_RULES, PROCESS_RULES
from pytest_coldstart.phases.rules.rule import ProcessRule, Rule
from pytest_coldstart.phases.trace import Frame, Sample

#: Modules of the import system. The frozen ones bear their own names until importlib is imported.
_IMPORT_SYSTEM = frozenset(
    ("importlib._bootstrap", "importlib._bootstrap_external", "_frozen_importlib", "_frozen_importlib_external")
)
#: A wait for another process says more than the wait for a thread or a descriptor that it is made of.
_PRECISION = {"": 0, "idle": 1, "threads": 2, "peers": 3, "children": 4}
_WAITS_FOR = {
    "idle": "waits for something to do",
    "threads": "waits for another thread",
    "peers": "waits for the other ranks",
    "children": "waits for another process",
}
_BYTECODE = " (bytecode)"
#: What follows a detail or a frame whose thread slept.
ASLEEP = ", sleep"


@dataclass(frozen=True)
class Mark:
    """What one stack says.

    ``phase`` is "" where no rule knows. ``wait`` is "" for work; of a wait, ``phase`` and ``detail`` are those of
    what it is part of. ``frame`` names the stack: its innermost frame, or who called a wait.
    """

    phase: str
    detail: str
    wait: str
    frame: str


def package_of(detail: str) -> str:
    """The package that a detail of phase imports speaks of."""
    return detail.removesuffix(ASLEEP).removesuffix(_BYTECODE)


class Classifier:
    """Rules, ready to look up. Of two rules that match one frame the later one wins."""

    def __init__(self, rules: Sequence[Rule], processes: Sequence[ProcessRule] = ()) -> None:
        self._by_root: dict[str, list[Rule]] = {}
        for rule in reversed(rules):
            self._by_root.setdefault(_literal_root(rule.module), []).append(rule)
        self._open = self._by_root.pop("", [])
        self._processes = processes
        self._found: dict[tuple[str, str], tuple[Rule, ...]] = {}
        #: By the stack's address: hashing all frames of each would cost more than to classify them. The stack is kept, so
        #: that its address stays its own.
        self._marks: dict[tuple[int, str], tuple[tuple[Frame, ...], Mark]] = {}

    def process(self, name: str) -> ProcessRule | None:
        """The rule for a process of that name, if there is one."""
        return next((rule for rule in self._processes if fnmatchcase(name, rule.name)), None)

    def mark(self, stack: tuple[Frame, ...], importing: str = "") -> Mark:
        """What a thread with this stack, outermost frame first, was doing."""
        key = (id(stack), importing)
        found = self._marks.get(key)
        if found is None:
            found = self._marks[key] = (stack, self._classified(stack, importing))
        return found[1]

    def rules_of(self, frame: Frame) -> tuple[Rule, ...]:
        """All rules that match the frame, the one that wins first; ``leaf`` is not looked at."""
        key = (frame.module, frame.function)
        found = self._found.get(key)
        if found is None:
            candidates = self._by_root.get(frame.module.partition(".")[0], [])
            found = tuple(rule for rule in (*candidates, *self._open) if _matches(rule, frame))
            self._found[key] = found
        return found

    def _classified(self, stack: tuple[Frame, ...], importing: str) -> Mark:
        wait, waiter = "", None
        for depth in range(len(stack) - 1, -1, -1):
            frame = stack[depth]
            leaf = depth == len(stack) - 1
            rule = next((rule for rule in self.rules_of(frame) if leaf or not rule.leaf), None)
            if rule is None:
                detail = _imported(stack, depth, importing)
                if detail is not None:
                    return Mark("imports", detail, wait, _text(waiter or stack[-1]))
                waiter = waiter or (frame if wait else None)
                continue
            if _PRECISION[rule.wait] > _PRECISION[wait]:
                wait, waiter = rule.wait, None
            if rule.phase:
                return Mark(rule.phase, _filled(rule.detail, frame, importing), wait, _text(waiter or stack[-1]))
        return Mark("", "", wait, _text(waiter or stack[-1]) if stack else "")


def classify_sample(sample: Sample) -> tuple[str, str]:
    """Phase and detail of one sample by the rules of all engines; "" where none knows.

    Of a wait, what it is part of, and if that is not known "" and what it waits for.
    """
    mark = _all_rules().mark(sample.stack, sample.importing)
    return mark.phase, mark.detail if mark.phase or not mark.wait else _WAITS_FOR[mark.wait]


@cache
def _all_rules() -> Classifier:
    return Classifier(ALL_RULES, PROCESS_RULES)


def _literal_root(pattern: str) -> str:
    """The first part of a module pattern, "" if it holds a wildcard."""
    root = pattern.partition(".")[0]
    return "" if any(sign in root for sign in "*?[") else root


def _matches(rule: Rule, frame: Frame) -> bool:
    if not fnmatchcase(frame.module, rule.module):
        return False
    if frame.function == "<module>":
        return rule.function == "<module>"
    last = frame.function.rpartition(".")[2]
    return fnmatchcase(frame.function, rule.function) or fnmatchcase(last, rule.function)


def _imported(stack: tuple[Frame, ...], depth: int, importing: str) -> str | None:
    """The package that is being imported if the frame at *depth* belongs to an import, None if it does not."""
    frame = stack[depth]
    if frame.module in _IMPORT_SYSTEM:
        package = importing.partition(".")[0] or _importer(stack[:depth])
        compiles = False
        for outer in range(depth, -1, -1):
            if stack[outer].module not in _IMPORT_SYSTEM:
                break
            compiles = compiles or stack[outer].function.endswith("source_to_code")
        return package + _BYTECODE if compiles else package
    # Code made at run time has a <module> frame too, in the name of whoever made it.
    made = frame.file.startswith("<") and not frame.file.startswith("<frozen")
    if frame.function == "<module>" and frame.module not in ("", "__main__") and not made:
        return frame.module.partition(".")[0]
    return None


def _importer(stack: Sequence[Frame]) -> str:
    """The package whose module level code asked for the import."""
    modules = (frame.module for frame in reversed(stack) if frame.function == "<module>")
    return next(modules, "").partition(".")[0]


def _filled(detail: str, frame: Frame, importing: str) -> str:
    if "{" not in detail:
        return detail
    values = {
        "package": frame.module.partition(".")[0],
        "module": frame.module,
        "function": frame.function.rpartition(".")[2],
        "importing": importing,
    }
    for name, value in values.items():
        detail = detail.replace("{" + name + "}", value)
    return detail


def _text(frame: Frame) -> str:
    return f"{frame.module or frame.file}:{frame.function}"
