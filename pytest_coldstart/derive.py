"""How each metric of a boot is derived from its record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from pytest_coldstart import units
from pytest_coldstart.attribution import PHASES, UNATTRIBUTED
from pytest_coldstart.record import BootRecord, Phase, Request, Value

#: A p99 over fewer values would be an interpolation between two of them.
P99_NEEDS = 100

NO_HISTOGRAM = (
    "the engine's metrics have no histogram of the time to first token, or it did not grow by one with each request"
)
NO_WAKE = "the process was there before it was woken, and what it used from then on is not told apart"
NO_PROC = "needs /proc, which this platform has not, or the tree was gone before it was read"
NO_STOP = "the stop was not observed"
NO_PATH = "this boot has no critical path"

#: Of a path with a larger share of unattributed time no phase is told: that time may be its own.
MAY_HIDE = 0.1
#: Phases that are timed from outside the engine, whatever the probe does.
_FROM_OUTSIDE = ("spawn", "first_request")


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


def instant(name: str) -> Callable[[BootRecord], Value]:
    def derive(record: BootRecord) -> Value:
        value = record.instants.get(name)
        if value is None:
            return Value(None, None, f"the instant {name!r} was not seen")
        return Value(value, "client")

    return derive


def given(get: Callable[[BootRecord], float | None], source: str, reason: str) -> Callable[[BootRecord], Value]:
    def derive(record: BootRecord) -> Value:
        value = get(record)
        return Value(None, None, reason) if value is None else Value(float(value), source)

    return derive


def used(get: Callable[[BootRecord], float | None]) -> Callable[[BootRecord], Value]:
    """What the process tree used; unknown of one that was woken."""

    def derive(record: BootRecord) -> Value:
        return given(get, "proc", NO_WAKE if record.tier == "wake" else NO_PROC)(record)

    return derive


def first_request(record: BootRecord) -> Request | None:
    return next((item for item in record.requests if item.kind == "first"), None)


def warm_requests(record: BootRecord) -> list[Request]:
    return [item for item in record.requests if item.kind == "warm"]


def distribution(record: BootRecord) -> list[float]:
    """TTFT of the requests after the one that warm_first_token is judged on, seconds."""
    return [item.ttft for item in warm_requests(record)[1:] if item.ttft is not None]


def over(compute: Callable[[list[float]], float | None], needs: int) -> Callable[[BootRecord], Value]:
    def derive(record: BootRecord) -> Value:
        values = distribution(record)
        if len(values) < needs:
            return Value(None, None, f"needs {needs} requests after the warm-up, there were {len(values)}")
        value = compute(values)
        return Value(None, None, "all values are equal") if value is None else Value(value, "client")

    return derive


def warm_first_token(record: BootRecord) -> Value:
    warm = warm_requests(record)
    if not warm or warm[0].ttft is None:
        return Value(None, None, "no request was sent after the warm-up")
    return Value(warm[0].ttft, "client")


def jitter(values: list[float]) -> float:
    high = percentile(values, 0.99) if len(values) >= P99_NEEDS else max(values)
    return high - median(values)


def ready_gap(record: BootRecord) -> Value:
    token = record.instants.get("first_token")
    if token is None or not record.endpoints:
        return Value(None, None, "no readiness endpoint answered before the first token")
    return Value(token - min(record.endpoints.values()), "client")


def gap(endpoint: str) -> Callable[[BootRecord], Value]:
    """From the first success of one endpoint to the first token."""

    def derive(record: BootRecord) -> Value:
        token, seen = record.instants.get("first_token"), record.endpoints.get(endpoint)
        if token is None or seen is None:
            return Value(
                None, None, f"the endpoint {endpoint!r} did not succeed before the first answer, or is not watched"
            )
        return Value(token - seen, "client")

    return derive


def readiness_lie(record: BootRecord) -> Value:
    gap, warm = ready_gap(record).value, warm_first_token(record).value
    if gap is None or warm is None:
        return Value(None, None, "needs ready_gap and warm_first_token")
    return Value(max(0.0, gap - warm), "client")


def engine_ttft(record: BootRecord) -> Value:
    if not warm_requests(record)[1:]:
        return Value(None, None, "needs 1 requests after the warm-up, there were 0")
    values = [item.engine_ttft for item in warm_requests(record)[1:] if item.engine_ttft is not None]
    return Value(median(values), "metrics") if values else Value(None, None, NO_HISTOGRAM)


def ttft_difference(record: BootRecord) -> Value:
    if not warm_requests(record)[1:]:
        return Value(None, None, "needs 1 requests after the warm-up, there were 0")
    values = [
        item.ttft - item.engine_ttft
        for item in warm_requests(record)[1:]
        if item.engine_ttft is not None and item.ttft is not None
    ]
    return Value(median(values), "client, metrics") if values else Value(None, None, NO_HISTOGRAM)


def first_ttft(record: BootRecord) -> float | None:
    first = first_request(record)
    return first.ttft if first else None


def load_throughput(record: BootRecord) -> Value:
    if record.tier == "wake":
        return Value(None, None, "an engine that is woken reads no weight files")
    token = record.instants.get("first_token")
    if not token or not record.evidence.weight_bytes:
        return Value(None, None, "no weight files are known, or no token came")
    return Value(record.evidence.weight_bytes / token, "proc")


def shape_ttft_max(record: BootRecord) -> Value:
    return _worst_shape(record, (0,), lambda first: first)


def shape_penalty(record: BootRecord) -> Value:
    return _worst_shape(record, (0, 1), lambda first, second: first - second)


def _worst_shape(record: BootRecord, which: tuple[int, ...], of: Callable[..., float]) -> Value:
    """The largest over the prompt lengths. Of each came two requests, one after the other: 2 k and 2 k + 1."""
    found = {item.index: item.ttft for item in record.requests if item.kind == "shape"}
    if not found:
        return Value(None, None, "no requests of other prompt lengths were sent")
    values = []
    for index in range(0, max(found) + 1, 2):
        times = [found.get(index + number) for number in which]
        if any(time is None for time in times):
            return Value(None, None, f"a request of prompt length {index // 2 + 1} gave no token, or was not sent")
        values.append(of(*times))
    return Value(max(values), "client")


def phase_seconds(phases: Iterable[Phase]) -> dict[str, float]:
    """Seconds of each phase that a path has, summed, in the order of PHASES."""
    found: dict[str, float] = {}
    for item in phases:
        found[item.name] = found.get(item.name, 0.0) + item.end - item.begin
    return {name: found[name] for name in sorted(found, key=lambda name: PHASES.index(name) if name in PHASES else 99)}


def path_seconds(record: BootRecord) -> float:
    """How long the critical path is, seconds: from the start to where it ends."""
    end = record.attribution.end
    return max((item.end for item in record.phases), default=0.0) if end is None else end


def attributed_share(record: BootRecord) -> float | None:
    """Share of the path in named phases, 0 to 1; None without a path."""
    total = path_seconds(record)
    if not record.phases or total <= 0:
        return None
    named = phase_seconds(item for item in record.phases if item.name != UNATTRIBUTED)
    return min(1.0, sum(named.values()) / total)


def phase(name: str) -> Callable[[BootRecord], Value]:
    """Seconds of the path in one phase; 0 only where too little is unattributed for it to hide in."""

    def derive(record: BootRecord) -> Value:
        share = attributed_share(record)
        if share is None:
            return Value(None, None, NO_PATH)
        found = [item for item in record.phases if item.name == name]
        value = Value(sum(item.end - item.begin for item in found), _sources(found) or "probe")
        if name == UNATTRIBUTED or (found and name in _FROM_OUTSIDE):
            return value
        if record.attribution.probe != "full":
            why = "; ".join(record.attribution.missing[:1]) or "needs --coldstart-probe=full"
            return Value(None, None, f"the probe took no samples: {why}")
        if 1 - share > MAY_HIDE:
            return Value(
                None, None, f"{units.show(1 - share, 'fraction')} of the boot is unattributed, where it may hide"
            )
        return value

    return derive


def attributed(record: BootRecord) -> Value:
    share = attributed_share(record)
    if share is None:
        return Value(None, None, NO_PATH)
    return Value(share, _sources(item for item in record.phases if item.name != UNATTRIBUTED) or "client")


def _sources(phases: Iterable[Phase]) -> str:
    return ", ".join(sorted({item.source for item in phases}))
