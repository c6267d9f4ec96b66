"""Provoke faults of real engines through pytest and check what a user then sees.

    python benchmarks/engine_faults.py --vllm ENV/bin/python --transformers ENV/bin/python [--only NAME ...]

Each fault has its own small suite. Checked of each: pytest's exit code, the message, the time, that no fault is reported
as a cold start, and that no process, port or shared memory is left. Exit code 1 if one expectation does not hold.
Meant for CPU builds; a fault that boots vLLM takes one to three minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from faults.run import BOOT_TIMEOUT, Outcome, provoke
from faults.table import faults

from pytest_coldstart.engines.interpreter import versions_of

PAGE = """# Faults of real engines

What a user sees when a real engine fails. Made by `benchmarks/engine_faults.py`, {versions}, {cpus} shared CPU cores,
{day}. {summary}

{table}

Seconds: the whole run of pytest, or from the blow on where a process was struck, against the deadline that the script holds it to. The boot
timeout was {timeout} s throughout, and no fault may need it. Left: processes of the run by descent and by tag, its port, its files in `/dev/shm`.
Messages are cut at {most} characters; `SUITE`, `ENV` and `VENV` stand for folders.
"""
_MOST = 640


def row(outcome: Outcome) -> str:
    fault = outcome.fault
    clock = f"{outcome.seconds:.0f}" if outcome.struck is None else f"{outcome.struck:.0f} after the blow"
    message = re.sub(r"\s+", " ", outcome.message)[:_MOST].replace("|", "\\|").replace("`", "'")
    cells = [
        f"{fault.engine}: {fault.what}",
        fault.expected,
        str(outcome.code),
        f"{clock} of {fault.within:g}",
        f"`{message}`",
        ", ".join(outcome.left) or "none",
        "; ".join(outcome.problems) or "yes",
    ]
    return "| " + " | ".join(cells) + " |"


def page(outcomes: Sequence[Outcome], pythons: Mapping[str, str]) -> str:
    head = ["fault", "expected", "exit code", "seconds", "what a user reads", "left", "held"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *map(row, outcomes)]
    held = sum(not outcome.problems for outcome in outcomes)
    return PAGE.format(
        versions=", ".join(f"{engine} {_version(engine, python)}" for engine, python in pythons.items()),
        cpus=os.cpu_count(),
        day=date.today().isoformat(),
        summary=f"{held} of {len(outcomes)} held.",
        table="\n".join(lines),
        timeout=BOOT_TIMEOUT,
        most=_MOST,
    )


def _version(engine: str, python: str) -> str:
    versions = versions_of(python, (engine, "torch")) or {}
    return f"{versions.get(engine, '?')} (torch {versions.get('torch', '?')})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", metavar="PYTHON", help="interpreter of an environment with vLLM's CPU build")
    parser.add_argument(
        "--transformers", metavar="PYTHON", help="interpreter of an environment with transformers serve"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these faults alone")
    parser.add_argument("--output", type=Path, help="write the page here too")
    given = parser.parse_args()
    pythons = {
        engine: str(Path(python).absolute())
        for engine, python in (("vllm", given.vllm), ("transformers", given.transformers))
        if python
    }
    known = faults(pythons)
    if unknown := set(given.only or ()) - {fault.name for fault in known}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; valid: {', '.join(fault.name for fault in known)}")
    outcomes = []
    for fault in known:
        if not given.only or fault.name in given.only:
            outcomes.append(provoke(fault, pythons))
            print(f"{fault.name}: {'; '.join(outcomes[-1].problems) or 'held'}", file=sys.stderr, flush=True)
    text = page(outcomes, pythons)
    print(text)
    if given.output:
        given.output.write_text(text)
    return 1 if not outcomes or any(outcome.problems for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
