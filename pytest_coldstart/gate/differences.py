"""What differs between the environments of two sides: versions, options, command, variables, machine, commit."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_coldstart.gate.comparison import Difference, SideBoot
from pytest_coldstart.record import BootRecord
from pytest_coldstart.redact import MASK, Redactor, is_secret

#: Said of what a side does not have.
NONE = "none"
#: Said of an option without a value.
GIVEN = "given"
EMPTY = "empty"

#: Keys of a run's header that say what a boot ran on, with the name under which they are shown.
_MACHINE = ("gpu", "driver", "cpu", "kernel", "os", "hardware_class", "hostname", "git_commit", "git_dirty")
#: Ours, not the engine's: other in each boot, or said elsewhere.
_OWN_VARIABLES = ("COLDSTART_", "PYTEST_")
_LONGEST = 300
_REDACTOR = Redactor({})

_TEMPORARY = re.compile(
    rf"(?<![\w.~-])(?:{'|'.join(re.escape(path) for path in (tempfile.gettempdir(), '/tmp', '/var/tmp', '/dev/shm'))})"
    r"/[^\s:;,'\"]+"
)
_OUR_FILES = re.compile(r"/[^\s:;,'\"]*/pytest_coldstart/(?=engines/|probe/)")
_PORT_OF_HOST = re.compile(r"(?<=[\w\]]:)\d{4,5}\b(?![.\w])")


def differences(base: Sequence[SideBoot], head: Sequence[SideBoot]) -> tuple[Difference, ...]:
    """What differs between two sides, and nothing that is the same.

    A value that is not one and the same for all boots of a side is said to vary. Ports, temporary paths, the store's
    own paths and the ids of boots are masked; of what may be a secret the name alone is told.
    """
    sides = [[(facts, set(map(_group, facts))) for facts in map(_facts, side)] for side in (base, head)]
    names = dict.fromkeys(name for side in sides for facts, _ in side for name in facts)
    found = []
    for name in names:
        first, second = (_values(name, side) for side in sides)
        if first and second and first != second:
            found.append(Difference(name, _words(first), _words(second)))
    groups = list(dict.fromkeys(map(_group, names)))
    found.sort(key=lambda item: groups.index(_group(item.what)))
    options = {_plain(item.what) for item in found if item.what.startswith("options.")}
    return tuple(item for item in found if not (item.what.startswith("command.") and _plain(item.what) in options))


def _group(name: str) -> str:
    return name.partition(".")[0]


def _plain(name: str) -> str:
    """An option's name however it is written: ``options.enforce_eager`` is ``command.--no-enforce-eager``."""
    return name.partition(".")[2].strip("-").replace("-", "_").removeprefix("no_")


def _values(name: str, side: Sequence[tuple[dict[str, str], set[str]]]) -> list[str]:
    """The different values of one side, in order; boots that know nothing of the whole group say nothing."""
    return sorted({facts.get(name, NONE) for facts, groups in side if _group(name) in groups})


def _words(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"varies ({'; '.join(values)})"


def _facts(boot: SideBoot) -> dict[str, str]:
    record, header = boot.record, boot.header
    masked = _masks(record)
    found = {f"versions.{name}": str(value) for name, value in record.versions.items()}
    found |= {f"options.{name}": _text(value) for name, value in dict(record.cell.get("options") or {}).items()}
    found |= {f"cell.{name}": _text(record.cell[name]) for name in ("engine", "warmup") if record.cell.get(name)}
    found |= {f"model.{name}": _text(record.model[name]) for name in _MODEL if record.model.get(name) is not None}
    found |= {"tier": record.tier, "probe": record.attribution.probe}
    found |= _command(record.command, masked)
    for name, value in record.environment.items():
        if not name.startswith(_OWN_VARIABLES):
            found[f"environment.{name}"] = _variable(name, value, masked)
    for name in _MACHINE:
        if name in header:
            found[name] = NONE if header[name] is None else _text(header[name])
    if "git_commit" in found:
        found["git_commit"] = found["git_commit"][:12]
    found |= {f"harness.{name}": str(value) for name, value in dict(header.get("versions") or {}).items()}
    return {name: _short(value) for name, value in found.items()}


_MODEL = ("name", "digest", "bytes", "filesystem")


def _short(text: str) -> str:
    text = _REDACTOR.text(text) or EMPTY
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _masks(record: BootRecord) -> list[tuple[str, str]]:
    """What is other in each boot, or of each store, and the word that stands for it; the longest first."""
    found = {record.boot_id: "<boot>", record.run_id: "<run>"}
    for cache in record.caches:
        found[cache.path] = f"<cache {cache.name}>"
        if Path(cache.path).parent.parent.name == "caches":
            found[str(Path(cache.path).parents[2])] = "<store>"
    for path in (record.log_path, record.attribution.samples_path):
        if path and Path(path).parent.name == "logs":
            found[str(Path(path).parents[1])] = "<store>"
    if record.model.get("path"):
        found[str(record.model["path"])] = "<model>"
    return sorted(((text, word) for text, word in found.items() if len(text) > 3), key=lambda item: -len(item[0]))


def _masked(text: str, masks: Sequence[tuple[str, str]], temporary: bool = True) -> str:
    for value, word in masks:
        text = text.replace(value, word)
    text = _PORT_OF_HOST.sub("<port>", _OUR_FILES.sub("<pytest_coldstart>/", text))
    return _TEMPORARY.sub("<temporary>", text) if temporary else text


def _variable(name: str, value: str, masks: Sequence[tuple[str, str]]) -> str:
    if is_secret(name) or value == MASK:
        return "set, and hidden"
    return "<port>" if "PORT" in name.upper() and value.isdigit() else _masked(value, masks)


def _command(words: Sequence[str], masks: Sequence[tuple[str, str]]) -> dict[str, str]:
    """A command line as options and their values: ``command.--max-model-len`` is ``2048``."""
    if not words:
        return {}
    # An interpreter in a temporary folder is still another interpreter.
    found: dict[str, list[str]] = {"command": [_masked(words[0], masks, temporary=False)]}
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-") and not (equals and name.isidentifier()):
            found.setdefault("command.arguments", []).append(_masked(word, masks))
            continue
        if not equals and rest and not rest[0].startswith("-") and word.startswith("-"):
            value = rest.pop(0)
        hidden = is_secret(name) or value == MASK
        text = "hidden" if hidden else ("<port>" if "port" in name.lower() else _masked(value, masks)) or GIVEN
        found.setdefault(f"command.{name}", []).append(text)
    return {name: " ".join(values) for name, values in found.items()}
