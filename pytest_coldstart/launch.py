"""From a plan to a command line and its environment, inside a container or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_coldstart.engines.base import CacheRoot, LaunchSpec
from pytest_coldstart.insight import Insight
from pytest_coldstart.plan import Plan
from pytest_coldstart.process import Launch


def launch_of(
    plan: Plan, spec: LaunchSpec, roots: Sequence[CacheRoot], boot_id: str, log: Path, insight: Insight
) -> Launch:
    """The launch of one boot.

    PYTHONFAULTHANDLER makes a Python engine answer SIGABRT with its stacks, for hangs.
    PYTHONUNBUFFERED gives each line of its log the instant at which it was printed.
    """
    extra = {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    for root in roots:
        extra.update(root.env)
    extra.update(plan.cell.env)
    extra.update(plan.engine.environment(spec))
    extra.update(plan.gpu_environ)
    words, tracing = insight.tracing(spec)
    argv = [*plan.engine.command(spec), *words]
    extra.update(tracing)
    stop: tuple[str, ...] = ()
    container = plan.cell.container
    if container:
        name = f"coldstart-{boot_id}"
        names = {"{name}": name, "{port}": str(spec.port), "{inside_port}": str(container.port)}
        argv = [_inside(_fill(word, names), container.paths) for word in argv]
        stop = tuple(_fill(word, names) for word in container.stop)
    return Launch(
        argv=tuple(argv),
        env=insight.environment({**plan.environ, **extra}),
        cwd=plan.cwd,
        log=log,
        boot_id=boot_id,
        stop_argv=stop,
        grace=plan.engine.stop_grace(plan.cell),
    )


def _fill(word: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        word = word.replace(name, value)
    return word


def _inside(word: str, paths: Mapping[str, str]) -> str:
    """A host path as the container sees it; mounts (``-v HOST:INSIDE``) keep both sides."""
    for host, inside in paths.items():
        if word == host or word.startswith(host.rstrip("/") + "/"):
            return str(inside) + word[len(host.rstrip("/")) :]
    return word
