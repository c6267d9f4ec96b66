"""What a boot does when a GPU is not its own, and what an engine leaves that is killed while it loads.

python3 hygiene.py STORE refuse    a process holds 1 GiB before the session begins: its boot must refuse and name it
python3 hygiene.py STORE between   the same between two boots of a session
python3 hygiene.py STORE kill      SIGKILL for the engine's process with the GPU memory, while it loads 15 GB of weights

Several words run one after the other. Run in the folder of test_hygiene.py; memory.sh does. Exits 1 if anything is not as it must be.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pynvml

from pytest_coldstart.store import boots

MIB = 1 << 20
#: GPU memory of a process that has the model's weights and no KV cache yet, bytes.
LOADING = (2 << 30, 40 << 30)
#: Seconds after the weights' memory was seen until the kill: the load takes some 9 s.
INTO_THE_LOAD = 2.0


def pytest_command(store, *words):
    # By hand, not by memory.sh: a wait of 5 s is enough to see that a holder does not go away.
    return [
        *(sys.executable, "-m", "pytest", "--coldstart", "test_hygiene.py", "--rootdir", str(Path.cwd())),
        *("-p", "no:cacheprovider", "-p", "no:randomly", "--benchmark-disable", "--coldstart-store", store),
        *("--coldstart-gpu-wait", "5s", "--coldstart-require", "vllm", "--coldstart-keep-logs", "all", *words),
    ]


def used():
    """Process id -> bytes over all devices, and bytes in use on each device, by NVML."""
    processes, devices = {}, []
    for number in range(pynvml.nvmlDeviceGetCount()):
        device = pynvml.nvmlDeviceGetHandleByIndex(number)
        devices.append(pynvml.nvmlDeviceGetMemoryInfo(device).used)
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device):
            processes[process.pid] = processes.get(process.pid, 0) + (process.usedGpuMemory or 0)
    return processes, devices


def check(text, good):
    print(f"{'ok' if good else 'WRONG'}: {text}", flush=True)
    return good


def refused(output, pid):
    """Whether pytest's output refuses a boot and names the process and its name on one line."""
    lines = [line.strip() for line in output.splitlines() if re.search(rf"\bpid {pid}\b|\b{pid}\b", line)]
    named = [line for line in lines if re.search(r"gpu-holder|holder\.py|python", line)]
    for line in named[:3]:
        print(f"    {line}")
    return check(f"process {pid} is named, with its name", bool(named))


def refuse(store):
    words = [sys.executable, "holder.py"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        pid = int(holder.stdout.readline())
        begin = time.monotonic()
        done = subprocess.run(pytest_command(store, "-k", "test_before"), capture_output=True, text=True)
        holder.kill()
    print(f"pytest ended with {done.returncode} after {time.monotonic() - begin:.1f} s")
    good = [check("the session fails", done.returncode != 0), refused(done.stdout, pid)]
    return all(good) or print(done.stdout[-6000:])


def between(store):
    done = subprocess.run(pytest_command(store, "-k", "before or while_held"), capture_output=True, text=True)
    found = re.search(r"holder: pid (\d+)", done.stderr + done.stdout)
    counts = re.findall(r"\d+ (?:passed|failed|errors?)", done.stdout)
    print(f"pytest ended with {done.returncode}: {', '.join(counts[-3:])}")
    good = [
        check("the session fails", done.returncode != 0),
        check("the boot before it passes its test", "1 passed" in counts),
        check("the holder was started", bool(found)) and refused(done.stdout, found[1]),
    ]
    return all(good) or print(done.stdout[-6000:])


def kill(store):
    before = used()[1]
    print(f"before: {[size // MIB for size in before]} MiB in use")
    log = Path("killed.txt")
    with log.open("w") as file:
        session = subprocess.Popen(pytest_command(store, "-k", "killed"), stdout=file, stderr=subprocess.STDOUT)
        pid = _loading(session)
        if pid is None:
            session.wait()
            print(log.read_text()[-6000:])
            return check("a process that loads weights was seen", False)
        time.sleep(INTO_THE_LOAD)
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:100]
        print(
            f"SIGKILL for {Path(f'/proc/{pid}/comm').read_text().strip()} (pid {pid}, {used()[0].get(pid, 0) // MIB} MiB): {words}"
        )
        os.kill(pid, signal.SIGKILL)
        session.wait()
    processes, after = used()
    good = [
        check("the test failed", session.returncode != 0),
        check(
            f"after: {[size // MIB for size in after]} MiB in use, as before",
            all(b - a < MIB for a, b in zip(before, after, strict=True)),
        ),
        check(f"no process is on a device: {sorted(processes)}", not processes),
        check(f"no process of the engine is left: {_left()}", not _left()),
        *_record(store),
    ]
    return all(good) or print(log.read_text()[-6000:])


def _loading(session):
    """The process that has weights on the GPU and no KV cache yet; None if the session ends before."""
    while session.poll() is None:
        for pid, size in used()[0].items():
            if LOADING[0] <= size <= LOADING[1]:
                return pid
        time.sleep(0.2)
    return None


def _left():
    """Processes of an engine: each inherits this variable of its cell, which nothing else here has."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"COLDSTART_CHECK=" in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _record(store):
    with duckdb.connect(f"{store}/coldstart.duckdb", read_only=True) as con:
        record = boots.load(con, boots.find(con, "last-failed"))
    named = [phase.name for phase in record.phases if phase.name != "unattributed"]
    leaked = [gpu.leaked_bytes for gpu in record.memory.gpus]
    print(f"    boot {record.boot_id}: {record.failure.kind}: {record.failure.message}")
    print(f"    its last phases: {', '.join(named[-4:])}; swept: {list(record.stop.leaked_processes)}")
    return [
        check("it was loading weights when it ended", "load_weights" in named[-2:]),
        check(
            f"leaked bytes of each device, as stored: {leaked}",
            bool(leaked) and not any(size is None or size for size in leaked),
        ),
    ]


PARTS = {"refuse": refuse, "between": between, "kill": kill}


def main():
    if len(sys.argv) < 3 or not set(sys.argv[2:]) <= PARTS.keys():
        sys.exit(__doc__)
    pynvml.nvmlInit()
    good = []
    for word in sys.argv[2:]:
        print(f"== {word}", flush=True)
        good.append(bool(PARTS[word](sys.argv[1])))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
