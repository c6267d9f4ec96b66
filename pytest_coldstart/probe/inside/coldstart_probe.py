"""What runs inside each Python process of an engine: stamps, stack samples, allocator statistics.

The standard library alone, and of that only what an interpreter has loaded anyway. It never raises, never prints, and
does nothing unless COLDSTART_PROBE_OUT names a folder. It works on CPython 3.10 to 3.14.

Each process appends lines to a file of its own in that folder. The fields of a line are separated by tabs, times are
microseconds of the monotonic clock. The format is documented in docs/probe.md and read by pytest_coldstart/probe/read.py.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # part of every interpreter; signal itself would have to be loaded
import os
import sys
import time
from _thread import LockType, allocate_lock, get_ident, interrupt_main, start_new_thread

# Beside this file, and no package.
import coldstart_allocator as allocator  # type: ignore[import-not-found]
from coldstart_host import INTERPRETERS, exists, is_main, peek, read, started, threads  # type: ignore[import-not-found]
from coldstart_stacks import Stacks, program, record, us  # type: ignore[import-not-found]

# Bound now: engines may patch these modules later.
_open, _write, _close, _stat = os.open, os.write, os.close, os.stat
_getpid, _getppid = os.getpid, os.getppid
_sleep, _now, _thread_cpu = time.sleep, time.monotonic, time.thread_time

#: Seconds between looks at the process, by mode. "rest": sampling has ended.
EVERY = {"full": 0.05, "marks": 0.1, "rest": 1.0}
#: Seconds between writes, and between looks at what changes rarely.
WRITE_EVERY, LOOK_EVERY = 0.25, 1.0
#: Seconds between looks whether the harness asks, while sampling rests.
ASKED_EVERY = 0.25
#: Seconds in which each sample is written at once: a process may be short, and end without saying so. A write lets the
#: GIL go three times, and what computes waits each time until this thread runs.
YOUNG = 0.5
#: Share of one core that sampling may take: where samples cost more, fewer are taken, down to one in so many seconds.
MOST_CPU, LONGEST_WAIT = 0.008, 0.5
#: Seconds that a fork waits at most for the sampler to end.
PATIENCE = 0.2
#: Bytes of one file, and seconds, after which nothing is sampled any more.
LARGEST, LONGEST = 32 << 20, 3600.0
_FAULTS = {_signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL}
#: Variables that place caches: an engine may set them itself.
CACHES = (
    "VLLM_CACHE_ROOT",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "CUDA_CACHE_PATH",
    "TVM_FFI_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "DG_JIT_CACHE_DIR",
    "SGLANG_DG_CACHE_DIR",
    "PYTHONPYCACHEPREFIX",
)

_probe: Probe | None = None
#: This is not the process's main interpreter.
_elsewhere = False


class Probe:
    """The probe of one process."""

    def __init__(self, folder: str, mode: str, how: str) -> None:
        self.folder, self.mode, self.main = folder, mode, get_ident()
        self.pid = _getpid()
        self.begin = begin = _now()
        self.path = f"{folder}/{self.pid}-{us(begin)}.probe"
        version = sys.version.split()[0]
        #: What every file begins with; once more after a loss, which may have been of the beginning.
        self.head = [
            record("P", 1, mode, self.pid, _getppid(), us(started()), us(begin), how, version),
            record("A", *program(getattr(sys, "orig_argv", None) or sys.argv)),
        ]
        self.size, self.torn, self.cpu = 0, False, 0.0
        #: Records lost since the last write that succeeded, when the first one was, and why.
        self.lost, self.lost_since, self.lost_why = 0, 0.0, ""
        #: Instants, name -> seconds: they outlive a loss.
        self.marks = {"python": begin}
        #: One item for each fork that is going on.
        self.forks: list[bool] = []
        #: The file with which the harness asked last.
        self.seen = (0, 0)
        self.forget()

    def forget(self) -> None:
        """Nothing that was written before is known to whoever reads."""
        self.lines = list(self.head)
        self.stacks = Stacks(self.main, self.add)
        self.said: set[str] = set()
        self.paths: dict[str, str] = {}
        self.name: object = None
        #: Points at which it was said already why the allocator is not read.
        self.unsaid: set[str] = set()

    # -- records

    def add(self, *fields: object) -> None:
        self.lines.append(record(*fields))

    def mark(self, name: str) -> None:
        self.marks.setdefault(name, _now())

    def write(self) -> None:
        """Append what has gathered. The file is opened each time: a descriptor that an engine closes behind our
        back would become the number of a file of its own."""
        for name, when in list(self.marks.items()):
            if name not in self.said:
                self.said.add(name)
                self.add("T", name, us(when))
        if not self.lines:
            return
        lines, self.lines = self.lines, []
        headed = len(self.head) if lines[0] is self.head[0] else 0
        lost = [record("L", us(self.lost_since), us(_now()), self.lost, self.lost_why)] if self.lost else []
        torn = "\0\n" if self.torn else ""  # no whole line ends so
        text = "\n".join([*lines[:headed], *lost, *lines[headed:]])
        data = f"{torn}{text}\n".encode("utf-8", "replace")
        written, why = 0, "a full disk"
        try:
            file = _open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                written = _write(file, data)
            finally:
                _close(file)
        except OSError as error:
            why = str(error.strerror)
        self.size += written
        if written == len(data):
            self.torn, self.lost = False, 0
            return
        # What was defined in lost lines has to be defined again, and the loss is said.
        self.torn = self.torn or written > 0
        self.lost_since = self.lost_since if self.lost else _now()
        self.lost += len(lines) - headed
        self.lost_why = why
        self.forget()

    # -- the sampler

    def run(self, pause: LockType, paused: LockType) -> None:
        try:
            wrote = looked = cpu = last = 0.0
            while True:
                now = _now()
                if self.mode == "full" and any(name in sys.modules for name in INTERPRETERS):
                    # Theirs are listed with ours, and run under locks of their own.
                    self.end("the process may have more than one interpreter")
                if self.mode == "full":
                    self.stacks.sample()
                self.look()
                if now - looked >= LOOK_EVERY:
                    looked = now
                    self.look_closer()
                if now - wrote >= WRITE_EVERY or now - self.begin < YOUNG:
                    wrote = now
                    self.write()
                before, cpu = cpu, _thread_cpu()
                self.cpu += cpu - before
                # One dear sample alone is a garbage collection of the engine's that fell into it.
                dear, last = min(cpu - before, last), cpu - before
                # Each call that let the GIL go has waited for it: that is part of the round.
                round_left = EVERY[self.mode] - min(_now() - now, EVERY[self.mode] / 2)
                wait = max(round_left, min(dear / MOST_CPU, LONGEST_WAIT))
                if self.wait(pause, wait):
                    return  # a fork is about to happen, or the end
        except BaseException as error:
            self.fail(error)
        finally:
            paused.release()

    def wait(self, pause: LockType, seconds: float) -> bool:
        """Until the next round; whether there is none. Meanwhile a process that rests may be asked."""
        if self.mode != "rest":
            return pause.acquire(True, seconds)
        while seconds > 0:
            if pause.acquire(True, min(seconds, ASKED_EVERY)):
                return True
            seconds -= ASKED_EVERY
            self.asked()
        return False

    def fail(self, error: BaseException) -> None:
        """An interpreter that is torn down, or what nobody foresaw: the engine goes on, and why we do not is said."""
        try:
            self.end(f"{type(error).__name__}: {error}"[:300])
            self.write()
        except BaseException:
            pass

    def go(self) -> None:
        self.pause, self.paused = pause, paused = allocate_lock(), allocate_lock()
        pause.acquire()
        paused.acquire()
        # The thread takes no signals: one that an engine blocks to wait for it would come there, and kill.
        mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals() - _FAULTS)
        try:
            start_new_thread(self.run, (pause, paused))
        except BaseException:
            paused.release()
            raise
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)

    def rest(self, patience: float = PATIENCE) -> bool:
        """End the thread; whether it has ended. A process of one thread then forks as if we were not there, and is
        not warned of threads. *patience*: seconds for a thread that writes to a disk that hangs, or has to be let run.
        """
        self.forks.append(True)
        if len(self.forks) > 1:
            return False
        alone = sys.version_info >= (3, 12) and threads() == 2
        self.pause.release()
        if not self.paused.acquire(True, patience):
            return False
        deadline = _now() + patience
        while alone and threads() > 1 and _now() < deadline:
            _sleep(0.0002)  # the thread has left Python, and is about to leave the kernel
        return True

    def resume(self) -> None:
        self.forks.pop()
        if not self.forks:
            if self.paused.locked():
                self.forget()  # the thread of before ends its round still: what it adds must not be built upon
            self.go()

    # -- what is looked at beside stacks

    def look(self) -> None:
        """Instants that are seen by looking: 20 times a second."""
        marks, modules = self.marks, sys.modules
        if "main" not in marks and peek(modules.get("__main__"), "__file__"):
            self.mark("main")
        if "torch" not in marks and "torch" in modules:
            self.mark("torch")
        if "cuda" not in marks and peek(modules.get("torch.cuda"), "_initialized") is True:
            self.mark("cuda")

    def look_closer(self) -> None:
        """Once a second: the process's name, its caches' places, the sampler's own cost, memory."""
        now, modules = us(_now()), sys.modules
        name = peek(peek(modules.get("multiprocessing.process"), "_current_process"), "_name")
        if name != self.name and isinstance(name, str):
            self.name = name
            self.add("N", now, name)
        for variable in CACHES:
            value = os.environ.get(variable)
            if value and self.paths.get(variable) != value:
                self.paths[variable] = value
                self.add("V", variable, value)
        self.count()
        if "cuda" in self.marks:
            self.memory(now)
        if self.mode == "rest":
            return
        if exists(self.folder + "/done"):
            self.end("done")  # the first answer is whole: what comes is to be timed undisturbed
        elif self.size >= LARGEST:
            self.end(f"its file grew to {LARGEST >> 20} MiB")
        elif _now() - self.begin >= LONGEST:
            self.end(f"it had sampled for {LONGEST:.0f} s")

    def count(self) -> None:
        self.add("C", us(_now()), us(self.cpu), len(sys.modules))

    def end(self, why: str) -> None:
        """Sample no more."""
        self.add("X", us(_now()), why)
        self.mode = "rest"

    def memory(self, now: int) -> None:
        """What is sampled of torch's allocator; bytes."""
        if allocator.barred():
            self.unread("", allocator.UNREAD)
            return
        try:
            for fields in allocator.sampled():
                self.add("G", now, *fields)
        except Exception:
            return

    # -- what the harness asks for

    def asked(self) -> None:
        """Whether the harness has come to a point at which it wants the allocator's statistics: one cheap look."""
        path = self.folder + "/memory"
        try:
            stat = _stat(path)
            if (stat.st_ino, stat.st_mtime_ns) == self.seen:
                return
            self.seen = stat.st_ino, stat.st_mtime_ns
            point = read(path, 64)
        except OSError:
            return
        self.look()
        if "cuda" in self.marks:
            self.answer(point)
            self.write()

    def answer(self, point: str) -> None:
        if allocator.barred():
            self.unread(point, allocator.UNREAD)
            return
        try:
            for fields in allocator.asked(point):
                self.add("M", us(_now()), point, *fields)
        except Exception as error:
            self.unread(point, f"{type(error).__name__}: {error}"[:300])

    def unread(self, point: str, why: str) -> None:
        """Why the allocator is not read, once for each point; "" for all the sampling."""
        if point not in self.unsaid:
            self.unsaid.add(point)
            self.add("U", us(_now()), point, why)


