"""What an engine claims: that it is ready before it can answer, and its own time to first token."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.boot import Boot
from pytest_coldstart.engines.openai import OpenAI
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord
from tests.conftest import MakePlan, assert_nothing_left
from tests.fake_engine import HISTOGRAM

pytestmark = pytest.mark.timeout(120)

MakeBoot = Callable[[Plan], Boot]


def journal_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class TestReadiness:
    def test_server_that_is_ready_too_early_is_measured_by_its_own_clock(
        self, make_plan: MakePlan, boots: MakeBoot, tmp_path: Path
    ) -> None:
        """/health at once, /v1/models after 0.8 s, answers after 1.6 s of the server's life."""
        journal = tmp_path / "journal"
        boot = boots(make_plan("ready_too_early", "--seconds", "1.6", "--journal", str(journal)))
        boot.run()
        record = boot.stop()
        assert_nothing_left(boot)
        found = journal_of(journal)
        at = {
            name: next(item["t"] for item in found if item["event"] == name) for name in ("health", "models", "token")
        }
        value = {name: record.metrics[name].value for name in record.metrics}
        token = boot.origin + record.instants["first_token"]
        assert token >= at["token"]
        # An answer is seen after it was given, so no gap is longer than the server's own times say,
        assert 0 < value["models_gap"] <= token - at["models"]
        assert value["models_gap"] < value["health_gap"] <= token - at["health"]
        # and it is seen soon: polls are at most 50 ms apart.
        assert value["health_gap"] > (at["token"] - at["health"]) / 2
        assert value["ready_gap"] == value["health_gap"]
        assert value["readiness_lie"] == pytest.approx(value["ready_gap"] - value["warm_first_token"])
        assert value["readiness_lie"] > value["warm_first_token"]

    def test_lie_is_never_below_zero(self, booted: Callable[..., BootRecord]) -> None:
        """Warm requests that are slower than the first one do not make an engine honest beyond honesty."""
        record = booted("none")
        value = {name: record.metrics[name].value for name in record.metrics}
        assert 0 <= value["readiness_lie"] <= value["ready_gap"]

    def test_without_warm_requests_the_lie_is_unmeasured(self, booted: Callable[..., BootRecord]) -> None:
        record = booted(requests=0)
        assert record.metrics["readiness_lie"].value is None
        assert record.metrics["readiness_lie"].reason == "needs ready_gap and warm_first_token"


class Measured(OpenAI):
    metrics_path = "/metrics"
    ttft_histogram = HISTOGRAM


@pytest.fixture
def measured(make_plan: MakePlan, boots: MakeBoot, tmp_path: Path) -> Callable[..., BootRecord]:
    def run(*words: str, **fields: Any) -> BootRecord:
        plan = make_plan("none", "--journal", str(tmp_path / "journal"), *words, **fields)
        boot = boots(replace(plan, engine=Measured()))
        boot.run()
        record = boot.stop()
        assert_nothing_left(boot)
        return record

    return run


class TestEngineTTFT:
    def test_each_request_has_what_the_server_observed_for_it(
        self, measured: Callable[..., BootRecord], tmp_path: Path
    ) -> None:
        record = measured("--first-request-wait", "0.3", "--first-wait", "0.02", requests=4)
        observed = [item["ttft"] for item in journal_of(tmp_path / "journal") if item["event"] == "token"]
        assert [item.engine_ttft for item in record.requests] == [pytest.approx(ttft) for ttft in observed]
        assert len(observed) == 5
        warm = sorted(observed[2:])
        assert record.metrics["engine_ttft_p50"].value == pytest.approx(warm[1])
        assert record.metrics["engine_ttft_p50"].source == "metrics"
        differences = sorted(item.ttft - item.engine_ttft for item in record.requests[2:])
        assert differences[0] >= 0  # the server begins later and looks earlier
        assert record.metrics["ttft_difference"].value == pytest.approx(differences[1])

    def test_requests_of_the_warm_up_are_not_taken_for_timed_ones(
        self, measured: Callable[..., BootRecord], tmp_path: Path
    ) -> None:
        record = measured(warmup={"strategy": "prompts", "count": 2, "tokens": 3})
        observed = [item["ttft"] for item in journal_of(tmp_path / "journal") if item["event"] == "token"]
        expected = {"first": observed[:1], "warm": observed[3:]}
        for kind, ttfts in expected.items():
            found = [item.engine_ttft for item in record.requests if item.kind == kind]
            assert found == [pytest.approx(ttft) for ttft in ttfts]
        assert {item.engine_ttft for item in record.requests if item.kind == "warmup"} == {None}

    def test_engine_without_a_histogram_is_unmeasured_with_the_reason(
        self, measured: Callable[..., BootRecord]
    ) -> None:
        record = measured("--no-metrics")
        assert record.outcome == "ok"
        assert {item.engine_ttft for item in record.requests} == {None}
        for name in ("engine_ttft_p50", "ttft_difference"):
            assert record.metrics[name].value is None
            assert (record.metrics[name].reason or "").startswith("the engine's metrics have no histogram of the time")

    def test_too_few_requests_are_the_reason_where_they_are(self, measured: Callable[..., BootRecord]) -> None:
        record = measured(requests=1)
        for name in ("engine_ttft_p50", "ttft_difference"):
            assert record.metrics[name].reason == "needs 1 requests after the warm-up, there were 0"

    def test_record_survives_its_file_form(self, measured: Callable[..., BootRecord]) -> None:
        record = measured()
        assert BootRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record


