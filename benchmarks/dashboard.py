"""Every page of the dashboard on a store of 100 000 boots: how long its questions take, and the page as a whole.

The store is made by the functions of ``ingest.py``: one real boot, written again and again with other ids, times and
values, its path cut or repeated to ten phases; here with memory of a GPU, of 40 configs in three tiers on two hosts
(240 series; a tenth of the boots is of one config that every run boots), in 1000 runs over 180 days, with a change of
level, failed boots and verdicts in them. ``--keep DIR`` leaves it there for the next time with ``--use DIR``.

Then each page runs as its script, as Streamlit's own test does it, on two cores with nothing remembered: the sum of
what its questions took (wall and its least, which neighbours disturb least, and CPU of all threads), the whole run,
and the slowest question. The store's file is in the
page cache. ``--paint`` loads each in a real Chromium instead: from the start of the server, and with the server running,
until the page stands.

Goals: 0.3 s for all questions of a page; 2 s until the page stands.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

#: Before this folder, whose dashboard.py is another one than the package.
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from _common import arguments, finish, table  # noqa: E402
from ingest import CORES, PHASES, changed, ingested, model  # noqa: E402

from pytest_coldstart.memory import GPU, Allocator, Burst, KVCache, Memory, Series  # noqa: E402
from pytest_coldstart.metrics import measure  # noqa: E402
from pytest_coldstart.record import BootRecord  # noqa: E402
from pytest_coldstart.slo import Verdict  # noqa: E402
from pytest_coldstart.store.database import reader  # noqa: E402
from pytest_coldstart.store.home import Home  # noqa: E402
from pytest_coldstart.store.runfile import RunFile  # noqa: E402

GOAL_QUESTIONS, GOAL_PAINT = 0.3, 2.0
DAYS = 180
ENGINES = ("vllm", "sglang", "turbomind", "tensorrt_llm", "llamacpp")
OPTIONS = tuple({"block_size": size, "memory": share} for size in (16, 32) for share in (0.5, 0.7, 0.8, 0.9))
TIERS = ("pristine", "redeploy", "restart")
ROUNDS, CELLS = 5, 20


@dataclass(frozen=True)
class Config:
    """One cell of the store, with the level that its boots have."""

    engine: str
    options: Mapping[str, Any]
    tier: str
    number: int

    @property
    def digest(self) -> str:
        return f"{self.number:012x}"

    @property
    def name(self) -> str:
        return f"{self.engine}-{'-'.join(str(value) for value in self.options.values())}-{self.tier}"

    @property
    def nodeid(self) -> str:
        return f"suites/test_{self.engine}.py::test_cold_start[{self.name}]"


CONFIGS = [
    Config(engine, options, tier, number)
    for number, (engine, options, tier) in enumerate(itertools.product(ENGINES, OPTIONS, TIERS))
]


# -- the store


def with_memory(record: BootRecord) -> BootRecord:
    """*record* with what a boot on a GPU knows of memory beside it."""
    total, used = 141 << 30, 120 << 30
    times = tuple(index * 0.5 for index in range(60))
    gpu = GPU(
        *(0, "GPU-1", "NVIDIA H200", "ok", total, 1 << 29, 1 << 29, used, used + (2 << 30), 1 << 29),
        process_bytes={"7": used},
        context_bytes={"7": 1 << 29},
        series=Series(
            times,
            {
                name: tuple(float(index * size) for index in range(len(times)))
                for name, size in {"used": used // 60, "utilisation": 1, "rx": 1 << 28, "power": 8}.items()
            },
        ),
    )
    sizes = {"reserved": 118 << 30, "reserved_peak": 118 << 30, "active": 116 << 30, "active_peak": 115 << 30}
    memory = Memory(
        (gpu,),
        tuple(Allocator(point, 7, 0, "EngineCore", **sizes, at=20.0) for point in ("ready", "held", "after")),
        tuple(
            KVCache(point, 21.0, 16, 60_000, 1200 if point == "held" else 0, 960_000, 18_700, "metrics")
            for point in ("ready", "held", "after")
        ),
        Burst("b" * 16, 32, 64, 0, tuple(range(100, 132)), 20.5, 21.0, 24.0, True),
        sizes={"weights": 15 << 30, "kv_pool": 98 << 30},
    )
    record = replace(record, memory=memory)
    return replace(record, metrics=measure(record))


def write(home: Home, like: BootRecord, boots: int, files: int, order: random.Random) -> None:
    """Run files: each boots :data:`CELLS` configs of one host, the first one always, five rounds of each."""
    data = with_memory(like).to_dict()
    data["phases"] = list(itertools.islice(itertools.cycle(data["phases"]), PHASES))
    first = datetime.now(UTC).replace(microsecond=0) - timedelta(days=DAYS)
    rest = itertools.cycle(CONFIGS[1:])
    for number in range(files):
        began = first + timedelta(days=DAYS) * number / files
        run_id = f"{began:%Y%m%dT%H%M%S}-{number}"
        file = RunFile(home, run_id, "main", header(number, began))
        configs = [CONFIGS[0], *itertools.islice(rest, CELLS - 1)]
        for place in range(boots // files):
            config = configs[place % CELLS]
            line = of(config, changed(data, run_id, began, place, order), number / files, order)
            # Without waiting for the disk after each: nothing here is lost by a crash.
            file._append({"kind": "boot", **line})
        for config in configs:
            for metric, bound, unit in (
                ("cold_start", 10.0, "s"),
                ("warm_first_token", 0.5, "s"),
                ("fragmentation", 0.05, "fraction"),
            ):
                value = bound * order.lognormvariate(-0.3, 0.2)
                word = "pass" if value <= bound else "fail"
                verdict = Verdict(metric, "max", "<=", bound, unit, value, ROUNDS, word, "default", "client")
                file.verdict(config.digest, config.name, config.tier, config.nodeid, verdict)
        file.close(0)


def header(number: int, began: datetime) -> dict[str, Any]:
    host = number % 2
    return {
        "started_at": began.isoformat(),
        "hostname": f"node{host}",
        "cpu": "AMD EPYC 9654",
        "cores": 96,
        "memory_bytes": 1 << 40,
        "kernel": "6.8.0",
        "gpu": ("NVIDIA H200", "NVIDIA H100")[host],
        "driver": f"570.{number // 300}",
        "hardware_class": f"host {host}",
        "git_commit": f"{number // 2 * 2654435761 % 2**64:040x}",
        "git_branch": "main" if number % 7 else "topic",
        "git_dirty": False,
        "ci": {"provider": "github", "url": f"https://example.org/runs/{number}"},
        "versions": {"python": "3.12.1", "pytest": "9.2.0"},
        "command": ["pytest", "--coldstart"],
    }


def of(config: Config, line: dict[str, Any], at: float, order: random.Random) -> dict[str, Any]:
    """*line* as a boot of *config*: the level is higher after a change at some time of its own, and one in 50 fails."""
    level = 1 + (config.number % 9) / 3 + (0.2 if at > (config.number % 10) / 10 else 0)
    metrics = {
        name: item if item["value"] is None else {**item, "value": item["value"] * (1 if "fraction" in name else level)}
        for name, item in line["metrics"].items()
    }
    cell = {**line["cell"], "engine": config.engine, "options": dict(config.options), "tier": config.tier, "model": "m"}
    line = {
        **line,
        "nodeid": config.nodeid,
        "cell_id": config.name,
        "cell": cell,
        "cell_digest": config.digest,
        "base_digest": f"{config.number // len(TIERS):012x}",
        "engine": config.engine,
        "tier": config.tier,
        "versions": {config.engine: f"0.{10 + int(at * 6)}.0", "torch": f"2.{8 + int(at * 2)}.0"},
        "metrics": metrics,
    }
    if order.random() < 0.02:
        none = {name: {"value": None, "source": None, "reason": "the boot failed"} for name in metrics}
        wrong = {
            "kind": "exit",
            "message": "exited with 1",
            "instant": "listen",
            "log_tail": "CUDA out of memory\n" * 20,
        }
        line |= {"outcome": "failed", "failure": {**wrong, "diagnosis": []}, "metrics": none}
    return line


@contextmanager
def store(options: argparse.Namespace) -> Iterator[Home]:
    """The store: the one to use, or a new one, which is kept where that is asked for."""
    if options.use:
        yield Home.at(options.use)
        return
    with tempfile.TemporaryDirectory(prefix="coldstart-dashboard-") as folder:
        home = Home.at(options.keep or Path(folder))
        home.prepare()
        write(home, model(options.like), options.boots, options.files, random.Random(options.seed or 1))
        done = ingested(home)
        if done["problems"] or done["boots"] != options.boots:
            sys.exit(f"not all was ingested: {done}")
        print(
            f"{done['boots']} boots ingested in {done['wall_s']:.0f} s, {home.database.stat().st_size / 1e6:.0f} MB",
            flush=True,
        )
        yield home


# -- the pages


@dataclass
class Asked:
    """The questions of one run of a page: name, wall and CPU seconds of each that was not answered from memory."""

    found: list[tuple[str, float, float]] = field(default_factory=list)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.found.append((name, time.perf_counter() - wall, time.process_time() - cpu))


def watch(asked: Asked) -> None:
    """Have every question that the pages ask, with its opening of the store, noted in *asked*. The product does not know:
    what it imports is replaced before it is imported."""
    import dashboard.source as source

    opened, within = source.opened, ["elsewhere"]

    @contextmanager
    def noted(home: Home, *wait: float) -> Iterator[Any]:
        with asked.timed(within[-1]), opened(home, *wait) as con:
            yield con

    source.opened = noted
    import dashboard.ask as module

    plain = module.ask

    def ask(home: Home, question: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        within.append(f"{question.__module__.rpartition('.')[2]}.{question.__qualname__}")
        try:
            return plain(home, question, *args, **kwargs)
        finally:
            within.pop()

    module.ask = ask


def addresses(home: Home) -> dict[str, dict[str, str]]:
    """A realistic address of each page: the series with most boots, the newest boots and runs."""
    with reader(home.database) as con:
        series = con.execute("SELECT series FROM boot GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 2").fetchall()
        boots = con.execute("SELECT boot_id FROM boot WHERE outcome = 'ok' ORDER BY started_at DESC LIMIT 2").fetchall()
        runs = con.execute("SELECT run_id FROM run ORDER BY started_at DESC LIMIT 3").fetchall()
    first = {"series": series[0][0], "metric": "cold_start"}
    return {
        "trend": first,
        "boot": {"boot": boots[0][0]},
        "compare": {"of": "runs", "kind": "runs", "a": runs[2][0], "b": runs[0][0]},
        "matrix": {"metric": "warm_first_token"},
        "runs": {"run": runs[0][0]},
    }


def page(home: Home, name: str, query: Mapping[str, str], asked: Asked) -> float:
    """Run one page with nothing remembered; returns its seconds. Exits where it fails: an error is drawn fast."""
    import streamlit as st
    from streamlit.testing.v1 import AppTest

    from pytest_coldstart.dashboard import app

    st.cache_resource.clear()
    st.cache_data.clear()
    sys.argv = ["app.py", "--store", str(home.root)]
    script = app()
    assert script is not None
    test = AppTest.from_file(str(script), default_timeout=120)
    test.query_params.update(query)
    if name != "overview":
        test.switch_page(f"app_pages/{name}.py")
    asked.found.clear()
    begin = time.perf_counter()
    test.run()
    took = time.perf_counter() - begin
    if test.exception:
        sys.exit(f"{name}: {test.exception[0].message}")
    if test.error:
        print(f"{name}: {test.error[0].value}: {[item.value for item in test.text[:2]]}", file=sys.stderr)
    return took


def measured(home: Home, name: str, query: Mapping[str, str], times: int, asked: Asked) -> dict[str, Any]:
    """Medians over some runs of one page, after one that is not counted: it imports, and fills the page cache."""
    page(home, name, query, asked)
    pages, found = [], []
    for _ in range(times):
        pages.append(page(home, name, query, asked))
        found.append(list(asked.found))
    names = dict.fromkeys(name for name, _, _ in found[0])
    each = {
        name: tuple(
            statistics.median(sum(item[place] for item in run if item[0] == name) for run in found) for place in (1, 2)
        )
        for name in names
    }
    return {
        "questions": len(found[0]),
        "wall_s": statistics.median(sum(item[1] for item in run) for run in found),
        "least_s": min(sum(item[1] for item in run) for run in found),
        "cpu_s": statistics.median(sum(item[2] for item in run) for run in found),
        "page_s": statistics.median(pages),
        "slowest": max(each, key=lambda name: each[name], default="-"),
        "each": each,
    }


def report(home: Home, options: argparse.Namespace) -> dict[str, Any]:
    asked = Asked()
    watch(asked)
    from dashboard.frame import PAGES

    logging.disable(logging.WARNING)  # Streamlit's, on running without a server
    where = addresses(home)
    names = [name for name in PAGES if not options.pages or name in options.pages]
    found = {name: measured(home, name, where.get(name, {}), options.times, asked) for name in names}
    rows = [("page", "questions", "wall", "least", "CPU", "whole page", "slowest question")]
    for name, item in found.items():
        slowest = f"{item['slowest']} {item['each'][item['slowest']][0] * 1000:.0f} ms"
        times = (f"{item[key] * 1000:.0f} ms" for key in ("wall_s", "least_s", "cpu_s", "page_s"))
        rows.append((name, str(item["questions"]), *times, slowest))
    table(rows)
    if options.each:
        for name, item in found.items():
            for question, (wall, cpu) in sorted(item["each"].items(), key=lambda pair: pair[1], reverse=True):
                print(f"  {name}: {question} {wall * 1000:.0f} ms, CPU {cpu * 1000:.0f} ms")
    late = [name for name, item in found.items() if item["wall_s"] > GOAL_QUESTIONS]
    print(f"goal {GOAL_QUESTIONS:g} s for the questions of a page: {'MISSED: ' + ', '.join(late) if late else 'met'}")
    return found


# -- in a browser


def painted(home: Home, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds until each page stands in Chromium: of the first one also from the start of the server."""
    from playwright.sync_api import sync_playwright

    from dashboard.frame import PAGES

    where = addresses(home)
    command = [sys.executable, "-m", "pytest_coldstart.cli", "dashboard", "--no-browser", "--port", str(options.port)]
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync"]
    found: dict[str, Any] = {}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=options.chromium, args=flags)
        begin = time.perf_counter()
        server = subprocess.Popen([*command, "--store", str(home.root)], stdout=subprocess.DEVNULL, env=environment())
        try:
            answering(options.port)
            found["server answers"] = time.perf_counter() - begin
            stands(browser, f"http://localhost:{options.port}/")
            found["from the start of the server"] = time.perf_counter() - begin
            for name in PAGES:
                address = urlencode(where.get(name, {}))
                found[name] = statistics.median(
                    stands(browser, f"http://localhost:{options.port}/{name if name != 'overview' else ''}?{address}")
                    for _ in range(3)
                )
        finally:
            server.terminate()
            server.wait(30)
            browser.close()
    table([("in Chromium", "stands after"), *((name, f"{seconds:.2f} s") for name, seconds in found.items())])
    late = [name for name, seconds in found.items() if seconds > GOAL_PAINT]
    print(f"goal {GOAL_PAINT:g} s until a page stands: {'MISSED: ' + ', '.join(late) if late else 'met'}")
    return found


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def answering(port: int) -> None:
    for _ in range(2000):
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=1):
                return
        except OSError:
            time.sleep(0.01)
    sys.exit("the server does not answer")


