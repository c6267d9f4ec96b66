"""The contract of a warm-up strategy, and the prompts it may send."""

from __future__ import annotations

import dataclasses
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

#: Sends one prompt with a number of tokens to generate.
Send = Callable[[str, int], None]

#: Common English words, about one token each in every tokenizer of the field.
_WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work government number night point home water room "
    "mother area money story fact month lot right study book eye job word business issue side kind head house "
    "service friend father power hour game line end member law car city community name president team minute idea "
    "body information back parent face others level office door health person art war history party result change "
    "morning reason research girl guy moment air teacher force education "
).split()


class WarmupError(ValueError):
    """A warm-up strategy that does not exist or does not take these arguments."""


class Warmup(ABC):
    """One strategy. Subclasses are frozen dataclasses whose fields are the arguments a user may give."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, send: Send) -> None:
        """Warm the engine up; returns when it is done.

        :raises pytest_coldstart.client.RequestFailed: a request was not answered; the boot failed.
        """

    def spec(self) -> dict[str, Any]:
        """The strategy and its arguments as plain data: a part of the cell's identity."""
        return {"strategy": self.name, **dataclasses.asdict(self)}  # type: ignore[call-overload]


class WarmupRegistry(dict[str, type[Warmup]]):
    def add(self, kind: type[Warmup]) -> None:
        self[kind.name] = kind


WARMUPS = WarmupRegistry()


def create(spec: str | Mapping[str, Any] | Warmup) -> Warmup:
    """A strategy from its name, from ``{"strategy": name, argument: value}`` or from an instance.

    :raises WarmupError: unknown strategy or argument, or an unusable value.
    """
    if isinstance(spec, Warmup):
        return spec
    if isinstance(spec, str):
        spec = {"strategy": spec}
    if not isinstance(spec, Mapping) or "strategy" not in spec:
        raise WarmupError(f"warmup {spec!r} is neither a strategy's name nor a dict with the key 'strategy'")
    arguments = dict(spec)
    name = arguments.pop("strategy")
    kind = WARMUPS.get(name)
    if kind is None:
        raise WarmupError(f"unknown warm-up strategy {name!r}; valid strategies: {', '.join(sorted(WARMUPS))}")
    valid = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(arguments) - set(valid))
    if unknown:
        raise WarmupError(
            f"warm-up strategy {name!r} takes no {', '.join(map(repr, unknown))}; valid arguments: "
            f"{', '.join(valid) or 'none'}"
        )
    return kind(**arguments)


def unique_prompt(seed: int, words: int) -> str:
    """A prompt of *words* words that no other seed gives, the same on every machine.

    It differs from its first word on, so that no prefix cache can serve a part of it.
    """
    source = random.Random(seed)
    return f"{seed} " + " ".join(source.choice(_WORDS) for _ in range(max(1, words - 1)))
