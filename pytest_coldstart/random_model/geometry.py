"""The shape of a model: its fields, what is valid, its size, its digest, and how a name is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

#: Goes into the digest. Raise it when the same geometry gives other bytes than before.
RECIPE = 1

ARCHITECTURES = ("qwen2", "llama")
ITEM_SIZES = {"bfloat16": 2, "float32": 4}
#: Special tokens and one token for each byte, which every tokenizer here has, and some merges.
SMALLEST_VOCAB = 320
PREFIX = "random:"


@dataclass(frozen=True)
class Geometry:
    """What decides a model's bytes. ``dataclasses.replace`` changes a field and checks again.

    :raises ValueError: a field is not valid; the message names it and what is.
    """

    architecture: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    context: int
    dtype: str = "bfloat16"
    seed: int = 0
    #: Whether the output layer is the embedding table, as in small models, or a table of its own.
    tied: bool = True

    def __post_init__(self) -> None:
        problems = [*self._wrong_types()] or [*self._wrong_values()]
        if problems:
            raise ValueError("; ".join(problems))

    def _wrong_types(self) -> list[str]:
        """Types first: the rules between fields are arithmetic."""
        wanted = {"architecture": str, "dtype": str, "tied": bool}
        return [
            f"{field.name}={getattr(self, field.name)!r} is not of type {wanted.get(field.name, int).__name__}"
            for field in fields(self)
            if type(getattr(self, field.name)) is not wanted.get(field.name, int)
        ]

    def _wrong_values(self) -> list[str]:
        problems: list[str] = []
        if self.architecture not in ARCHITECTURES:
            problems.append(f"architecture={self.architecture!r} is not one of {', '.join(ARCHITECTURES)}")
        if self.dtype not in ITEM_SIZES:
            problems.append(f"dtype={self.dtype!r} is not one of {', '.join(ITEM_SIZES)}")
        least = {"vocab": SMALLEST_VOCAB, "seed": 0}
        problems += [
            f"{name}={getattr(self, name)} is below {least.get(name, 1)}"
            for name in ("hidden", "intermediate", "layers", "heads", "kv_heads", "vocab", "context", "seed")
            if getattr(self, name) < least.get(name, 1)
        ]
        return problems or self._wrong_ratios()

    def _wrong_ratios(self) -> list[str]:
        problems = []
        if self.hidden % self.heads:
            problems.append(f"heads={self.heads} does not divide hidden={self.hidden}; {_divisors(self.hidden, 2)}")
        elif self.head_dim % 2:
            problems.append(
                f"heads={self.heads} gives heads of {self.head_dim} values, and rotary positions need an even number;"
                f" hidden={2 * self.heads * (self.hidden // (2 * self.heads) + 1)} would do"
            )
        if self.heads % self.kv_heads:
            problems.append(f"kv_heads={self.kv_heads} does not divide heads={self.heads}; {_divisors(self.heads)}")
        return problems

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_width
        biases = self.hidden + 2 * self.kv_width if self.architecture == "qwen2" else 0
        layer = attention + biases + 3 * self.hidden * self.intermediate + 2 * self.hidden
        tables = 1 if self.tied else 2
        return self.layers * layer + tables * self.vocab * self.hidden + self.hidden

    @property
    def bytes(self) -> int:
        """Bytes of the weights; the files have some kB of headers on top."""
        return self.parameters * ITEM_SIZES[self.dtype]

    @property
    def digest(self) -> str:
        text = json.dumps({"recipe": RECIPE, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        return f"{self.architecture}-{self.digest}"


def _divisors(number: int, least_share: int = 1) -> str:
    """The divisors that leave a multiple of *least_share*."""
    return "valid: " + (", ".join(str(n) for n in range(1, number + 1) if number % (n * least_share) == 0) or "none")


# Heads of 64 values in the tiny ones: engines have no kernels for very small heads.
PRESETS: Mapping[str, Geometry] = {
    "qwen2-tiny": Geometry("qwen2", 128, 384, 4, 2, 1, 2048, 2048),
    "llama-tiny": Geometry("llama", 128, 384, 4, 2, 1, 2048, 2048, tied=False),
    "qwen2-0.5b": Geometry("qwen2", 896, 4864, 24, 14, 2, 151936, 32768),
    "qwen2-7b": Geometry("qwen2", 3584, 18944, 28, 28, 4, 152064, 32768, tied=False),
}


def named(name: str) -> Geometry | None:
    """The geometry of a name such as ``random:qwen2-tiny,layers=4``; None for a name of another kind.

    :raises ValueError: an unknown preset or field, or a geometry that is not valid.
    """
    if not name.startswith(PREFIX):
        return None
    preset, *overrides = (word.strip() for word in name.removeprefix(PREFIX).split(","))
    changes: dict[str, Any] = {}
    for word in overrides:
        field, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{name!r}: {word!r} is not FIELD=VALUE; valid fields: {', '.join(_FIELDS)}")
        changes[field.strip()] = value.strip()
    try:
        return chosen(preset, changes)
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from error


def chosen(preset: str, changes: Mapping[str, str]) -> Geometry:
    """A preset with fields changed, their values still text.

    :raises ValueError: as :func:`named`.
    """
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; valid presets: {', '.join(PRESETS)}")
    return replace(PRESETS[preset], **{field: _value(field, text) for field, text in changes.items()})


_FIELDS = tuple(field.name for field in fields(Geometry) if field.name != "architecture")


def _value(field: str, text: str) -> Any:
    if field not in _FIELDS:
        raise ValueError(f"unknown field {field!r}; valid fields: {', '.join(_FIELDS)}")
    if field == "dtype":
        return text
    if field == "tied":
        if text not in ("true", "false"):
            raise ValueError(f"tied={text!r} is not one of true, false")
        return text == "true"
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{field}={text!r} is not a whole number") from None
