"""Puts delays into the Python processes of an engine; the probe's own sitecustomize loads this one.

COLDSTART_TRUTH holds a list of injections as JSON: ``name``; ``process``, a pattern of the process's name as :func:`_process`
tells it; ``module``; ``function``, a dotted name in the module, "" for its module level code, "exit" with module "" for
the very end of the process; ``how``, sleep (releases the GIL), hold (does not), MODULE:FUNCTION to call or, at the end,
the path of a library; ``seconds``.
Each happens once in a boot and writes when it truly began and ended into the folder COLDSTART_TRUTH_OUT. A function is
delayed as if the delay were its first line: the code that waits bears its name, its module and its file.
"""

import inspect
import json
import os
import re
import sys
import time
import types

_HERE: list = json.loads(os.environ.get("COLDSTART_TRUTH", "[]"))
_OUT = os.environ.get("COLDSTART_TRUTH_OUT", "")


def _process() -> str:
    """What this process is, early in its life: multiprocessing's name, a module run with -m, or "main"."""
    current = getattr(sys.modules.get("multiprocessing.process"), "_current_process", None)
    name = getattr(current, "_name", "MainProcess")
    if name != "MainProcess":
        return name
    argv = sys.orig_argv
    return argv[argv.index("-m") + 1] if "-m" in argv else "-c" if "-c" in argv else "main"


def _mine(injection: dict) -> bool:
    """Whether it is to happen here and now, and is the first to."""
    if not re.fullmatch(injection["process"], _process()):
        return False
    try:
        os.close(os.open(_file(injection, "claim"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _file(injection: dict, kind: str) -> str:
    return f"{_OUT}/{injection['name']}.{kind}"


def _call(injection: dict) -> tuple:
    """A function and its argument: what the delay is."""
    how, seconds = injection["how"], injection["seconds"]
    if how == "sleep":
        return time.sleep, seconds
    if how == "hold":
        import ctypes

        usleep = ctypes.PyDLL(None).usleep
        usleep.argtypes = [ctypes.c_uint]
        return usleep, int(seconds * 1e6)
    module, _, function = how.partition(":")
    __import__(module)
    return getattr(sys.modules[module], function), seconds


def _note(injection: dict, begin: float) -> None:
    end = time.monotonic()
    with open(_file(injection, "part"), "w") as file:
        json.dump({"begin": begin, "end": end, "pid": os.getpid()}, file)
    os.replace(_file(injection, "part"), _file(injection, "truth"))


def _delay(injection: dict) -> None:
    if _mine(injection):
        call, argument = _call(injection)
        begin = time.monotonic()
        call(argument)
        _note(injection, begin)


def _delayed(target, injection: dict, names: dict):
    """*target* with the delay before it."""
    if inspect.iscoroutinefunction(target):

        async def late(*args, **kwargs):
            _delay(injection)
            return await target(*args, **kwargs)
    elif inspect.isgeneratorfunction(target):

        def late(*args, **kwargs):
            _delay(injection)
            return (yield from target(*args, **kwargs))
    else:

        def late(*args, **kwargs):
            _delay(injection)
            return target(*args, **kwargs)

    name, delay = target.__name__, _delay
    code = late.__code__.replace(co_name=name, co_qualname=target.__qualname__, co_filename=names["__file__"])
    # The module's own globals, as its functions have them; the delay's name is the only one added.
    names.setdefault("_delay", delay)
    made = types.FunctionType(code, names, name, None, late.__closure__)
    made.__dict__.update(target.__dict__)
    made.__qualname__, made.__module__, made.__doc__ = target.__qualname__, target.__module__, target.__doc__
    made.__kwdefaults__, made.__wrapped__ = None, target
    return made


def _patch(module, injection: dict) -> None:
    *path, last = injection["function"].split(".")
    owner = module
    for part in path:
        owner = getattr(owner, part)
    found = vars(owner)[last]
    kind = type(found) if isinstance(found, (classmethod, staticmethod)) else None
    made = _delayed(found.__func__ if kind else found, injection, vars(module))
    setattr(owner, last, kind(made) if kind else made)


class _Loader:
    """Runs a module's code with the delays that belong to it."""

    def __init__(self, loader, injections: list) -> None:
        self.loader, self.injections = loader, injections

    def __getattr__(self, name: str):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        for injection in self.injections:
            if not injection["function"] and _mine(injection):
                # As if it were the first line of the module.
                call, argument = _call(injection)
                module.__dict__["_late"] = call, argument
                begin = time.monotonic()
                exec(compile("_late[0](_late[1])", module.__file__, "exec"), module.__dict__)
                _note(injection, begin)
                del module.__dict__["_late"]
        self.loader.exec_module(module)
        for injection in self.injections:
            if injection["function"]:
                _patch(module, injection)


class _Finder:
    """Finds the modules that delays belong to, by asking the others."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        injections = [injection for injection in _HERE if injection["module"] == name]
        if not injections:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not _Finder else None
            if spec is not None:
                spec.loader = _Loader(spec.loader, injections)
                return spec
        return None


def _at_exit(injection: dict) -> None:
    """What the loader of libraries runs last, when Python is gone already."""
    import ctypes

    late = ctypes.CDLL(injection["how"])
    late.prepare(int(injection["seconds"] * 1e6), _file(injection, "truth").encode())


def _apart() -> None:
    """The interpreter's own clock of imports, which goes to stderr, into a file for each process."""
    file = os.open(f"{_OUT}/{os.getpid()}.importtime", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, 2)
    os.close(file)


if _OUT and os.environ.get("PYTHONPROFILEIMPORTTIME"):
    _apart()
    os.register_at_fork(after_in_child=_apart)
if _HERE and _OUT:
    sys.meta_path.insert(0, _Finder)
    for _injection in _HERE:
        if not _injection["module"] and _injection["function"] == "exit" and _mine(_injection):
            _at_exit(_injection)
