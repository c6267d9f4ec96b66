"""Delays put into real engines at known places: does the critical path have each in the right phase and process?

    python benchmarks/phase_truth.py --vllm ENV/bin/python --transformers ENV/bin/python [--only CASE ...] [--home FOLDER]

Boots vLLM (a CPU build) and transformers serve with delays of 3 s: in a module that is being imported, with and without the
interpreter's lock, in a loader of weights, in a compiler, in one rank of two, in code that no rule knows, at the end of a
child. Each delay writes down itself when and in which process it was. Of each delay at most 0.3 s may be missing on
the path or be somewhere else. Each kind of boot is made without delays too. Exit code 1 if something does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from truth.imports import agrees, alone, by_process, caches, entry, median
from truth.table import CASES, LIBRARY, Case, Injection
from truth.verdict import Truth, Verdict, attributed, compared, explained, judge, whole

from pytest_coldstart.boot import Boot
from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import EngineRegistry
from pytest_coldstart.locks import HostLock
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord
from pytest_coldstart.warmup import create

HERE = Path(__file__).with_name("truth")


@dataclass(frozen=True)
class Result:
    case: Case
    record: BootRecord
    verdicts: tuple[Verdict, ...]
    problems: tuple[str, ...]
    out: Path


def built(home: Path) -> dict[str, str]:
    """The delays that are not Python: name -> path. A folder of its own holds the compiler under its usual name."""
    real = shutil.which("g++")
    if real is None:
        sys.exit("g++ is not on PATH: vLLM on a CPU needs it to compile, and so does this")
    (home / "bin").mkdir(parents=True, exist_ok=True)
    compiler, library = home / "bin" / "g++", home / LIBRARY
    source = str(HERE / "late.c")
    subprocess.run(["gcc", source, "-o", str(compiler), f'-DREAL="{real}"'], check=True)
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", str(library)], check=True)
    return {"compiler": str(compiler), LIBRARY: str(library)}


def environment(case: Case, out: Path, native: Mapping[str, str]) -> dict[str, str]:
    """What puts the delays into an engine."""
    if case.control:
        return dict(os.environ)
    injections = case.injections
    told = [{**item.inside, "how": native.get(item.how, item.how)} for item in injections if item.how != "compiler"]
    env = {**os.environ, "COLDSTART_TRUTH": json.dumps(told), "COLDSTART_TRUTH_OUT": str(out)}
    path = [str(HERE / "injected"), *([env["PYTHONPATH"]] if env.get("PYTHONPATH") else [])]
    env["PYTHONPATH"] = os.pathsep.join(path)
    if case.importtime:
        env["PYTHONPROFILEIMPORTTIME"] = "1"
    for item in injections:
        if item.how == "compiler":
            env["COLDSTART_TRUTH_COMPILER"] = str(int(item.seconds * 1e6))
            env["CXX"] = native["compiler"]
            env["PATH"] = os.pathsep.join([str(Path(native["compiler"]).parent), env["PATH"]])
    return env


def boot(case: Case, python: str, home: Path, native: Mapping[str, str]) -> Result:
    """One whole boot and what its path says of its delays."""
    engine = EngineRegistry().get(case.engine)
    cell = Cell(case.engine, case.model, case.tier, options=case.options, env=case.env, python=python)
    engine.check(cell)
    out = Path(tempfile.mkdtemp(prefix=f"{case.name}-", dir=home))
    plan = Plan(
        cell, case.name, "benchmark", engine, engine.model(cell).made(), create("none"), requests=1, probe="full",
        caches=home / "caches", logs=home / "logs", keep_logs="all",
        environ=environment(case, out, native),
    )  # fmt: skip
    made = Boot(plan)
    made.run()
    record = made.stop()
    truths = {item.name: read_truth(out, item, made.origin) for item in case.injections}
    saved = {"record": record.to_dict(), "truths": {name: vars(truth) for name, truth in truths.items() if truth}}
    (home / "boots" / f"{case.name}.json").write_text(json.dumps({**saved, "out": str(out)}))
    return judged(case, record, truths, out)


def judged(case: Case, record: BootRecord, truths: Mapping[str, Truth | None], out: Path) -> Result:
    if record.outcome != "ok":
        return Result(case, record, (), (f"the boot failed: {record.failure}",), out)
    verdicts = tuple(judge(item, truths.get(item.name), record) for item in case.injections)
    plain = explained(record) if case.control else []
    return Result(case, record, verdicts, (*whole(record), *plain), out)


def again(case: Case, home: Path) -> Result:
    """What an earlier run has left of a boot, judged again."""
    saved = json.loads((home / "boots" / f"{case.name}.json").read_text())
    truths = {name: Truth(**truth) for name, truth in saved["truths"].items()}
    return judged(case, BootRecord.from_dict(saved["record"]), truths, Path(saved["out"]))


def read_truth(out: Path, injection: Injection, origin: float) -> Truth | None:
    try:
        data = json.loads((out / f"{injection.name}.truth").read_text())
    except (OSError, ValueError):
        return None
    return Truth(data["begin"] - origin, data["end"] - origin, data["pid"])


def lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def delays(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        for verdict in result.verdicts:
            item = verdict.injection
            rows.append(
                [
                    f"{result.case.engine}: {item.name}",
                    _place(item),
                    verdict.process,
                    f"{verdict.truth.seconds:.2f}" if verdict.truth else "none",
                    item.phase,
                    f"{verdict.found:.2f}",
                    ", ".join(f"{seconds:.2f} {name}" for name, seconds in verdict.elsewhere) or "none",
                    "; ".join(verdict.problems) or "holds",
                ]
            )
    return lines(
        ["delay", "where, how", "process", "true s", "phase", "found s", "elsewhere s", "verdict"],
        rows,
    )


def controls(results: Sequence[Result]) -> str:
    """Each delayed boot beside the plain ones of its kind and tier."""
    rows = []
    for result in results:
        plain = [other.record for other in results if _plain(other, result)]
        if result.verdicts and plain:
            for item in compared(result.verdicts, result.record, plain):
                known = ", ".join(f"{seconds:.2f}" for seconds in item.controls)
                numbers = (f"{number:.2f}" for number in (item.injected, item.delays, item.injected - item.delays))
                rows.append([result.case.name, item.phase, *numbers, known, "differs" if item.differs else "same"])
    return lines(["boot", "phase", "s", "of it delays", "rest", "without delays, s", "within 0.3 s + 15 %"], rows)


def _plain(other: Result, result: Result) -> bool:
    same = (other.case.kind, other.case.tier) == (result.case.kind, result.case.tier)
    return same and not other.case.injections and other.record.outcome == "ok"


def _place(item: Injection) -> str:
    """Where a delay is and what it is, for a table."""
    if item.how == LIBRARY:
        return "end of the process, after Python's own: sleep"
    if item.how == "compiler":
        return "`g++`, its first compilation: sleep"
    what = {"hold": "C call that holds the GIL"}.get(item.how, item.how)
    return f"`{item.module}`, {f'`{item.function}`' if item.function else 'module level'}: {what}"


def spreads(results: Sequence[Result]) -> str:
    """Boots of several ranks: when each was done with what all were waited for."""
    rows = []
    for result in results:
        for spread in result.record.attribution.spreads if "parallel" in result.case.kind else ():
            done = sorted(spread.done.items(), key=lambda item: item[1])
            names = ", ".join(f"{name} {when:.2f}" for name, when in done)
            wait = f"{spread.begin:.2f} to {spread.end:.2f}"
            rows.append([result.case.name, wait, names, f"{done[-1][1] - done[0][1]:.2f}"])
    return lines(["boot", "wait, s", "done, s", "distance, s"], rows)


def sums(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        if result.record.outcome == "ok":
            total = result.record.instants["first_done"]
            summed = sum(phase.end - phase.begin for phase in result.record.phases)
            share = f"{attributed(result.record):.1%}"
            rows.append(
                [result.case.name, f"{total:.2f}", f"{summed:.2f}", share, "; ".join(result.problems) or "holds"]
            )
    return lines(["boot", "start to first_done, s", "sum of the path, s", "attributed", "partition"], rows)


def imports(results: Sequence[Result], python: Mapping[str, str], repeat: int) -> tuple[str, bool]:
    """What samples say of imports beside what CPython's own clock says, and whether they agree."""
    found: list[tuple[str, float, float, str]] = []
    for result in results:
        case, record = result.case, result.record
        plain = record.outcome == "ok" and case.control and (case.tier, case.kind) == ("restart", case.engine)
        if plain and python[case.engine]:
            runs = alone(python[case.engine], case.engine, {**case.env, **caches(record)}, repeat)
            name = f"{case.engine}: the entry module alone"
            found.append((name, entry(record), statistics.median(runs), median(runs)))
        for name, sampled, clocked in by_process(record, result.out) if case.importtime else ():
            if clocked >= 1:
                found.append((f"{case.name}: {name}", sampled, clocked, f"{clocked:.2f}"))
    rows = [[name, f"{sampled:.2f}", text, f"{sampled / clocked:.3f}"] for name, sampled, clocked, text in found]
    agree = all(agrees(sampled, clocked) for _, sampled, clocked, _ in found)
    return lines(["imports", "by samples, s", "by importtime, s", "ratio"], rows), agree


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", metavar="PYTHON", help="interpreter of an environment with vLLM's CPU build")
    parser.add_argument("--transformers", metavar="PYTHON", help="interpreter of one with transformers serve")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="these boots alone", choices=[c.name for c in CASES])
    parser.add_argument(
        "--home", type=Path, help="keep caches, logs and records here, so that a later run needs no filling"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of importtime of an entry module (default: 3)")
    parser.add_argument(
        "--saved", action="store_true", help="boots that are not made now are taken from an earlier run"
    )
    given = parser.parse_args()
    pythons = {"vllm": given.vllm, "transformers": given.transformers}
    chosen = [case for case in CASES if pythons[case.engine] and (not given.only or case.name in given.only)]
    if not chosen and not given.saved:
        parser.error("no boot to make: give --vllm or --transformers")
    with tempfile.TemporaryDirectory(prefix="coldstart-truth-") as folder, HostLock("measured-boot"):
        home = (given.home or Path(folder)).absolute()
        for name in ("logs", "boots"):
            (home / name).mkdir(parents=True, exist_ok=True)
        native = built(home)
        results = []
        for case in CASES:
            if case in chosen:
                result = boot(case, str(Path(pythons[case.engine]).absolute()), home, native)
            elif given.saved and (home / "boots" / f"{case.name}.json").exists():
                result = again(case, home)
            else:
                continue
            problems = [*result.problems, *(text for verdict in result.verdicts for text in verdict.problems)]
            print(f"{case.name}: {'; '.join(problems) or 'holds'}", file=sys.stderr, flush=True)
            results.append(result)
        clocked, agree = imports(results, pythons, given.repeat)
    tables = (delays(results), spreads(results), sums(results), controls(results), clocked)
    print("\n\n".join(tables))
    print(f"\nload average at the end {os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs")
    held = all(not result.problems and not any(v.problems for v in result.verdicts) for result in results)
    return 0 if results and held and agree else 1


if __name__ == "__main__":
    sys.exit(main())
