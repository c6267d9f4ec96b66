"""The sentence in an engine's log that says why it failed, among hundreds of lines that do not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pytest_coldstart.process import exit_words
from pytest_coldstart.record import Failure

#: Colours, as they are or as our log shows them.
_COLOUR = re.compile(r"(?:\x1b|\\x1b)\[[\d;]*m")
_OFFSET = re.compile(r"^\[\+\s*([\d.]+)\]\s?")
#: What engines put before a line: a process name, a level with a time, a source file.
_PREFIX = re.compile(
    r"^(?:\((?:\w[\w-]*)(?:\s+pid=\d+[^()]*)?\)\s?)*"
    r"(?:(?P<level>CRITICAL|ERROR|WARNING|INFO|DEBUG)\b[\s:]*)?"
    r"(?:\d\d-\d\d \d\d:\d\d:\d\d\s*)?"
    r"(?:\[?[\w./-]+:\d+\]\s?)?"
)
#: The last line of a Python traceback: ``ValueError: ...``, ``torch.OutOfMemoryError: ...``.
_RAISED = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Failure)\b(?::\s*(.*))?$")
#: Right after a traceback any name is that of an exception: ``jinja2.exceptions.TemplateNotFound: x``.
_RAISED_THERE = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::\s.*)?$")
_TRACEBACK = "Traceback (most recent call last):"
#: argparse and llama.cpp say what is wrong after ``error:``, C++ after ``what():``.
_SAID = re.compile(r"^(?:(?:[\w./ -]+: )?error: \S.*|what\(\):\s+\S.*)$")
#: Triton of one model, in one line with ``\\n`` in it; its last words are that no model could be loaded.
_TRITON = re.compile(r"^E\d{4} \S+ \d+ model_lifecycle\.cc:\d+\] \"(failed to load '.+?)(?:\\n.*)?\"?$")
_TRITON_GAVE_UP = re.compile(r"^error: creating server: .*failed to load all models$")
#: click says it after ``Error:`` below its usage, and typer in a box; both words occur elsewhere too.
_CLICK = re.compile(r"^(?:Error: \S.*|╭─ Error ─+╮)$")
_USAGE_NEAR = 10
#: Wrappers that only point at the real reason.
_POINTERS = re.compile(
    r"(?i)root cause|stack ?trace (?:above|for)|error messages? above|Engine core initialization failed|"
    r"WorkerProc initialization failed|EngineDeadError"
)
#: What processes say when another one has ended or has told them to.
_CONSEQUENCES = re.compile(
    r"^(?:[\w.]+\.)?(?:KeyboardInterrupt|SystemExit|CancelledError|BrokenPipeError|ConnectionResetError)\b|^EOFError$"
)
#: vLLM of its processes: ``Failed core proc(s): {'EngineCore': -9}``, ``Worker proc X died unexpectedly (exit code: -9)``.
_FAILED = re.compile(r"(?i)failed (?:core|frontend) proc\(s\): \{[^}]*\}")
_EXIT = re.compile(r"'([^']+)': (-?\d+)")
_DIED = re.compile(r"proc (?P<name>\S+) died unexpectedly \(exit code: (?P<code>-?\d+)\)")
#: Python prints a traceback and goes on.
_IGNORED = ("Exception ignored in", "Exception ignored while", "Error in atexit")
#: transformers writes a table of what it could not load, and then an exception that points at it.
_ROW = re.compile(r"^(?P<key>\S.*?)\s*\|\s*(?:MISMATCH|CONVERSION)\s*\|\s*(?P<why>\S.*)$")
_MORE = re.compile(r"validation errors? for |:$|^[\w.]+$")


#: How much is shown of a reason (of a long one its end too: what to do stands there), and of the log's end beside it.
_MOST, _MOST_END = 400, 160
_TAIL_LINES, _TAIL_WIDTH = 30, 500


@dataclass(frozen=True)
class _Line:
    at: float | None
    level: str
    text: str


def explained(failure: Failure, lines: Sequence[str], until: float | None = None, ended: str = "") -> Failure:
    """A failure with what the engine's log says of it, and the log's end; *until* as in :func:`cause`.

    Where the log says nothing, what it says of processes that died, or *ended*, what was seen of them.
    """
    reason = _cut(cause(lines, until) or "")
    words = f"the engine said: {reason}" if reason else died(lines, until) or ended
    if words and (reason or words) not in failure.message:
        failure = replace(failure, message=f"{failure.message}; {words}")
    return replace(failure, log_tail="\n".join(line[:_TAIL_WIDTH] for line in lines[-_TAIL_LINES:]))


def _cut(text: str) -> str:
    if len(text) <= _MOST:
        return text
    return f"{text[: _MOST - _MOST_END - 5]} ... {text[-_MOST_END:]}"


def cause(lines: Sequence[str], until: float | None = None) -> str | None:
    """The last exception (or usage error) of *lines* that is no pointer to another; None if none is there.

    Of a chain of processes the innermost fails first and the others repeat or wrap it, so
    wrappers are passed over, as is what was logged as a warning and what Python ignored; of what
    remains the last is nearest to the end. Lines from *until* on, seconds by their own offsets,
    came after the failure and explain nothing.
    """
    read = [line for line in map(_read, lines) if until is None or line.at is None or line.at < until]
    return next(iter(list(_said(read))[::-1]), None)


def died(lines: Sequence[str], until: float | None = None) -> str:
    """The processes of an engine whose death another one of it told, such as ``EngineCore ended with signal SIGKILL``."""
    found: dict[str, str] = {}
    for line in map(_read, lines):
        if until is not None and line.at is not None and line.at >= until:
            continue
        for match in _DIED.finditer(line.text):
            found[match["name"]] = exit_words(int(match["code"]))
        if failed := _FAILED.search(line.text):
            found |= {name: exit_words(int(code)) for name, code in _EXIT.findall(failed[0])}
    return ", ".join(f"{name} ended with {words}" for name, words in found.items())


def _read(line: str) -> _Line:
    line = _COLOUR.sub("", line.rstrip())
    offset = _OFFSET.match(line)
    line = line[offset.end() :] if offset else line
    prefix = _PREFIX.match(line)
    assert prefix is not None  # every part of it may be missing
    return _Line(float(offset[1]) if offset else None, prefix["level"] or "", line[prefix.end() :])


def _said(lines: Sequence[_Line]) -> Iterator[str]:
    """Every line that says why, with what continues it."""
    ignored = inside = False
    for number, line in enumerate(lines):
        text = line.text.strip()
        if text.startswith(_IGNORED):
            ignored = True
        elif text.endswith(_TRACEBACK):
            inside = True
        elif line.level in ("WARNING", "INFO", "DEBUG"):
            continue
        elif _RAISED.match(text) or (inside and line.text[:1].strip() and _RAISED_THERE.match(text)):
            if not ignored and not _POINTERS.search(text) and not _CONSEQUENCES.match(text):
                yield _with_table(_continued(text, lines[number + 1 :]), lines[:number])
            ignored = inside = False
        elif triton := _TRITON.match(text):
            yield triton[1]
        elif _SAID.match(text) and not _TRITON_GAVE_UP.match(text):
            yield text
        elif _CLICK.match(text) and any("sage:" in item.text for item in lines[max(0, number - _USAGE_NEAR) : number]):
            yield text if text.startswith("Error") else _boxed(lines[number + 1 :])


def _continued(text: str, after: Sequence[_Line]) -> str:
    """An exception that says nothing on its own line, with the indented ones below it that do.

    pydantic: ``1 validation error for ModelConfig``, the field, then the reason.
    """
    if not _MORE.search(text):
        return text
    for line in after[:3]:
        more, bracket, _ = line.text.strip().partition(" [type=")
        if not more or more.endswith(_TRACEBACK) or more.startswith(("During handling", "The above exception")):
            break
        if not bracket and not line.text[:1].isspace() and "validation error" not in text:
            break
        text = f"{text} {more}"
        if bracket:
            break
    return text


def _with_table(text: str, before: Sequence[_Line]) -> str:
    """An exception that points at "the above report", with the first row of it."""
    if "above report" not in text:
        return text
    row = next((match for line in before if (match := _ROW.match(line.text))), None)
    return f"{text} {row['key']}: {row['why']}" if row else text


def _boxed(after: Sequence[_Line]) -> str:
    words = []
    for line in after:
        if not line.text.startswith("│"):
            break
        words.append(line.text.strip("│ "))
    return " ".join(words)
