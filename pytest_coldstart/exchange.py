"""The requests of one boot: the pinned first one, the warm-up's, and the timed ones after it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pytest_coldstart.client import FIRST_PROMPT, FIRST_TOKENS, Client, RequestFailed
from pytest_coldstart.observe.scrape import TTFTScraper
from pytest_coldstart.plan import Plan
from pytest_coldstart.readiness import Readiness, interval
from pytest_coldstart.record import Request
from pytest_coldstart.warmup import unique_prompt

#: Told of an instant as it happens: its name, seconds since the start.
Note = Callable[[str, float], None]


@dataclass
class Exchange:
    """Requests to one engine, one at a time. ``closing`` ends it from another thread."""

    plan: Plan
    client: Client
    readiness: Readiness
    scraper: TTFTScraper | None
    #: What was answered; several exchanges of one boot fill the same list.
    requests: list[Request]
    closing: threading.Event = field(default_factory=threading.Event)
    #: Why the pinned request was last refused.
    last_refusal: str = ""

    def pinned(self, kind: str, note: Note | None = None) -> Request:
        """Send the pinned request at the trusted endpoint's first success, again while it is refused.

        :raises RequestFailed: it was answered otherwise than whole.
        """
        while not self.readiness.trusted.wait(0.2):
            self._check_closing()
        attempts = 0
        while True:
            attempts += 1
            try:
                request = self.client.complete(FIRST_PROMPT, FIRST_TOKENS, self.plan.boot_timeout, kind, note=note)
                break
            except RequestFailed as error:
                if error.kind != "refused" or self.closing.is_set():
                    raise
                self.last_refusal = str(error)
                self.closing.wait(interval(self.client.now()))
        self.readiness.stop_polling()
        return replace(request, attempts=attempts)

    def keep(self, request: Request) -> None:
        """Keep an answered request, with the engine's own time to first token where its metrics tell."""
        if self.scraper is not None and request.kind in ("first", "warm"):
            request = replace(request, engine_ttft=self.scraper.take())
        self.requests.append(request)

    def warm(self, note: Note) -> None:
        """The warm-up strategy, then the judged request and the distribution after it.

        :raises RequestFailed: one of them was not answered whole.
        """
        plan, before = self.plan, len(self.requests)
        plan.warmup.run(lambda prompt, tokens: self._send(prompt, tokens, "warmup"))
        note("warmed", self.client.now())
        if self.scraper and len(self.requests) > before:
            self.scraper.skip(len(self.requests) - before)
        for index in range(plan.requests):
            words = plan.prompt_words[index % len(plan.prompt_words)]
            self._send(unique_prompt(index + 1, words), plan.request_tokens, "warm", index)

    def _send(self, prompt: str, tokens: int, kind: str, index: int = 0) -> None:
        self._check_closing()
        try:
            self.keep(self.client.complete(prompt, tokens, self.plan.boot_timeout, kind, index))
        except RequestFailed as error:
            what = "warm-up request" if kind == "warmup" else f"warm request {index + 1}"
            raise RequestFailed(error.kind, f"{what}: {error}") from error

    def _check_closing(self) -> None:
        if self.closing.is_set():
            raise RequestFailed("broken", "the boot is being stopped")

    def abort(self) -> None:
        """End the request in flight."""
        self.closing.set()
        self.client.abort()
