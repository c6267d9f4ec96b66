"""Secrets are taken out of everything that is stored or printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

MASK = "***"

#: A tokenizer, a number of tokens and an author are no secrets, though their names begin like some.
_WORD = (
    r"token(?!iz|s(?![a-z]))|(?:api|access|refresh)[_-]?tokens|secret|passw|api[_-]?key|access[_-]?key|"
    r"private[_-]?key|session[_-]?key|credential|auth(?!or(?!iz))|cookie|[_-]key(?![a-z0-9])|"
    r"[_-](?:pass|pwd)(?![a-z])"
)
_SECRET_NAME = re.compile(f"(?i){_WORD}|^(?:pw|pass)$")
_SECRET_FLAG = re.compile(rf"(?i)^--?(?:[\w-]*(?:{_WORD})[\w-]*|pw|pwd|pass)$")
#: What a secret looks like, behind words of which one must be there: a search of those is
#: cheap, and logs are long.
_SECRET_TEXT = (
    (("hf_", "ghp_", "gho_", "ghs_"), re.compile(r"\b(?:hf|gh[pos])_[A-Za-z0-9_-]{16,}")),
    (("glpat-", "sk-", "sk_", "xox"), re.compile(r"\b(?:glpat|sk|xox[bap])[_-][A-Za-z0-9_-]{16,}")),
    (("AKIA",), re.compile(r"\bAKIA[0-9A-Z]{16}\b")),
    (("earer ", "EARER "), re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}")),
    (
        ("api_key", "api-key", "Api-Key", "API_KEY", "API-KEY"),
        re.compile(r"(?i)(?<=api[_-]key)(['\"]?\s*[:=]\s*['\"]?)[^\s'\",}]{6,}"),
    ),
    (("://",), re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")),
)
#: Shorter values would mask parts of ordinary words.
_SHORTEST = 6


class Redactor:
    """Masks the values of secret variables of *environment*, and what looks like a secret."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        values = {value for name, value in environment.items() if is_secret(name) and len(value) >= _SHORTEST}
        self._values = sorted(values, key=len, reverse=True)

    def learn(self, argv: Iterable[str]) -> None:
        """Mask from now on what a command line hides: engines print their arguments."""
        words = list(argv)
        hidden = [word for word, shown in zip(words, self.command(words), strict=True) if shown.endswith(MASK)]
        values = {word.partition("=")[2] or word for word in hidden}
        known = {*self._values, *(value for value in values if len(value) >= _SHORTEST)}
        self._values = sorted(known, key=len, reverse=True)

    def text(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, MASK)
        for words, pattern in _SECRET_TEXT:
            if any(word in text for word in words):
                text = pattern.sub(MASK, text)
        return text

    def file(self, path: Path) -> None:
        """Mask a text file in place; bytes that are no UTF-8 stay as they are."""
        with suppress(OSError):
            text = path.read_bytes().decode("utf-8", "surrogateescape")
            masked = self.text(text)
            if masked != text:
                path.write_bytes(masked.encode("utf-8", "surrogateescape"))

    def command(self, argv: Iterable[str]) -> tuple[str, ...]:
        """A command line; what follows a flag such as ``--api-key`` is masked too."""
        result: list[str] = []
        hide = False
        for word in argv:
            flag, equals, _ = word.partition("=")
            if hide and not word.startswith("--"):
                result.append(MASK)
            elif (equals and _SECRET_FLAG.match(flag)) or (equals and is_secret(flag)):
                result.append(f"{flag}={MASK}")
            else:
                result.append(self.text(word))
            hide = bool(_SECRET_FLAG.match(word)) and not equals
        return tuple(result)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {name: MASK if is_secret(name) else self.text(value) for name, value in sorted(variables.items())}


def is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name))
