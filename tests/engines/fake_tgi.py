"""A stand-in for text-generation-launcher and its shard that behaves as huggingface/text-generation-inference's sources say.

``launcher/src/main.rs``: the launcher starts text-generation-server, found on PATH, in a process group of its own, waits for
its socket, and ends it by SIGTERM. ``backends/v3/src/lib.rs``: the model is warmed up before the port is bound.
``router/src/server.rs``: /health is 503 while generation fails; /generate_stream has an event a token, the last with
details. Parameters that its API does not have are ignored.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from speaking import Answer, Patience, Server, bind  # type: ignore[import-not-found]

LOADING, WARMING, UNHEALTHY = 0.4, 0.3, 0.4
STAMP = "2025-04-16T17:58:51.532887Z  INFO "
#: It ends its answers by itself after so many tokens.
END = 5


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def shard(words: list[str]) -> None:
    time.sleep(LOADING)
    Path(value(words, "--uds-path") + "-0").touch()
    signal.pause()


def launch(words: list[str]) -> None:
    if words == ["--version"]:
        print("text-generation-launcher 3.3.7")
        return
    names = ("ATTENTION", "PREFIX_CACHING", "USAGE_STATS")
    found = {name: os.environ[name] for name in names if name in os.environ}
    Path(os.environ["FAKE_JOURNAL"]).write_text(json.dumps({"words": words, "env": found}))
    uds = value(words, "--shard-uds-path")
    print(STAMP + "shard-manager: text_generation_launcher: Starting shard rank=0", flush=True)
    began = time.monotonic()
    child = subprocess.Popen(["text-generation-server", "serve", "--uds-path", uds], process_group=0)

    def end(*_: Any) -> None:
        child.terminate()
        child.wait()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    while not Path(uds + "-0").exists():
        time.sleep(0.05)
    took = time.monotonic() - began
    print(STAMP + f"shard-manager: text_generation_launcher: Shard ready in {took:.9f}s rank=0", flush=True)
    Path(uds + "-0").unlink()
    print(STAMP + "text_generation_router_v3: Warming up model", flush=True)
    time.sleep(WARMING)
    print(STAMP + "text_generation_router_v3: Setting max batch total tokens to 412342", flush=True)
    healthy = Patience(UNHEALTHY)

    def get(path: str) -> Answer:
        if path == "/health":
            return (200, "") if healthy else (503, '{"error": "unhealthy", "error_type": "healthcheck"}')
        return {"/info": (200, "{}"), "/metrics": (200, "tgi_queue_size 0\n")}.get(path, (404, ""))

    def generate(body: Any) -> Answer:
        return (200, tokens(body["parameters"])) if healthy else (424, "asked too early")

    server = Server(bind(value(words, "--hostname"), int(value(words, "--port"))), get, {"/generate_stream": generate})
    print(STAMP + "text_generation_router: Connected", flush=True)
    healthy.start()
    server.serve_forever(0.05)


def tokens(parameters: Any) -> Iterator[Any]:
    count = min(parameters["max_new_tokens"], END)
    for index in range(count):
        last = index == count - 1
        reason = "length" if count < END or parameters["max_new_tokens"] == END else "eos_token"
        details = {"finish_reason": reason, "generated_tokens": count, "seed": None, "input_length": 9}
        token = {"id": index, "text": f" {index}", "logprob": -1.0, "special": last and reason == "eos_token"}
        yield {
            "index": index + 1,
            "token": token,
            "generated_text": "" if last else None,
            "details": details if last else None,
        }


if __name__ == "__main__":
    {"text-generation-server": shard}.get(Path(sys.orig_argv[1]).name, launch)(sys.argv[1:])
