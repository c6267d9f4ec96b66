"""A byte-level BPE tokenizer trained on a small text of our own, as the files that engines read."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import Any

BEGIN, TURN, END = SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BEGIN_ID, TURN_ID, END_ID = range(3)
#: Single bytes that are no visible ASCII come right after the special tokens.
_HIDDEN_BYTES = [byte for byte in range(256) if not 32 <= byte < 127]
#: The first ids: special tokens, and bytes that are no text of their own. Their rows in the tables are
#: zero, so greedy decoding picks none of them: no answer ends early, and every token is visible text.
UNSPOKEN = len(SPECIAL) + len(_HIDDEN_BYTES)
_MOST_MERGES = 512

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_TEXT = """
A server was asked a question in the morning, and the answer did not come. The engine had to read its weights
from storage, place them in memory, compile what it had compiled before, and say that it was ready. Only then
could the first token be written. People wait for the first token. They do not wait for the health of a port.

How long does a cold start take? It depends on what is warm. When the weights are in the page cache, the engine
reads them quickly; when they are not, the disk decides. When the compiler finds its cache, the graph is there
in a moment; when it does not, a minute goes by. So write down what was cold, and show how you know it.

Name a colour. The sky is blue, the grass is green, and the sand is yellow. Count to ten: one, two, three, four,
five, six, seven, eight, nine, ten. What is the capital of a country? Tell me a short story about a ship that
crossed the sea and came home in the winter with more salt than it could sell. Explain it again, in fewer words.

def start(model, port=8000):
    for number in range(10, 20):
        print(f"{number}: {model} on {port}")
    return {"ready": True, "tokens": 1234567890}

The quick brown fox jumps over the lazy dog; "What would you like to know?" said the dog (it was 23:59 by then).
A person should not have to guess which of the numbers was measured and which was only hoped for. If a number is
missing, say so. If a boot has failed, count it. If the machine was busy, write that down with the other things.
"""


def tokenizer(vocab: int) -> dict[str, Any]:
    """The content of tokenizer.json with exactly *vocab* tokens, in the format of the tokenizers library."""
    merges = list(_merges()[: vocab - len(SPECIAL) - 256])
    tokens = [*SPECIAL, *(_LETTERS[byte] for byte in _BYTE_ORDER), *(left + right for left, right in merges)]
    # Words that no text is ever split into: an answer of random weights may hold any id, and each is text.
    tokens += [f"{_LETTERS[32]}t{number}" for number in range(len(tokens), vocab)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(number, token) for number, token in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [f"{left} {right}" for left, right in merges],
        },
    }


def tokenizer_config(context: int) -> dict[str, Any]:
    """The content of tokenizer_config.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": BEGIN,
        "unk_token": None,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def _special(number: int, token: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": token, **flags, "special": True}


def _letters() -> dict[int, str]:
    """Byte -> the letter that stands for it, as GPT-2 has it: visible Latin-1 is itself, others start at U+0100."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return {byte: chr(byte) if byte in visible else chr(next(others)) for byte in range(256)}


_LETTERS = _letters()
_BYTE_ORDER = [*_HIDDEN_BYTES, *range(32, 127)]


@lru_cache(maxsize=1)
def _merges() -> tuple[tuple[str, str], ...]:
    """Byte-pair encoding: again and again, the pair that is most frequent becomes one token."""
    pieces = re.findall(r" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+", _TEXT)  # no lone white space: each token is visible
    counts = Counter(tuple(_LETTERS[byte] for byte in piece.encode()) for piece in pieces)
    merges: list[tuple[str, str]] = []
    while len(merges) < _MOST_MERGES:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in counts.items():
            for pair in pairwise(word):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        if pairs[best] < 2:
            break
        merges.append(best)
        counts = Counter({_merged(word, best): count for word, count in counts.items()})
    return tuple(merges)


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    merged: list[str] = []
    place = 0
    while place < len(word):
        found = word[place : place + 2] == pair
        merged.append("".join(pair) if found else word[place])
        place += 2 if found else 1
    return tuple(merged)
