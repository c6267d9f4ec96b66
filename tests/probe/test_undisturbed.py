"""A program does with the probe what it does without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_coldstart.probe import INSIDE
from tests.probe.running import ended, interpreter, run, run_program, start

pytestmark = pytest.mark.timeout(120)

#: Name -> words of the interpreter, the program, what it reads.
PROGRAMS: dict[str, tuple[tuple[str, ...], str, bytes]] = {
    "prints and has arguments": (
        ("program.py", "-x", "a b"),
        "import sys; print(sys.argv); print('e', file=sys.stderr)",
        b"",
    ),
    "raises": (("program.py",), "def f(): 1 / 0\nf()", b""),
    "warnings are errors": (("-W", "error", "-X", "dev", "program.py"), "import json; print(json.dumps(1))", b""),
    "reads its input": (("-",), "", b"import sys\nprint(__name__, sys.argv)\n"),
    "a command": (
        ("-c", "import threading; print(threading.active_count(), [thread.name for thread in threading.enumerate()])"),
        "",
        b"",
    ),
    "a module": (("-m", "program", "x"), "import sys; print(__name__, sys.argv[1:], __spec__.name)", b""),
    "exit code": (("program.py",), "import sys; print('last words'); sys.exit(7)", b""),
    "os._exit": (("program.py",), "import os, time; print('x', flush=True); time.sleep(0.1); os._exit(4)", b""),
    "at its end": (
        ("program.py",),
        "import atexit, time\natexit.register(print, 'one')\natexit.register(print, 'two')\n"
        "class Late:\n    def __del__(self): print('late')\nlate = Late(); time.sleep(0.1)",
        b"",
    ),
    "asyncio": (
        ("-W", "error", "program.py"),
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.1)\n    await asyncio.to_thread(print, 'in a thread')\n"
        "    process = await asyncio.create_subprocess_exec('true')\n    print(await process.wait())\nasyncio.run(f())",
        b"",
    ),
    "forks": (
        ("-W", "error", "program.py"),
        "import os, sys, time\nfor index in range(3):\n    time.sleep(0.06)\n    if os.fork() == 0:\n"
        "        print('child', index, flush=True)\n        sys.exit(index)\n    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)",
        b"",
    ),
    "waits for a blocked signal": (
        ("program.py",),
        "import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\nprint(signal.sigwait({signal.SIGUSR1}))",
        b"",
    ),
    "a signal's handler": (
        ("program.py",),
        "import os, signal, time\ndef f(number, frame): raise SystemExit(9)\nsignal.signal(signal.SIGTERM, f)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)",
        b"",
    ),
    "a child with an environment of its own": (
        ("program.py",),
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(1)'], env={'A': 'b'}, check=True)\n"
        "print(subprocess.run('echo $0; exit 3', shell=True, preexec_fn=lambda: None).returncode)",
        b"",
    ),
}
POOL = """
import multiprocessing
def work(value): return value * 2
if __name__ == "__main__":
    with multiprocessing.get_context(%r).Pool(2) as pool:
        print(pool.map(work, range(5)))
"""
for method in ("fork", "spawn", "forkserver"):
    PROGRAMS[f"a pool by {method}"] = (("program.py",), POOL % method, b"")
#: Another interpreter's end crashed where a thread of ours was in it.
INTERPRETERS = """
import time
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
for _ in range(2):
    other = interpreters.create()
    interpreters.run_string(other, "import sys; assert 'coldstart_probe' in sys.modules")
    time.sleep(0.06)
    interpreters.destroy(other)
