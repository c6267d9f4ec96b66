"""Many boots, one store: how long ``coldstart ingest`` of many run files takes, and the queries afterwards.

The data is one real boot (of llama.cpp here, or the first measured one of ``--like FILE``), written again and again with
other ids, times and values, its path cut or repeated to ten phases. Ingest runs in a child process on two cores; its CPU
seconds stand beside its wall time, since neighbours disturb the one far less than the other. Queries are those of the
gate (the boots of two runs, whole), the expected durations of a run, ``coldstart show last``, and two as a dashboard
asks them (all series; one metric of one series over time), each the median of several, the store opened anew.

Goals: 100 000 boots in 60 s on two cores; each query within 300 ms.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from _common import arguments, bench, finish, table

from pytest_coldstart.record import BootRecord
from pytest_coldstart.slo import Verdict
from pytest_coldstart.store.boots import find, host, load, load_all
from pytest_coldstart.store.database import reader
from pytest_coldstart.store.history import expected_seconds
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.runfile import RunFile, encode, read_run

GOAL_SECONDS, GOAL_QUERY = 60.0, 0.3
PHASES, CELLS = 10, 20
CORES = 2
START = datetime(2025, 1, 1, tzinfo=UTC)

_CHILD = """
import json, os, resource, sys, time
from pathlib import Path
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[2])])
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.ingest import ingest
begin = time.perf_counter()
report = ingest(Home.at(Path(sys.argv[1])))
wall = time.perf_counter() - begin
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"wall_s": wall, "cpu_s": used.ru_utime + used.ru_stime, "peak_rss": used.ru_maxrss * 1024,
                  "boots": report.boots_added, "files": report.files, "problems": report.problems[:3]}))
