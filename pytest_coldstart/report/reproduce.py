"""The command that boots a stored cell again."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_coldstart.record import BootRecord
from pytest_coldstart.report import explain

#: Options of a run that its boots depend on; bounds, rounds and the store do not change what is booted.
_FLAGS = ("--coldstart-cpu", "--coldstart-spans")
_KEPT = (
    *(
        f"--coldstart-{name}"
        for name in ("python", "burst", "foreign-gpu", "phase-deadline", "boot-timeout", "hang-timeout")
    ),
    *("-c", "--config-file", "--rootdir", "-o", "--override-ini", "-p"),
)

#: What a gate loads into its own pytest.
_OWN_PLUGIN = "pytest_coldstart.gate.child"


def command(record: BootRecord, run: Sequence[object]) -> str:
    """The cheapest pytest command that boots the cell of *record*: one round of that test alone, with those options of the run's
    command line *run* that its boots depend on."""
    words = [str(word) for word in run]
    extra = ["--coldstart-rounds=1"]
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word in _FLAGS:
            extra.append(word)
        elif name in _KEPT:
            value = value if equals else " ".join(words[index + 1 : index + 2])
            if value not in ("", _OWN_PLUGIN) and not _of_another(name, value, record.engine):
                extra += [word] if equals else [word, value]
    return explain.reproduce(record.nodeid, extra)


def _of_another(option: str, value: str, engine: str) -> bool:
    """Whether the option is the interpreter of another engine."""
    return option == "--coldstart-python" and "=" in value and value.partition("=")[0] != engine
