"""The weights as safetensors files, written tensor by tensor in bounded memory.

A file is the length of its header (8 bytes, little-endian), the header (JSON, padded with spaces),
and the tensors one after the other. Writing that here keeps memory flat, which
``safetensors.save_file`` does not: it takes all tensors of a file at once.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import BinaryIO

from pytest_coldstart.random_model.geometry import ITEM_SIZES, Geometry
from pytest_coldstart.random_model.tokenizer import UNSPOKEN

#: As the hub's models are usually split.
SHARD_LIMIT = 4_000_000_000
_NAMES = {"bfloat16": "BF16", "float32": "F32"}
#: Weights of one tensor until its values repeat. A prime, so that no two rows of a matrix are alike.
_PERIOD = 1_048_573
_DEVIATION = 0.02


@dataclass(frozen=True)
class Tensor:
    """A tensor's name and shape, and how it is filled."""

    name: str
    shape: tuple[int, ...]
    ones: bool = False
    #: First rows that are zero.
    silent_rows: int = 0

    @property
    def count(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


def tensors(geometry: Geometry) -> Iterator[Tensor]:
    """Every tensor, by the names that engines know."""
    hidden, wide, narrow = geometry.hidden, geometry.intermediate, geometry.kv_width
    table = (geometry.vocab, hidden)
    yield Tensor("model.embed_tokens.weight", table, silent_rows=UNSPOKEN)
    for number in range(geometry.layers):
        layer = f"model.layers.{number}"
        yield Tensor(f"{layer}.input_layernorm.weight", (hidden,), ones=True)
        for part, width in (("q", hidden), ("k", narrow), ("v", narrow)):
            yield Tensor(f"{layer}.self_attn.{part}_proj.weight", (width, hidden))
            if geometry.architecture == "qwen2":
                yield Tensor(f"{layer}.self_attn.{part}_proj.bias", (width,))
        yield Tensor(f"{layer}.self_attn.o_proj.weight", (hidden, hidden))
        yield Tensor(f"{layer}.post_attention_layernorm.weight", (hidden,), ones=True)
        yield Tensor(f"{layer}.mlp.gate_proj.weight", (wide, hidden))
        yield Tensor(f"{layer}.mlp.up_proj.weight", (wide, hidden))
        yield Tensor(f"{layer}.mlp.down_proj.weight", (hidden, wide))
    yield Tensor("model.norm.weight", (hidden,), ones=True)
    if not geometry.tied:
        yield Tensor("lm_head.weight", table, silent_rows=UNSPOKEN)


def write(geometry: Geometry, folder: Path, limit: int = SHARD_LIMIT) -> None:
    """Write the weights into *folder*: one file, or shards of at most *limit* bytes and their index."""
    size = ITEM_SIZES[geometry.dtype]
    shards = _shards(list(tensors(geometry)), limit // size)
    fill = _Fill(geometry)
    places = {}
    for number, shard in enumerate(shards, 1):
        name = "model.safetensors" if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        places.update({tensor.name: name for tensor in shard})
        with open(folder / name, "wb") as file:
            file.write(_header(shard, geometry.dtype))
            for tensor in shard:
                fill.write(tensor, file)
    if len(shards) > 1:
        index = {"metadata": {"total_size": geometry.bytes}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def _shards(every: list[Tensor], limit: int) -> list[list[Tensor]]:
    """Tensors in order, a new shard whenever the next one would not fit into *limit* values."""
    shards: list[list[Tensor]] = [[]]
    filled = 0
    for tensor in every:
        if shards[-1] and filled + tensor.count > limit:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += tensor.count
    return shards


def _header(shard: list[Tensor], dtype: str) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for tensor in shard:
        end = begin + tensor.count * ITEM_SIZES[dtype]
        entries[tensor.name] = {"dtype": _NAMES[dtype], "shape": tensor.shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


class _Fill:
    """Turns a tensor into bytes. Each random byte picks one of 256 values of a normal distribution."""

    def __init__(self, geometry: Geometry) -> None:
        self.seed = geometry.seed
        self.size = ITEM_SIZES[geometry.dtype]
        normal = NormalDist(0, _DEVIATION)
        # float32 cut to its upper half is bfloat16, so both types hold the same values and no
        # rounding of the last digits, which may differ between machines, is left in them.
        upper = [struct.pack("<f", normal.inv_cdf((n + 0.5) / 256))[2:] for n in range(256)]
        self.low = bytes(half[0] for half in upper)
        self.high = bytes(half[1] for half in upper)

    def write(self, tensor: Tensor, file: BinaryIO) -> None:
        silent = tensor.silent_rows * (tensor.shape[1] if tensor.silent_rows else 0)
        file.write(bytes(silent * self.size))
        left = tensor.count - silent
        block = self._ones(left) if tensor.ones else self._block(tensor.name, min(left, _PERIOD))
        whole, rest = divmod(left * self.size, len(block))
        for _ in range(whole):
            file.write(block)
        file.write(block[:rest])

    def _block(self, name: str, count: int) -> bytes:
        noise = hashlib.shake_128(f"{self.seed} {name}".encode()).digest(count)
        return self._values(noise.translate(self.low), noise.translate(self.high))

    def _ones(self, count: int) -> bytes:
        low, high = struct.pack("<f", 1.0)[2:]
        return self._values(bytes([low]) * count, bytes([high]) * count)

    def _values(self, low: bytes, high: bytes) -> bytes:
        """Little-endian values of which the upper two bytes are given."""
        values = bytearray(len(low) * self.size)
        values[self.size - 2 :: self.size] = low
        values[self.size - 1 :: self.size] = high
        return bytes(values)
