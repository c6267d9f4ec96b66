"""The gate's own children, one at a time: none outlives it, and a signal ends them in good order before the gate."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: Seconds between two looks at what a child says.
_EVERY = 5.0


class Children:
    """While it is entered, the first SIGINT, SIGTERM or SIGHUP goes to the running child and its group, which is waited for;
    then ``SystemExit(128 + number)`` is raised here. A second one kills that child; its supervisors end its engines.

    Each child is a session of its own, so that Ctrl-C reaches it once and by us alone. ``keep``: descriptors of locks that
    a child holds too, for one that still ends its boots after the gate was killed.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._got: int | None = None
        self._raised = False
        self._held = False
        self._before: dict[int, Any] = {}
        self.keep: tuple[int, ...] = ()

    def __enter__(self) -> Children:
        try:
            for number in _SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._signalled)
        except ValueError:
            pass  # not the main thread: whoever has that one decides
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._held = False
        if error is None:
            self._end()

    def run(
        self,
        command: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
        output: int | IO[bytes],
        meanwhile: Callable[[], None] | None = None,
    ) -> int:
        """Run *command* to its end; returns its exit code, negative for a signal. *meanwhile* is called every few seconds.

        :raises OSError: it cannot be started.
        """
        held, self._held = self._held, True  # a signal between its start and the next line must not lose it
        try:
            self._child = subprocess.Popen(
                command,
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=self.keep,
            )
        finally:
            self._held = held
        if self._got is not None:
            self._pass_on(self._got)
        code = None
        while code is None:
            with suppress(subprocess.TimeoutExpired):
                code = self._child.wait(_EVERY)  # not interrupted: the handler passes signals on and returns
            if code is None and meanwhile:
                meanwhile()
        self._child = None
        self._end()
        return code

    def hold(self) -> None:
        """From here on a signal ends the gate only when this is left: what is cleaned up is cleaned up whole."""
        self._held = True

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        first, self._got = self._got is None, self._got or number
        if self._child is not None:
            if first:
                os.write(2, b"coldstart: ending the boot that runs; once more kills it\n")
            self._pass_on(number if first else signal.SIGKILL)
        else:
            self._end()

    def _pass_on(self, number: int) -> None:
        """A pytest that hears of a hang-up dies without ending its boots, so it is told to end."""
        assert self._child is not None
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGTERM if number == signal.SIGHUP else number)

    def _end(self) -> None:
        if self._got is not None and not self._raised and not self._held:
            self._raised = True
            raise SystemExit(128 + self._got)