class TestWords:
    """What the engine itself said stands in the message of its failure."""

    SCRIPT = "import sys\nprint('Traceback (most recent call last):')\nprint({line!r}, flush=True)\n{after}"

    def failed(self, booted: Callable[..., BootRecord], path: Path, line: str, after: str, **fields: Any) -> BootRecord:
        path.write_text(self.SCRIPT.format(line=line, after=after))
        record = booted(command=(*fields.pop("python"), str(path), "{port}"), **fields)
        assert record.failure is not None
        return record

    @pytest.fixture
    def python(self) -> tuple[str, ...]:
        import sys

        return (sys.executable, "-S", "-u")

    def test_once(self, booted: Callable[..., BootRecord], tmp_path: Path, python: tuple[str, ...]) -> None:
        after = "print('cleaning up'); sys.exit(3)"
        record = self.failed(booted, tmp_path / "x.py", "ValueError: no such layer", after, python=python)
        assert record.failure is not None
        assert record.failure.message.count("; the engine said: ValueError: no such layer") == 1
        assert record.failure.message.count("the engine said") == 1

    def test_not_again_where_it_is_the_last_line_anyway(
        self, booted: Callable[..., BootRecord], tmp_path: Path, python: tuple[str, ...]
    ) -> None:
        record = self.failed(booted, tmp_path / "x.py", "ValueError: no such layer", "sys.exit(3)", python=python)
        assert record.failure is not None
        assert record.failure.message.count("ValueError: no such layer") == 1

    @pytest.mark.parametrize("after", ["print('cleaning up'); sys.exit(3)", "sys.exit(3)"], ids=["before", "last"])
    def test_secrets_are_masked_also_where_the_line_is_cut(
        self, booted: Callable[..., BootRecord], tmp_path: Path, python: tuple[str, ...], after: str
    ) -> None:
        secret = "s3cr3t" * 20
        for length in (10, 360, 460):  # before, over and beyond where message and log are cut
            line = f"ValueError: {'x' * length} {secret} was refused"
            record = self.failed(booted, tmp_path / "x.py", line, after, python=python, env={"MY_API_KEY": secret})
            assert record.failure is not None
            assert "ValueError: xxx" in record.failure.message
            assert "s3cr" not in json.dumps(record.to_dict())

    def test_what_it_prints_while_it_is_stopped_explains_nothing(
        self, booted: Callable[..., BootRecord], tmp_path: Path, python: tuple[str, ...]
    ) -> None:
        after = (
            "import signal, time\n"
            "def stop(*_):\n    print('RuntimeError: cancelled', flush=True)\n    sys.exit(1)\n"
            "signal.signal(signal.SIGTERM, stop)\n"
            "signal.signal(signal.SIGABRT, stop)\n"
            "time.sleep(1000)"
        )
        record = self.failed(booted, tmp_path / "x.py", "loading", after, python=python, boot_timeout=1.5)
        assert record.failure is not None
        assert "RuntimeError: cancelled" in record.failure.log_tail
        assert "the engine said" not in record.failure.message
