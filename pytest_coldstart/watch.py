"""What can go wrong while a boot is awaited: exits, timeouts, hangs, somebody else's port."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping

from pytest_coldstart.errors import BootFailed
from pytest_coldstart.exchange import Exchange
from pytest_coldstart.observe import proc
from pytest_coldstart.plan import DEADLINES, Plan
from pytest_coldstart.ports import listeners, listening_inodes, owner
from pytest_coldstart.process import SupervisorLost, Tree, exit_words

#: Below this share of one core an engine counts as doing nothing: answering our polls costs the first, and each
#: process that polls its neighbours while nothing is asked of it the second (vLLM's worker: 0.018). At most the third.
IDLE_CPU, IDLE_CPU_EACH, IDLE_CPU_MOST = 0.04, 0.02, 0.25
#: What an exit code often means.
_HINTS = {
    0: "; a launcher that goes into the background must be told to stay",
    -9: "; the kernel sends SIGKILL when memory runs out",
}
#: Characters of the engine's last line that a message shows.
_LAST_LINE = 200


class Watch:
    """Checks one boot from the main thread, about 20 times a second."""

    def __init__(
        self,
        plan: Plan,
        tree: Tree,
        exchange: Exchange,
        observer: proc.TreeObserver,
        port: int,
        instants: Mapping[str, float],
        progress: Callable[[float, str, str], None],
        origin: float,
        deadlines: Mapping[str, float],
        mask: Callable[[str], str],
    ) -> None:
        self.plan, self.tree, self.observer, self.deadlines = plan, tree, observer, deadlines
        self.exchange, self.readiness = exchange, exchange.readiness
        self.port, self.instants, self.progress = port, instants, progress
        self.port_checked = False
        self.origin = origin
        self._mask = mask
        #: Whether the boot timeout holds: what comes after the timed requests has a limit of its own.
        self.timed = True
        self._active = time.monotonic()
        self._activity = (0, 0, 0)
        self._cpu = (time.monotonic(), 0.0)
        self._looked = 0.0

    def until(self, done: threading.Event, awaited: str) -> None:
        """Wait for *done*.

        :raises BootFailed: the engine ended, a time ran out, it hangs, or the port is not its own.
        """
        while not done.wait(0.05):
            elapsed = time.monotonic() - self.origin
            self._check_exit(elapsed)
            self._check_times(elapsed, awaited)
            if not self.port_checked and self.readiness.listening.is_set():
                self._check_port()
            self._check_hang(elapsed, awaited)
            self.progress(elapsed, awaited, self.tree.last_line)
        # What happened since the last look counts too.
        elapsed = time.monotonic() - self.origin
        self._check_exit(elapsed)
        self._check_deadlines(elapsed)
        if not self.port_checked and self.readiness.listening.is_set():
            self._check_port()

    def give_exit_a_moment(self) -> None:
        """Prefer "the engine exited" to "the connection broke" when both are about to be known."""
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            self._check_exit(time.monotonic() - self.origin)
            time.sleep(0.02)

    def _check_exit(self, elapsed: float) -> None:
        code = self.tree.exit_code
        if code is None and self.tree.lost:
            raise SupervisorLost("the supervisor process ended during the boot")
        if code is not None:
            hint = _HINTS.get(code, "")
            raise BootFailed(
                "exit", f"the engine ended with {exit_words(code)} after {elapsed:.2f} s, {self._progress()}{hint}"
            )

    def _check_times(self, elapsed: float, awaited: str) -> None:
        if self.timed and elapsed > self.plan.boot_timeout:
            raise BootFailed(
                "timeout",
                f"no end after the boot timeout of {self.plan.boot_timeout:g} s, waiting for {awaited}: {self._progress()}",
            )
        self._check_deadlines(elapsed)

    def _check_deadlines(self, elapsed: float) -> None:
        for name in DEADLINES:
            limit = self.deadlines.get(name)
            if limit is not None and self._instant(name, elapsed) > limit:
                raise BootFailed(
                    "deadline",
                    f"the instant {name!r} was not reached within its deadline of {limit:g} s: {self._progress()}",
                )

    def _reached(self, name: str) -> bool:
        return self._instant(name, math.inf) < math.inf

    def _instant(self, name: str, otherwise: float) -> float:
        """When the instant was, or *otherwise* while it has not been."""
        known = {"listen": self.readiness.listen, "ready": self.readiness.ready}.get(name, self.instants.get(name))
        return otherwise if known is None else known

    def _check_hang(self, elapsed: float, awaited: str) -> None:
        """No output, no CPU beyond what polls cost, no storage I/O for the hang timeout."""
        now = time.monotonic()
        # A boot that is not to be observed is looked at as little as a hang allows.
        if (
            now - self._looked < (0.2 if self.plan.observe else 1.0) or self.plan.cell.container
        ):  # its client alone is seen
            return
        self._looked = now
        last = self.observer.latest if self.plan.observe else self.observer.take()
        activity = (self.tree.log_bytes, last.read_bytes or 0, last.written_bytes or 0)
        since, cpu = self._cpu
        idle = min(IDLE_CPU + IDLE_CPU_EACH * last.processes, IDLE_CPU_MOST)
        busy = last.cpu_time - cpu > idle * max(now - since, 1.0)
        if activity != self._activity or busy:
            self._activity, self._active = activity, now
        if busy or now - since > 5:
            self._cpu = (now, last.cpu_time)
        if now - self._active > self.plan.hang_timeout:
            raise BootFailed(
                "hang",
                f"no output, no CPU and no I/O for {self.plan.hang_timeout:g} s, waiting for {awaited} "
                f"{elapsed:.1f} s after the start: {self._progress()}",
            )

    def _check_port(self) -> None:
        """Whoever listens must be of our tree; another server's answers are not this boot's.

        Looked at for a second before it is said: a server that exits while it listens is for a
        moment neither among the tree's open files nor known to have ended.
        """
        self.port_checked = True
        if self.plan.cell.container:
            return
        deadline = time.monotonic() + 1
        while listening_inodes(self.port) and not listeners(self.port, proc.tree(self.tree.supervisor_pid)):
            now = time.monotonic()
            self._check_exit(now - self.origin)
            if now > deadline:
                raise BootFailed(
                    "foreign_port",
                    f"port {self.port} is served by {owner(self.port) or 'a process'} that is not part of this boot",
                )
            time.sleep(0.02)

    def _progress(self) -> str:
        """How far the boot came, in words, with the engine's last line."""
        reached = [name for name in DEADLINES if self._reached(name)]
        words = f"after {reached[-1]!r}" if reached else "before it listened"
        if not self._reached("ready") and self.readiness.last_answer:
            words += f"; last answer: {self.readiness.last_answer}"
        if self.exchange.last_refusal and not self._reached("first_done"):
            words += f"; first request refused: {self.exchange.last_refusal}"
        if self.tree.last_line:
            # What is known of it is cut already: masked first and cut again, no half of a secret is shown.
            words += f"; last line: {self._mask(self.tree.last_line)[:_LAST_LINE]!r}"
        return words
