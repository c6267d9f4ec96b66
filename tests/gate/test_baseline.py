"""``pytest --coldstart-baseline``: real boots of a stand-in engine against stored ones."""

from __future__ import annotations

import dataclasses

from pytest_coldstart.gate.baseline import fails
from pytest_coldstart.gate.comparison import CellComparison, GateReport, Refusal, SideSummary
from pytest_coldstart.record import BootRecord, Value
from pytest_coldstart.store.home import Home
from pytest_coldstart.store.runfile import read_run
from tests.gate.made import run
from tests.plugin.conftest import Inner, inner, text_of

__all__ = ["inner"]

SUITE = "@fake\ndef test_a(cold_boot): ...\n"
#: One metric is one family: four boots a side can show a difference.
POLICY = '[gate.metrics]\nwarm_first_token = "pass"\n'
HOST = ("gpu", "driver", "cpu", "cores", "memory_bytes", "hardware_class")


def as_fast_as(record: BootRecord, times: float, number: int) -> BootRecord:
    """The same boot, had it taken *times* as long."""
    value = record.metrics["cold_start"].value
    assert value is not None
    metrics = {**record.metrics, "cold_start": Value(value * times * (1 + number / 100), "client")}
    return dataclasses.replace(record, boot_id=f"{record.boot_id}-{number}", metrics=metrics)


def test_a_run_is_compared_with_its_baseline_which_can_fail_it(inner: Inner) -> None:
    inner.suite("""
@fake
def test_a(cold_boot, request):
    import sys

    heavy = ("numpy", "scipy", "ruptures", "pytest_coldstart.gate.judge", "pytest_coldstart.gate.baseline")
    if not request.config.getoption("--coldstart-baseline"):
        assert [name for name in heavy if name in sys.modules] == []
""")
    (inner.path / "coldstart-gate.toml").write_text(POLICY)
    assert inner.run().ret == 0
    first = read_run(inner.run_files[0])
    boots = [as_fast_as(first.boots[-1], 0.01, number) for number in range(4)]
    fast = run(Home.at(inner.path / "others"), "fast", boots, **{name: first.header[name] for name in HOST})

    result = inner.run("--coldstart-rounds=4", f"--coldstart-baseline={fast}")
    text = text_of(result)
    assert result.ret == 1
    result.assert_outcomes(passed=1)
    assert f"compared with {fast}" in text
    assert "regressed" in text

    # Last is the run before; one boot against four decides nothing, which fails where the policy says so.
    (inner.path / "coldstart-gate.toml").write_text('[gate]\ninconclusive = "fail"\n')
    result = inner.run("--coldstart-baseline=run:last")
    text = text_of(result)
    assert result.ret == 1
    assert "compared with run:last" in text
    assert "inconclusive" in text
    assert "themselves" not in text


def test_what_fails_a_run_is_a_regression_that_the_policy_fails() -> None:
    side = SideSummary("run:a")
    undecided = CellComparison("c", "d", "e", "restart", "n", "inconclusive", "warn")
    slower = dataclasses.replace(undecided, outcome="regressed", verdict="fail")
    milder = dataclasses.replace(slower, verdict="warn")
    for cell, on_inconclusive, expected in (
        (undecided, "warn", False),
        (undecided, "fail", False),  # the policy of that cell alone says warn
        (dataclasses.replace(undecided, verdict="fail"), "warn", True),
        (slower, "warn", True),
        (milder, "fail", False),
    ):
        assert fails(GateReport(side, side, (cell,), on_inconclusive=on_inconclusive)) is expected
    for on_inconclusive, expected in (("warn", False), ("fail", True)):
        refused = (Refusal("c", "restart", "driver: 570 against 575"),)
        assert fails(GateReport(side, side, (), refused, on_inconclusive=on_inconclusive)) is expected


def test_a_wrong_baseline_or_policy_ends_with_4_before_a_boot(inner: Inner) -> None:
    inner.suite(SUITE)
    result = inner.pytester.runpytest_inprocess(*inner.arguments("--coldstart-baseline=run:last"))
    assert result.ret == 4
    assert "--coldstart-baseline: there is no store at" in text_of(result)
    assert inner.nothing_booted()
