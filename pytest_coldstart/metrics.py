"""The registry of metrics: one declaration gives name, unit, direction, derivation and help.

Tables, bounds, SQL and docs/metrics.md are all made from these declarations.
"""

from __future__ import annotations

from pytest_coldstart.attribution import PHASES
from pytest_coldstart.counter_metrics import COUNTER_METRICS, REFERENCE_METRICS
from pytest_coldstart.derive import (
    MAY_HIDE,
    NO_STOP,
    P99_NEEDS,
    attributed,
    engine_ttft,
    first_ttft,
    gap,
    given,
    instant,
    jitter,
    load_throughput,
    median,
    over,
    percentile,
    phase,
    readiness_lie,
    ready_gap,
    shape_penalty,
    shape_ttft_max,
    skewness,
    ttft_difference,
    used,
    warm_first_token,
)
from pytest_coldstart.memory_metrics import MEMORY_METRICS
from pytest_coldstart.metric import Metric, MetricRegistry
from pytest_coldstart.record import BootRecord, Value

METRICS = MetricRegistry()


def measure(record: BootRecord) -> dict[str, Value]:
    """Every registered metric of one boot; of a failed one those alone that its stop tells, such as what it leaked."""
    failed = Value(None, None, "the boot failed")
    return {
        name: failed if record.failed and not metric.after_stop else _derive(metric, record)
        for name, metric in METRICS.items()
    }


def _derive(metric: Metric, record: BootRecord) -> Value:
    if metric.after_stop and "stopped" not in record.instants:
        return Value(None, None, "known only after the engine has stopped")
    if not record.failed:
        return metric.derive(record)
    try:  # a boot that failed lacks much that a metric may count on
        return metric.derive(record)
    except Exception as error:
        return Value(None, None, f"the boot failed, and this cannot be told of it: {type(error).__name__}")


for _metric in (
    Metric(
        "cold_start",
        "s",
        "From the start (the engine's exec) until the first request has been answered whole. The "
        "request is pinned: one prompt, exactly 16 tokens, end-of-sequence ignored; it is sent at "
        "the first success of the endpoint that the engine's adapter trusts.",
        instant("first_done"),
    ),
    Metric(
        "first_token", "s", "From the start to the first event that carries a generated token.", instant("first_token")
    ),
    Metric("first_text", "s", "From the start to the first event that carries visible text.", instant("first_text")),
    Metric(
        "ready", "s", "From the start to the first success of the endpoint that the adapter trusts.", instant("ready")
    ),
    Metric("listen", "s", "From the start until the engine's port first accepted a connection.", instant("listen")),
    Metric(
        "first_ttft",
        "s",
        "Time to first token of the first request: from just before its connection is opened to the "
        "first event that carries a token.",
        given(first_ttft, "client", "the first request gave no token"),
    ),
    Metric(
        "warm_first_token",
        "s",
        "Time to first token of the first request after the warm-up strategy ended.",
        warm_first_token,
    ),
    Metric(
        "warm_ttft_p50",
        "s",
        "Median time to first token of the requests after that one: unique seeded prompts, a new "
        "connection each, one at a time.",
        over(median, 1),
    ),
    Metric(
        "warm_ttft_p99",
        "s",
        f"99th percentile (nearest rank) of the same; unmeasured with fewer than {P99_NEEDS} requests.",
        over(lambda values: percentile(values, 0.99), P99_NEEDS),
    ),
    Metric("warm_ttft_max", "s", "Largest of the same.", over(max, 1)),
    Metric(
        "ttft_jitter",
        "s",
        f"p99 - p50 of the same; with fewer than {P99_NEEDS} requests the maximum stands for the p99.",
        over(jitter, 2),
    ),
    Metric(
        "ttft_skew",
        "count",
        "Skewness g1 of the same (third standardised moment); above 0, the slow tail is the longer one.",
        over(skewness, 3),
    ),
    Metric(
        "shape_ttft_max",
        "s",
        "Largest time to first token of the first requests of the prompt lengths that are tried after the warm-up: a "
        "length may need shapes that the warm-up did not reach.",
        shape_ttft_max,
    ),
    Metric(
        "shape_penalty",
        "s",
        "Largest difference between the first and the second request of a length, by their time to first token.",
        shape_penalty,
    ),
    Metric(
        "ready_gap",
        "s",
        "From the first success of any readiness endpoint to the first token: how long the engine "
        "said it was ready and had not yet answered.",
        ready_gap,
    ),
    Metric(
        "health_gap",
        "s",
        "The same from the first success of /health alone.",
        gap("health"),
    ),
    Metric(
        "models_gap",
        "s",
        "The same from the first success of /v1/models alone.",
        gap("models"),
    ),
    Metric(
        "readiness_lie",
        "s",
        "ready_gap less warm_first_token, at least 0: how much longer than a warmed engine's the first token took "
        "after the engine had first said that it was ready.",
        readiness_lie,
    ),
    Metric(
        "engine_ttft_p50",
        "s",
        "Median time to first token of the same requests as warm_ttft_p50 by the engine's own histogram, read after "
        "each request (difference of its sums); without connection and HTTP. Requests whose own time cannot be told "
        "are left out.",
        engine_ttft,
        source="metrics",
    ),
    Metric(
        "ttft_difference",
        "s",
        "Median over the same requests of the client's time to first token less the engine's own: what HTTP, "
        "tokenizer and client add. Large values mean that one of both clocks is not to be trusted.",
        ttft_difference,
    ),
    Metric(
        "poll_delay",
        "s",
        "Upper bound on what polling added to ready: from sending the last poll that failed to the answer of "
        "the first that succeeded.",
        given(lambda record: record.poll_delay, "client", "the first poll succeeded"),
    ),
    Metric(
        "stop_time",
        "s",
        "From the first signal until no process of the tree is left.",
        given(lambda record: record.stop.duration, "proc", NO_STOP),
        source="proc",
        after_stop=True,
    ),
    Metric(
        "peak_rss",
        "B",
        "Largest sum of resident set sizes over the process tree from the start to first_done, sampled; "
        "pages that processes share are counted in each.",
        used(lambda record: record.usage.peak_rss),
        source="proc",
    ),
    Metric(
        "minor_faults",
        "count",
        "Minor page faults of the tree from the start to first_done.",
        used(lambda record: record.usage.minor_faults),
        source="proc",
    ),
    Metric(
        "major_faults",
        "count",
        "Major page faults (those that waited for the disk) of the tree from the start to first_done.",
        used(lambda record: record.usage.major_faults),
        source="proc",
    ),
    Metric(
        "cpu_time",
        "s",
        "User and system CPU time of the tree from the start to first_done.",
        used(lambda record: record.usage.cpu_time),
        source="proc",
    ),
    Metric(
        "bytes_read",
        "B",
        "Bytes that the tree fetched from storage (read_bytes of /proc/PID/io) from the start to first_done; "
        "what the page cache served is not in it.",
        used(lambda record: record.usage.read_bytes),
        source="proc",
        counter=True,
    ),
    Metric(
        "load_throughput",
        "B/s",
        "Bytes of the weight files over the time from the start to first_token. A floor of the loader's own speed, "
        "since everything else before that counts in. Not to ready: some engines say so before they load.",
        load_throughput,
        source="proc",
        better="higher",
    ),
    Metric(
        "weight_residency",
        "fraction",
        "Share of the weight bytes in the page cache just before the start.",
        given(lambda record: record.evidence.resident_fraction, "proc", "residency cannot be read for these files"),
        source="proc",
    ),
    Metric(
        "leaked_processes",
        "count",
        "Processes of the tree that outlived their leader and had to be swept.",
        given(lambda record: len(record.stop.leaked_processes), "proc", NO_STOP),
        source="proc",
        after_stop=True,
    ),
    Metric(
        "leaked_bytes",
        "B",
        "Bytes in /dev/shm that appeared during the boot and were left after it; what a GPU keeps is leaked_gpu_memory. Unmeasured when boots run in "
        "parallel, since they cannot be told apart.",
        given(lambda record: record.stop.leaked_bytes, "proc", "boots ran in parallel, or there is no /dev/shm"),
        source="proc",
        after_stop=True,
    ),
    Metric(
        "harness_time",
        "s",
        "What this tool added around the boot: preparing, proving, sweeping and inventories.",
        given(lambda record: record.harness_time, "client", "not timed"),
        after_stop=True,
    ),
):
    METRICS.add(_metric)

