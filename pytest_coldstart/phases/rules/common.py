"""What CPython's own modules and the libraries of every server mean, and processes that are not Python."""

from __future__ import annotations

from pytest_coldstart.phases.rules.rule import ProcessRule, Rule

_IMPORTS = (
    Rule("imports", "site", detail="site"),
    Rule("imports", "runpy", "_get_*", "runpy"),
    Rule("imports", "pkgutil", "get_loader", "runpy"),
    Rule("imports", "importlib.metadata*", detail="package metadata"),
    Rule("imports", "importlib_metadata*", detail="package metadata"),
    Rule("imports", "pkg_resources*", detail="package metadata"),
)

_SPAWN = (
    Rule("spawn", "subprocess", "_execute_child"),
    # A forked child keeps the frames of its birth for life, so only the fork itself counts.
    Rule("spawn", "multiprocessing.popen_*", "_launch", leaf=True),
    Rule("spawn", "multiprocessing.popen_spawn_posix", "_launch"),
    Rule("spawn", "multiprocessing.popen_forkserver", "_launch"),
    Rule("spawn", "multiprocessing.util", "spawnv_passfds"),
    Rule("spawn", "multiprocessing.resource_tracker", "ensure_running"),
    Rule("spawn", "multiprocessing.forkserver", "ensure_running"),
    Rule("spawn", "multiprocessing.spawn", "get_preparation_data"),
    # In a child: it is told by its parent what to run.
    Rule("spawn", "multiprocessing.spawn", "prepare"),
    Rule("spawn", "multiprocessing.spawn", "_main", leaf=True),
)

_SERVER = (
    Rule("server_start", "uvicorn.config", "load", "uvicorn"),
    Rule("server_start", "uvicorn.config", "load_app", "uvicorn"),
    Rule("server_start", "uvicorn.config", "configure_logging", "uvicorn"),
    Rule("server_start", "uvicorn.server", "startup", "uvicorn"),
    Rule("server_start", "uvicorn.lifespan.on", "startup", "application start-up"),
    Rule("server_start", "fastapi.applications", "__init__", "routes"),
    Rule("server_start", "fastapi.applications", "include_router", "routes"),
    Rule("server_start", "fastapi.applications", "openapi", "routes"),
    Rule("server_start", "fastapi.applications", "build_middleware_stack", "middleware"),
    Rule("server_start", "fastapi.routing", "__init__", "routes"),
    Rule("server_start", "fastapi.routing", "add_api_route", "routes"),
    Rule("server_start", "fastapi.routing", "include_router", "routes"),
    Rule("server_start", "starlette.applications", "build_middleware_stack", "middleware"),
    Rule("server_start", "prometheus_fastapi_instrumentator*", "instrument", "metrics"),
    Rule("server_start", "hypercorn.asyncio.run", "worker_serve", "hypercorn"),
    Rule("server_start", "granian.server*", "startup", "granian"),
    Rule("server_start", "grpc._server", "_start", "grpc"),
    Rule("server_start", "argparse", "parse_*", "command line"),
    Rule("server_start", "argparse", "add_*", "command line"),
)

_DOWNLOAD = (
    Rule("load_weights", "huggingface_hub*", "snapshot_download", "download: Hugging Face hub"),
    Rule("load_weights", "modelscope*", "snapshot_download", "download: ModelScope"),
)

