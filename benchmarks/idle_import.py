"""What an installed but unused plugin costs a plain pytest run, beside pytest-benchmark.

1. ``import pytest_coldstart.plugin`` against ``import pytest_benchmark.plugin``, each in a fresh
   interpreter that has imported pytest already, interleaved in random order.
2. Whole ``pytest --collect-only`` runs on one empty test with ``-p coldstart``, ``-p benchmark`` and
   ``-p`` an empty module: paired differences to the last within one round, wall and CPU. Other
   plugins stay out, since a dozen of them take a second and drown a millisecond; the empty module is
   there since any ``-p`` makes pytest scan the entry points of everything installed (tens of ms).
3. Function calls of such a run, counted by cProfile: they hardly move with the load of the host, so
   they tell what (2) cannot on a noisy one.

Bytecode is compiled before anything is timed, into a folder of its own (PYTHONPYCACHEPREFIX), and
PYTHONDONTWRITEBYTECODE is unset. Goal: the import costs at most 5 ms (median).
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import Summary, arguments, finish, table

GOAL = 0.005
MODULES = {"coldstart": "pytest_coldstart.plugin", "benchmark": "pytest_benchmark.plugin"}
IMPORT = """
import sys, pytest, time
begin = time.perf_counter()
__import__(sys.argv[1])
print(time.perf_counter() - begin)
"""
COUNT = """
import cProfile, pstats, sys, pytest
profile = cProfile.Profile()
profile.enable()
code = pytest.main(["--collect-only", "-q", "-p", sys.argv[1], "test_empty.py"])
profile.disable()
print(pstats.Stats(profile).total_calls)
sys.exit(code)
"""
RUNS = {"empty": ("-p", "empty_plugin"), "coldstart": ("-p", "coldstart"), "benchmark": ("-p", "benchmark")}


def import_time(module: str, env: dict[str, str], cwd: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, module], env=env, cwd=cwd, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def calls(name: str, env: dict[str, str], cwd: str) -> int:
    """Function calls of one run in process."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT, RUNS[name][1]], env=env, cwd=cwd, capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1])


def collect(extra: tuple[str, ...], env: dict[str, str], cwd: str) -> tuple[float, float]:
    """Wall and CPU seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *extra, "test_empty.py"],
        env=env,
        cwd=cwd,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("-n", type=int, default=25, help="interpreters of each kind (default: 25)")
    parser.add_argument("--runs", type=int, default=40, help="rounds of whole runs (default: 40)")
    options = parser.parse_args()
    order = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="coldstart-bench-") as folder:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        env.pop("PYTEST_ADDOPTS", None)
        (Path(folder) / "test_empty.py").write_text("def test_empty():\n    pass\n")
        (Path(folder) / "empty_plugin.py").write_text("")
        for module in MODULES.values():
            import_time(module, env, folder)
        for extra in RUNS.values():
            collect(extra, env, folder)

        imports: dict[str, list[float]] = {name: [] for name in MODULES}
        for _ in range(options.n):
            for name in order.sample(sorted(MODULES), len(MODULES)):
                imports[name].append(import_time(MODULES[name], env, folder))
        wall: dict[str, list[float]] = {name: [] for name in RUNS}
        cpu: dict[str, list[float]] = {name: [] for name in RUNS}
        for _ in range(options.runs):
            for name in order.sample(sorted(RUNS), len(RUNS)):
                seconds, used = collect(RUNS[name], env, folder)
                wall[name].append(seconds)
                cpu[name].append(used)
        for name in RUNS:
            calls(name, env, folder)
        counts = {name: statistics.median(calls(name, env, folder) for _ in range(5)) for name in RUNS}

    own, other = Summary.of(imports["coldstart"]), Summary.of(imports["benchmark"])
    ratio = Summary.of([a / b for a, b in zip(imports["coldstart"], imports["benchmark"], strict=True)])
    result: dict[str, object] = {"goal_s": GOAL, "coldstart_s": own, "benchmark_s": other, "ratio": ratio}
    rows = [
        ("what", "median [quartiles], least..most"),
        ("import pytest_coldstart.plugin", own.show(1e3, 2, " ms")),
        ("import pytest_benchmark.plugin", other.show(1e3, 2, " ms")),
        ("ratio of the two, paired", ratio.show()),
        ("whole --collect-only run, empty plugin, wall", Summary.of(wall["empty"]).show(1e3, 0, " ms")),
    ]
    for name in ("coldstart", "benchmark"):
        for kind, values in (("wall", wall), ("CPU", cpu)):
            added = Summary.of([a - b for a, b in zip(values[name], values["empty"], strict=True)])
            rows.append((f"the {name} plugin adds to it, {kind}, paired", added.show(1e3, 1, " ms")))
            result[f"collect_only_{name}_{kind.lower()}_s"] = added
        more = counts[name] - counts["empty"]
        rows.append((f"the {name} plugin adds, function calls", f"{more:.0f} ({more / counts['empty']:.1%}), n=5"))
        result[f"collect_only_{name}_calls"] = more
    table(rows)
    print(f"goal {GOAL * 1e3:g} ms for the import: {'met' if own.median <= GOAL else 'MISSED'}")
    finish(options, result)


if __name__ == "__main__":
    main()
