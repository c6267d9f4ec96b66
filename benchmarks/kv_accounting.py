"""Whether the KV cache of vLLM is counted right: bursts of known lengths, held, against arithmetic.

Prompts are lists of token ids, so their lengths are exact, and the engine confirms them. Each is one token longer than whole blocks, and its
answer ends inside the block that this token begins, so that the number of blocks is the same at every moment of the burst, however
late it is read:

- `unshared`: blocks in use are exactly the sum of ceil(tokens / block), and kv_fragmentation is 1 - tokens / (blocks x block) with the
  tokens that the clients had received, from just before the reading to just after it and two steps on;
- `shared`: all prompts begin with the same whole blocks, which are in use once, and kv_fragmentation stays at 0 or above;
- `words`: the burst as a boot sends it, of words and mixed lengths, whose blocks are bounded by its lengths before and after.

Exits with 1 where one of them does not hold.

    kv_accounting.py --python ENV/bin/python --block-size 64
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _common import arguments, finish, table

from pytest_coldstart.boot import Boot
from pytest_coldstart.burst import BurstSpec, HeldBurst
from pytest_coldstart.cell import Cell
from pytest_coldstart.client import Client, Dialect
from pytest_coldstart.engines import EngineRegistry
from pytest_coldstart.kv.vllm import VLLMKV
from pytest_coldstart.locks import HostLock
from pytest_coldstart.memory import KVCache
from pytest_coldstart.observe.memory_log import read_sizes
from pytest_coldstart.plan import Plan
from pytest_coldstart.ports import HOST
from pytest_coldstart.warmup import create, unique_prompt

#: Whole blocks in front of the last, begun one, of each prompt.
BLOCKS = (1, 7, 0, 3, 12, 2, 5, 1, 9, 4, 0, 6)
SHARED_BLOCKS = 4
CONTEXT = 2048
#: A short answer may end before the last request has begun: then there was nothing to read, and the burst is sent again.
ATTEMPTS = 10


@dataclass(frozen=True)
class Ids(Dialect):
    """Sends token ids, which are written as words here, where others send text."""

    def body(self, model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
        return {**super().body(model, prompt, max_tokens), "prompt": [int(word) for word in prompt.split()]}


@dataclass
class Check:
    """What was read and what should have been, of one burst."""

    name: str
    rows: list[tuple[str, ...]] = field(default_factory=lambda: [("what", "read", "should be", "holds")])
    held: bool = True

    def row(self, what: str, read: object, should: object, holds: bool) -> None:
        self.rows.append((what, str(read), str(should), "yes" if holds else "NO"))
        self.held &= holds

    def show(self) -> None:
        print(f"\n{self.name}")
        table(self.rows)


def fragmentation(tokens: int, blocks: int, size: int) -> float:
    return 1 - tokens / (blocks * size)


@dataclass(frozen=True)
class Held:
    """The reading while all ran, answer tokens received before and after it, and the prompts' lengths by the engine."""

    reading: KVCache | None
    before: int
    after: int
    lengths: list[int]


