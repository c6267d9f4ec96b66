"""The KV cache of TurboMind, read from what 0.18.0 printed and counted on an H200 while 16 requests were held."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from pytest_coldstart.kv.turbomind import TurboMindKV
from tests.kv.pages import pages

DATA = Path(__file__).parents[1] / "data"
LOG = (DATA / "logs" / "lmdeploy-0.18.0-cache.log").read_text()
METRICS = (DATA / "lmdeploy-0.18.0.metrics").read_text()
#: Tokens of the prompts in the capture, as the engine counted them in its answers.
PROMPTS = (667, 2456, 383, 1169, 606, 2157, 1958, 2066, 2776, 1664, 978, 509, 2137, 236, 1695, 1891)


def reader(tmp_path: Path, text: str, port: int = 1, **options: int) -> TurboMindKV:
    (tmp_path / "boot.log").write_text(text)
    return TurboMindKV("127.0.0.1", port, tmp_path / "boot.log", **options)  # type: ignore[arg-type]


def metrics(prompts: int, answers: int) -> str:
    text = re.sub(r"(?m)^(lmdeploy:prompt_tokens_total\{.*\}) .*$", rf"\1 {prompts}.0", METRICS)
    return re.sub(r"(?m)^(lmdeploy:generation_tokens_total\{.*\}) .*$", rf"\1 {answers}.0", text)


class TestBlocks:
    def test_blocks_in_use_are_what_arithmetic_says(self, tmp_path: Path) -> None:
        """The step after the prompts: each sequence has its prompt, one token, and room for the next."""
        first = LOG.index("total: 16, eligible: 16, active: 16")
        upto = LOG.index("used (", LOG.index("slab obj", first))
        found = reader(tmp_path, LOG[: LOG.index("\n", upto) + 1]).read("held")
        assert found is not None
        assert found.used_blocks == sum(math.ceil((prompt + 2) / 64) for prompt in PROMPTS) == 374

    def test_last_step_counts(self, tmp_path: Path) -> None:
        found = reader(tmp_path, LOG).read("held")
        assert found is not None
        assert found.used_blocks == sum(math.ceil((prompt + 107) / 64) for prompt in PROMPTS) == 401
        assert (found.running, found.waiting, found.block_size, found.source) == (16, 0, 64, "log")

    def test_capacity_is_what_fits_into_the_region(self, tmp_path: Path) -> None:
        """3524 pages of 32 MiB; a slab of one page holds 42 blocks of 768 KiB, a sixty-fourth stays over."""
        found = reader(tmp_path, LOG).read("ready")
        assert found is not None
        assert (found.total_blocks, found.capacity_tokens) == (3524 * 42, 3524 * 42 * 64)
        assert 42 * 768 << 10 <= 32 << 20 < 43 * 768 << 10

    def test_requests_that_wait_are_those_that_could_run(self, tmp_path: Path) -> None:
        upto = LOG.index("used (", LOG.index("slab obj", LOG.index("active: 10")))
        found = reader(tmp_path, LOG[: LOG.index("\n", upto) + 1]).read("held")
        assert found is not None
        assert (found.running, found.waiting) == (10, 6)

    def test_last_step_is_history_while_the_engine_is_idle(self, tmp_path: Path) -> None:
        found = reader(tmp_path, LOG).read("after")
        assert found is not None
        assert (found.used_blocks, found.running, found.tokens) == (None, None, None)
        assert found.total_blocks == 3524 * 42

    def test_blocks_that_outlive_their_requests_are_not_taken_for_held(self, tmp_path: Path) -> None:
        found = reader(tmp_path, LOG, keeps_prefixes=True).read("held")
        assert found is not None
        assert (found.used_blocks, found.running) == (None, 16)

    def test_option_stands_for_the_line_of_the_log(self, tmp_path: Path) -> None:
        text = "\n".join(line for line in LOG.split("\n") if "cache_block_seq_len" not in line)
        told, untold = reader(tmp_path, text, block_size=32).read("held"), reader(tmp_path, text).read("held")
        assert told is not None
        assert untold is not None
        assert (told.block_size, untold.block_size, untold.capacity_tokens) == (32, None, None)

    def test_replicas_add_up(self, tmp_path: Path) -> None:
        found = reader(tmp_path, LOG + LOG.replace("dp0", "dp1")).read("held")
        assert found is not None
        assert (found.used_blocks, found.total_blocks, found.running) == (2 * 401, 2 * 3524 * 42, 32)


class TestTokens:
    def test_counters_since_the_burst_began(self, tmp_path: Path) -> None:
        """9 and 16 tokens had been counted before; at the capture 23357 and 1566 had."""
        bodies = {"/metrics": metrics(9, 16)}
        with pages(bodies) as port:
            kv = reader(tmp_path, LOG, port)
            kv.begin()
            bodies["/metrics"] = metrics(23357, 1566)
            found, after = kv.read("held"), kv.read("after")
        assert found is not None
        assert after is not None
        assert (found.tokens, found.counted_by) == (sum(PROMPTS) + 1550, "metrics")
        assert found.used_blocks is not None
        assert 0 < 1 - (sum(PROMPTS) + 1550) / (found.used_blocks * 64) < 0.05
        assert (after.tokens, after.counted_by) == (None, "")
        assert (found.hits, found.queries) == (None, None)  # it keeps no prefixes

    def test_engine_without_metrics_leaves_them_to_the_client(self, tmp_path: Path) -> None:
        with pages({}) as port:
            kv = reader(tmp_path, LOG, port)
            kv.begin()
            found = kv.read("held")
        assert found is not None
        assert (found.tokens, found.counted_by, found.used_blocks) == (None, "", 401)


class TestNothingToRead:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[TM][INFO] [BlockManager] block_size = 0.750 MB\n[TM][INFO] [BlockManager] max_block_count = 1280\n",
            LOG[: LOG.index("[cache]   slab")],
        ],
        ids=["empty", "before 0.15", "cut"],
    )
    def test_log_without_a_whole_report(self, tmp_path: Path, text: str) -> None:
        assert reader(tmp_path, text).read("held") is None

    def test_blocks_of_two_sizes(self, tmp_path: Path) -> None:
        """As for models with recurrent layers: which of them hold tokens is not told."""
        slab = next(line for line in reversed(LOG.split("\n")) if "slab obj" in line)
        assert reader(tmp_path, LOG + slab.replace("768.00KiB", "1.50MiB") + "\n").read("held") is None

    def test_log_that_is_gone(self, tmp_path: Path) -> None:
        assert TurboMindKV("127.0.0.1", 1, tmp_path / "none").read("held") is None

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("page_size=32.00MiB", "page_size=1.2.3MiB"),
            ("page_size=32.00MiB", "page_size=32KB"),
            ("slab=32.00MiB", "slab=0B"),
            ("slab=32.00MiB", "slab=1iB"),
            ("cap=42 ", f"cap={'9' * 5000} "),
            ("cap=42 ", f"cap={'9' * 16} "),
            ("/3524 used", f"/{'9' * 25} used"),
            ("/3524 used", "/0 used"),
        ],
    )
    def test_numbers_that_cannot_be(self, tmp_path: Path, old: str, new: str) -> None:
        """Nor is what an earlier step said taken for this one."""
        last = LOG.rindex("cache stats:")
        assert old in LOG[last:]
        assert reader(tmp_path, LOG[:last] + LOG[last:].replace(old, new)).read("held") is None

    @pytest.mark.parametrize("number", ["1.2.3", "e+", "1e999", "-100", "NaN", "9" * 5000])
    def test_counter_that_is_no_count(self, tmp_path: Path, number: str) -> None:
        bodies = {"/metrics": METRICS}
        with pages(bodies) as port:
            kv = reader(tmp_path, LOG, port)
            kv.begin()
            bodies["/metrics"] = metrics(23357, 1566).replace(" 23357.0", f" {number}")
            found = kv.read("held")
        assert found is not None
        assert (found.tokens, found.used_blocks) == (None, 401)

    @pytest.mark.parametrize("size", ["0", "9" * 5000])
    def test_block_size_that_cannot_be(self, tmp_path: Path, size: str) -> None:
        found = reader(tmp_path, LOG.replace("cache_block_seq_len=64", f"cache_block_seq_len={size}")).read("held")
        assert found is not None
        assert (found.block_size, found.capacity_tokens, found.used_blocks) == (None, None, 401)

    @pytest.mark.timeout(30)
    @pytest.mark.parametrize("length", [4000, 100_000])
    def test_report_without_end_takes_time_as_it_is_long(self, tmp_path: Path, length: int) -> None:
        """A pattern over several lines took minutes for it."""
        begun, region = "dp1 cache stats:", "[cache] region=1B live="
        text = (begun * (length // 16) + "\n" + region * (length // 23) + "\n") * (100_000 // length)
        found = reader(tmp_path, text + LOG).read("held")
        assert found is not None
        assert found.used_blocks == 401
