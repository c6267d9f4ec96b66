"""Boots of both sides made now, interleaved on this machine: one child pytest is one boot of every undecided cell of a side."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pytest_coldstart import units
from pytest_coldstart.gate.checkout import Checkout, Repository, checkouts, environ
from pytest_coldstart.gate.child import VARIABLE
from pytest_coldstart.gate.children import Children
from pytest_coldstart.gate.comparison import FAIL, WARN, GateReport, Side, SideBoot
from pytest_coldstart.gate.errors import GateError, NothingBooted
from pytest_coldstart.gate.homes import side_homes
from pytest_coldstart.gate.policy import Policies
from pytest_coldstart.gate.schedule import BASE, FIRST, HEAD, blocks
from pytest_coldstart.process import exit_words, read_log_tail
from pytest_coldstart.record import BootRecord
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.runfile import read_run

#: What is undecided: node id and digest of a cell.
Cells = Collection[tuple[str, str]]

#: Told of all boots so far, and whether no more will follow; returns the cells that are undecided.
Look = Callable[[Side, Side, bool], Cells]

#: A pytest that was interrupted or could not collect, failed itself, or was used wrongly.
_UNUSABLE = (2, 3, 4)


@dataclass(frozen=True)
class LiveSide:
    """A side that can be booted now. ``ref``: of a commit; ``python``: an interpreter, of ``engine`` or of every engine."""

    text: str
    ref: str | None = None
    python: str | None = None
    engine: str | None = None


@dataclass(frozen=True)
class Live:
    """What was booted. ``seconds``: from the first thing done to the last boot's end. ``notes``: what a report should say."""

    base: Side
    head: Side
    gate: str
    seed: int
    seconds: float
    notes: tuple[str, ...] = ()


def live_side(text: str, here: Path) -> LiveSide:
    """``git:REF``, ``python:INTERPRETER`` or ``python:ENGINE=INTERPRETER``; paths from *here*.

    :raises GateError: it is no side that can be booted, or the interpreter is missing.
    """
    kind, _, rest = text.partition(":")
    if kind == "git" and rest:
        return LiveSide(text, ref=rest)
    if kind != "python" or not rest:
        raise GateError(
            f"{text!r} cannot be booted; with SUITES a side is git:REF, python:INTERPRETER or python:ENGINE=INTERPRETER"
        )
    engine, equals, path = rest.partition("=")
    if not equals or "/" in engine:
        engine, path = "", rest
    elif engine not in _engines():
        raise GateError(f"{text!r}: unknown engine {engine!r}; valid engines: {', '.join(_engines())}")
    found = shutil.which(path) if "/" not in path else str(here / Path(path).expanduser())
    if found is None or not Path(found).is_file() or not os.access(found, os.X_OK):
        inner = here / path / "bin" / "python"
        hint = f"did you mean {inner}?" if inner.is_file() else "give the interpreter of the engine's environment"
        raise GateError(f"{text!r}: {path!r} is no executable file; {hint}")
    return LiveSide(text, python=str(here / found), engine=engine or None)


def undecided(report: GateReport) -> set[tuple[str, str]]:
    """The cells of *report* for which more boots are worth making: one of the changes that the policy gates most strictly may
    yet be decided. Nothing is booted for a warning beside what fails."""
    found = set()
    for cell in report.cells:
        actions = {change.policy for change in cell.changes if change.kind == "time"}
        strictest = FAIL if FAIL in actions else WARN
        if any(not change.final and change.policy == strictest for change in cell.changes):
            found.add((cell.nodeid, cell.cell_digest))
    return found


def booted_and_compared(
    base: LiveSide,
    head: LiveSide,
    suites: Sequence[str],
    policies: Policies,
    home: Home,
    *,
    allow: Sequence[str] = (),
    seed: int | None = None,
    prepare: str | None = None,
    extra: Sequence[str] = (),
    here: Path,
) -> tuple[GateReport, Live]:
    """Boot both sides until *policies* has what it asks for, as :func:`run_live`, and compare what was booted.

    :raises GateError, StoreError, SystemExit: as :func:`run_live`.
    """
    from pytest_coldstart.gate.judge import compare
    from pytest_coldstart.gate.sides import verdicts_of

    def look(base: Side, head: Side, final: bool) -> set[tuple[str, str]]:
        return undecided(compare(base, head, policies, final=final, history=home, allow=allow))

    budget = policies.default
    made = run_live(
        base,
        head,
        suites,
        look,
        home,
        most_boots=budget.most_boots,
        seconds=budget.seconds,
        seed=seed,
        prepare=prepare,
        extra=extra,
        here=here,
    )
    judged = replace(made.head, verdicts=verdicts_of(home, made.head))
    return compare(made.base, judged, policies, history=home, allow=allow, seconds=made.seconds), made


