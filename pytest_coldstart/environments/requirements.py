"""Requirement files: those that come with the package, a user's own, and what their comments say.

A file is one that pip reads. Comments that begin with ``# coldstart:`` tell what pip cannot be told
there: ``engine NAME`` (the engine in suites), ``no-deps`` (install only what is listed),
``provides NAME==VERSION`` (metadata that a program asks for, under a name that no wheel here has) and
``copy FROM TO`` (two files below site-packages; ``{python}`` is the interpreter's version, such as 3.11).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

_HERE = Path(__file__).parent
_WORD = re.compile(r"#\s*coldstart:\s*(\S+)\s*(.*?)\s*$")
_PROVIDES = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.+!_-]*)$")
_COPY = re.compile(r"([\w.{}/-]+)\s+([\w.{}/-]+)$")
_WORDS = ("engine NAME", "no-deps", "provides NAME==VERSION", "copy FROM TO")


class RequirementsError(ValueError):
    """No such environment or version, or a file that cannot be read; the message lists what is valid."""


@dataclass(frozen=True)
class Requirements:
    """The requirements of one environment."""

    environment: str
    version: str | None
    file: Path
    lines: tuple[str, ...]
    engine: str
    no_deps: bool = False
    provides: dict[str, str] = field(default_factory=dict)
    copies: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """Over what is installed: not over comments, and not over where the file lies."""
        content = [*self.lines, f"no-deps {self.no_deps}", *(f"{n}=={v}" for n, v in sorted(self.provides.items()))]
        content += [f"copy {source} {target}" for source, target in self.copies]
        return hashlib.sha256("\n".join(content).encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        return f"{self.environment} {self.version}" if self.version else f"{self.environment} ({self.file})"


def shipped() -> dict[str, list[str]]:
    """The environments that come with the package: name -> versions, the newest first."""
    found = {folder.name: [file.stem for file in folder.glob("*.txt")] for folder in sorted(_HERE.iterdir())}
    return {name: sorted(versions, key=_numbers, reverse=True) for name, versions in found.items() if versions}


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def pinned(environment: str, version: str | None = None) -> Requirements:
    """The pinned requirements of an environment, of its newest version unless another is named.

    :raises RequirementsError: there is no such environment, or not in this version.
    """
    known = shipped()
    if environment not in known:
        raise RequirementsError(
            f"unknown environment {environment!r}; valid: {', '.join(known)}, or any name with --requirements FILE"
        )
    version = version or known[environment][0]
    if version not in known[environment]:
        raise RequirementsError(
            f"environment {environment!r} has no version {version!r}; valid: {', '.join(known[environment])}"
        )
    return _read(environment, version, _HERE / environment / f"{version}.txt")


def own(environment: str, file: Path) -> Requirements:
    """The requirements in a file of the user.

    :raises RequirementsError: the file cannot be read or says something that is not valid.
    """
    return _read(environment, None, file.absolute())


def _read(environment: str, version: str | None, file: Path) -> Requirements:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequirementsError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    lines = tuple(line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))
    for line in lines:
        # The digest could not tell that a file changed which this one only names.
        if line.startswith(("-r", "-c", "--requirement", "--constraint")):
            raise RequirementsError(f"{file}: {line!r} names another file; put all requirements into one")
    if not lines:
        raise RequirementsError(f"{file} lists no requirement")
    engine, no_deps, provides, copies = environment, False, {}, []
    for word, value in _said(file, text):
        if word == "engine":
            engine = value
        elif word == "no-deps":
            no_deps = True
        elif word == "copy":
            source, target = value.split()
            copies.append((source, target))
        else:
            name, _, number = value.partition("==")
            provides[name] = number
    return Requirements(environment, version, file, lines, engine, no_deps, provides, tuple(copies))


def _said(file: Path, text: str) -> list[tuple[str, str]]:
    """What the file's comments tell this command."""
    said = [(match[1], match[2]) for match in map(_WORD.match, text.splitlines()) if match]
    for word, value in said:
        copy = bool(_COPY.match(value)) and not any(
            name.startswith("/") or ".." in name.split("/") for name in value.split()
        )
        valid = {
            "engine": bool(value),
            "no-deps": not value,
            "provides": bool(_PROVIDES.match(value)),
            "copy": copy,
        }
        if not valid.get(word, False):
            raise RequirementsError(
                f"{file}: '# coldstart: {f'{word} {value}'.strip()}' is not one of: {', '.join(_WORDS)}"
            )
    return said
