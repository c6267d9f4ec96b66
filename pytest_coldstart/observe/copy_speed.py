"""How fast a device takes data from pinned host memory: ``python -m pytest_coldstart.observe.copy_speed UUID``.

Prints one line of JSON: ``best`` and ``median`` in bytes a second, ``bytes`` of one copy, how many ``copies``, and
``context``, the bytes that a bare CUDA context takes on the device (null where NVML does not tell); or ``reason``, why
there is none. By the CUDA driver's library alone, which every host with a device has.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import time

from pytest_coldstart.observe.nvml import NVML

SIZE = 256 << 20
COPIES = 8


class CUDAError(RuntimeError):
    """A call of the driver that failed; the message names the call and the error."""


def measure(uuid: str) -> tuple[list[float], int | None]:
    """Bytes a second of each copy, and the bytes of this process's context on the device, where NVML tells.

    :raises CUDAError: the driver refused something.
    :raises OSError: there is no driver.
    """
    # The driver reads this at cuInit: the device is then its only one, whatever the caller had chosen.
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call(cuda, "cuInit", ctypes.c_uint(0))
    _call(cuda, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    _call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        _call(cuda, "cuCtxSetCurrent", context)
        return _copies(cuda, uuid)
    finally:
        _call(cuda, "cuDevicePrimaryCtxRelease_v2", device)


def _copies(cuda: ctypes.CDLL, uuid: str) -> tuple[list[float], int | None]:
    size = ctypes.c_size_t(SIZE)
    host, memory = ctypes.c_void_p(), ctypes.c_uint64()
    _call(cuda, "cuMemAllocHost_v2", ctypes.byref(host), size)
    try:
        _call(cuda, "cuMemAlloc_v2", ctypes.byref(memory), size)
        try:
            speeds = [_copy(cuda, memory, host, size) for _ in range(COPIES + 1)][1:]  # the first one warms up
            return speeds, _context(uuid)
        finally:
            _call(cuda, "cuMemFree_v2", memory)
    finally:
        _call(cuda, "cuMemFreeHost", host)


def _copy(cuda: ctypes.CDLL, memory: ctypes.c_uint64, host: ctypes.c_void_p, size: ctypes.c_size_t) -> float:
    begin = time.perf_counter()
    _call(cuda, "cuMemcpyHtoD_v2", memory, host, size)
    _call(cuda, "cuCtxSynchronize")
    return size.value / (time.perf_counter() - begin)


def _context(uuid: str) -> int | None:
    """What this process uses of the device beyond the memory that it asked for."""
    with NVML() as nvml:
        processes = nvml.device(uuid).processes() if nvml.opened else None
    used = next((item.bytes for item in processes or () if item.pid == os.getpid()), None)
    return used - SIZE if used is not None and used >= SIZE else None


def _call(cuda: ctypes.CDLL, name: str, *arguments: object) -> None:
    try:
        code = cuda[name](*arguments)
    except AttributeError:
        raise CUDAError(f"the driver has no {name}") from None
    if code:
        raise CUDAError(f"{name}: {_error(cuda, code)}")


def _error(cuda: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    known = cuda.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text)) == 0 and text.value
    return text.value.decode() if known and text.value else f"error {code}"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m pytest_coldstart.observe.copy_speed UUID", file=sys.stderr)
        return 2
    try:
        speeds, context = measure(arguments[0])
    except (CUDAError, OSError) as error:
        print(json.dumps({"reason": f"no copy to the device: {error}"}))
        return 1
    answer = {"best": max(speeds), "median": statistics.median(speeds), "bytes": SIZE, "copies": len(speeds)}
    print(json.dumps({**answer, "context": context}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