def run_live(
    base: LiveSide,
    head: LiveSide,
    suites: Sequence[str],
    look: Look,
    home: Home,
    *,
    most_boots: int = 20,
    seconds: float | None = None,
    seed: int | None = None,
    prepare: str | None = None,
    extra: Sequence[str] = (),
    here: Path | None = None,
) -> Live:
    """Boot *suites* on both sides in randomised blocks until *look* has no undecided cell or a budget is used up.

    *look* is called after each whole block, the last time with ``final``. *most_boots*: boots a side at most; *seconds*: no
    block is begun that would not end by then, and a first block that does not is cut. *prepare*: a shell command for each
    checkout. *extra*: more arguments of pytest. Whatever was booted is in *home* afterwards, also when this raises.

    :raises GateError: a ref, a suite or an interpreter is unusable, or a child could not boot any cell.
    :raises StoreError: the store cannot be written.
    :raises SystemExit: SIGINT, SIGTERM or SIGHUP; nothing is left running.
    """
    begin = time.monotonic()
    here = Path.cwd() if here is None else here
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    gate = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    given = {BASE: base, HEAD: head}
    refs = [(name, side.ref) for name, side in given.items() if side.ref is not None]
    with Children() as children, ExitStack() as stack:
        homes, lock = stack.enter_context(side_homes(home, gate, list(given)))
        children.keep = (lock,)
        stack.callback(children.hold)
        trees = stack.enter_context(checkouts(Repository.at(here), refs, gate)) if refs else {}
        stack.callback(children.hold)
        runners = {
            name: _Runner(name, side, gate, homes[name], here, suites, extra, children, trees.get(name))
            for name, side in given.items()
        }
        print(f"coldstart: gate {gate}, seed {seed}", file=sys.stderr, flush=True)
        for runner in runners.values():
            runner.prepare(prepare)
        _boot(runners, look, most_boots, seed, None if seconds is None else begin + seconds)
        return Live(
            runners[BASE].side(), runners[HEAD].side(), gate, seed, time.monotonic() - begin, tuple(_notes(runners))
        )


def _boot(runners: dict[str, _Runner], look: Look, most_boots: int, seed: int, deadline: float | None) -> None:
    """Blocks until nothing is undecided or the budget is used up."""
    first = max(1, min(FIRST, most_boots))
    only: set[str] | None = None
    made, longest, final = 0, 0.0, False
    for number, order in enumerate(blocks(seed, first)):
        begin = time.monotonic()
        if number and deadline is not None and begin + longest > deadline:
            break
        for position, name in enumerate(order):
            if not number and deadline is not None and time.monotonic() > deadline:
                break
            runners[name].boot(number, position, only)
        else:
            made += len(order) // 2
            longest = max(longest, (time.monotonic() - begin) * 2 / len(order))
            final = made >= most_boots
            cells = look(runners[BASE].side(), runners[HEAD].side(), final)
            only = {nodeid for nodeid, _ in cells} & runners[BASE].nodeids & runners[HEAD].nodeids
            if final or not only:
                return
            continue
        for runner in runners.values():
            runner.cut()
        break
    if not all(runner.boots for runner in runners.values()):
        raise GateError("the time was used up before both sides had booted once; give more of it")
    look(runners[BASE].side(), runners[HEAD].side(), True)