print("whole")
"""


#: Code, output, errors.
Result = tuple[int, bytes, bytes]


def both(
    words: tuple[str, ...], home: Path, given: bytes = b"", python: str = sys.executable, **more: str
) -> tuple[Result, Result]:
    """The same program without and with the probe, at the same time."""
    folder = home / "out"
    folder.mkdir()
    bare, full = (start(words, folder, mode, python, **more) for mode in ("off", "full"))
    first, second = ended(bare, folder, given), ended(full, folder, given)
    return (first.code, first.out, first.err), (second.code, second.out, second.err)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[tuple[Result, Result]]]]:
    """All programs, a few at a time: most of their time they wait."""

    def one(home: Path, words: tuple[str, ...], text: str, given: bytes) -> tuple[Result, Result]:
        (home / "program.py").write_text(text)
        bare, full = both(words, home, given)
        assert list((home / "out").glob("*.probe"))
        return bare, full

    with ThreadPoolExecutor(4) as pool:
        yield {name: pool.submit(one, tmp_path_factory.mktemp("p"), *what) for name, what in PROGRAMS.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_output_and_exit_code_are_the_same(name: str, results: dict[str, Future[tuple[Result, Result]]]) -> None:
    bare, full = results[name].result()
    assert full == bare


def test_forks_are_not_warned_of_threads(tmp_path: Path) -> None:
    python = interpreter("3.12") or interpreter("3.13") or interpreter("3.14")
    if python is None:
        pytest.skip("no python3.12 or later, which warns; 'pyenv install 3.12' puts one there")
    words, text, given = PROGRAMS["forks"]
    (tmp_path / "program.py").write_text(text)
    bare, full = both(words, tmp_path, given, python)
    assert full == bare
    assert full[2] == b""


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_other_interpreters_in_the_process_live_and_end(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no python{version} on PATH or in ~/.pyenv/versions; 'pyenv install {version}' puts one there")
    ran = run_program(INTERPRETERS, tmp_path, python=python)
    assert (ran.code, ran.out, ran.err) == (0, b"whole\n", b"")
    assert "more than one interpreter" in ran.trace.lost


class TestSitecustomize:
    def own(self, home: Path, text: str) -> str:
        folder = home / "site"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(text)
        return str(folder)

    def test_the_environments_own_runs_and_is_what_an_import_gives(self, tmp_path: Path) -> None:
        path = self.own(tmp_path, "import sys\nprint('own', __name__, __file__)\nVALUE = 5\n")
        text = "import sitecustomize, sys; print(sitecustomize.VALUE, sys.modules['sitecustomize'].__spec__.name)"
        bare, full = both(("-c", text), tmp_path, PYTHONPATH=path)
        assert full == bare
        assert b"own sitecustomize " + path.encode() in full[1]

    def test_its_exception_appears_as_without_us(self, tmp_path: Path) -> None:
        path = self.own(tmp_path, "raise LookupError('of its own')")
        bare, full = both(("-c", "print('on')"), tmp_path, PYTHONPATH=path)
        assert full == bare
        assert b"LookupError: of its own" in full[2]

    def test_its_missing_import_appears_as_without_us(self, tmp_path: Path) -> None:
        path = self.own(tmp_path, "import no_such_module")
        bare, full = both(("-c", "print('on')"), tmp_path, PYTHONPATH=path)
        assert full == bare
        assert b"no_such_module" in full[2]

    def test_it_may_end_the_process(self, tmp_path: Path) -> None:
        path = self.own(tmp_path, "import sys; sys.exit(6)")
        bare, full = both(("-c", "print('on')"), tmp_path, PYTHONPATH=path)
        assert full[:2] == bare[:2]
        # The traceback has our frame in it.
        assert full[2].splitlines()[-1] == bare[2].splitlines()[-1] == b"SystemExit: 6"

    def test_where_there_is_none_there_is_none(self, tmp_path: Path) -> None:
        text = "import sys\ntry:\n    import sitecustomize\nexcept ImportError as error:\n    print(error.name)\n"
        # This interpreter's own may be real, as Debian's is: then it is the same one.
        bare, full = both(("-c", text + "print('sitecustomize' in sys.modules)"), tmp_path)
        assert full == bare

    def test_usercustomize_is_left_alone(self, tmp_path: Path) -> None:
        folder = tmp_path / "site"
        folder.mkdir()
        (folder / "usercustomize.py").write_text("print('user')")
        bare, full = both(("-c", "print('on')"), tmp_path, PYTHONPATH=str(folder))
        assert full == bare

    def test_path_comes_after_ours(self, tmp_path: Path) -> None:
        text = "import os, sys; print(os.environ['PYTHONPATH']); print(sys.path[1:4])"
        ran = run(["-c", text], tmp_path, PYTHONPATH="/a:/b")
        assert ran.out.decode() == f"{INSIDE}:/a:/b\n['{INSIDE}', '/a', '/b']\n"


def test_engines_find_and_load_the_entry_point(tmp_path: Path) -> None:
    text = """
import os, sys
from importlib.metadata import entry_points
for group in ("vllm.general_plugins", "sglang.srt.plugins"):
    for plugin in entry_points(group=group):
        print(group, plugin.name, plugin.load()(), plugin.load()())
"""
    ran = run(["-c", text], tmp_path)
    assert ran.out == b"vllm.general_plugins coldstart_probe None None\nsglang.srt.plugins coldstart_probe None None\n"
    assert len(ran.traces) == 1
    assert ran.trace.stamps["plugin"] > ran.trace.stamps["python"]


def test_the_entry_point_starts_where_sitecustomize_was_not_run(tmp_path: Path) -> None:
    # A site of its own comes first and hides ours.
    (tmp_path / "sitecustomize.py").write_text("")
    text = f"""
import os, sys, time
sys.path.insert(0, {str(tmp_path)!r})
sys.path.append({str(INSIDE)!r})
from importlib.metadata import entry_points
for plugin in entry_points(group="vllm.general_plugins"):
    plugin.load()()
time.sleep(0.3)
"""
    ran = run(["-I", "-c", text], tmp_path)
    assert (ran.code, ran.err) == (0, b"")
    assert len(ran.trace.samples) >= 3
    assert set(ran.trace.stamps) >= {"python", "plugin"}