def stands(browser: Any, address: str) -> float:
    """Seconds until the page's foot is there, in a new context whose browser cache is empty, and its script has ended."""
    with closing(browser.new_context()) as context:
        tab = context.new_page()
        begin = time.perf_counter()
        tab.goto(address)
        tab.get_by_text("Store: ").wait_for(timeout=120_000)
        tab.wait_for_selector('[data-test-script-state="notRunning"]', state="attached", timeout=120_000)
        return time.perf_counter() - begin


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--boots", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--like", type=Path, metavar="FILE", help="a run file whose first measured boot is multiplied")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the store there and leave it")
    parser.add_argument("--use", type=Path, metavar="DIR", help="the store of an earlier --keep")
    parser.add_argument("--times", type=int, default=5, help="how often each page runs (default: 5)")
    parser.add_argument("--pages", nargs="*", metavar="PAGE", help="these alone")
    parser.add_argument("--each", action="store_true", help="list every question")
    parser.add_argument("--paint", action="store_true", help="measure in a real Chromium instead, with playwright")
    parser.add_argument("--chromium", default="/usr/bin/chromium", metavar="FILE")
    parser.add_argument("--port", type=int, default=8599)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with store(options) as home:
        found = painted(home, options) if options.paint else report(home, options)
    finish(options, found)


if __name__ == "__main__":
    main()