@dataclass
class _Runner:
    """One side: its child pytests, and the boots that they made."""

    name: str
    live: LiveSide
    gate: str
    home: Home
    here: Path
    suites: Sequence[str]
    extra: Sequence[str]
    children: Children
    checkout: Checkout | None
    boots: list[SideBoot] = field(default_factory=list)
    pythons: list[str] = field(default_factory=list)
    _read: set[Path] = field(default_factory=set)

    @property
    def nodeids(self) -> set[str]:
        return {boot.record.nodeid for boot in self.boots}

    def side(self) -> Side:
        return Side(self.name, self.live.text, tuple(self.boots))

    def cut(self) -> None:
        """The first block was not made whole: its order says nothing, its boots are boots all the same."""
        self.boots = [replace(boot, block=None, position=None) for boot in self.boots]

    def prepare(self, command: str | None) -> None:
        """Make the home and look for what must be there before the first boot.

        :raises NothingBooted: the command failed.
        :raises GateError: a suite or the user's folder does not exist at that commit.
        """
        self.home.root.mkdir(exist_ok=True)
        python = self.live.python
        if self.checkout is None:
            self._suites(None)
        else:
            with self.checkout.in_place() as folder:
                self._suites(self.checkout)
                if command:
                    self._run_prepare(command, folder)
                python = self.checkout.interpreter()
        engines = [self.live.engine] if self.live.engine else _engines()
        self.pythons = [f"--coldstart-python={engine}={python}" for engine in engines] if python else []

    def _suites(self, checkout: Checkout | None) -> list[str]:
        if checkout is None:
            for word in self.suites:
                if not (self.here / word.partition("::")[0]).exists():
                    raise GateError(f"{word}: no such file or folder")
            return list(self.suites)
        if not checkout.here.is_dir():
            raise GateError(
                f"the folder {checkout.repository.prefix} does not exist at {checkout.ref} ({checkout.commit[:12]}); "
                "start the gate in a folder that both sides have, such as the top of the repository"
            )
        return checkout.suites(self.suites, self.here)

    def _run_prepare(self, command: str, folder: Path) -> None:
        print(f"coldstart: {self.name}: {command}", file=sys.stderr, flush=True)
        code = self.children.run(["sh", "-c", command], folder, environ(), sys.stderr.fileno())
        if code:
            raise NothingBooted(
                self.name, f"--prepare ended with {exit_words(code)} in the checkout of {self.live.text}: {command}"
            )

    def boot(self, block: int, position: int, only: set[str] | None) -> None:
        """One child: one boot of each cell, or of those in *only*.

        :raises GateError: it booted none.
        """
        output = self.home.root / "output.txt"
        with self.checkout.in_place() if self.checkout else nullcontext(self.here) as folder:
            command = self._command(self._suites(self.checkout))
            told = _Told(output, f"block {block}, {self.name}")
            with output.open("wb") as file:
                code = self.children.run(command, folder, self._environ(block, position, only), file, told.look)
        found = self._new(block, position)
        if code in _UNUSABLE or code < 0 or not found:
            tail = read_log_tail(output, 15, 300)
            raise NothingBooted(
                self.name,
                f"{self.name} ({self.live.text}): its pytest booted no cell ({exit_words(code)}); the end of what it said:\n{tail}",
            )
        self.boots += found
        cells = ", ".join(_words(boot.record) for boot in found if boot.record.role == "measured")
        print(f"coldstart: block {block}, {self.name}: {cells}", file=sys.stderr, flush=True)

    def _command(self, suites: Sequence[str]) -> list[str]:
        own = ["-q", "-rfEs", "-p", "no:cacheprovider", "--maxfail=0", "--coldstart", "--coldstart-rounds=1"]
        store = f"--coldstart-store={self.home.root}"
        return [
            sys.executable,
            "-P",
            "-m",
            "pytest_coldstart.gate.child",
            *own,
            store,
            *self.pythons,
            *self.extra,
            *suites,
        ]

    def _environ(self, block: int, position: int, only: set[str] | None) -> dict[str, str]:
        place = {"gate": self.gate, "side": self.name, "block": block, "position": position, "pid": os.getpid()}
        if only is not None:
            file = self.home.root / "undecided.json"
            file.write_text(json.dumps(sorted(only)), encoding="utf-8")
            place["only"] = str(file)
        return {**environ(), VARIABLE: json.dumps(place)}

    def _new(self, block: int, position: int) -> list[SideBoot]:
        """The boots in the run files that are new; a child writes one, with xdist several."""
        found = []
        for file in sorted(set(self.home.runs.glob("*.jsonl")) - self._read):
            self._read.add(file)
            data = read_run(file)
            found += [SideBoot(_counting(record), data.header, self.gate, block, position) for record in data.boots]
        return found


@dataclass
class _Told:
    """Passes on what a child says of a boot that takes long, or waits for another one: its newest line, once."""

    output: Path
    place: str
    last: str = ""

    def look(self) -> None:
        lines = [
            line
            for line in read_log_tail(self.output, 5, 200).splitlines()
            if line.startswith("coldstart: ") and "waiting" in line
        ]
        if lines and lines[-1] != self.last:
            self.last = lines[-1]
            print(f"coldstart: {self.place}: {self.last.removeprefix('coldstart: ')}", file=sys.stderr, flush=True)


def _engines() -> list[str]:
    from pytest_coldstart.engines import EngineRegistry

    return EngineRegistry().names()


def _counting(record: BootRecord) -> BootRecord:
    """A priming boot that failed stands for the round that was never made, since its cell has failed."""
    return replace(record, role="measured") if record.role == "prime" and record.failed else record


def _words(record: BootRecord) -> str:
    value = record.metrics.get("cold_start")
    if record.outcome == "ok" and value is not None and value.value is not None:
        return f"{record.cell_id} {units.show(value.value, 's')}"
    return f"{record.cell_id} {record.outcome}"


def _notes(runners: dict[str, _Runner]) -> list[str]:
    """An interpreter that no boot used would compare a side with itself; so would changes that are not committed."""
    notes = []
    for runner in runners.values():
        if runner.checkout and runner.checkout.ref in ("HEAD", "@") and runner.checkout.repository.dirty():
            notes.append(
                f"{runner.name} is the commit {runner.checkout.commit[:12]}: changes that are not committed are not in it"
            )
        python = runner.live.python
        if python and not any(_uses(boot.record.command, python) for boot in runner.boots):
            notes.append(
                f"no boot of {runner.name} used {python}: cells that name a command or an interpreter of their own do not"
            )
    return notes


def _uses(command: Sequence[str], python: str) -> bool:
    """Whether a command runs *python*, or a script that lies beside it, as in every virtual environment."""
    return python in command or (bool(command) and Path(command[0]).parent == Path(python).parent)
