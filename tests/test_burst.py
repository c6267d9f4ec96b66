"""Bursts against the fake engine over real sockets, whose own count of running requests says whether all ran at once."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_coldstart.burst import BurstSpec, HeldBurst, spec_from
from pytest_coldstart.client import Client, Dialect
from pytest_coldstart.kv import KVReader
from pytest_coldstart.kv.prometheus import scrape
from pytest_coldstart.memory import KVCache
from pytest_coldstart.observe.scrape import fetch
from pytest_coldstart.ports import HOST
from tests.conftest import can_bind, eventually, fake_command, our_threads

pytestmark = pytest.mark.timeout(60)

#: Long against what a look at the engine takes: 20 tokens last for 0.8 s.
GAP = "0.04"
SMALL = BurstSpec(requests=6, shortest=5, longest=40, tokens=20)


class Fake:
    """A fake engine on a port, and what it counts."""

    def __init__(self, port: int) -> None:
        self.port, self.origin = port, time.monotonic()

    def client(self) -> Client:
        return Client(HOST, self.port, "fake", Dialect(), self.origin)

    def running(self) -> tuple[float | None, float | None]:
        found = scrape(HOST, self.port)
        return (found.total("fake:running"), found.total("fake:waiting")) if found else (None, None)

    def burst(self, spec: BurstSpec = SMALL, limit: int | None = 100, **more: Any) -> HeldBurst:
        return HeldBurst(spec, self.client, 1.0, limit, more.pop("reader", None), **more)


class Reader(KVReader):
    """Tells how many requests run, and what else the test says."""

    def __init__(self, fake: Fake, refresh: float = 0.0, **more: Any) -> None:
        super().__init__(HOST, fake.port, Path("unused"))
        self.fake, self.refresh, self.more = fake, refresh, more
        self.begun: list[Any] = []

    def begin(self) -> None:
        self.begun.append(self.fake.running())

    def read(self, point: str) -> KVCache | None:
        running, waiting = self.fake.running()
        if running is None or waiting is None:
            return None
        return KVCache(point, running=int(running), waiting=int(waiting), **self.more)


@pytest.fixture
def fake() -> Iterator[Callable[..., Fake]]:
    processes: list[subprocess.Popen[bytes]] = []

    def start(fault: str = "none", *arguments: str) -> Fake:
        port = next(number for number in range(21_300, 21_900) if can_bind(number))
        command = [word.replace("{port}", str(port)) for word in fake_command(fault, *arguments)]
        processes.append(subprocess.Popen(command))
        assert eventually(lambda: fetch(HOST, port, "/health") is not None)
        return Fake(port)

    yield start
    for process in processes:
        process.kill()
        process.wait()
    assert eventually(lambda: not our_threads())


class TestSpec:
    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"requests": 0}, "requests=0 is not a whole number from 1 to 1000"),
            ({"requests": 1001}, "requests=1001 is not a whole number from 1 to 1000"),
            ({"tokens": 1.5}, "tokens=1.5 is not a whole number from 1"),
            ({"tokens": True}, "tokens=True is not a whole number from 1"),
            ({"seed": -1}, "seed=-1 is not a whole number from 0"),
            ({"seed": 2**31 + 1}, "seed=2147483649 is not a whole number from 0 to 2147483648"),
            ({"longest": 10**6 + 1}, "longest=1000001 is not a whole number from 1 to 1000000"),
            ({"tokens": 10**6 + 1}, "tokens=1000001 is not a whole number from 1 to 1000000"),
            ({"shortest": 9, "longest": 8}, "longest=8 is less than shortest=9"),
            ({"shared": 64}, "shared=64 leaves nothing of shortest=64"),
        ],
    )
    def test_what_makes_no_burst_is_refused(self, fields: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            BurstSpec(**fields)

    def test_a_suite_may_say_yes_no_or_what_differs(self) -> None:
        assert spec_from(True) == BurstSpec()
        assert spec_from(False) is None
        assert spec_from({"requests": 4, "shared": 32}) == BurstSpec(requests=4, shared=32)
        with pytest.raises(ValueError, match="burst has no 'lenght'; valid keys: requests, shortest, longest, tokens"):
            spec_from({"lenght": 4})
        with pytest.raises(ValueError, match="burst='on' is neither True, False nor a dict"):
            spec_from("on")

    def test_digest_and_lengths_are_pinned(self) -> None:
        """Stored with every boot: they may not depend on the machine or the version of Python."""
        assert BurstSpec().digest == "4d6d1d107e1b8034"
        assert BurstSpec(requests=6).lengths(None) == (277, 692, 69, 170, 359, 1148)

    def test_every_field_is_in_the_digest(self) -> None:
        one_else = ({"requests": 15}, {"shortest": 65}, {"longest": 99}, {"tokens": 1}, {"seed": 2}, {"shared": 1})
        assert len({BurstSpec(**fields).digest for fields in (*one_else, {})}) == 7

    def test_lengths_are_spread_evenly_on_a_logarithmic_scale_in_mixed_order(self) -> None:
        lengths = BurstSpec(requests=16, shortest=64, longest=1024).lengths(None)
        assert all(64 <= length <= 1024 for length in lengths)
        # Four octaves, and four of sixteen in each.
        assert [sum(64 << n <= length < 128 << n for length in lengths) for n in range(4)] == [4, 4, 4, 4]
        assert list(lengths) != sorted(lengths)
        assert lengths == BurstSpec(requests=16, shortest=64, longest=1024).lengths(None)
        assert lengths != BurstSpec(requests=16, shortest=64, longest=1024, seed=2).lengths(None)

    @pytest.mark.parametrize("limit", [400, 512, 1024, 2048])
    def test_prompt_and_answer_fit_the_context(self, limit: int) -> None:
        assert all(0 < length <= limit - 256 for length in BurstSpec().lengths(limit))
        assert len(BurstSpec().lengths(limit)) == 16

    def test_a_context_without_room_has_no_lengths(self) -> None:
        assert BurstSpec().lengths(256) == ()


class TestHeld:
    def test_all_run_when_memory_is_read(self, fake: Callable[..., Fake]) -> None:
        engine = fake("none", "--gap", GAP)
        seen: list[Any] = []
        reader = Reader(engine, block_size=16, used_blocks=9, tokens=77, counted_by="metrics")
        burst, reading, sent = engine.burst(reader=reader).run(lambda: seen.append(engine.running()))
        assert seen == [(6, 0)]
        assert (burst.held, burst.failed, burst.requests, burst.tokens) == (True, (), 6, 20)
        # Of what was sent: its lengths, tokens, shared prefix and seed.
        content = json.dumps([SMALL.lengths(100), 20, 0, 1])
        assert burst.digest == hashlib.sha256(content.encode()).hexdigest()[:16]
        assert reading is not None
        assert (reading.point, reading.running, reading.tokens, reading.counted_by) == ("held", 6, 77, "metrics")
        assert (burst.begin or 0) <= (burst.held_at or 0) <= (burst.end or 0)
        assert reading.at == burst.held_at
        assert [request.index for request in sent] == list(range(6))
        assert {request.kind for request in sent} == {"burst"}
        # One word is one token here.
        assert burst.prompt_tokens == SMALL.lengths(100) == tuple(request.prompt_tokens for request in sent)

    def test_without_a_reader_the_first_tokens_tell(self, fake: Callable[..., Fake]) -> None:
        engine = fake("none", "--gap", GAP)
        seen: list[Any] = []
        burst, reading, sent = engine.burst().run(lambda: seen.append(engine.running()))
        assert (seen, burst.held, reading, len(sent)) == ([(6, 0)], True, None, 6)

    def test_requests_that_wait_for_others_make_no_held_burst(self, fake: Callable[..., Fake]) -> None:
        engine = fake("none", "--slots", "4", "--gap", "0.01")
        calls: list[int] = []
        for reader in (None, Reader(engine)):
            burst, reading, sent = engine.burst(reader=reader).run(lambda: calls.append(1))
            assert (burst.held, burst.held_at, reading, len(sent), burst.failed) == (False, None, None, 6, ())
        assert calls == []

    def test_slow_read_of_memory_finds_the_kv_cache_read_before(self, fake: Callable[..., Fake]) -> None:
        engine = fake("none", "--gap", "0.02")
        burst, reading, sent = engine.burst(reader=Reader(engine)).run(lambda: time.sleep(1))
        assert burst.held
        assert reading is not None
        assert reading.running == 6
        assert (burst.held_at or 0) < min(request.done or 0 for request in sent)

    def test_engine_that_does_not_count_is_believed(self, fake: Callable[..., Fake]) -> None:
        engine = fake("none", "--gap", GAP, "--no-metrics")
        burst, reading, _ = engine.burst(reader=Reader(engine)).run(lambda: None)
        assert (burst.held, reading) == (True, None)

    def test_failed_requests_are_told_and_raise_nothing(self, fake: Callable[..., Fake]) -> None:
        engine = fake("http_500_after_first", "--count", "4", "--gap", "0.01")
        burst, reading, sent = engine.burst(reader=Reader(engine)).run(lambda: None)
        assert (burst.held, reading, len(sent), len(burst.failed)) == (False, None, 4, 2)
        assert all("HTTP 500 from /v1/completions" in text for text in burst.failed)
        assert len(burst.prompt_tokens) == 4

    def test_an_engine_that_is_gone_fails_all(self) -> None:
        burst, _, sent = Fake(1).burst().run(lambda: None)
        assert (burst.held, len(burst.failed), sent) == (False, 6, ())

    @pytest.mark.parametrize("limit", [1, 2])
    def test_a_context_without_room_sends_nothing(self, limit: int) -> None:
        burst, reading, sent = Fake(1).burst(limit=limit).run(lambda: None)
        assert (burst.held, burst.failed) == (
            False,
            (f"a context of {limit} tokens has no room for a prompt and 1 tokens",),
        )
        assert (reading, sent) == (None, ())

    def test_a_common_prefix_is_the_same_in_all_prompts(self, fake: Callable[..., Fake]) -> None:
        spec = BurstSpec(requests=6, shortest=40, longest=60, tokens=4, shared=30)
        prompts = Fake(1).burst(spec)._prompts(spec.lengths(None))
        begins = {tuple(prompt.split()[:30]) for prompt in prompts}
        assert len(begins) == 1
        assert len({prompt.split()[30] for prompt in prompts}) == 6
        assert tuple(len(prompt.split()) for prompt in prompts) == spec.lengths(None)

    def test_what_a_burst_cannot_end_is_ended(self, fake: Callable[..., Fake]) -> None:
        engine = fake("healthy_but_hangs")
        begin = time.monotonic()
        burst, _, _ = engine.burst(patience=0.5).run(lambda: None)
        assert len(burst.failed) == 6
        assert time.monotonic() - begin < 10

    def test_abort_from_another_thread_ends_all(self, fake: Callable[..., Fake]) -> None:
        engine = fake("healthy_but_hangs")
        held = engine.burst()
        threading.Timer(0.5, held.abort).start()
        burst, _, sent = held.run(lambda: None)
        assert (len(burst.failed), sent, burst.held) == (6, (), False)


class TestTokens:
    """What the client counts where the engine does not: prompts, and events that each brought one token."""

    def counted(self, engine: Fake, spec: BurstSpec = SMALL, **more: Any) -> tuple[Any, KVCache]:
        reader = Reader(engine, **{"block_size": 16, "used_blocks": 20, **more})
        burst, reading, _ = engine.burst(spec, reader=reader).run(lambda: None)
        assert burst.held
        assert reading is not None
        return burst, reading

    def test_prompts_and_what_had_come_are_held(self, fake: Callable[..., Fake]) -> None:
        burst, reading = self.counted(fake("none", "--gap", GAP))
        assert reading.counted_by == "client"
        assert reading.tokens is not None
        # Of each request the first token had come by then, and its place is not filled yet; the last had not.
        assert sum(burst.prompt_tokens) <= reading.tokens < sum(burst.prompt_tokens) + 6 * 19

    @pytest.mark.parametrize(
        ("fault", "spec", "more"),
        [
            ("multi_token_event", SMALL, {}),
            ("none", BurstSpec(requests=6, shortest=5, longest=40, tokens=20, shared=3), {}),
            ("none", SMALL, {"block_size": None}),
        ],
        ids=["several-tokens-an-event", "shared-prefix", "no-one-block-size"],
    )
    def test_what_the_client_cannot_tell_stays_unknown(
        self, fake: Callable[..., Fake], fault: str, spec: BurstSpec, more: dict[str, Any]
    ) -> None:
        gap = "0.15" if fault == "multi_token_event" else GAP
        _, reading = self.counted(fake(fault, "--gap", gap), spec, **more)
        assert (reading.tokens, reading.counted_by) == (None, "")


class TestRefresh:
    def test_a_burst_outlasts_numbers_that_are_renewed_late(self, fake: Callable[..., Fake]) -> None:
        engine = fake("none", "--gap", "0.01")
        spec = BurstSpec(requests=4, shortest=5, longest=40, tokens=8)
        reader = Reader(engine, refresh=0.5, tokens=5)
        begin = time.monotonic()
        burst, reading, sent = engine.burst(spec, limit=4000, reader=reader).run(lambda: None)
        first = max(request.first_token or 0 for request in sent)
        assert burst.held
        assert reading is not None
        assert (burst.held_at or 0) >= first + 0.5
        assert len(reader.begun) == 1  # anew, since one request came before to tell how fast tokens come
        # At most 100 tokens a second came, for the refresh and two seconds more; the next power of two.
        assert burst.tokens in (128, 256)
        assert {request.completion_tokens for request in sent} == {burst.tokens}
        assert time.monotonic() - begin < 20

    def test_half_of_the_context_is_the_most(self, fake: Callable[..., Fake]) -> None:
        engine = fake("none", "--gap", "0.01")
        spec = BurstSpec(requests=4, shortest=5, longest=40, tokens=8)
        burst, _, _ = engine.burst(spec, limit=40, reader=Reader(engine, refresh=5)).run(lambda: None)
        assert (burst.tokens, burst.held) == (20, False)
        assert max(burst.prompt_tokens) <= 16


def test_two_requests_of_each_shape_that_fits(fake: Callable[..., Fake]) -> None:
    engine = fake("none")
    found = HeldBurst(BurstSpec(), engine.client, 2.0, 600, None).shapes()
    assert [request.index for request in found] == [0, 1, 2, 3, 4, 5]
    assert [request.prompt_tokens for request in found] == [8, 8, 64, 64, 256, 256]
    assert {request.kind for request in found} == {"shape"}
    assert len({request.prompt_digest for request in found}) == 6
    assert len(HeldBurst(BurstSpec(), engine.client, 2.0, None, None).shapes()) == 8
    assert HeldBurst(BurstSpec(), engine.client, 2.0, 17, None).shapes() == []
    ended = HeldBurst(BurstSpec(), engine.client, 2.0, 600, None)
    ended.abort()
    assert ended.shapes() == []


def test_a_shape_that_fails_says_so() -> None:
    found = HeldBurst(BurstSpec(), Fake(1).client, 1.0, 30, None).shapes()
    assert [request.error for request in found] == ["connection refused"], "the rest is not tried"