"""


def model(like: Path | None) -> BootRecord:
    """One real boot that was measured and went well."""
    if like:
        return next(item for item in read_run(like).boots if item.role == "measured" and item.outcome == "ok")
    with bench() as where:
        record = where.boot("restart")
    if record.outcome != "ok":
        sys.exit(f"the boot failed: {record.failure}")
    return record


def write(home: Home, like: BootRecord, boots: int, files: int, order: random.Random) -> int:
    """Run files of *boots* boots; returns the bytes of a boot's line."""
    data = like.to_dict()
    data["phases"] = list(itertools.islice(itertools.cycle(data["phases"]), PHASES))
    for number in range(files):
        began = START + timedelta(hours=number)
        run_id = f"{began:%Y%m%dT%H%M%S}-{number}"
        header = {
            "started_at": began.isoformat(),
            "hardware_class": f"host {number % 2}",
            "git_commit": f"{number:040x}",
        }
        file = RunFile(home, run_id, "main", header)
        for boot in range(number, boots, files):
            # Without waiting for the disk after each: nothing here is lost by a crash.
            file._append({"kind": "boot", **changed(data, run_id, began, boot // files, order)})
        for cell in range(min(CELLS, boots // files)):
            for metric in ("cold_start", "warm_first_token", "fragmentation"):
                verdict = Verdict(metric, "max", "<=", 10.0, "s", order.random(), 5, "pass", "default", "client")
                file.verdict(f"{cell:012x}", f"cell {cell}", "restart", "t", verdict)
        file.close(0)
    return len(encode({"kind": "boot", **data}))


def changed(data: dict[str, Any], run_id: str, began: datetime, place: int, order: random.Random) -> dict[str, Any]:
    """The boot with ids of its own, and all its times and values longer or shorter by one factor."""
    factor = order.lognormvariate(0, 0.1)
    moment = began + timedelta(milliseconds=place * 300)
    cell = place % CELLS

    def scaled(item: dict[str, Any]) -> dict[str, Any]:
        return {name: value * factor if isinstance(value, float) else value for name, value in item.items()}

    return {
        **data,
        "boot_id": f"{moment:%Y%m%dT%H%M%S}-{order.getrandbits(32):08x}",
        "run_id": run_id,
        "cell_id": f"cell {cell}",
        "cell_digest": f"{cell:012x}",
        "base_digest": f"{cell:012x}",
        "round": place // CELLS,
        "started_at": moment.isoformat(timespec="milliseconds"),
        "instants": scaled(data["instants"]),
        "phases": [scaled(item) for item in data["phases"]],
        "requests": [scaled(item) for item in data["requests"]],
        "metrics": {name: scaled(item) for name, item in data["metrics"].items()},
    }


def ingested(home: Home) -> dict[str, Any]:
    command = [sys.executable, "-c", _CHILD, str(home.root), str(CORES)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(done.stdout))


def queries(home: Home) -> Iterator[tuple[str, Callable[[], object]]]:
    with reader(home.database) as con:
        newest = con.execute("SELECT run_id FROM run ORDER BY started_at DESC LIMIT 2").fetchall()
        runs = [run_id for (run_id,) in newest]
        series = con.execute("SELECT series FROM boot LIMIT 1").fetchall()[0][0]

    def gate() -> int:
        """Both sides: the first 12 boots of one cell of each of two runs, as records."""
        with reader(home.database) as con:
            found = con.execute(
                "SELECT boot_id FROM boot WHERE list_contains(?, run_id) AND cell_digest = ? "
                "QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY started_at) <= 12",
                [runs, f"{0:012x}"],
            ).fetchall()
            return len(load_all(con, [boot for (boot,) in found]))

    def show() -> BootRecord:
        with reader(home.database) as con:
            record = load(con, find(con, "last"))
            host(con, record.run_id)
            return record

    def sql(text: str, *values: object) -> list[Any]:
        with reader(home.database) as con:
            return con.execute(text, list(values)).fetchall()

    yield "gate: both sides, whole", gate
    yield "expected_seconds, 20 cells", lambda: expected_seconds(home, [f"{cell:012x}" for cell in range(CELLS)])
    yield "show last", show
    yield "verdicts of a run", lambda: sql("SELECT * FROM verdict WHERE run_id = ?", runs[0])
    yield "all series", lambda: sql("FROM series")
    yield (
        "one metric of one series over time",
        lambda: sql(
            "SELECT b.started_at, m.value FROM boot b JOIN metric m USING (boot_id) "
            "WHERE b.series = ? AND m.name = 'cold_start' ORDER BY 1",
            series,
        ),
    )


def timed(work: Callable[[], object], times: int) -> dict[str, float]:
    """Median wall and CPU seconds."""
    walls, used = [], []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        used.append(time.process_time() - cpu)
    return {"wall_s": statistics.median(walls), "cpu_s": statistics.median(used)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--boots", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--like", type=Path, metavar="FILE", help="a run file whose first measured boot is multiplied")
    parser.add_argument("--times", type=int, default=7, help="how often each query is asked (default: 7)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="coldstart-ingest-") as folder:
        home = Home.at(Path(folder))
        home.prepare()
        line = write(home, model(options.like), options.boots, options.files, random.Random(options.seed or 1))
        size = sum(file.stat().st_size for file in home.runs.iterdir())
        print(f"{options.boots} boots in {options.files} files, {size / 1e6:.0f} MB, {line} bytes a boot", flush=True)
        done = ingested(home)
        if done["problems"] or done["boots"] != options.boots:
            sys.exit(f"not all was ingested: {done}")
        database = home.database.stat().st_size
        scale = 100_000 / options.boots
        print(
            f"ingest: {done['wall_s']:.1f} s, {done['cpu_s']:.1f} CPU s ({done['cpu_s'] * scale:.0f} CPU s and, on "
            f"{CORES} free cores, at least {done['cpu_s'] * scale / CORES:.0f} s for 100 000 boots), peak memory "
            f"{done['peak_rss'] / 1e9:.2f} GB, database {database / 1e6:.0f} MB",
            flush=True,
        )
        again = ingested(home)
        print(f"again, nothing new: {again['wall_s']:.2f} s")
        found = {name: timed(work, options.times) for name, work in queries(home)}
    rows = [("query", "median", "CPU")]
    rows += [
        (name, f"{item['wall_s'] * 1000:.0f} ms", f"{item['cpu_s'] * 1000:.0f} ms") for name, item in found.items()
    ]
    table(rows)
    met = done["wall_s"] * scale <= GOAL_SECONDS, all(item["wall_s"] <= GOAL_QUERY for item in found.values())
    print(
        f"goal {GOAL_SECONDS:g} s: {'met' if met[0] else 'MISSED'}; goal {GOAL_QUERY:g} s a query: {'met' if met[1] else 'MISSED'}"
    )
    finish(options, {"ingest": done, "again": again, "queries": found, "line_bytes": line, "database_bytes": database})


if __name__ == "__main__":
    main()
