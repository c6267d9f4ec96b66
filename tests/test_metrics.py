"""Metrics: statistics against values worked out by hand, and what each derivation reads from a boot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_coldstart.attribution import PHASES, Attribution
from pytest_coldstart.memory import GPU, Memory
from pytest_coldstart.metrics import (
    METRICS,
    PHASE_HELP,
    Metric,
    MetricRegistry,
    measure,
    median,
    percentile,
    skewness,
)
from pytest_coldstart.record import BootRecord, Evidence, Failure, FileResidency, Phase, Request, Stop, Usage, Value
from pytest_coldstart.units import FAMILIES
from tests.store.samples import record


def warm(*ttfts: float) -> tuple[Request, ...]:
    return tuple(Request("warm", i, 100.0 + i, 100.0 + i + ttft, done=200.0) for i, ttft in enumerate(ttfts))


BOOT = record(
    "b",
    instants={"start": 0.0, "listen": 1.0, "ready": 4.0, "first_token": 4.5, "first_text": 4.75, "first_done": 6.0}
    | {"warmed": 7.0, "stopped": 20.0},
    endpoints={"health": 4.0, "models": 2.5},
    poll_delay=0.02,
    requests=(Request("first", 0, 4.1, 4.5, 4.75, 6.0), *warm(0.25, 0.1, 0.2, 0.6)),
    evidence=Evidence(weights=(FileResidency("/w", 800, 200, "ext4", "proved"),)),
    usage=Usage(5000, 11, 2, 0.75, 4096, 30),
    stop=Stop(0.4, leaked_processes=("7 x", "8 y"), leaked_bytes=64),
    harness_time=0.5,
)


def values(boot: BootRecord) -> dict[str, float | None]:
    return {name: value.value for name, value in measure(boot).items()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cold_start", 6.0),
        ("first_token", 4.5),
        ("first_text", 4.75),
        ("ready", 4.0),
        ("listen", 1.0),
        ("first_ttft", 0.4),
        ("warm_first_token", 0.25),
        ("warm_ttft_p50", 0.2),  # of 0.1, 0.2, 0.6: the judged request is not among them
        ("warm_ttft_p99", None),
        ("warm_ttft_max", 0.6),
        ("ttft_jitter", 0.4),
        ("ready_gap", 2.0),  # the first token against the earliest endpoint that said ready
        ("health_gap", 0.5),
        ("models_gap", 2.0),
        ("readiness_lie", 1.75),  # ready_gap less the time to first token of a warmed engine
        ("engine_ttft_p50", None),
        ("ttft_difference", None),
        ("poll_delay", 0.02),
        ("stop_time", 0.4),
        ("peak_rss", 5000),
        ("minor_faults", 11),
        ("major_faults", 2),
        ("cpu_time", 0.75),
        ("bytes_read", 4096),
        ("load_throughput", 800 / 4.5),  # to the first token: an engine may say it is ready before it loads
        ("weight_residency", 0.25),
        ("leaked_processes", 2),
        ("leaked_bytes", 64),
        ("fragmentation", None),
        ("harness_time", 0.5),
    ],
)
def test_a_metric_is_derived_from_the_boot_by_its_definition(name: str, value: float | None) -> None:
    assert values(BOOT)[name] == (None if value is None else pytest.approx(value))


def test_of_a_hundred_requests_the_p99_is_the_99th_and_the_jitter_counts_from_it() -> None:
    """1 ms to 100 ms after the judged request: p99 = 99 ms, median 50.5 ms."""
    boot = record("b", requests=warm(9.0, *(n / 1000 for n in range(100, 0, -1))))
    found = values(boot)
    assert found["warm_ttft_p99"] == pytest.approx(0.099)
    assert found["warm_ttft_p50"] == pytest.approx(0.0505)
    assert found["ttft_jitter"] == pytest.approx(0.0485)
    assert found["warm_ttft_max"] == pytest.approx(0.1)


def test_the_engines_own_times_are_those_of_the_same_requests_and_of_those_it_knows() -> None:
    """Of 0.1, 0.2 and 0.6 s by the client it knows two: 0.05 and 0.4 s. The judged request is not among them."""
    judged, *timed = warm(0.25, 0.1, 0.2, 0.6)
    known = [replace(judged, engine_ttft=9.0), replace(timed[0], engine_ttft=0.05), timed[1]]
    found = measure(record("b", requests=(*known, replace(timed[2], engine_ttft=0.4))))
    assert found["engine_ttft_p50"] == Value(pytest.approx(0.225), "metrics")
    assert found["ttft_difference"] == Value(pytest.approx(0.125), "client, metrics")  # of 0.05 and 0.2


def test_of_an_engine_that_was_woken_the_use_of_its_whole_life_is_no_measurement() -> None:
    found = measure(replace(BOOT, tier="wake", usage=Usage()))
    for name in ("peak_rss", "minor_faults", "major_faults", "cpu_time", "bytes_read", "load_throughput"):
        assert found[name].value is None
        assert "woken" in (found[name].reason or "")


def test_an_endpoint_that_is_not_watched_has_no_gap() -> None:
    found = measure(record("b", endpoints={"health": 1.0}, instants={"start": 0.0, "first_token": 2.0}))
    assert found["health_gap"].value == 1.0
    assert found["models_gap"].value is None
    assert "'models'" in (found["models_gap"].reason or "")


def test_a_failed_boot_has_no_value_but_its_reason_and_what_its_stop_tells() -> None:
    gpu = GPU(0, "GPU-0", "H200", before_bytes=5, after_bytes=12)
    boot = record("b", outcome="failed", failure=Failure("exit", "it died", "start"), memory=Memory(gpus=(gpu,)))
    found = measure(boot)
    stopped = {name for name, metric in METRICS.items() if metric.after_stop}
    assert {(found[name].value, found[name].reason) for name in found if name not in stopped} == {
        (None, "the boot failed")
    }
    assert found["leaked_gpu_memory"].value == 7.0


def test_what_is_not_there_is_unmeasured_with_a_reason_and_never_zero() -> None:
    bare = BootRecord(
        "b", "r", "n", "c", {}, "d", "e", "openai", "restart", "measured", 1, "ok", "2026-01-01T00:00:00+00:00"
    )
    found = measure(bare)
    assert {name for name, value in found.items() if value.value is not None} == set()
    assert all(value.reason for value in found.values())


def test_what_is_known_after_the_stop_is_unmeasured_before_it() -> None:
    live = record("b", instants={"start": 0.0, "first_done": 2.0})
    found = measure(live)
    assert found["cold_start"].value == 2.0
    for name in ("stop_time", "leaked_processes", "leaked_bytes", "leaked_gpu_memory", "harness_time"):
        assert found[name] == Value(None, None, "known only after the engine has stopped")


# -- phases


def path(probe: str, unattributed: float) -> BootRecord:
    """A boot of 10 s: imports on both sides of compile, what nothing explains, the first request."""
    cuts = (0.0, 0.5, 3.0, 5.0, 8.5 - unattributed, 8.5, 10.0)
    names = ("spawn", "imports", "compile", "imports", "unattributed", "first_request")
    sources = ("proc", "probe", "span", "probe", "probe", "client")
    phases = zip(names, cuts, cuts[1:], sources, strict=False)
    return record(
        "b", phases=tuple(Phase(*item) for item in phases), attribution=Attribution(probe=probe, end=cuts[-1])
    )


def test_a_phase_metric_is_the_sum_of_the_paths_stretches_in_it() -> None:
    found = measure(path("full", 1.0))
    assert {name: found[f"phase.{name}"].value for name in PHASES if found[f"phase.{name}"].value} == {
        "spawn": 0.5,
        "imports": 2.5 + 2.5,
        "compile": 2.0,
        "unattributed": 1.0,
        "first_request": 1.5,
    }
    assert found["phase.imports"].source == "probe"
    assert found["phase.compile"].source == "span"
    assert found["attributed"] == Value(0.9, "client, probe, proc, span")


def test_a_phase_that_took_no_time_is_zero_only_where_it_cannot_hide() -> None:
    assert measure(path("full", 1.0))["phase.warmup"] == Value(0.0, "probe")
    for name in ("warmup", "imports", "compile"):
        found = measure(path("full", 1.2))[f"phase.{name}"]
        assert found == Value(None, None, "12 % of the boot is unattributed, where it may hide")
    assert "--coldstart-probe=full" in (measure(path("marks", 0.0))["phase.imports"].reason or "")


def test_without_the_probe_only_what_is_timed_from_outside_is_measured() -> None:
    found = measure(path("off", 1.0))
    measured = {name for name in found if name.startswith("phase.") and found[name].value is not None}
    assert measured == {"phase.spawn", "phase.first_request", "phase.unattributed"}
    assert found["attributed"].value == pytest.approx(0.9)
    assert "--coldstart-probe=full" in (found["phase.imports"].reason or "")


def test_time_that_the_path_lacks_counts_as_unattributed() -> None:
    """A path of 5 s in a boot of 10 s: nothing named covers the rest."""
    whole = path("full", 0.0)
    found = measure(replace(whole, phases=whole.phases[:3]))  # ends at 5.0 s
    assert found["attributed"].value == pytest.approx(0.5)
    assert found["phase.imports"].reason == "50 % of the boot is unattributed, where it may hide"


def test_a_boot_without_a_path_has_no_phases() -> None:
    found = measure(replace(path("full", 0.0), phases=()))
    assert {found[f"phase.{name}"].reason for name in PHASES} == {"this boot has no critical path"}
    assert found["attributed"].value is None


# -- statistics


@pytest.mark.parametrize(("share", "value"), [(0.05, 15), (0.3, 20), (0.4, 20), (0.5, 35), (1.0, 50)])
def test_nearest_rank_of_the_textbook_example(share: float, value: float) -> None:
    assert percentile([50, 15, 40, 20, 35], share) == value


@pytest.mark.parametrize(
    ("numbers", "value"), [([3.0], 3.0), ([1.0, 2.0], 1.5), ([9.0, 1.0, 5.0], 5.0), ([4.0, 1.0, 3.0, 2.0], 2.5)]
)
def test_median(numbers: list[float], value: float) -> None:
    assert median(numbers) == value


def test_skewness_of_1_2_3_10() -> None:
    """Mean 4, deviations -3 -2 -1 6: m2 = 50/4, m3 = 180/4, g1 = 45 / 12.5 ** 1.5 = 1.01823."""
    assert skewness([1.0, 2.0, 3.0, 10.0]) == pytest.approx(1.0182337, abs=1e-6)
    assert skewness([-1.0, -2.0, -3.0, -10.0]) == pytest.approx(-1.0182337, abs=1e-6)


def test_skewness_is_zero_for_symmetry_and_undefined_for_two_values_or_none_that_differ() -> None:
    assert skewness([1.0, 2.0, 3.0]) == pytest.approx(0.0)
    assert skewness([1.0, 2.0]) is None
    assert skewness([2.0, 2.0, 2.0]) is None


# -- the registry


def test_each_metric_has_a_unit_of_a_family_a_direction_and_help() -> None:
    for metric in METRICS.values():
        assert metric.unit in FAMILIES, metric.name
        assert metric.better in ("lower", "higher"), metric.name
        assert metric.help.endswith("."), metric.name
    assert [metric.name for metric in METRICS.values() if metric.better == "higher"] == [
        "load_throughput",
        "reference_read",
        "reference_copy",
        "kv_capacity_tokens",
        "prefix_cache_hit_rate",
        "load_speed",
        "load_read_ratio",
        "load_copy_ratio",
        "attributed",
    ]


def test_each_phase_has_a_metric_and_a_help_of_its_own() -> None:
    assert [name for name in METRICS if name.startswith("phase.")] == [f"phase.{name}" for name in PHASES]
    assert set(PHASE_HELP) == set(PHASES)
    assert len(set(PHASE_HELP.values())) == len(PHASES)


def test_a_name_is_declared_once() -> None:
    registry = MetricRegistry()
    metric = Metric("mine", "s", "Mine.", lambda boot: Value(1.0, "client"))
    registry.add(metric)
    registry.add(metric)  # the same declaration again, as a second plugin run in one process does
    with pytest.raises(ValueError, match="'mine' is declared twice"):
        registry.add(Metric("mine", "B", "Other.", lambda boot: Value(1.0, "client")))


def test_a_direction_is_lower_or_higher() -> None:
    with pytest.raises(ValueError, match="better must be 'lower' or 'higher'"):
        MetricRegistry().add(Metric("x", "s", "X.", lambda boot: Value(1.0, "client"), better="less"))
