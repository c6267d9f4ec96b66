"""Any command that serves the OpenAI API on a port."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pytest_coldstart.cell import Cell
from pytest_coldstart.client import Dialect
from pytest_coldstart.engines.base import (
    Availability,
    Engine,
    EngineError,
    LaunchSpec,
    Model,
    Option,
    command_availability,
)
from pytest_coldstart.readiness import Endpoint


class OpenAI(Engine):
    """The command is given whole; ``{host}``, ``{port}`` and ``{model}`` in it are filled in."""

    name = "openai"
    title = "any OpenAI-compatible command"
    install = "give the suite's marker command=[...] with {port} in it"
    options: ClassVar = {
        "api": Option("which API the requests use", choices=("completions", "chat")),
        "ignore_eos": Option(
            "whether the engine honours ignore_eos; without it a short answer passes", choices=(True, False)
        ),
        "served_model": Option("the model name that requests carry", types=(str,)),
        "health": Option("path of the endpoint to trust", types=(str,)),
        "weights": Option("path of the weight file or folder, for the tiers' proof", types=(str,)),
        "stop_grace": Option("seconds from SIGTERM until harsher signals", types=(int, float)),
    }
    traps = (
        "Nothing is known of its caches, so the tiers prove its weights alone (option weights) and change nothing else.",
    )

    def check(self, cell: Cell) -> None:
        super().check(cell)
        if not cell.command:
            raise EngineError("engine 'openai' needs command=[...], the command line that starts it, with {port} in it")
        if cell.container is None and not any("{port}" in word for word in (*cell.command, *cell.env.values())):
            raise EngineError("engine 'openai': command= has no {port}; the engine must listen where it is told")
        health = cell.options.get("health", "/health")
        if not health.startswith("/") or not health.isascii() or any(c <= " " for c in health):
            raise EngineError(f"option 'health': {health!r} is not a path such as '/health'")
        grace = cell.options.get("stop_grace", 10.0)
        if not 0 <= grace <= 3600:
            raise EngineError(f"option 'stop_grace': {grace!r} is not a number of seconds from 0 to 3600")

    def availability(self, cell: Cell) -> Availability:
        if not cell.command:
            return Availability(True, reason="any command that a suite names", enable=self.install)
        return command_availability(cell.command)

    def model(self, cell: Cell) -> Model:
        served = str(cell.options.get("served_model") or cell.model or "default")
        weights = cell.options.get("weights")
        if weights is None:
            return Model(cell.model or served, served)
        path = Path(weights).expanduser()
        if not weights or not path.exists():
            raise EngineError(f"option 'weights': {weights!r} does not exist")
        files = (
            tuple(sorted(f.resolve() for f in path.rglob("*") if f.is_file())) if path.is_dir() else (path.resolve(),)
        )
        if not files:
            raise EngineError(f"option 'weights': the folder {weights!r} holds no file")
        return Model(cell.model or served, served, files, path.resolve())

    def command(self, spec: LaunchSpec) -> list[str]:
        return [fill(word, spec) for word in spec.cell.command]

    def environment(self, spec: LaunchSpec) -> dict[str, str]:
        return {name: fill(value, spec) for name, value in spec.cell.env.items()}

    def dialect(self, spec: LaunchSpec) -> Dialect:
        options = spec.cell.options
        return Dialect(api=options.get("api", "completions"), ignore_eos=options.get("ignore_eos", True))

    def endpoints_for(self, cell: Cell) -> tuple[Endpoint, ...]:
        return (
            Endpoint("health", cell.options.get("health", "/health"), trusted=True),
            Endpoint("models", "/v1/models"),
        )

    def stop_grace(self, cell: Cell) -> float:
        return float(cell.options.get("stop_grace", 10.0))


def fill(word: str, spec: LaunchSpec) -> str:
    """Fill in the placeholders; other braces stay, since commands may hold JSON."""
    values = {"{host}": spec.host, "{port}": str(spec.port), "{model}": spec.model.served}
    for name, value in values.items():
        word = word.replace(name, value)
    return word