for _metric in (*COUNTER_METRICS, *REFERENCE_METRICS, *MEMORY_METRICS):
    METRICS.add(_metric)

#: What each phase is, for its metric's help.
PHASE_HELP = {
    "spawn": "processes start, up to their interpreter",
    "imports": "modules are imported",
    "device_init": "devices and their contexts are set up",
    "distributed_init": "ranks find each other and set up their communication",
    "load_weights": "weights are read and put where they are used",
    "kv_alloc": "the KV cache is sized and allocated",
    "profile": "the engine runs the model to measure its memory",
    "compile": "graphs and kernels are compiled, or what was compiled is loaded",
    "graph_capture": "CUDA graphs are captured",
    "warmup": "the engine warms itself up before it says that it is ready",
    "tokenizer": "the tokenizer is loaded",
    "server_start": "the HTTP server is started",
    "first_request": "the first request, as far as none of the others runs in it",
    "unattributed": "what no source explains",
}

for _name in PHASES:
    METRICS.add(
        Metric(f"phase.{_name}", "s", f"Time on the critical path: {PHASE_HELP[_name]}.", phase(_name), source="probe")
    )
METRICS.add(
    Metric(
        "attributed",
        "fraction",
        "Share of the critical path, from the start to its end, that is in a phase with a name.",
        attributed,
        source="probe",
        better="higher",
    )
)


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
        "The metrics `phase.NAME` sum the stretches of the critical path in one phase. They are unmeasured where the probe was",
        f"off, or where more than {MAY_HIDE:.0%} of the path is unattributed: the phase may hide there. `phase.spawn` and",
        "`phase.first_request` are timed from outside; `phase.unattributed` and `attributed` are measured wherever there is a path.",
        "",
        "| metric | stored in | better | source | definition |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{metric.name}` | {metric.unit} | {metric.better} | {metric.source} | {metric.help} |"
        for metric in METRICS.values()
    ]
    return "\n".join(lines) + "\n"


__all__ = ["METRICS", "Metric", "MetricRegistry", "measure", "median", "page", "percentile", "skewness"]

if __name__ == "__main__":
    print(page(), end="")
