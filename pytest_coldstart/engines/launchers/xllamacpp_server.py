"""Run llama.cpp's HTTP server from the xllamacpp wheel, which ships no command of its own.

Runs in the engine's interpreter: standard library and xllamacpp alone. Arguments:
``--model PATH --host HOST --port PORT [NAME=VALUE ...]``.
"""

import argparse
import os
import signal
import sys
from typing import Any


def build(arguments: argparse.Namespace) -> Any:
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.hostnames = [arguments.host] if isinstance(params.hostnames, list) else arguments.host
    params.port = arguments.port
    params.endpoint_metrics = True
    for setting in arguments.settings:
        name, _, value = setting.partition("=")
        apply(xllamacpp, params, name, value)
    return xllamacpp.Server(params)


def apply(xllamacpp: Any, params: Any, name: str, value: str) -> None:
    if name == "n_threads":
        params.cpuparams.n_threads = int(value)
        params.cpuparams_batch.n_threads = int(value)
    elif name == "flash_attn":
        kinds = {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"}
        params.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_" + kinds[value])
    elif name in ("cache_type_k", "cache_type_v"):
        setattr(params, name, getattr(xllamacpp.ggml_type, "GGML_TYPE_" + value.upper()))
    elif name == "mmap":
        kind = "MMAP" if value == "true" else "NONE"
        params.load_mode = getattr(xllamacpp.llama_load_mode, "LLAMA_LOAD_MODE_" + kind)
    elif name == "load_warmup":
        params.warmup = value == "true"
    elif name == "fit":
        params.fit_params = value == "true"
    else:
        setattr(params, name, int(value))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    arguments = parser.parse_args()
    # Blocked before the server's threads start, so that they inherit it and only sigwait sees them.
    endings = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, endings)
    try:
        server = build(arguments)
    except RuntimeError as error:
        sys.exit(f"llama.cpp did not start: {error}")
    signal.sigwait(endings)
    del server
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