def hold(clients: Sequence[Client], prompts: Sequence[str], tokens: int, reader: VLLMKV) -> Held:
    """Send all, read once all run."""
    lengths = [0] * len(prompts)
    ended = threading.Event()

    def send(index: int) -> None:
        try:
            lengths[index] = clients[index].complete(prompts[index], tokens).prompt_tokens or 0
        finally:
            ended.set()

    reader.begin()
    threads = [threading.Thread(target=send, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    held = Held(None, 0, 0, lengths)
    while not ended.is_set() and held.reading is None:
        counts = [client.token_events for client in clients]
        found = reader.read("held") if all(counts) else None
        if found and found.running == len(prompts) and found.waiting == 0:
            held = Held(found, sum(counts), sum(client.token_events for client in clients), lengths)
        time.sleep(0.005)
    for thread in threads:
        thread.join()
    return held


def known_lengths(
    name: str, clients: Sequence[Client], size: int, shared: int, reader: VLLMKV, source: random.Random
) -> Check:
    """A burst of exact lengths; the first *shared* blocks are the same in all."""
    check = Check(name)
    most = size - 4  # of each answer: its last token is in the block that the prompt's last token began
    for _ in range(ATTEMPTS):
        prefix = [source.randrange(5, 300) for _ in range(shared * size)]
        prompts = [prefix + [source.randrange(5, 300) for _ in range(blocks * size + 1)] for blocks in BLOCKS]
        held = hold(clients, [" ".join(map(str, prompt)) for prompt in prompts], most, reader)
        if held.reading:
            break
    reading, lengths = held.reading, held.lengths
    check.row(
        "prompt tokens, by the engine",
        lengths,
        [len(prompt) for prompt in prompts],
        lengths == [len(prompt) for prompt in prompts],
    )
    if reading is None:
        check.row("held", "never", f"all {len(prompts)} at once", False)
        return check
    n, used, tokens = len(prompts), reading.used_blocks or 0, reading.tokens or 0
    own = [length - shared * size for length in lengths]
    blocks = shared + sum(-(-length // size) for length in own)
    prompted = shared * size + sum(own) - n  # the last token of each request is not held yet
    least, largest = prompted + held.before, prompted + min(held.after + 2 * n, n * most)
    check.row("running, waiting", f"{reading.running}, {reading.waiting}", f"{n}, 0", True)
    with reader.log.open(errors="replace") as log:
        logged = read_sizes(log, "vllm").get("kv_tokens")
    check.row("capacity, tokens", reading.capacity_tokens, f"{logged}, by the log", reading.capacity_tokens == logged)
    check.row("block size", reading.block_size, size, reading.block_size == size)
    check.row("blocks in use", used, blocks, used == blocks)
    check.row("tokens held", tokens, f"{least} to {largest}", least <= tokens <= largest)
    value = fragmentation(tokens, used, size)
    low, high = fragmentation(largest, blocks, size), fragmentation(least, blocks, size)
    check.row("kv_fragmentation", f"{value:.4f}", f"{low:.4f} to {high:.4f}", low <= value <= high and value >= 0)
    if shared:
        naive = fragmentation(tokens + (n - 1) * shared * size, used, size)
        check.row("the same with shared tokens counted for each", f"{naive:.4f}", "below 0", naive < 0)
    time.sleep(0.5)
    idle = reader.read("after")
    check.row("blocks in use afterwards", idle and idle.used_blocks, 0, idle is not None and idle.used_blocks == 0)
    return check


def of_words(name: str, spec: BurstSpec, boot: Boot, reader: VLLMKV, size: int) -> Check:
    """The burst of a boot."""
    check = Check(name)
    assert boot.client is not None
    words = 100
    ratio = (boot.client.complete(unique_prompt(777, words), 2).prompt_tokens or words) / words
    reader.begin()
    begin = time.monotonic()
    burst, reading, _ = HeldBurst(spec, lambda: boot_client(boot), ratio, CONTEXT, reader).run(lambda: time.sleep(0.1))
    check.row("held while memory is read for 0.1 s", burst.held, True, burst.held)
    check.row("failed", len(burst.failed), 0, not burst.failed)
    if reading is None:
        return check
    used, tokens, prompts = reading.used_blocks or 0, reading.tokens or 0, burst.prompt_tokens
    longer = max(abs(read / asked - 1) for read, asked in zip(prompts, spec.lengths(CONTEXT), strict=True))
    check.row("longest deviation of a prompt's length", f"{longer:.1%}", "at most 15 %", longer <= 0.15)
    if not spec.shared:
        least, most = (sum(-(-(length + more) // size) for length in prompts) for more in (0, spec.tokens))
        check.row("blocks in use", used, f"{least} to {most}", least <= used <= most)
        low, high = sum(prompts), sum(prompts) + spec.tokens * spec.requests
        check.row("tokens held", tokens, f"{low} to {high}", low <= tokens <= high)
    value = fragmentation(tokens, used, size)
    check.row("kv_fragmentation", f"{value:.4f}", f"0 to {1 - 1 / size:.4f}", 0 <= value < 1)
    check.row("seconds", f"{time.monotonic() - begin:.1f}", "any", True)
    return check


def boot_client(boot: Boot, dialect: Dialect | None = None) -> Client:
    assert boot.client is not None
    made = boot.client
    return Client(made.host, made.port, made.model, dialect or made.dialect, made.origin)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--python", default=None, help="interpreter of vLLM's environment; default: this one")
    parser.add_argument("--block-size", type=int, default=64, help="tokens in a block; CPU builds take multiples of 32")
    given = parser.parse_args()
    size = given.block_size
    engine = EngineRegistry().get("vllm")
    options = {"block_size": size, "max_model_len": CONTEXT, "max_num_seqs": 32, "enforce_eager": True}
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    cell = Cell("vllm", "random:qwen2-tiny", "restart", options=options, env=env, python=given.python)
    engine.check(cell)
    source = random.Random(given.seed if given.seed is not None else 1)
    with tempfile.TemporaryDirectory(prefix="coldstart-bench-") as folder, HostLock("measured-boot"):
        plan = Plan(
            cell, "kv", "benchmark", engine, engine.model(cell).made(), create("none"), requests=1, probe="off",
            caches=Path(folder) / "caches", logs=Path(folder) / "logs",
        )  # fmt: skip
        boot = Boot(plan)
        try:
            boot.run()
            if boot.failure or boot.client is None:
                sys.exit(f"vLLM did not come up: {boot.failure and boot.failure.message}")
            reader = VLLMKV(HOST, boot.client.port, boot.log_path)
            clients = [boot_client(boot, Ids()) for _ in BLOCKS]
            spec = BurstSpec(requests=12, tokens=128)
            checks = [
                known_lengths("unshared, exact lengths", clients, size, 0, reader, source),
                known_lengths("shared prefix, exact lengths", clients, size, SHARED_BLOCKS, reader, source),
                of_words("burst of words", spec, boot, reader, size),
                of_words("burst of words, shared prefix", replace(spec, shortest=400, shared=300), boot, reader, size),
            ]
        finally:
            boot.stop()
    for check in checks:
        check.show()
    held = all(check.held for check in checks)
    print(f"\nKV accounting {'holds' if held else 'DOES NOT HOLD'}")
    finish(given, {"holds": held, "rows": {check.name: check.rows for check in checks}})
    sys.exit(not held)


if __name__ == "__main__":
    main()
