"""Holds 1 GiB of GPU memory until its standard input is closed. Prints its process id once it does."""

import ctypes
import os
import sys

SIZE = 1 << 30


def call(cuda, name, *arguments):
    code = cuda[name](*arguments)
    if code:
        sys.exit(f"{name}: CUDA error {code}")


def main():
    ctypes.CDLL(None).prctl(15, b"gpu-holder", 0, 0, 0)  # PR_SET_NAME: what /proc/PID/comm says
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call(cuda, "cuInit", ctypes.c_uint(0))
    call(cuda, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call(cuda, "cuCtxSetCurrent", context)
    call(cuda, "cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(SIZE))
    print(os.getpid(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
