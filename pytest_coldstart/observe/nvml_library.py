"""NVML's Python module: opened in bounded time, and called without an exception, whatever is installed by its name."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Error codes of the library's ABI.
NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED, NO_LIBRARY, NO_FUNCTION = 4, 6, 9, 12, 13
LOST, VERSION_MISMATCH, GPU_NOT_FOUND, UNKNOWN = 15, 18, 28, 999

_WHY = {
    NO_LIBRARY: "there is no NVIDIA driver: libnvidia-ml.so.1 was not found",
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    NO_PERMISSION: "this user may not open NVML",
    VERSION_MISMATCH: "the NVIDIA driver's library and its kernel module are of different versions",
}
#: Seconds that NVML may take to open: many GPUs without persistence mode take ten, and a driver that is stuck never ends.
_PATIENCE = 30.0
#: What sys.modules holds in place of a module that was never imported.
_NEVER = object()


class _Opening(threading.Thread):
    """Imports and opens NVML. Afterwards there is a ``module``, or ``why`` there is none."""

    def __init__(self) -> None:
        super().__init__(name="coldstart-nvml", daemon=True)
        self.module: Any = None
        self.why = ""
        self.given_up = threading.Event()

    def run(self) -> None:
        try:
            import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except BaseException as error:  # a module of that name may do anything, exit as well
            absent = isinstance(error, ModuleNotFoundError) and error.name == "pynvml"
            self.why = (
                "the module pynvml is not installed here (pip install nvidia-ml-py)"
                if absent
                else f"the module pynvml cannot be imported: {_words(error)}"
            )
            return
        try:
            pynvml.nvmlInit()
        except BaseException as error:
            self.why = _WHY.get(_code(error), f"NVML does not open: {_words(error)}")
            return
        if self.given_up.is_set():
            call(pynvml, "nvmlShutdown")  # nobody waits for it any more
        self.module = pynvml


#: The module that did not open, as sys.modules had it, and why: what fails or hangs does so once a process.
_failed: tuple[Any, str] | None = None


def opened() -> tuple[Any, str]:
    """The module, NVML being open, or None and one sentence why not. Takes 30 s at most, and never raises."""
    global _failed
    if _failed is not None and _failed[0] is sys.modules.get("pynvml", _NEVER):
        return None, _failed[1]
    opening = _Opening()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the distribution `pynvml`, which redirects
        opening.start()
        opening.join(_PATIENCE)
    if opening.is_alive():
        opening.given_up.set()
        why = f"NVML does not answer within {_PATIENCE:g} s"
    elif opening.module is not None:
        return opening.module, ""
    else:
        why = opening.why
    if Path("/dev/kfd").exists():
        why += "; an AMD GPU is there, whose memory is not read"
    _failed = sys.modules.get("pynvml", _NEVER), why
    return None, why


def call(
    module: Any, function: str, *words: Any, read: Callable[[Any], Any] = lambda answer: answer
) -> tuple[Any, int]:
    """What *read* makes of *function*'s answer, or None and the code of the error; never raises."""
    try:
        ask = getattr(module, function, None)
        return (None, NO_FUNCTION) if ask is None else (read(ask(*words)), 0)
    except Exception as error:
        return None, _code(error)


def whole(value: Any) -> int:
    """:raises ValueError: it is no whole number that a counter or a size could be."""
    if not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is no counter")
    return int(value)


def text(value: Any) -> str:
    """:raises TypeError: it is no text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _code(error: BaseException) -> int:
    """NVML's code of *error*; one without a code says that this driver and this module do not go together."""
    code = getattr(error, "value", NO_FUNCTION)
    return code if isinstance(code, int) else UNKNOWN


def _words(error: BaseException) -> str:
    """One line; NVML's own errors speak for themselves."""
    words = " ".join(str(error).split())[:200]
    return words if hasattr(error, "value") and words else f"{type(error).__name__}: {words}".rstrip(": ")
