"""Which engine a boot runs, also where a plain command starts it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

#: A word that begins so in a command names the engine.
_WORDS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "lmdeploy": "lmdeploy",
    "trtllm": "tensorrt-llm",
    "text-generation-launcher": "tgi",
    "tritonserver": "triton",
    "llama-server": "llamacpp",
    "transformers": "transformers",
}
#: Engines whose family has another name, as log patterns and rules do.
_FAMILIES = {"tensorrt_llm": "tensorrt-llm", "turbomind": "lmdeploy"}


def family(engine: str, command: Iterable[str]) -> str:
    """*engine*'s own; behind the generic engine ``openai`` the one that its command starts, if it tells."""
    if engine != "openai":
        return _FAMILIES.get(engine, engine)
    names = (PurePath(word).name for word in command)
    found = (kind for name in names for begin, kind in _WORDS.items() if name.startswith(begin))
    return next(found, engine)
