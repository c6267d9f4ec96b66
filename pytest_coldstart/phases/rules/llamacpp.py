"""llama.cpp through its Python bindings. A server of native code is read from its clocked log."""

from __future__ import annotations

from pytest_coldstart.phases.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule("load_weights", "llama_cpp.llama", "__init__", "llama.cpp"),
    Rule("load_weights", "llama_cpp._internals", "__init__", "llama.cpp"),
)

#: For the launcher of this package alone, whose module is the main one. What its ``build`` does has no frames: the
#: clocked log tells it apart.
LAUNCHER_RULES: tuple[Rule, ...] = (Rule("", "__main__", "main", wait="idle", leaf=True),)