_WAITS = (
    Rule("", "subprocess", "run", wait="children"),
    Rule("", "subprocess", "call", wait="children"),
    Rule("", "subprocess", "check_*", wait="children"),
    Rule("", "subprocess", "getoutput", wait="children"),
    Rule("", "subprocess", "wait", wait="children"),
    Rule("", "subprocess", "_wait", wait="children"),
    Rule("", "subprocess", "_try_wait", wait="children"),
    Rule("", "subprocess", "poll", wait="children"),
    Rule("", "subprocess", "_internal_poll", wait="children"),
    Rule("", "subprocess", "communicate", wait="children"),
    Rule("", "subprocess", "_communicate", wait="children"),
    Rule("", "multiprocessing.popen_*", "wait", wait="children"),
    Rule("", "multiprocessing.popen_*", "poll", wait="children"),
    Rule("", "multiprocessing.process", "join", wait="children"),
    Rule("", "multiprocessing.managers", "start", wait="children", leaf=True),
    Rule("", "multiprocessing.pool", "wait", wait="children"),
    Rule("", "multiprocessing.pool", "get", wait="children"),
    Rule("", "concurrent.futures.process", "shutdown", wait="children"),
    Rule("", "threading", "wait", wait="threads"),
    Rule("", "threading", "wait_for", wait="threads"),
    Rule("", "threading", "acquire", wait="threads"),
    Rule("", "threading", "join", wait="threads"),
    Rule("", "threading", "_wait_for_tstate_lock", wait="threads"),
    Rule("", "threading", "_shutdown", wait="threads"),
    Rule("", "queue", "get", wait="threads"),
    Rule("", "queue", "put", wait="threads"),
    Rule("", "concurrent.futures._base", "result", wait="threads"),
    Rule("", "concurrent.futures._base", "wait", wait="threads"),
    # A thread of a pool with nothing to do.
    Rule("", "concurrent.futures.thread", "_worker", wait="idle", leaf=True),
    Rule("", "selectors", "select", wait="idle"),
    Rule("", "multiprocessing.connection", "wait", wait="idle"),
    Rule("", "multiprocessing.connection", "_recv", wait="idle"),
    Rule("", "multiprocessing.connection", "_poll", wait="idle"),
    Rule("", "multiprocessing.connection", "accept", wait="idle"),
    Rule("", "multiprocessing.synchronize", "__enter__", wait="idle", leaf=True),
    Rule("", "multiprocessing.synchronize", "wait", wait="idle"),
    Rule("", "multiprocessing.queues", "get", wait="idle", leaf=True),
    Rule("", "multiprocessing.resource_tracker", "main", wait="idle"),
    Rule("", "multiprocessing.forkserver", "main", wait="idle", leaf=True),
    Rule("", "socketserver", "serve_forever", wait="idle", leaf=True),
    Rule("", "asyncio.base_events", "_run_once", wait="idle", leaf=True),
    # Loops in C: between callbacks the runner is the innermost frame of Python.
    Rule("", "asyncio.runners", "run", wait="idle", leaf=True),
    Rule("", "asyncio.base_events", "run_forever", wait="idle", leaf=True),
    Rule("", "uvloop*", "run", wait="idle", leaf=True),
    Rule("", "zmq.sugar.poll", "poll", wait="idle"),
    Rule("", "zmq.sugar.socket", "poll", wait="idle"),
    Rule("", "zmq.sugar.socket", "recv*", wait="idle", leaf=True),
    Rule("", "zmq.utils.garbage", "run", wait="idle", leaf=True),
    Rule("", "tqdm._monitor", "run", wait="idle"),
    Rule("", "ray._private.worker", "get", wait="children"),
    Rule("", "ray._private.worker", "wait", wait="children"),
)

RULES: tuple[Rule, ...] = (*_IMPORTS, *_SPAWN, *_SERVER, *_DOWNLOAD, *_WAITS)

_KERNEL_JIT = ("ptxas", "nvcc", "cicc", "cudafe++", "fatbinary", "nvlink", "bin2c", "tileiras")
_COMPILERS = (
    *(
        "ninja",
        "cmake",
        "make",
        "gcc",
        "g++",
        "gcc-real",
        "g++-real",
        "cc",
        "c++",
        "cc1",
        "cc1plus",
        "as",
        "ld",
        "ld.*",
        "collect2",
    ),
    *("clang", "clang++", "clang-[0-9]*", "lld", "gcc-[0-9]*", "g++-[0-9]*", "x86_64-linux-gn*", "aarch64-linux-g*"),
)

PROCESS_RULES: tuple[ProcessRule, ...] = (
    *(ProcessRule("compile", name, "kernel JIT: " + name) for name in _KERNEL_JIT),
    *(ProcessRule("compile", name, "C++ compiler") for name in _COMPILERS),
    # Into the builder of TensorRT engines nobody looks: its whole life is the build.
    ProcessRule("compile", "trtllm-build", "trtllm-build"),
)
