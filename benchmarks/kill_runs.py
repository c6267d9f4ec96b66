"""Kill pytest at random instants of real llama.cpp boots and look for what is left.

    python benchmarks/kill_runs.py --each 20

Goal: after SIGINT, SIGTERM and SIGKILL (``--each`` times each) no process, no port and no shared
memory of any boot is left, and every boot that a hook saw completed is in the store after the
next ingest. What completed is witnessed by a conftest.py that writes each boot's id to a file.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SUITE = """
import pytest

@pytest.mark.coldstart(engine="llamacpp", tier=["pristine", "restart"], rounds=2, requests=2, prompt_words=[8],
                       options={"n_ctx": 256, "n_parallel": 1, "n_threads": 1, "fit": False})
@pytest.mark.slo("cold_start<=60s", "warm_first_token<=60s")
def test_boot(cold_boot):
    cold_boot.client.complete("Name a colour.", max_tokens=4)
"""

WITNESS = """
import os
from pathlib import Path

def pytest_coldstart_boot_finished(record):
    with open(Path(__file__).with_name("completed.txt"), "a") as file:
        file.write(record.boot_id + "\\n")
        file.flush()
        os.fsync(file.fileno())
"""


#: In the environment of every process of these runs: pytest, supervisors, engines.
OURS = f"KILL_RUNS={os.getpid()}"


def left_over() -> list[str]:
    """Living processes of these runs, and no others of the host."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if OURS.encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(f"{entry} {Path(f'/proc/{entry}/cmdline').read_bytes()[:200]!r}")
            except OSError:
                continue
    return found


def listening() -> set[str]:
    """Ports in the range that boots take theirs from and that somebody listens on."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        port = int(fields[1].rpartition(":")[2], 16)
        if fields[3] == "0A" and 20000 <= port < 32768:
            found.add(f"{fields[1]}")
    return found


def one(folder: Path, number: signal.Signals, delay: float) -> tuple[int, bool]:
    """One run that gets *number* after *delay* seconds; (pytest's exit code, whether it was still running)."""
    command = [sys.executable, "-m", "pytest", "--coldstart", "-q", "-p", "no:cacheprovider", str(folder)]
    name, _, value = OURS.partition("=")
    environment = {**os.environ, name: value}
    with (folder / "output.txt").open("ab") as output:
        run = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=environment)
        try:
            code = run.wait(delay)
            return code, False
        except subprocess.TimeoutExpired:
            run.send_signal(number)
        return run.wait(120), True


def settled(seconds: float = 20.0) -> list[str]:
    """What is still there after at most *seconds*."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and left_over():
        time.sleep(0.1)
    return left_over()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=14.0, help="seconds until the signal, at most")
    parser.add_argument("--signals", nargs="*", default=["SIGINT", "SIGTERM", "SIGKILL"])
    arguments = parser.parse_args()
    # A shell starts background jobs with SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance = random.Random(arguments.seed)
    folder = Path(tempfile.mkdtemp(prefix="kill-runs-"))
    (folder / "test_kill.py").write_text(SUITE)
    (folder / "conftest.py").write_text(WITNESS)
    shm_before, ports_before = set(os.listdir("/dev/shm")), listening()
    left = 0
    for number in (signal.Signals[name] for name in arguments.signals):
        codes: dict[int, int] = {}
        caught = 0
        for _ in range(arguments.each):
            code, running = one(folder, number, chance.uniform(0.3, arguments.longest))
            codes[code] = codes.get(code, 0) + 1
            caught += running
            found = settled()
            left += len(found)
            for line in found:
                print(f"  left: {line}", flush=True)
        print(f"{number.name}: {arguments.each} runs, {caught} hit while running, exit codes {codes}", flush=True)
    ports, shm = listening() - ports_before, set(os.listdir("/dev/shm")) - shm_before
    subprocess.run([sys.executable, "-m", "pytest_coldstart.cli", "ingest"], cwd=folder, check=True)
    export = [sys.executable, "-m", "pytest_coldstart.cli", "export", "--format", "csv", "--table", "boot"]
    stored = subprocess.run(export, cwd=folder, check=True, capture_output=True, text=True).stdout
    completed = (folder / "completed.txt").read_text().split()
    missing = [boot for boot in completed if boot not in stored]
    print(f"left: {left} processes, {len(ports)} ports {sorted(ports)}, {len(shm)} shm files {sorted(shm)}")
    print(f"completed boots: {len(completed)}, missing in the store: {len(missing)}")
    return 1 if left or ports or shm or missing else 0


if __name__ == "__main__":
    sys.exit(main())
