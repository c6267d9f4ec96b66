"""A second reader of torch's allocator, which shares nothing with the probe: vLLM starts it as a plugin in each process.

Twice a second it appends a line of JSON to a file of its process in the folder $COLDSTART_CHECK, for each device in which
the process has a CUDA context. It creates none: torch may say that CUDA is initialised where no context exists.
"""

import ctypes
import json
import os
import sys
import threading
import time

EVERY = 0.5
#: Our words for what torch.cuda.memory_stats() calls otherwise.
NAMES = {
    "allocated": "allocated_bytes.all.current",
    "allocated_peak": "allocated_bytes.all.peak",
    "reserved": "reserved_bytes.all.current",
    "reserved_peak": "reserved_bytes.all.peak",
    "active": "active_bytes.all.current",
    "active_peak": "active_bytes.all.peak",
    "inactive_split": "inactive_split_bytes.all.current",
    "requested": "requested_bytes.all.current",
    "retries": "num_alloc_retries",
    "segments": "segment.all.current",
}


def start():
    folder = os.environ.get("COLDSTART_CHECK")
    if folder and not any(thread.name == "coldstart-check" for thread in threading.enumerate()):
        threading.Thread(target=run, args=(folder,), name="coldstart-check", daemon=True).start()


def run(folder):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"check-{os.getpid()}-{time.time_ns()}.jsonl")
    while True:
        try:
            lines = [json.dumps(line) for line in read()]
            if lines:
                with open(path, "a") as file:
                    file.write("\n".join(lines) + "\n")
        except Exception as error:  # an engine must not fail by what only looks on
            with open(path + ".error", "w") as file:
                file.write(f"{type(error).__name__}: {error}\n")
        time.sleep(EVERY)


def read():
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not hasattr(cuda, "is_initialized") or not cuda.is_initialized():
        return
    for device in contexts():
        stats = cuda.memory_stats(device)
        values = {name: stats.get(key) for name, key in NAMES.items()}
        yield {"time": time.time(), "pid": os.getpid(), "device": device, **values}


def contexts():
    """Devices whose primary context is alive in this process."""
    driver = ctypes.CDLL("libcuda.so.1")
    count, device, flags, active = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)):
        return []  # not initialised in this process
    found = []
    for number in range(count.value):
        if driver.cuDeviceGet(ctypes.byref(device), number):
            continue
        state = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
        if state == 0 and active.value:
            found.append(number)
    return found
