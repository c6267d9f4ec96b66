"""What the probe costs a process: CPU of its sampler, and how much it slows a program down.

The sampler's share is its CPU time over the process's wall time within one run, for programs that are dear to sample.
The slowdown is the ratio of the CPU-bound work's wall time with the probe to that without it, in pairs in random order;
the start is timed from outside, as a whole process. Goal: at most 1 % of a core for each process.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import median_interval, table

from pytest_coldstart import probe
from pytest_coldstart.probe.read import read_folder

GOAL = 0.01

LOOP = """
import time
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    pass
"""
PROGRAMS = {
    "tight loop": LOOP,
    "recursion, 300 frames": """
import sys, time
sys.setrecursionlimit(5000)
end = time.monotonic() + {seconds}
def deep(n):
    if n: return deep(n - 1)
    while time.monotonic() < end: pass
def swing(n):
    if n: return swing(n - 1)
    while time.monotonic() < end: deep(20)
deep(300)
""",
    "100 idle threads": """
import threading
stop = threading.Event()
threads = [threading.Thread(target=stop.wait) for _ in range(100)]
for thread in threads: thread.start()
"""
    + LOOP
    + "\nstop.set()\n",
    "100 threads that move": """
import threading, time
end = time.monotonic() + {seconds}
def one(): time.sleep(0.03)
def other(): time.sleep(0.02)
def moves():
    while time.monotonic() < end: one(); other()
threads = [threading.Thread(target=moves) for _ in range(100)]
for thread in threads: thread.start()
""",
    "imports of the standard library": """
import os, pkgutil, sys, time, warnings
warnings.simplefilter("ignore")
end = time.monotonic() + {seconds}
names = sorted(sys.stdlib_module_names - set(("antigravity", "this", "idlelib", "turtle", "turtledemo", "tkinter")))
while time.monotonic() < end:
    before = set(sys.modules)
    for name in names:
        if name[0] != "_" and time.monotonic() < end:
            try: __import__(name)
            except ImportError: pass
    for name in set(sys.modules) - before: del sys.modules[name]
""",
    "asleep": "import time; time.sleep({seconds})",
}
#: Work of a fixed size, timed by itself.
WORK = """
import time
def work(n):
    total = 0
    for i in range(n): total += i * i % 7
    return total
begin = time.perf_counter()
for _ in range(120): work(200_000)
print(time.perf_counter() - begin)
"""
START = "import asyncio, concurrent.futures, email.mime.text, http.server, json, logging.config, sqlite3, unittest.mock, xml.dom.minidom"


def run(text: str, mode: str) -> tuple[float, str, float, int]:
    """Wall seconds, output, CPU seconds of the sampler, samples of the main thread."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"PATH": os.environ["PATH"]}
        if mode != "off":
            env.update(probe.environment(Path(folder), mode, env))
        begin = time.monotonic()
        done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True)
        wall = time.monotonic() - begin
        traces = read_folder(Path(folder))
        cpu = sum(trace.probe_cpu or 0.0 for trace in traces)
        samples = sum(sample.thread == 0 for trace in traces for sample in trace.samples)
        return wall, done.stdout, cpu, samples


def pairs(text: str, n: int, inside: bool, mode: str, order: random.Random) -> list[float]:
    """Ratios of the times with the probe to those without it."""
    ratios = []
    for _ in range(n):
        seconds = {}
        for which in order.sample([mode, "off"], 2):
            wall, out, _, _ = run(text, which)
            seconds[which] = float(out) if inside else wall
        ratios.append(seconds[mode] / seconds["off"])
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=12, help="pairs (default: 12)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each sampled program runs (default: 5)")
    parser.add_argument("--seed", type=int, default=4)
    options = parser.parse_args()
    order = random.Random(options.seed)
    rows = [("program", "wall, s", "samples", "sampler's share of a core")]
    worst = 0.0
    for name, text in PROGRAMS.items():
        wall, _, cpu, samples = run(text.replace("{seconds}", str(options.seconds)), "full")
        share = cpu / wall
        worst = max(worst, share)
        rows.append((name, f"{wall:.1f}", str(samples), f"{share:.2%}"))
    table(rows)
    rows = [("program", "mode", "median ratio to off", "interval of the median")]
    for mode in ("full", "marks"):
        for name, text, inside in (("a loop of some 2 s", WORK, True), ("a start with imports", START, False)):
            ratios = pairs(text, options.n, inside, mode, order)
            low, high = median_interval(ratios)
            rows.append((name, mode, f"{statistics.median(ratios):.3f}", f"{low:.3f} to {high:.3f}"))
    table(rows)
    print(f"goal: at most {GOAL:.0%} of a core; the dearest takes {worst:.2%}")
    sys.exit(worst > GOAL)


if __name__ == "__main__":
    main()
