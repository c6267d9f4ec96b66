"""Bounds: the grammar, which of several holds, statistics over rounds, verdicts."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from pytest_coldstart.coldness import TIERS
from pytest_coldstart.memory import GPU, Memory
from pytest_coldstart.record import BootRecord, Failure, Phase, Value
from pytest_coldstart.slo import (
    DEFAULTS,
    Bound,
    SLOError,
    Verdict,
    effective,
    judge,
    parse_bound,
    pass_rate_floor,
    statistic,
)
from tests.store.samples import record


def bound(text: str, source: str = "marker") -> Bound:
    return parse_bound(text, source, TIERS)


def boot(cold_start: float | None, number: int = 1) -> BootRecord:
    """A boot of that cold start; None is a boot that failed."""
    if cold_start is None:
        return record(f"b{number}", round=number, outcome="failed", failure=Failure("exit", "it died", "start"))
    return record(f"b{number}", round=number, metrics={"cold_start": Value(cold_start, "client")})


def boots(*cold_starts: float | None) -> list[BootRecord]:
    return [boot(value, number) for number, value in enumerate(cold_starts, 1)]


# -- grammar


@pytest.mark.parametrize(
    ("text", "metric", "stat", "tier", "op", "value"),
    [
        ("cold_start<=10s", "cold_start", "max", None, "<=", 10.0),
        ("  cold_start  <=  10 s ", "cold_start", "max", None, "<=", 10.0),
        ("cold_start.p90<=1min", "cold_start", "p90", None, "<=", 60.0),
        ("warm_first_token.p50@restart<=200ms", "warm_first_token", "p50", "restart", "<=", 0.2),
        ("fragmentation<=5%", "fragmentation", "max", None, "<=", 0.05),
        ("load_throughput>=1GB/s", "load_throughput", "min", None, ">=", 1e9),
        ("load_throughput@pristine>=1GB/s", "load_throughput", "min", "pristine", ">=", 1e9),
        ("leaked_gpu_memory<=0B", "leaked_gpu_memory", "max", None, "<=", 0.0),
        ("leaked_processes<=0", "leaked_processes", "max", None, "<=", 0.0),
        ("stop_time.mean>=0.5s", "stop_time", "mean", None, ">=", 0.5),
        ("phase.imports<=15s", "phase.imports", "max", None, "<=", 15.0),
        ("phase.compile.p50@restart<=20s", "phase.compile", "p50", "restart", "<=", 20.0),
        ("phase.first_request@pristine <= 1s", "phase.first_request", "max", "pristine", "<=", 1.0),
        ("attributed>=95%", "attributed", "min", None, ">=", 0.95),
    ],
)
def test_a_bound_says_metric_statistic_tier_direction_and_value(
    text: str, metric: str, stat: str, tier: str | None, op: str, value: float
) -> None:
    """Without a statistic the worst round counts: the maximum, or the minimum where higher is better."""
    found = bound(text)
    assert (found.metric, found.stat, found.tier, found.op) == (metric, stat, tier, op)
    assert found.value == pytest.approx(value)
    assert found.text == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        *("", "cold_start", "cold_start<=", "<=10s", "cold_start==10s", "cold_start=10s", "cold_start<10s", "10s>=x"),
        *("cold_start..p50<=1s", "cold_start@<=1s", "cold_start.p50.p90<=1s", "cold start<=1s", "cold_start@a@b<=1s"),
        *("cold_start=<10s", "cold_start<=10s,ready<=1s", "cold_start<=10s ready<=1s", "cold_start<=1s<=2s"),
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(SLOError) as caught:
        bound(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("phase.import<=15s", "unknown phase 'import'; valid phases: spawn, imports, device_init, "),
        ("phase.p50<=15s", "unknown phase 'p50'; valid phases: spawn, "),
        ("phase<=15s", "a phase needs its name, as in 'phase.imports'; valid phases: spawn, "),
        ("phase.<=15s", "a phase needs its name, as in 'phase.imports'; valid phases: spawn, "),
        ("phase.imports.p42<=15s", "unknown statistic 'p42'; valid statistics: max, "),
        ("phase.imports<=15", "'15' has no unit; valid units here: 'ns'"),
        ("phase.imports.compile.p50<=15s", "is not of the form"),
    ],
)
def test_a_bound_on_a_phase_that_does_not_exist_lists_those_that_do(text: str, said: str) -> None:
    with pytest.raises(SLOError) as caught:
        bound(text)
    assert said in str(caught.value)


def test_the_defaults_are_the_published_targets() -> None:
    found = [bound(text, "default") for text in DEFAULTS]
    assert [(item.metric, item.stat, item.value) for item in found] == [
        ("cold_start", "max", 10.0),
        ("warm_first_token", "max", 0.5),
        ("fragmentation", "max", 0.05),
        ("leaked_gpu_memory", "max", 0.0),
    ]
    assert not any(item.named for item in found)
    assert bound("cold_start<=1s", "ini").named


# -- which bound holds


def test_the_first_level_that_speaks_of_a_metric_decides_it() -> None:
    levels = [
        [bound("cold_start<=1s")],
        [bound("cold_start<=2s"), bound("ready<=2s")],
        [bound("ready<=3s"), bound("listen<=3s")],
    ]
    assert [item.text for item in effective(levels, "restart")] == ["cold_start<=1s", "ready<=2s", "listen<=3s"]


def test_within_a_level_a_bound_for_the_tier_replaces_those_for_all() -> None:
    level = [bound("cold_start<=9s"), bound("cold_start@restart<=2s"), bound("cold_start.p50<=1s")]
    assert [item.text for item in effective([level], "restart")] == ["cold_start@restart<=2s"]
    assert [item.text for item in effective([level], "pristine")] == ["cold_start<=9s", "cold_start.p50<=1s"]


def test_a_level_that_speaks_of_another_tier_only_decides_nothing() -> None:
    levels = [[bound("cold_start@pristine<=1s")], [bound("cold_start<=5s")]]
    assert [item.text for item in effective(levels, "restart")] == ["cold_start<=5s"]


# -- statistics


def test_statistics_of_known_values() -> None:
    """15, 20, 35, 40, 50: the textbook example of nearest ranks."""
    values = [35.0, 20.0, 15.0, 50.0, 40.0]
    found = {stat: statistic(values, stat) for stat in ("max", "min", "mean", "p50", "p90", "p95", "p99")}
    assert found == {"max": 50, "min": 15, "mean": 32, "p50": 35, "p90": 50, "p95": 50, "p99": 50}
    assert statistic([1.0, 2.0, 3.0, 10.0], "p50") == 2.5


@pytest.mark.parametrize("percent", [90, 95, 99])
def test_a_percentile_is_the_nearest_rank_for_every_number_of_rounds(percent: int) -> None:
    """The k-th smallest with k = ceil(percent n / 100), worked out in whole numbers here."""
    for count in range(1, 1001):
        assert statistic(range(1, count + 1), f"p{percent}") == -(-percent * count // 100), count


def test_a_failed_boot_is_infinitely_slow_in_every_statistic_it_reaches() -> None:
    values = [1.0, math.inf, 2.0]
    assert statistic(values, "max") == math.inf
    assert statistic(values, "mean") == math.inf
    assert statistic(values, "p50") == 2.0
    assert statistic(values, "min") == 1.0


@pytest.mark.parametrize(("rounds", "floor"), [(1, 0.05), (2, 0.2236), (3, 0.3684), (10, 0.7411), (0, 0.0)])
def test_what_n_of_n_passes_show_at_95_percent(rounds: int, floor: float) -> None:
    assert pass_rate_floor(rounds) == pytest.approx(floor, abs=5e-5)


def test_59_passes_are_the_first_to_show_95_percent() -> None:
    """The sample size that every table of 95/95 tests gives."""
    assert pass_rate_floor(58) < 0.95 <= pass_rate_floor(59)


# -- verdicts


def one(
    text: str, rounds: list[BootRecord], source: str = "marker", impossible: dict[str, str] | None = None
) -> Verdict:
    (found,) = judge([bound(text, source)], rounds, impossible or {})
    return found


def test_the_worst_round_decides() -> None:
    found = one("cold_start<=10s", boots(1.0, 9.0, 3.0))
    assert (found.verdict, found.value, found.rounds, found.broken) == ("pass", 9.0, 3, False)
    assert one("cold_start<=8s", boots(1.0, 9.0, 3.0)).verdict == "fail"
    assert one("cold_start.p50<=8s", boots(1.0, 9.0, 3.0)).verdict == "pass"
    assert one("cold_start<=9s", boots(9.0)).verdict == "pass", "the bound itself holds"


def test_a_failed_boot_breaks_the_maximum_and_not_the_median() -> None:
    found = one("cold_start<=1h", boots(1.0, None, 1.0))
    assert (found.verdict, found.value) == ("fail", math.inf)
    assert one("cold_start.p50<=1h", boots(1.0, None, 1.0)).verdict == "pass"
    assert one("cold_start.p50<=1h", boots(None, None, 1.0)).verdict == "fail"


def test_a_failed_boot_is_worst_where_higher_is_better_too() -> None:
    good = record("b1", metrics={"load_throughput": Value(2e9, "proc")})
    found = one("load_throughput>=1B/s", [good, boot(None, 2)])
    assert (found.verdict, found.value) == ("fail", -math.inf)


def test_one_round_without_the_value_makes_the_bound_unmeasured_which_is_broken() -> None:
    missing = record("b2", round=2, metrics={"cold_start": Value(None, None, "the clock stood still")})
    found = one("cold_start<=10s", [boot(1.0), missing])
    assert (found.verdict, found.value, found.broken) == ("unmeasured", None, True)
    assert found.reason == "round 2: the clock stood still"


def test_no_boot_at_all_is_unmeasured() -> None:
    assert one("cold_start<=10s", []).verdict == "unmeasured"


def test_boots_that_primed_or_contradict_their_tier_do_not_count() -> None:
    prime = dataclasses.replace(boot(99.0), role="prime")
    error = dataclasses.replace(boot(99.0), outcome="error")
    found = one("cold_start<=10s", [prime, error, boot(1.0)])
    assert (found.verdict, found.value, found.rounds) == ("pass", 1.0, 1)


@pytest.mark.parametrize(("stat", "needs"), [("p90", 10), ("p95", 20), ("p99", 100)])
def test_a_high_percentile_of_too_few_rounds_is_unmeasured(stat: str, needs: int) -> None:
    assert one(f"cold_start.{stat}<=10s", boots(*[1.0] * (needs - 1))).verdict == "unmeasured"
    assert one(f"cold_start.{stat}<=10s", boots(*[1.0] * needs)).verdict == "pass"


def test_a_metric_that_cannot_exist_is_not_applicable_by_default_and_unmeasured_when_named() -> None:
    impossible = {"fragmentation": "no GPU"}
    assert one("fragmentation<=5%", boots(1.0), "default", impossible).verdict == "n/a"
    for source in ("marker", "ini", "command line"):
        found = one("fragmentation<=5%", boots(1.0), source, impossible)
        assert (found.verdict, found.reason) == ("unmeasured", "no GPU")


def test_a_default_bound_on_what_only_a_gpu_has_holds_where_there_is_one() -> None:
    values = {"leaked_gpu_memory": Value(1.0, "nvml")}
    gpu = record("b1", metrics=values, memory=Memory(gpus=(GPU(0, "GPU-1", "H200"),)))
    unmeasured = {"leaked_gpu_memory": Value(None, None, "no GPU is visible to this boot")}
    cpu = record("b1", metrics=unmeasured, memory=Memory(), round=1)
    default = bound("leaked_gpu_memory<=0B", "default")
    assert judge([default], [cpu], {}) == []
    assert [found.verdict for found in judge([default], [gpu], {})] == ["fail"]
    named = one("leaked_gpu_memory<=0B", [cpu], "marker")
    assert (named.verdict, named.reason) == ("unmeasured", "round 1: no GPU is visible to this boot")
    assert judge([default], [gpu], {}, stopped=False) == []


def test_what_is_known_only_after_the_stop_is_left_out_before_it() -> None:
    bounds = [bound("cold_start<=10s"), bound("leaked_processes<=0")]
    assert [item.metric for item in judge(bounds, boots(1.0), {}, stopped=False)] == ["cold_start"]


def test_a_verdict_survives_json_and_infinity_becomes_no_value() -> None:
    found = one("cold_start<=10s", boots(1.5))
    assert Verdict.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert json.loads(json.dumps(one("cold_start<=10s", boots(None)).to_dict(), allow_nan=False))["value"] is None


def test_the_default_statistic_is_the_worst_round_for_the_bound_whatever_the_metric() -> None:
    """Lower is better for ready: at least 2 s must hold for the fastest round too."""
    assert parse_bound("ready>=2s", "marker", TIERS).stat == "min"
    assert parse_bound("ready<=2s", "marker", TIERS).stat == "max"
    assert parse_bound("load_throughput<=2GB/s", "marker", TIERS).stat == "max"
    assert parse_bound("load_throughput>=2GB/s", "marker", TIERS).stat == "min"


def test_a_failed_boot_is_outside_a_bound_of_either_kind() -> None:
    dead = record("b", outcome="failed", failure=Failure("exit", "it died", "start"))
    for text in ("ready>=1s", "ready<=1s", "load_throughput>=1GB/s", "load_throughput<=1GB/s"):
        (verdict,) = judge([parse_bound(text, "marker", TIERS)], [dead], {})
        assert verdict.verdict == "fail", text


def test_an_upper_bound_on_a_phase_does_not_pass_on_what_may_hide_in_unattributed_time() -> None:
    """3 s of compile were seen and 2 s are unattributed: it took from 3 to 5 s."""
    path = (
        Phase("compile", 0.0, 3.0, "probe"),
        Phase("unattributed", 3.0, 5.0, "probe"),
        Phase("imports", 5.0, 30.0, "probe"),
    )
    seen = record("b", phases=path, metrics={"phase.compile": Value(3.0, "probe")})

    def verdict(text: str) -> Verdict:
        return judge([parse_bound(text, "marker", TIERS)], [seen], {})[0]

    assert verdict("phase.compile<=5s").verdict == "pass"
    assert verdict("phase.compile<=2s").verdict == "fail"
    assert verdict("phase.compile>=3s").verdict == "pass"
    open_ = verdict("phase.compile<=4s")
    assert (open_.verdict, open_.value) == ("unmeasured", None)
    assert open_.reason == "3.00 s was seen; with what is unattributed it may be 5.00 s"


def test_a_part_that_breaks_the_bound_by_itself_fails_it_though_the_other_part_was_not_read() -> None:
    parts = {"fragmentation": Value(None, None, "the allocator was not read")}
    parts |= {"allocator_fragmentation": Value(None, None, "not read"), "kv_fragmentation": Value(0.075, "metrics")}
    made = [record("b", round=1, metrics=parts)]
    (verdict,) = judge([bound("fragmentation<=5%")], made, {})
    assert (verdict.verdict, verdict.value, verdict.reason) == ("fail", 0.075, "round 1: by kv_fragmentation alone")
    (verdict,) = judge([bound("fragmentation<=8%")], made, {})
    assert (verdict.verdict, verdict.value) == ("unmeasured", None), "the part that is not known may break it"
