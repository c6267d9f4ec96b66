"""Starts the probe in a Python process of the engine, then runs the sitecustomize that this one hides."""

import sys


def _start() -> None:
    try:
        import coldstart_probe  # type: ignore[import-not-found]  # beside this file, no package

        coldstart_probe.start("site")
    except Exception:
        pass  # nothing of ours may keep an engine from starting


def _chain() -> None:
    """Load the environment's own sitecustomize in place of this module.

    Its errors are its own: they go where they would have gone without us, and so does the one of a module that is
    not there, which the interpreter expects.
    """
    # Both are part of every interpreter; importlib.util would have to be loaded.
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    here = __file__.rpartition("/")[0]
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if path.rstrip("/") != here])
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("No module named 'sitecustomize'", name="sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start()
_chain()
