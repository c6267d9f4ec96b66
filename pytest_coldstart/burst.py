"""A burst: requests of mixed lengths that are held at once, so that memory is read under load."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_coldstart.client import Client, RequestFailed
from pytest_coldstart.kv import KVReader
from pytest_coldstart.memory import Burst, KVCache
from pytest_coldstart.record import Request
from pytest_coldstart.warmup import unique_prompt

#: Seeds of prompts, far from those of all other requests: no prefix cache may know a prompt.
_SEEDS, _SHAPE_SEEDS, _MOST_REQUESTS = 2_000_000, 1_000_000, 1000
#: The longest lengths: more than any context has room for, so that a slip in a number is no prompt of gigabytes.
_MOST_TOKENS, _MOST_SEED = 10**6, 2**31
#: Prompts are made of words, so their length in tokens is an estimate: so much of a context they may fill.
_FILL = 0.9
#: First requests of these lengths, each twice, with so many tokens generated.
_SHAPES, _SHAPE_TOKENS = (16, 128, 512, 1024), 4
#: How often it is looked whether all requests run, seconds.
_LOOK = 0.01
#: Tokens of the request that tells how fast tokens come, and seconds that a burst is held beyond a reader's refresh.
_PILOT_TOKENS, _SPARE = 16, 2.0


@dataclass(frozen=True)
class BurstSpec:
    """Lengths in tokens: of the prompts, ``shared`` of them being a common prefix, and ``tokens`` to generate."""

    requests: int = 16
    shortest: int = 64
    longest: int = 1536
    tokens: int = 256
    seed: int = 1
    shared: int = 0

    def __post_init__(self) -> None:
        """:raises ValueError: a field that makes no burst; says what is valid."""
        most = {"requests": _MOST_REQUESTS, "seed": _MOST_SEED}
        for name, least in (
            ("requests", 1),
            ("shortest", 1),
            ("longest", 1),
            ("tokens", 1),
            ("seed", 0),
            ("shared", 0),
        ):
            value = getattr(self, name)
            limit = most.get(name, _MOST_TOKENS)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= limit:
                raise ValueError(f"burst: {name}={value!r} is not a whole number from {least} to {limit}")
        if self.longest < self.shortest:
            raise ValueError(f"burst: longest={self.longest} is less than shortest={self.shortest}")
        if self.shared >= self.shortest:
            raise ValueError(
                f"burst: shared={self.shared} leaves nothing of shortest={self.shortest}; give fewer tokens"
            )

    @property
    def digest(self) -> str:
        """The same for the same burst on every machine."""
        return _digest(dataclasses.asdict(self))

    def lengths(self, limit: int | None) -> tuple[int, ...]:
        """Prompt lengths in tokens, in mixed order: spread evenly on a logarithmic scale, so short ones are as many as long ones.

        *limit*: most tokens of one request, prompt and answer. Empty where it holds no prompt.
        """
        longest = self.longest if limit is None else min(self.longest, int(limit * _FILL) - self.tokens)
        if longest <= self.shared:
            return ()
        shortest = min(self.shortest, longest)
        source = random.Random(self.seed)
        steps = [(index + source.random()) / self.requests for index in range(self.requests)]
        source.shuffle(steps)
        return tuple(round(shortest * (longest / shortest) ** step) for step in steps)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def spec_from(value: Any) -> BurstSpec | None:
    """What a suite's ``burst=`` says: True for the default one, False for none, or a dict of fields that differ.

    :raises ValueError: anything else.
    """
    if isinstance(value, BurstSpec):
        return value
    if isinstance(value, bool):
        return BurstSpec() if value else None
    if not isinstance(value, Mapping):
        raise ValueError(f"burst={value!r} is neither True, False nor a dict")
    valid = [field.name for field in dataclasses.fields(BurstSpec)]
    unknown = sorted(str(name) for name in value if name not in valid)
    if unknown:
        raise ValueError(f"burst has no {', '.join(map(repr, unknown))}; valid keys: {', '.join(valid)}")
    return BurstSpec(**value)


class _Flight(threading.Thread):
    """One request of the burst. Afterwards it has either a ``request`` or an ``error``."""

    def __init__(self, client: Client, prompt: str, tokens: int, timeout: float, index: int) -> None:
        super().__init__(name=f"coldstart-burst-{index}", daemon=True)
        self.client, self.prompt, self.tokens, self.timeout, self.index = client, prompt, tokens, timeout, index
        self.first, self.ended = threading.Event(), threading.Event()
        self.request: Request | None = None
        self.error = ""

    def run(self) -> None:
        try:
            self.request = self.client.complete(
                self.prompt, self.tokens, self.timeout, "burst", self.index, lambda name, at: self.first.set()
            )
        except RequestFailed as error:
            self.error = f"request {self.index + 1}: {error}"
        except Exception as error:
            self.error = f"request {self.index + 1}, a fault of ours: {type(error).__name__}: {error}"
        finally:
            self.ended.set()

    def held(self, events: int) -> int | None:
        """Tokens held when so many events had come; None where one event can have held several tokens.

        The last event may only say that the answer ends. The keys and values of the last token are not written yet.
        """
        request = self.request
        if request is None or request.prompt_tokens is None or request.completion_tokens is None or not events:
            return None
        one_each = 0 <= request.completion_tokens - self.client.token_events <= 1
        return request.prompt_tokens + events - 1 if one_each else None


class HeldBurst:
    """Sends a burst to one engine, once.

    *client* makes the client of one request; *tokens_per_word* is what a word of our prompts makes; *limit*: most tokens
    of one request. After *patience* seconds what still runs is ended.
    """

    def __init__(
        self,
        spec: BurstSpec,
        client: Callable[[], Client],
        tokens_per_word: float,
        limit: int | None,
        reader: KVReader | None,
        patience: float = 300.0,
        closing: threading.Event | None = None,
    ) -> None:
        self.spec, self.client, self.tokens_per_word = spec, client, tokens_per_word
        self.limit, self.reader, self.patience = limit, reader, patience
        #: Whether all requests still ran when *held* had returned.
        self.outlasted = False
        #: The most requests that the reader said ran at once; None where it never told.
        self.ran: int | None = None
        self._clients: list[Client] = []
        self._closing = closing or threading.Event()

    def run(self, held: Callable[[], None]) -> tuple[Burst, KVCache | None, tuple[Request, ...]]:
        """Send all requests at once and call *held* as soon as all of them run; returns once all have ended.

        The burst, the KV cache at the moment when all ran (None without a reader, or where they never did), and the
        requests that were answered. Requests that fail are told in the burst and never raise.
        """
        deadline = time.monotonic() + self.patience
        clock = self._client()
        tokens = self._tokens()
        lengths = replace(self.spec, tokens=tokens).lengths(self.limit)
        digest = _digest([lengths, tokens, self.spec.shared, self.spec.seed])
        burst = Burst(digest, self.spec.requests, tokens, self.spec.shared, begin=clock.now())
        if not lengths:
            reason = f"a context of {self.limit} tokens has no room for a prompt and {tokens} tokens"
            return replace(burst, end=clock.now(), failed=(reason,)), None, ()
        prompts = enumerate(self._prompts(lengths))
        flights = [_Flight(self._client(), prompt, tokens, self.patience, index) for index, prompt in prompts]
        for flight in flights:
            flight.start()
        reading, held_at = None, None
        events: tuple[int, ...] = ()
        try:
            if self._await_all(flights, deadline):
                reading, held_at, events = self._whole(flights, deadline, clock)
            if held_at is not None:
                held()
                self.outlasted = _running(flights)
        finally:
            self._finish(flights, deadline)
        if reading and held_at is not None:
            reading = replace(self._counted(reading, flights, events), at=held_at)
        sent = tuple(flight.request for flight in flights if flight.request)
        burst = replace(
            burst,
            prompt_tokens=tuple(item.prompt_tokens for item in sent if item.prompt_tokens is not None),
            held_at=held_at,
            end=clock.now(),
            held=held_at is not None,
            failed=tuple(flight.error for flight in flights if flight.error),
        )
        return burst, reading, sent

    def shapes(self) -> list[Request]:
        """Two requests of each of four prompt lengths, one at a time: what a shape costs at first shows in the first of two.

        Kind ``shape``, index twice the length's place plus 0 or 1. Lengths for which the context has no room are left out;
        the first request that fails has an ``error`` and is the last.
        """
        found: list[Request] = []
        for place, length in enumerate(_SHAPES):
            if self.limit is not None and length + _SHAPE_TOKENS > self.limit * _FILL:
                continue
            for turn in (0, 1):
                if self._closing.is_set():
                    return found
                client, index = self._client(), 2 * place + turn
                prompt, sent = unique_prompt(_SHAPE_SEEDS + index, self._words(length)), client.now()
                try:
                    found.append(client.complete(prompt, _SHAPE_TOKENS, self.patience, kind="shape", index=index))
                except RequestFailed as error:
                    return [*found, Request("shape", index, sent, error=str(error))]
        return found

    def abort(self) -> None:
        """End all requests, from another thread."""
        self._closing.set()
        for client in tuple(self._clients):
            client.abort()

    def _client(self) -> Client:
        client = self.client()
        self._clients.append(client)
        return client

    def _words(self, tokens: int) -> int:
        return max(1, round(tokens / self.tokens_per_word))

    def _prompts(self, lengths: Sequence[int]) -> list[str]:
        seeds = _SEEDS + self.spec.seed * 2 * _MOST_REQUESTS
        shared = self._words(self.spec.shared) if self.spec.shared else 0
        prefix = f"{unique_prompt(seeds + _MOST_REQUESTS, shared)} " if shared else ""
        return [
            prefix + unique_prompt(seeds + index, max(1, self._words(length) - shared))
            for index, length in enumerate(lengths)
        ]

    def _tokens(self) -> int:
        """How many tokens each request generates: more where the engine's numbers are only renewed now and then.

        Such a burst has to outlast a renewal. One request tells how fast tokens come; half of the context is the most.
        """
        half = _MOST_TOKENS if self.limit is None else min(_MOST_TOKENS, max(1, self.limit // 2))
        most = min(self.spec.tokens, half)
        if self.reader is None or self.reader.refresh <= 0:
            return most
        words = self._words(min(self.spec.shortest, half))
        try:
            pilot = self._client().complete(unique_prompt(_SEEDS - 1, words), _PILOT_TOKENS, self.patience, "burst")
        except RequestFailed:
            return most
        self.reader.begin()  # what that one request used is no part of the burst
        seconds = (pilot.done or 0.0) - (pilot.first_token or 0.0)
        if seconds <= 0:
            return most
        needed = math.ceil((_PILOT_TOKENS - 1) / seconds * (self.reader.refresh + _SPARE))
        # A power of two: what one pilot's noise changes would be another burst.
        return max(most, min(1 << (needed - 1).bit_length(), half))

    def _await_all(self, flights: Sequence[_Flight], deadline: float) -> bool:
        """Whether all had their first token while none had ended, and still run once the engine's numbers are new."""
        while not all(flight.first.is_set() for flight in flights):
            if not _running(flights) or self._given_up(deadline):
                return False
            time.sleep(_LOOK)
        renewed = time.monotonic() + (self.reader.refresh if self.reader else 0.0)
        while time.monotonic() < renewed:
            if not _running(flights) or self._given_up(deadline):
                return False
            time.sleep(min(_LOOK, max(0.0, renewed - time.monotonic())))
        return _running(flights)

    def _whole(
        self, flights: Sequence[_Flight], deadline: float, clock: Client
    ) -> tuple[KVCache | None, float | None, tuple[int, ...]]:
        """A reading in which all run and none waits, when it was, and the events that each request had brought by then.

        No time where there was none before a request ended. An engine that does not tell how many run is believed.
        """
        while _running(flights) and not self._given_up(deadline):
            at = clock.now()
            reading = self.reader.read("held") if self.reader else None
            events = tuple(flight.client.token_events for flight in flights)
            told = reading is not None and reading.running is not None
            if reading is not None and reading.running is not None:
                self.ran = max(reading.running, self.ran or 0)
            if reading is None or not told or (reading.running == len(flights) and not reading.waiting):
                return reading, at, events
            time.sleep(_LOOK)
        return None, None, ()

    def _counted(self, reading: KVCache, flights: Sequence[_Flight], events: Sequence[int]) -> KVCache:
        """With the tokens that our own count says were held, where the engine has no count of its own.

        What requests share is held once or for each, and the client cannot tell: then they stay unknown.
        """
        if reading.tokens is not None or reading.block_size is None or self.spec.shared:
            return reading
        if self.reader is not None and not self.reader.counted_by_client:
            return reading
        counts = [flight.held(number) for flight, number in zip(flights, events, strict=True)]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            return reading
        return replace(reading, tokens=sum(known), counted_by="client")

    def _given_up(self, deadline: float) -> bool:
        return self._closing.is_set() or time.monotonic() > deadline

    def _finish(self, flights: Sequence[_Flight], deadline: float) -> None:
        """Wait for the ends; what still runs at the deadline is ended."""
        for flight in flights:
            while not flight.ended.wait(0.05):
                if self._given_up(deadline):
                    flight.client.abort()


def _running(flights: Sequence[_Flight]) -> bool:
    return not any(flight.ended.is_set() for flight in flights)
