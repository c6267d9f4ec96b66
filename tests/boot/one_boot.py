"""A script that boots the fake engine without pytest: ``python one_boot.py HOME PORT FAULT``."""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_coldstart.boot import Boot
from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import EngineRegistry
from pytest_coldstart.plan import Plan
from pytest_coldstart.warmup import create

FAKE = Path(__file__).parents[1] / "fake_engine.py"


def main(home: Path, port: int, fault: str) -> None:
    (home / "logs").mkdir()
    engine = EngineRegistry().get("openai")
    command = (sys.executable, "-S", str(FAKE), "--port", "{port}", "--fault", fault, "--first-wait", "0.15")
    cell = Cell("openai", "fake", "restart", command=command)
    plan = Plan(
        cell,
        "cell",
        "nodeid",
        engine,
        engine.model(cell),
        create("none"),
        requests=6,
        boot_timeout=60.0,
        port=port,
        cwd=home,
        caches=home / "caches",
        logs=home / "logs",
    )
    boot = Boot(plan)
    print("begin", flush=True)
    boot.run()
    boot.stop()
    print(boot.outcome, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
