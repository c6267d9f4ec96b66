"""Samples of Python stacks as lines of text: each frame is defined once, each stack says how it differs from the last."""

from __future__ import annotations

import sys
import time
from _thread import get_ident

TYPE_CHECKING = False  # typing itself would have to be loaded
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

_now, _frames = time.monotonic, sys._current_frames

#: Frames of one stack, the innermost ones.
DEEPEST = 400


class Stacks:
    """The stacks of this process's threads, as whoever reads the lines knows them.

    *main*: the thread that is written at each sample, as 0. *add*: takes the fields of a line.
    """

    def __init__(self, main: int, add: Callable[..., None]) -> None:
        self.main, self.add = main, add
        #: A code object's address -> its number and itself, so that the address is not used again.
        self.known: dict[int, tuple[int, CodeType]] = {}
        #: Numbers of importlib's function that finds and loads a module.
        self.finders: set[int] = set()
        #: Thread -> its last stack as numbers, and what its innermost frames looked like.
        self.stacks: dict[int, list[int]] = {}
        self.threads: dict[int, tuple[int, ...]] = {}

    def sample(self) -> None:
        """One sample of the main thread's stack, and of each other thread whose stack is another than before."""
        now, me, frames = us(_now()), get_ident(), _frames()
        main = frames.pop(self.main, None)
        if main is not None:
            self.stack(now, 0, main)
        del main
        frames.pop(me, None)
        for thread, frame in frames.items():
            state = glance(frame)
            if self.threads.get(thread) != state:
                self.threads[thread] = state
                self.stack(now, thread, frame)
            del frame
        for thread in [thread for thread in self.threads if thread not in frames]:
            del self.threads[thread]
            self.stacks.pop(thread, None)
            self.add("E", now, thread)
        frames.clear()  # no reference outlives the sample: it would keep an engine's locals alive

    def stack(self, now: int, thread: int, top: FrameType) -> None:
        line, importing, finders, known = top.f_lineno, "", self.finders, self.known
        found: list[int] = []
        frame: FrameType | None = top
        while frame is not None and len(found) < DEEPEST:
            code = frame.f_code
            entry = known.get(id(code))
            if entry is None:
                entry = self.define(code, frame)
            number = entry[0]
            if not importing and number in finders:
                importing = str(frame.f_locals.get("name") or "")
            found.append(number)
            frame = frame.f_back
        found.reverse()
        last = self.stacks.get(thread, [])
        keep = 0
        for one, other in zip(last, found):  # noqa: B905 (the shorter one decides)
            if one != other:
                break
            keep += 1
        self.stacks[thread] = found
        self.add("S", now, thread, line or 0, keep, ",".join(map(str, found[keep:])), importing)

    def define(self, code: CodeType, frame: FrameType) -> tuple[int, CodeType]:
        """A number for a code object, which is kept, so that its address is not used again."""
        number = len(self.known)
        entry = self.known[id(code)] = (number, code)
        module = dict.get(frame.f_globals, "__name__")
        module = module if isinstance(module, str) else ""
        self.add("F", number, module, getattr(code, "co_qualname", code.co_name), code.co_filename)
        if code.co_name == "_find_and_load" and code.co_filename == "<frozen importlib._bootstrap>":
            self.finders.add(number)
        return entry


def glance(top: FrameType) -> tuple[int, ...]:
    """What tells a thread that moved from one that did not: its three innermost frames, so that a wait tells who waits.

    Plain, for there may be a hundred threads, and walking all their stacks would cost more than is allowed.
    """
    one = top.f_back
    if one is None:
        return id(top), top.f_lasti
    two = one.f_back
    if two is None:
        return id(top), top.f_lasti, id(one), one.f_lasti
    return id(top), top.f_lasti, id(one), one.f_lasti, id(two.f_code), two.f_lasti


def us(seconds: float) -> int:
    return int(seconds * 1e6)


def record(*fields: object) -> str:
    return "\t".join([clean(field) for field in fields])


def clean(field: object) -> str:
    """A field on one line without a tab."""
    text = field if type(field) is str else str(field)
    if text.isprintable() and "\\" not in text:
        return text
    text = text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
    return text.replace("\r", "\\r").replace("\0", "\\0")


def program(argv: list[str]) -> list[str]:
    """The words of a command up to the program: what follows may hold secrets."""
    words, rest = list(argv[:1]), iter(argv[1:])
    if not words or "py" not in words[0].rpartition("/")[2]:
        return words
    for word in rest:
        words.append(word[:300])
        if word in ("-W", "-X"):
            words.append(next(rest, ""))
        elif not word.startswith("-") or word == "-":
            break
        elif word[1] not in "-WX" and ("c" in word or "m" in word):
            if word[-1] in "cm":
                what = next(rest, "")[:80]
                # Code may hold secrets; that of multiprocessing says which of its helpers this is.
                words.append(what if word[-1] == "m" or what.startswith("from multiprocessing.") else "...")
            break
    return words
