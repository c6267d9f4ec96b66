"""Answers that are not what was asked for: what the record says of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_coldstart.boot import Boot
from pytest_coldstart.plan import Plan
from pytest_coldstart.record import BootRecord
from tests.fake_engine import ERROR_WORDS, REASON

Booted = Callable[..., BootRecord]
MakeBoot = Callable[[Plan], Boot]

pytestmark = pytest.mark.timeout(120)


class TestRequests:
    def test_death_at_the_first_answer_is_an_exit_and_not_a_broken_connection(self, booted: Booted) -> None:
        record = booted("die_at_first_token")
        assert record.failure is not None
        assert record.failure.kind == "exit"
        assert "exit code 9" in record.failure.message
        assert REASON in record.failure.log_tail
        assert record.failure.instant == "ready"

    def test_death_in_the_middle_of_the_answer_came_as_far_as_the_first_token(self, booted: Booted) -> None:
        record = booted("die_after_first_token")
        assert record.failure is not None
        assert record.failure.kind == "exit"
        assert record.failure.instant in ("first_token", "first_text")
        assert "first_done" not in record.instants

    def test_healthy_engine_that_never_answers_is_a_hang(self, booted: Booted) -> None:
        record = booted("healthy_but_hangs", hang_timeout=1.5)
        assert record.failure is not None
        assert record.failure.kind == "hang"
        assert "waiting for the first answer" in record.failure.message
        assert record.failure.instant == "ready"
        assert "in do_POST" in record.failure.log_tail

    def test_stall_after_the_headers_ends_at_the_boot_timeout(self, booted: Booted) -> None:
        record = booted("stall_after_headers", boot_timeout=2.0)
        assert record.failure is not None
        assert record.failure.kind == "timeout"
        assert "waiting for the first answer" in record.failure.message

    def test_refused_requests_are_sent_again_and_counted(self, booted: Booted) -> None:
        record = booted("refuses_a_while", "--seconds", "1")
        assert record.outcome == "ok"
        assert record.requests[0].attempts > 1
        assert record.instants["ready"] < record.instants["first_token"]
        assert record.instants["first_token"] >= 1

    def test_refusal_without_end_is_named_when_the_time_runs_out(self, booted: Booted) -> None:
        record = booted("refuses_a_while", "--seconds", "1000", boot_timeout=2.0)
        assert record.failure is not None
        assert record.failure.kind == "timeout"
        assert "still warming up" in record.failure.message

    @pytest.mark.parametrize(
        ("fault", "words"),
        [
            ("empty_response", "empty"),
            ("empty_stream", "ended without an event"),
            ("not_sse", "not an event stream but application/json"),
            ("short_answer", "stopped by itself after 3 of 16 tokens"),
            ("wrong_count", "15 tokens came where 16 were asked for"),
            ("error_event", ERROR_WORDS),
            ("malformed_json", "an event is not JSON"),
            ("http_500", ERROR_WORDS),
            ("cut_stream", "without a finish reason"),
        ],
    )
    def test_answer_that_is_not_what_was_asked_for(self, booted: Booted, fault: str, words: str) -> None:
        record = booted(fault)
        assert record.outcome == "failed"
        assert record.failure is not None
        assert record.failure.kind == "request"
        assert words in record.failure.message
        assert record.requests == ()

    def test_empty_response_with_its_content_type_is_called_empty(self, booted: Booted) -> None:
        record = booted("empty_response")
        assert record.failure is not None
        assert "HTTP 200 with an empty body" in record.failure.message

    def test_short_answer_passes_where_the_engine_cannot_ignore_the_end(self, booted: Booted) -> None:
        record = booted("short_answer", options={"ignore_eos": False})
        assert record.outcome == "ok"
        assert record.requests[0].completion_tokens == 3
        assert record.requests[0].finish_reason == "stop"

    def test_failure_of_a_warm_up_request_says_which(self, booted: Booted) -> None:
        record = booted("http_500_after_first", warmup={"strategy": "prompts", "count": 1})
        assert record.failure is not None
        assert record.failure.message.startswith("warm-up request: HTTP 500")
        assert record.failure.instant == "first_done"

    def test_failure_of_a_warm_request_says_which(self, booted: Booted) -> None:
        record = booted("http_500_after_first", "--count", "2")
        assert record.failure is not None
        assert record.failure.message.startswith("warm request 2: HTTP 500")
        assert record.failure.instant == "warmed"
