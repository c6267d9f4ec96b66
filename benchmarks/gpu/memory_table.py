"""Tables of the memory of stored boots, each value beside an independent reading of it.

    python3 memory_table.py STORE READINGS

STORE is the folder of coldstart.duckdb. READINGS holds what check/coldstart_check.py wrote (check-PID-*.jsonl: one line a
device, twice a second) and what nvidia-smi said (smi-gpus.csv: time, uuid, MiB; smi-processes.csv: time, uuid, pid, MiB).
"""

import csv
import json
import re
import sys
from collections import namedtuple
from datetime import datetime
from pathlib import Path

import duckdb

from pytest_coldstart.load import sentence
from pytest_coldstart.memory import POINTS
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.store import boots
from pytest_coldstart.units import show

MIB = 1 << 20
SLOS = ("cold_start", "warm_first_token", "fragmentation")
#: Metrics of memory, whatever their names turn out to be.
MEMORY = re.compile(r"fragmentation|inactive|strand|leaked|kv_|gpu|prefix|idle|graph")
#: What of an allocator both readers have at the same instant, and what only grows from ready on.
CURRENT, PEAKS = ("allocated", "reserved", "active", "inactive_split"), ("active_peak", "reserved_peak")

Check = namedtuple("Check", "time pid device values")
SMI = namedtuple("SMI", "time uuid pid bytes")


