"""Warm up with prompts of stated lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_coldstart.warmup.base import Send, Warmup, WarmupError, unique_prompt

#: Far from the seeds of the measured requests, so that no warm-up prompt is measured later.
_FIRST_SEED = 900_000


@dataclass(frozen=True)
class Prompts(Warmup):
    """*count* unique prompts, their *lengths* (in words) taken in turn, *tokens* generated each."""

    count: int = 3
    lengths: Sequence[int] = (16, 64)
    tokens: int = 4

    name = "prompts"

    def __post_init__(self) -> None:
        lengths = self.lengths
        if isinstance(lengths, int):
            lengths = (lengths,)
        object.__setattr__(self, "lengths", tuple(lengths))
        for what, value in (("count", self.count), ("tokens", self.tokens), *(("lengths", n) for n in self.lengths)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise WarmupError(f"warm-up strategy 'prompts': {what} must be whole numbers from 1, got {value!r}")
        if not self.lengths:
            raise WarmupError("warm-up strategy 'prompts': lengths is empty")

    def run(self, send: Send) -> None:
        for index in range(self.count):
            send(unique_prompt(_FIRST_SEED + index, self.lengths[index % len(self.lengths)]), self.tokens)