def start(how: str) -> None:
    """Begin in this process, once. *how*: site, plugin or fork."""
    global _probe, _elsewhere
    folder, mode = os.environ.get("COLDSTART_PROBE_OUT"), os.environ.get("COLDSTART_PROBE", "full")
    if not folder or mode not in ("marks", "full") or _ours() is not None:
        return
    if _probe is None and (_elsewhere or not is_main()):
        _elsewhere = True
        return
    gil = getattr(sys, "_is_gil_enabled", None)
    if mode == "full" and gil is not None and not gil():
        mode = "marks"  # frames of threads that run meanwhile cannot be read safely
    first = _probe is None
    _probe = Probe(folder, mode, how)
    _probe.write()  # a process may end before it lets a thread run
    _probe.go()
    if first:
        import atexit

        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forked)
        atexit.register(_last)


def _ours() -> Probe | None:
    """The probe of this process, not the one of the process that it was forked from."""
    return _probe if _probe is not None and _probe.pid == _getpid() else None


def _before_fork() -> None:
    try:
        if (probe := _ours()) is not None:
            probe.rest()
    except KeyboardInterrupt:
        interrupt_main()  # not ours to swallow, and nothing can be raised from here
    except BaseException:
        pass


def _after_fork() -> None:
    try:
        if (probe := _ours()) is not None:
            probe.resume()
    except KeyboardInterrupt:
        interrupt_main()
    except BaseException:
        pass


def _forked() -> None:
    try:
        start("fork")
    except KeyboardInterrupt:
        interrupt_main()
    except BaseException:
        pass


def _last() -> None:
    """At a regular end: what has gathered since the last write."""
    try:
        if (probe := _ours()) is not None and probe.rest(PATIENCE * 3):
            probe.count()
            probe.write()
    except Exception:
        pass


def plugin() -> None:
    """The entry point that engines load in each of their processes; also where sitecustomize was not run."""
    try:
        start("plugin")
        if (probe := _ours()) is not None:
            probe.mark("plugin")
    except Exception:
        pass
