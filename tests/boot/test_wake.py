"""The tier ``wake``: a real process that sleeps and is woken, and every way in which it does not."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart import residency, wake
from pytest_coldstart.boot import Boot
from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import EngineError
from pytest_coldstart.engines.base import PLAIN_TIERS, Call, SleepCalls
from pytest_coldstart.engines.openai import OpenAI
from pytest_coldstart.engines.vllm import _sleeping
from pytest_coldstart.metrics import METRICS
from pytest_coldstart.plan import Plan
from pytest_coldstart.readiness import Endpoint
from pytest_coldstart.record import BootRecord, Usage
from pytest_coldstart.report.explain import failed_boot
from tests.conftest import MakePlan, assert_nothing_left, ended_boots, plans_in
from tests.fake_engine import ERROR_WORDS, HISTOGRAM, REASON

pytestmark = pytest.mark.timeout(120)

MakeBoot = Callable[[Plan], Boot]


class Sleeper(OpenAI):
    """Any command that can sleep as vLLM does."""

    tiers = PLAIN_TIERS | {"wake"}
    metrics_path = "/metrics"
    ttft_histogram = HISTOGRAM

    def sleep_calls(self, cell: Cell) -> SleepCalls:
        return SleepCalls(
            sleep=Call("/sleep?level=1"),
            wake=(Call("/wake_up?tags=weights", {"a": 1}), Call("/wake_up")),
            asleep=Endpoint("asleep", "/is_sleeping", success=_sleeping(True)),
            awake=Endpoint("awake", "/is_sleeping", trusted=True, success=_sleeping(False)),
        )


class Woken:
    """Boots at the tier ``wake`` and what the server wrote of them."""

    def __init__(self, make_plan: MakePlan, boots: MakeBoot, journal: Path) -> None:
        self.make_plan, self.boots, self.path = make_plan, boots, journal

    def __call__(self, fault: str = "none", *words: str, **fields: Any) -> BootRecord:
        plan = self.make_plan(fault, "--journal", str(self.path), *words, **fields)
        self.boot = self.boots(replace(plan, engine=Sleeper(), cell=plan.cell.at("wake")))
        self.boot.run()
        record = self.boot.stop()
        assert_nothing_left(self.boot)
        return record

    def times(self, event: str) -> list[float]:
        found = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [item["t"] for item in found if item["event"] == event]


@pytest.fixture
def woken(make_plan: MakePlan, boots: MakeBoot, tmp_path: Path) -> Woken:
    return Woken(make_plan, boots, tmp_path / "journal")


class TestWoken:
    """All of one boot."""

    @pytest.fixture(scope="class")
    @classmethod
    def woken(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Woken]:
        home = tmp_path_factory.mktemp("woken")
        with ended_boots() as boots:
            yield Woken(plans_in(home), boots, home / "journal")

    @pytest.fixture(scope="class")
    @classmethod
    def record(cls, woken: Woken) -> BootRecord:
        """Some time from the request to wake to awake, and twice that until its first answer of all."""
        return woken("none", "--wake-wait", "0.3", "--first-request-wait", "0.6")

    def test_everything_counts_from_the_request_that_wakes_it(self, woken: Woken, record: BootRecord) -> None:
        assert record.outcome == "ok"
        assert woken.boot.tree is not None
        (sleep,), wakes, tokens = woken.times("sleep"), woken.times("wake"), woken.times("token")
        origin = woken.boot.origin
        assert woken.boot.tree.start_time < sleep <= origin <= wakes[0]
        instants = record.instants
        assert instants["start"] == 0
        assert instants["ready"] >= 0.3
        assert instants["ready"] <= instants["first_token"] <= instants["first_done"] <= instants["warmed"]
        # The token was sent before it was seen, on one clock; the boot before the sleep is in no instant.
        assert tokens[1] <= origin + instants["first_token"]
        assert instants["first_token"] < tokens[-1] - woken.boot.tree.start_time
        assert record.metrics["cold_start"].value == instants["first_done"]
        assert record.metrics["ready"].value == instants["ready"]

    def test_answer_before_the_sleep_is_kept_and_counts_in_nothing(self, woken: Woken, record: BootRecord) -> None:
        assert [item.kind for item in record.requests] == ["before", "first", "warm", "warm"]
        before, first, *warm = record.requests
        assert before.completion_tokens == 16
        assert before.ttft is not None
        assert before.ttft >= 0.6
        assert before.done is not None
        assert before.sent < before.first_token < before.done < 0  # offsets from the wake
        assert before.engine_ttft is None
        values = record.metrics
        assert values["first_ttft"].value == first.ttft
        assert values["warm_first_token"].value == warm[0].ttft
        assert values["warm_ttft_max"].value == warm[1].ttft
        assert values["engine_ttft_p50"].value == warm[1].engine_ttft

    def test_what_the_process_used_in_all_its_life_is_not_given_as_the_wakes(self, record: BootRecord) -> None:
        assert record.usage == Usage()
        for name in ("peak_rss", "minor_faults", "major_faults", "cpu_time", "bytes_read", "load_throughput"):
            assert record.metrics[name].value is None
            assert "woken" in (record.metrics[name].reason or ""), name

    def test_health_that_says_200_asleep_is_seen_as_what_it_is(self, record: BootRecord) -> None:
        assert record.endpoints["health"] < record.endpoints["awake"] == record.instants["ready"]
        for name in ("ready_gap", "health_gap"):
            value = record.metrics[name].value
            assert value is not None
            assert value > record.instants["first_token"] - record.instants["ready"]
        assert (record.metrics["readiness_lie"].value or 0) > 0

    def test_evidence_says_where_the_process_was_and_claims_nothing_of_caches(self, record: BootRecord) -> None:
        assert record.evidence.state["process"] == "resident and asleep"
        assert (record.evidence.unprovable, record.evidence.contradictions) == ((), ())

    def test_each_call_was_made_once_in_order(self, woken: Woken, record: BootRecord) -> None:
        found = [json.loads(line) for line in woken.path.read_text().splitlines()]
        paths = [item["path"] for item in found if item["event"] in ("sleep", "wake")]
        assert paths == ["/sleep?level=1", "/wake_up?tags=weights", "/wake_up"]

    def test_record_survives_its_file_form(self, record: BootRecord) -> None:
        assert BootRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record


def test_evidence_is_of_the_wake_and_not_of_the_boot_before_it(woken: Woken, tmp_path: Path) -> None:
    """The weights were evicted before the launch and the engine has read them since."""
    weights = tmp_path / "weights"
    weights.write_bytes(os.urandom(1 << 20))
    if residency.filesystem(weights) not in residency.LOCAL:
        pytest.skip(f"the temporary folder is on {residency.filesystem(weights)}, no local disk")
    residency.evict([weights])
    server = Path(sys.modules[Sleeper.__module__].__file__ or "").parents[1] / "fake_engine.py"
    script = tmp_path / "reads.py"
    script.write_text(
        f"import runpy, sys\nopen({str(weights)!r}, 'rb').read()\n"
        f"sys.argv[0] = {str(server)!r}\nrunpy.run_path({str(server)!r}, run_name='__main__')\n"
    )
    command = (sys.executable, "-S", str(script), "--port", "{port}", "--journal", str(woken.path))
    record = woken(command=command, options={"weights": str(weights)})
    assert record.metrics["weight_residency"].value == 1.0
    assert record.evidence.contradictions == ()


class TestDeadlines:
    def test_they_are_of_the_wake_and_not_of_the_boot_before_it(self, woken: Woken) -> None:
        limits = {"first_token": 3.0, "first_done": 3.0, "warmed": 3.0}
        record = woken("none", "--first-request-wait", "3.2", deadlines=limits)
        assert record.failure is None

    def test_deadline_of_the_wake(self, woken: Woken) -> None:
        record = woken("none", "--wake-wait", "1000", deadlines={"ready": 1.0})
        assert record.failure is not None
        assert record.failure.kind == "deadline"
        assert "the instant 'ready' was not reached within its deadline of 1 s" in record.failure.message


class TestFaults:
    def test_sleep_that_is_refused(self, woken: Woken) -> None:
        record = woken("refuses_sleep")
        assert record.failure is not None
        assert record.failure.kind == "sleep"
        assert "the request to sleep failed: POST /sleep?level=1: HTTP 500: " in record.failure.message
        assert ERROR_WORDS in record.failure.message
        text = failed_boot(record, "test_a.py::test_a", [], logs_kept=False)
        assert "failed at sleep, before the wake that is timed" in text

    def test_engine_that_stays_awake(self, woken: Woken, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wake, "_FALL_ASLEEP", 0.3)
        record = woken("never_sleeps")
        assert record.failure is not None
        assert record.failure.kind == "sleep"
        assert "GET /is_sleeping does not say that the engine sleeps" in record.failure.message
        assert 'it says HTTP 200: {"is_sleeping": false}' in record.failure.message

    @pytest.mark.parametrize("when", ["sleep", "wake"])
    def test_engine_that_dies_of_it_is_an_exit(self, woken: Woken, when: str) -> None:
        record = woken(f"dies_at_{when}")
        assert record.failure is not None
        assert record.failure.kind == "exit"
        assert "exit code 9" in record.failure.message
        assert REASON in record.failure.log_tail
        assert record.stop.exit_code == 9
        before = "failed at the boot or the sleep before the wake that is timed"
        assert (before in failed_boot(record, "test_a.py::test_a", [], logs_kept=False)) == (when == "sleep")
        # But for what its stop tells.
        assert {value.value for name, value in record.metrics.items() if not METRICS[name].after_stop} == {None}

    def test_wake_that_is_refused(self, woken: Woken) -> None:
        record = woken("refuses_wake")
        assert record.failure is not None
        assert record.failure.kind == "wake"
        assert "the request to wake failed: POST /wake_up?tags=weights: HTTP 500: " in record.failure.message
        assert "failed at wake" in failed_boot(record, "test_a.py::test_a", [], logs_kept=False)

    def test_engine_that_never_wakes_is_named_by_what_it_says(self, woken: Woken) -> None:
        record = woken("never_wakes", boot_timeout=3.0)
        assert record.failure is not None
        assert record.failure.kind == "timeout"
        assert "waiting for the first answer" in record.failure.message
        assert 'last answer: /is_sleeping 200 with {"is_sleeping": true}' in record.failure.message
        assert "ready" not in record.instants

    def test_engine_that_does_not_answer_before_its_sleep_is_not_put_to_sleep(self, woken: Woken) -> None:
        record = woken("http_500")
        assert record.failure is not None
        assert record.failure.kind == "request"
        assert woken.times("sleep") == []

    def test_engine_without_sleep_is_refused_with_the_tiers_that_it_has(self, make_plan: MakePlan) -> None:
        with pytest.raises(
            EngineError,
            match=r"'openai' cannot boot at tier 'wake'; valid tiers: pristine, redeploy, restart, scale_out$",
        ):
            make_plan(tier="wake")
