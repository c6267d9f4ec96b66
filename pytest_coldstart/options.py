"""The command line and its ini twins: one table. Light, since every pytest run imports it."""

from __future__ import annotations

from typing import Any

import pytest

#: name, metavar (None: a flag), repeatable, default shown in the help, help
TABLE: tuple[tuple[str, str | None, bool, str, str], ...] = (
    (
        "store",
        "DIR",
        False,
        ".coldstart",
        "where run files, logs, caches and the DuckDB file are kept; or a path ending in .duckdb",
    ),
    ("engine", "NAME", True, "", "run only cells of this engine"),
    ("tier", "NAME", True, "", "run only cells of this tier"),
    ("rounds", "N", False, "3", "boots of each cell; given on the command line it overrides the suites"),
    ("budget", "DURATION", False, "", "skip the cells that would not end within this time, such as 30min"),
    ("boot-timeout", "DURATION", False, "600s", "stop a boot that has not ended its warm-up and requests by then"),
    (
        "phase-deadline",
        "INSTANT=DURATION",
        True,
        "",
        "stop a boot that has not reached an instant by then, such as listen=30s",
    ),
    ("hang-timeout", "DURATION", False, "120s", "stop a boot with no output, no CPU use and no I/O for this long"),
    ("require", "ENGINE", True, "", "fail, instead of skip, the cells of this engine where it is missing"),
    (
        "python",
        "ENGINE=PATH",
        True,
        "",
        "the interpreter of the environment that has this engine, for cells that name none, such as vllm=env/bin/python",
    ),
    ("cpu", None, False, "", "boot CPU builds of engines that are made for GPUs; without it their cells are skipped"),
    ("slo", "BOUND", True, "", "a bound, such as 'cold_start<=10s' or 'warm_first_token.p50@restart<=200ms'"),
    (
        "probe",
        "MODE",
        False,
        "full",
        "what runs inside an engine's Python processes to say where the time went: off, marks (instants) or full (stack samples)",
    ),
    (
        "spans",
        None,
        False,
        "",
        "receive the spans of engines that emit OpenTelemetry traces (vLLM); needs the extra otlp",
    ),
    (
        "burst",
        "WHEN",
        False,
        "auto",
        "hold a burst of requests after the timed ones, to measure memory: on (engines whose memory can be read), auto (those of them on a GPU) or off",
    ),
    (
        "gpu-wait",
        "DURATION",
        False,
        "60s",
        "how long a boot waits until its GPUs' memory is back to what it was when idle",
    ),
    (
        "foreign-gpu",
        "WHAT",
        False,
        "refuse",
        "what to do where another process holds memory of a boot's GPU: refuse, or allow (recorded; the numbers are suspect)",
    ),
    (
        "baseline",
        "SIDE",
        False,
        "",
        "compare this run's boots with those of a stored side: run:ID, run:last, git:REF, a run file or a store; needs the extra gate",
    ),
    ("keep-logs", "WHICH", False, "failed", "engine logs to keep: all, failed or none"),
    ("parallel", None, False, "", "let several measured boots run at once on this host; they disturb each other"),
    ("allow-empty", None, False, "", "a session that judged no cell does not exit 5"),
)


def dest(name: str) -> str:
    return "coldstart_" + name.replace("-", "_")


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("coldstart", "cold start of LLM serving engines")
    group.addoption(
        "--coldstart", action="store_true", default=False, help="boot the engines of tests marked coldstart"
    )
    parser.addini("coldstart", "the same as --coldstart", type="bool", default=False)
    for name, metavar, repeatable, default, text in TABLE:
        extra = f" (default: {default})" if default else ""
        keywords: dict[str, Any] = {"dest": dest(name), "default": None, "help": text + extra}
        if metavar is None:
            group.addoption(f"--coldstart-{name}", action="store_true", **keywords)
            parser.addini(dest(name), text, type="bool", default=False)
        elif repeatable:
            group.addoption(f"--coldstart-{name}", action="append", metavar=metavar, **keywords)
            parser.addini(dest(name), text + ", one a line", type="linelist", default=[])
        else:
            group.addoption(f"--coldstart-{name}", metavar=metavar, **keywords)
            parser.addini(dest(name), text, default=default)


def idle_words(config: pytest.Config) -> str | None:
    """What to say where bounds or engines are asked for and nothing will boot."""
    given = [f"--coldstart-{name}" for name in ("slo", "require") if config.getoption(dest(name))]
    return f"coldstart: {' and '.join(given)} without --coldstart: nothing boots, nothing is judged" if given else None


def enabled(config: pytest.Config) -> bool:
    return bool(config.getoption("--coldstart") or config.getini("coldstart"))
