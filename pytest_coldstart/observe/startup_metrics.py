"""What an engine's own metrics say of its start: Prometheus text, read once after the first answer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_coldstart.attribution import Reading
from pytest_coldstart.observe import scrape

_MODEL_LOAD = (
    "spawn",
    "imports",
    "device_init",
    "distributed_init",
    "load_weights",
    "profile",
    "kv_alloc",
    "compile",
    "graph_capture",
    "warmup",
)


@dataclass(frozen=True)
class _Gauge:
    """A gauge of seconds. ``labels``: those that a sample must have; ``of``: the label whose values add up.

    Over all other labels (ranks, versions, models that load side by side) the largest counts.
    """

    name: str
    phases: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    of: str = ""

    @property
    def text(self) -> str:
        return self.name + "".join(f'{{{name}="{value}"}}' for name, value in self.labels)


def _sglang(phase: str, phases: tuple[str, ...]) -> _Gauge:
    return _Gauge("sglang:startup_time_seconds", phases, (("phase", phase),))


#: By engine. SGLang 0.5.23 has these; 0.5.14 has an ``engine_startup_time`` that is always 0.0.
#: Its ``tokenizer_e2e`` is left out: it is the wait of the front end until the scheduler is ready, all phases together.
_GAUGES: dict[str, tuple[_Gauge, ...]] = {
    "sglang": (
        _sglang("load_weight", ("load_weights",)),
        _sglang("kv_cache_allocation", ("kv_alloc",)),
        _sglang("scheduler_e2e", _MODEL_LOAD[1:]),
        # Kernels that are first used in a capture are compiled there.
        _Gauge("sglang:startup_cuda_graph_time_seconds", ("graph_capture", "compile"), of="phase"),
    ),
    "triton": (_Gauge("nv_model_load_duration_secs", _MODEL_LOAD),),
}


#: Where engines show them. Triton has a port of its own for it; its adapter says on which address.
PATHS = {"sglang": "/metrics", "triton": "/metrics"}


def fetch(host: str, port: int, path: str, timeout: float = 5.0) -> str | None:
    """The text at *path*, or None where there is none within *timeout* seconds."""
    body = scrape.fetch(host, port, path, timeout)
    return body.decode("utf-8", "replace") if body is not None else None


def read_startup(text: str, engine: str) -> tuple[Reading, ...]:
    """What the metrics of *engine* say of its phases; empty for an engine that says nothing of them.

    Zero is what an engine shows before it measured, so it is no reading, and neither is what is no number.
    """
    wanted = _GAUGES.get(engine, ())
    if not wanted:
        return ()
    samples = [
        (name, scrape.labels_of(labels), value)
        for name, labels, number in scrape.samples(text.encode("utf-8", "replace"))
        if any(name == gauge.name for gauge in wanted) and (value := _positive(number)) is not None
    ]
    return tuple(reading for gauge in wanted if (reading := _reading(gauge, samples)))


def _reading(gauge: _Gauge, samples: list[tuple[str, dict[str, str], float]]) -> Reading | None:
    totals: dict[tuple[tuple[str, str], ...], float] = {}
    for name, labels, value in samples:
        if name == gauge.name and all(labels.get(label) == wanted for label, wanted in gauge.labels):
            others = tuple(sorted((label, held) for label, held in labels.items() if label != gauge.of))
            totals[others] = totals.get(others, 0.0) + value
    if not totals:
        return None
    return Reading(phases=gauge.phases, seconds=max(totals.values()), source="metrics", text=gauge.text)


def _positive(number: bytes) -> float | None:
    try:
        value = float(number)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None