def checks(folder):
    found = []
    for path in sorted(folder.glob("check-*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                item = json.loads(line)
            except ValueError:
                continue  # the last line of a process that was killed
            found.append(Check(item.pop("time"), item.pop("pid"), item.pop("device"), item))
    return found


def smi(path):
    """Rows of time, uuid, [pid,] MiB; what nvidia-smi could not tell is left out."""
    found = []
    for row in csv.reader(path.open()) if path.exists() else ():
        words = [word.strip() for word in row]
        if len(words) in (3, 4) and words[-1].isdigit():
            pid = int(words[2]) if len(words) == 4 else None
            found.append(SMI(float(words[0]), words[1], pid, int(words[-1]) * MIB))
    return found


def began(record):
    return datetime.fromisoformat(record.started_at).timestamp()


def window(record):
    """Seconds of the epoch from the start to the end of the boot."""
    begin = began(record)
    return begin, begin + record.instants.get("stopped", max(record.instants.values(), default=0.0))


def when(record, point):
    """Seconds from the start at which memory was read at *point*, or None."""
    burst, kv = record.memory.burst, record.memory.kv_at(point)
    if kv is not None and kv.at is not None:
        return kv.at
    at = {"ready": burst.begin, "held": burst.held_at, "after": burst.end}[point]
    return record.instants.get("warmed") if at is None and point == "ready" else at


def table(title, head, rows):
    if not rows:
        return []
    lines = [f"## {title}", "", f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return [*lines, *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows), ""]


def cell(record):
    name = record.nodeid.split("::")[-1].split("[")[0].removeprefix("test_")
    return f"{name} {record.tier}"


def value(record, name):
    found = record.metrics.get(name)
    if found is None:
        return "-"
    return f"unmeasured: {found.reason}" if found.value is None else show(found.value, METRICS[name].unit)


def mib(size):
    return "-" if size is None else f"{size / MIB:.1f}"


def ratio(part, whole):
    return "-" if part is None or not whole else f"{part / whole:.2%}"


def difference(ours, theirs):
    return "-" if ours is None or theirs is None else f"{(ours - theirs) / MIB:+.1f}"


# -- what was stored


def slos(records):
    rows = [
        [cell(r), r.outcome, *(value(r, name) for name in SLOS), mib(leak(r)), sentence(r.memory.load)] for r in records
    ]
    return table("The three bounds", ["cell", "outcome", *SLOS, "leaked, MiB", "load"], rows)


def leak(record):
    sizes = [gpu.leaked_bytes for gpu in record.memory.gpus]
    return sum(sizes) if sizes and None not in sizes else None


def metrics(records):
    names = [name for name in METRICS if MEMORY.search(name) and any(name in record.metrics for record in records)]
    rows = [[name, *(value(record, name) for record in records)] for name in names]
    return table("Metrics of memory", ["metric", *map(cell, records)], rows)


def allocators(records):
    """The parts again, here by plain arithmetic on what was stored."""
    rows = []
    for record in records:
        sizes = record.memory.sizes
        fixed = sizes.get("weights", 0) + sizes.get("kv_pool", 0)
        for point in POINTS:
            for item in record.memory.at(point):
                idle = None if item.reserved is None or item.active is None else item.reserved - item.active
                peak = None if item.active_peak is None else (item.reserved_peak or 0) - item.active_peak
                rows.append(
                    [
                        *(cell(record), point, f"{item.process or item.pid}:{item.device}"),
                        *(mib(item.reserved), mib(item.active), mib(item.inactive_split), mib(item.graph_pools)),
                        *(ratio(peak, item.reserved_peak), ratio(idle, item.reserved)),
                        ratio(idle, (item.reserved or 0) - fixed if fixed else None),
                        *(ratio(item.inactive_split, item.reserved), item.retries, item.segments),
                    ]
                )
    head = ["cell", "point", "rank", "reserved, MiB", "active, MiB", "inactive split, MiB", "graph pools, MiB"]
    head += ["1 - active peak / reserved peak", "idle / reserved", "idle / (reserved - KV - weights)"]
    return table("Allocator by point", [*head, "inactive split / reserved", "retries", "segments"], rows)


def caches(records):
    rows = []
    for record in records:
        for item in record.memory.kv:
            room = (item.used_blocks or 0) * (item.block_size or 0)
            waste = None if item.tokens is None or not room else room - item.tokens
            used = f"{item.used_blocks} / {item.total_blocks}"
            row = [cell(record), item.point, item.block_size, used, item.capacity_tokens, item.tokens, item.counted_by]
            rows.append([*row, item.running, ratio(waste, room)])
    head = ["cell", "point", "block size", "blocks in use / all", "capacity, tokens", "tokens", "counted by", "running"]
    return table("KV cache by point", [*head, "1 - tokens / room"], rows)


# -- beside independent readings


def allocator_checks(records, found):
    rows = []
    for record in records:
        begin, end = window(record)
        for point in POINTS:
            at = when(record, point)
            for item in record.memory.at(point):
                lines = [c for c in found if (c.pid, c.device) == (item.pid, item.device) and begin <= c.time <= end]
                if at is None or not lines:
                    continue
                near = min(lines, key=lambda line: abs(line.time - begin - at))
                row = [cell(record), point, f"{near.time - begin - at:+.2f}"]
                names = CURRENT if point != "after" else (*CURRENT, *PEAKS)
                for name in names:
                    ours, theirs = getattr(item, name), near.values.get(name)
                    rows.append([*row, name, mib(ours), mib(theirs), difference(ours, theirs)])
    head = ["cell", "point", "read later by, s", "value", "ours, MiB", "torch.cuda.memory_stats(), MiB", "difference"]
    return table("Allocator beside a second reader", head, rows)


def peak_checks(records, found):
    """The allocator's part of fragmentation from the second reader alone: its last line before the boot's end."""
    rows = []
    for record in records:
        begin, end = window(record)
        for pid, device in sorted({(item.pid, item.device) for item in record.memory.allocators}):
            lines = [c for c in found if (c.pid, c.device) == (pid, device) and begin <= c.time <= end]
            values = max(lines, key=lambda line: line.time).values if lines else {}
            if values.get("reserved_peak"):
                share = ratio(values["reserved_peak"] - values["active_peak"], values["reserved_peak"])
                rows.append([cell(record), pid, value(record, "allocator_fragmentation"), share])
    return table("Allocator fragmentation from the second reader", ["cell", "pid", "ours", "second reader"], rows)


def gpu_checks(records, devices, processes):
    rows = []
    for record in records:
        begin, end = window(record)
        for gpu in record.memory.gpus:
            seen = [item for item in devices if item.uuid == gpu.uuid and begin <= item.time <= end]
            if not seen:
                continue
            ready = record.instants.get("ready", 0.0)
            # Nothing is near enough to the stop: memory falls within a second. The first reading after it counts.
            later = [item for item in devices if item.uuid == gpu.uuid and end < item.time <= end + 3]
            pairs = [
                ("before", gpu.before_bytes, seen[0].bytes),
                ("ready", gpu.ready_bytes, min(seen, key=lambda item: abs(item.time - begin - ready)).bytes),
                ("peak", gpu.peak_bytes, max(item.bytes for item in seen)),
                ("after", gpu.after_bytes, later[0].bytes if later else None),
            ]
            for pid, size in gpu.process_bytes.items():
                own = [p.bytes for p in processes if (p.uuid, p.pid) == (gpu.uuid, int(pid)) and begin <= p.time <= end]
                pairs.append((f"most of pid {pid}", size, max(own, default=None)))
            rows += [[cell(record), gpu.index, name, mib(a), mib(b), difference(a, b)] for name, a, b in pairs]
    head = ["cell", "GPU", "reading", "ours, MiB", "nvidia-smi, MiB", "difference"]
    return table("GPU beside nvidia-smi", head, rows)


def failures(records):
    rows = [
        [
            *(cell(record), record.boot_id, record.failure.kind if record.failure else record.outcome),
            *(mib(leak(record)), len(record.stop.leaked_processes)),
            next((phase.name for phase in reversed(record.phases) if phase.name != "unattributed"), "-"),
        ]
        for record in records
    ]
    return table("Failed boots", ["cell", "boot", "failure", "leaked, MiB", "processes swept", "last phase"], rows)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    store, folder = Path(sys.argv[1]), Path(sys.argv[2])
    with duckdb.connect(str(store / "coldstart.duckdb"), read_only=True) as con:
        ids = con.execute("SELECT boot_id FROM boot WHERE role = 'measured' ORDER BY started_at").fetchall()
        every = [boots.load(con, boot) for (boot,) in ids]
    records = [record for record in every if record.outcome == "ok"]
    second, devices = checks(folder), smi(folder / "smi-gpus.csv")
    parts = (
        slos(records),
        metrics(records),
        allocators(records),
        caches(records),
        allocator_checks(records, second),
        peak_checks(records, second),
        gpu_checks(records, devices, smi(folder / "smi-processes.csv")),
        failures([record for record in every if record.outcome != "ok"]),
    )
    print("\n".join(line for part in parts for line in part))


if __name__ == "__main__":
    main()
