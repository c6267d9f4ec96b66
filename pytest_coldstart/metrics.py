"""The registry of metrics: one declaration gives name, unit, direction, derivation and help.

Tables, bounds, SQL and docs/metrics.md are all made from these declarations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_coldstart.record import BootRecord, Request, Value

#: A p99 over fewer values would be an interpolation between two of them.
P99_NEEDS = 100


@dataclass(frozen=True)
class Metric:
    """One named number of a boot.

    ``unit`` is a family of :mod:`pytest_coldstart.units`; ``better`` is lower or higher.
    ``derive`` takes a boot that did not fail. ``after_stop`` marks what is known only once
    the process tree is gone.
    """

    name: str
    unit: str
    help: str
    derive: Callable[[BootRecord], Value]
    source: str = "client"
    better: str = "lower"
    sql_type: str = "DOUBLE"
    after_stop: bool = False


class MetricRegistry(dict[str, Metric]):
    """Metrics by name; a name is declared once."""

    def add(self, metric: Metric) -> None:
        if metric.name in self and self[metric.name] != metric:
            raise ValueError(f"metric {metric.name!r} is declared twice")
        if metric.better not in ("lower", "higher"):
            raise ValueError(f"metric {metric.name!r}: better must be 'lower' or 'higher'")
        self[metric.name] = metric


METRICS = MetricRegistry()


def measure(record: BootRecord) -> dict[str, Value]:
    """Every registered metric of one boot; a failed boot has none but its reason."""
    if record.failed:
        return {name: Value(None, None, "the boot failed") for name in METRICS}
    return {name: _derive(metric, record) for name, metric in METRICS.items()}


def _derive(metric: Metric, record: BootRecord) -> Value:
    if metric.after_stop and "stopped" not in record.instants:
        return Value(None, None, "known only after the engine has stopped")
    return metric.derive(record)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest value that at least *share* of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def skewness(values: Sequence[float]) -> float | None:
    """Third standardised moment g1 = m3 / m2**1.5 (Fisher and Pearson); None where undefined."""
    count = len(values)
    if count < 3:
        return None
    mean = sum(values) / count
    second = sum((value - mean) ** 2 for value in values) / count
    third = sum((value - mean) ** 3 for value in values) / count
    return third / second**1.5 if second > 0 else None


def _instant(name: str) -> Callable[[BootRecord], Value]:
    def derive(record: BootRecord) -> Value:
        value = record.instants.get(name)
        if value is None:
            return Value(None, None, f"the instant {name!r} was not seen")
        return Value(value, "client")

    return derive


def _given(get: Callable[[BootRecord], float | None], source: str, reason: str) -> Callable[[BootRecord], Value]:
    def derive(record: BootRecord) -> Value:
        value = get(record)
        return Value(None, None, reason) if value is None else Value(float(value), source)

    return derive


def _first(record: BootRecord) -> Request | None:
    return next((item for item in record.requests if item.kind == "first"), None)


def _warm(record: BootRecord) -> list[Request]:
    return [item for item in record.requests if item.kind == "warm"]


def _distribution(record: BootRecord) -> list[float]:
    """TTFT of the requests after the one that warm_first_token is judged on, seconds."""
    return [item.ttft for item in _warm(record)[1:] if item.ttft is not None]


def _over(compute: Callable[[list[float]], float | None], needs: int) -> Callable[[BootRecord], Value]:
    def derive(record: BootRecord) -> Value:
        values = _distribution(record)
        if len(values) < needs:
            return Value(None, None, f"needs {needs} requests after the warm-up, there were {len(values)}")
        value = compute(values)
        return Value(None, None, "all values are equal") if value is None else Value(value, "client")

    return derive


def _warm_first_token(record: BootRecord) -> Value:
    warm = _warm(record)
    if not warm or warm[0].ttft is None:
        return Value(None, None, "no request was sent after the warm-up")
    return Value(warm[0].ttft, "client")


def _jitter(values: list[float]) -> float:
    high = percentile(values, 0.99) if len(values) >= P99_NEEDS else max(values)
    return high - median(values)


def _ready_gap(record: BootRecord) -> Value:
    token = record.instants.get("first_token")
    if token is None or not record.endpoints:
        return Value(None, None, "no readiness endpoint answered before the first token")
    return Value(token - min(record.endpoints.values()), "client")


def _first_ttft(record: BootRecord) -> float | None:
    first = _first(record)
    return first.ttft if first else None


def _load_throughput(record: BootRecord) -> Value:
    ready = record.instants.get("ready")
    if not ready or not record.evidence.weight_bytes:
        return Value(None, None, "no weight files are known, or the engine was never ready")
    return Value(record.evidence.weight_bytes / ready, "proc")


def _fragmentation(record: BootRecord) -> Value:
    return Value(None, None, "this version has no source for memory fragmentation")


_NO_PROC = "needs /proc, which this platform has not, or the tree was gone before it was read"
_NO_STOP = "the stop was not observed"

for _metric in (
    Metric(
        "cold_start",
        "s",
        "From the start (the engine's exec) until the first request has been answered whole. The "
        "request is pinned: one prompt, exactly 16 tokens, end-of-sequence ignored; it is sent at "
        "the first success of the endpoint that the engine's adapter trusts.",
        _instant("first_done"),
    ),
    Metric(
        "first_token", "s", "From the start to the first event that carries a generated token.", _instant("first_token")
    ),
    Metric("first_text", "s", "From the start to the first event that carries visible text.", _instant("first_text")),
    Metric(
        "ready", "s", "From the start to the first success of the endpoint that the adapter trusts.", _instant("ready")
    ),
    Metric("listen", "s", "From the start until the engine's port first accepted a connection.", _instant("listen")),
    Metric(
        "first_ttft",
        "s",
        "Time to first token of the first request: from just before its connection is opened to the "
        "first event that carries a token.",
        _given(_first_ttft, "client", "the first request gave no token"),
    ),
    Metric(
        "warm_first_token",
        "s",
        "Time to first token of the first request after the warm-up strategy ended.",
        _warm_first_token,
    ),
    Metric(
        "warm_ttft_p50",
        "s",
        "Median time to first token of the requests after that one: unique seeded prompts, a new "
        "connection each, one at a time.",
        _over(median, 1),
    ),
    Metric(
        "warm_ttft_p99",
        "s",
        f"99th percentile (nearest rank) of the same; unmeasured with fewer than {P99_NEEDS} requests.",
        _over(lambda values: percentile(values, 0.99), P99_NEEDS),
    ),
    Metric("warm_ttft_max", "s", "Largest of the same.", _over(max, 1)),
    Metric(
        "ttft_jitter",
        "s",
        f"p99 - p50 of the same; with fewer than {P99_NEEDS} requests the maximum stands for the p99.",
        _over(_jitter, 2),
    ),
    Metric(
        "ttft_skew",
        "count",
        "Skewness g1 of the same (third standardised moment); above 0, the slow tail is the longer one.",
        _over(skewness, 3),
    ),
    Metric(
        "ready_gap",
        "s",
        "From the first success of any readiness endpoint to the first token: how long the engine "
        "said it was ready and had not yet answered.",
        _ready_gap,
    ),
    Metric(
        "poll_delay",
        "s",
        "Upper bound on what polling added to ready: from sending the last poll that failed to the answer of "
        "the first that succeeded.",
        _given(lambda record: record.poll_delay, "client", "the first poll succeeded"),
    ),
    Metric(
        "stop_time",
        "s",
        "From the first signal until no process of the tree is left.",
        _given(lambda record: record.stop.duration, "proc", _NO_STOP),
        source="proc",
        after_stop=True,
    ),
    Metric(
        "peak_rss",
        "B",
        "Largest sum of resident set sizes over the process tree from the start to first_done, sampled; "
        "pages that processes share are counted in each.",
        _given(lambda record: record.usage.peak_rss, "proc", _NO_PROC),
        source="proc",
    ),
    Metric(
        "minor_faults",
        "count",
        "Minor page faults of the tree from the start to first_done.",
        _given(lambda record: record.usage.minor_faults, "proc", _NO_PROC),
        source="proc",
    ),
    Metric(
        "major_faults",
        "count",
        "Major page faults (those that waited for the disk) of the tree from the start to first_done.",
        _given(lambda record: record.usage.major_faults, "proc", _NO_PROC),
        source="proc",
    ),
    Metric(
        "cpu_time",
        "s",
        "User and system CPU time of the tree from the start to first_done.",
        _given(lambda record: record.usage.cpu_time, "proc", _NO_PROC),
        source="proc",
    ),
    Metric(
        "bytes_read",
        "B",
        "Bytes that the tree fetched from storage (read_bytes of /proc/PID/io) from the start to first_done; "
        "what the page cache served is not in it.",
        _given(lambda record: record.usage.read_bytes, "proc", _NO_PROC),
        source="proc",
    ),
    Metric(
        "load_throughput",
        "B/s",
        "Bytes of the weight files over the time from the start to ready. A floor of the loader's own speed, "
        "since everything else before ready counts in.",
        _load_throughput,
        source="proc",
        better="higher",
    ),
    Metric(
        "weight_residency",
        "fraction",
        "Share of the weight bytes in the page cache just before the start.",
        _given(lambda record: record.evidence.resident_fraction, "proc", "residency cannot be read for these files"),
        source="proc",
    ),
    Metric(
        "leaked_processes",
        "count",
        "Processes of the tree that outlived their leader and had to be swept.",
        _given(lambda record: len(record.stop.leaked_processes), "proc", _NO_STOP),
        source="proc",
        after_stop=True,
    ),
    Metric(
        "leaked_bytes",
        "B",
        "Bytes in /dev/shm that appeared during the boot and were left after it. Unmeasured when boots run in "
        "parallel, since they cannot be told apart.",
        _given(lambda record: record.stop.leaked_bytes, "proc", "boots ran in parallel, or there is no /dev/shm"),
        source="proc",
        after_stop=True,
    ),
    Metric(
        "fragmentation",
        "fraction",
        "The worst memory fragmentation over all parts and ranks during a burst of mixed-length requests. "
        "Not measured yet: n/a under the default bound, unmeasured (which fails) under a bound that you name.",
        _fragmentation,
        source="probe",
    ),
    Metric(
        "harness_time",
        "s",
        "What this tool added around the boot: preparing, proving, sweeping and inventories.",
        _given(lambda record: record.harness_time, "client", "not timed"),
        after_stop=True,
    ),
):
    METRICS.add(_metric)


def page() -> str:
    """docs/metrics.md, generated; a test keeps the file equal to this."""
    lines = [
        "# Metrics",
        "",
        "Generated from the registry by `python -m pytest_coldstart.metrics > docs/metrics.md`.",
        "Durations count from the start of the boot on one monotonic clock unless the help says otherwise.",
        "",
        "A metric that could not be measured is stored as *unmeasured* with the reason, never as zero.",
        "",
        "| metric | stored in | better | source | definition |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{metric.name}` | {metric.unit} | {metric.better} | {metric.source} | {metric.help} |"
        for metric in METRICS.values()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
