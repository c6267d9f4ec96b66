"""The KV cache of vLLM, read from metrics that 0.25.1 printed on an H200 and 0.32.0 on a CPU, and from changes of them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from pytest_coldstart.kv.prometheus import Sample, parse
from pytest_coldstart.kv.vllm import VLLMKV
from pytest_coldstart.memory import KVCache
from tests.kv.pages import pages

DATA = Path(__file__).parents[1] / "data"
GPU = (DATA / "vllm-0.25.1.metrics").read_text()
CPU = (DATA / "vllm-0.32.0-cpu.metrics").read_text()
#: Of a burst on 0.32.0 with blocks of 64 tokens: prompts and the tokens that had been sampled when it was read.
PROMPTS = (65, 449, 1, 193, 769, 129, 321, 65, 577, 257, 1, 385)
SAMPLED = 19


def changed(text: str, **values: float | str) -> str:
    """The metrics with other values: ``running=3``, or ``block_size="64"`` for a label."""
    for name, value in values.items():
        if isinstance(value, str):
            text = re.sub(rf'\b{name}="[^"]*"', f'{name}="{value}"', text)
        else:
            text = re.sub(rf"(?m)^(vllm:\w*{name}\w*\{{.*\}}) \S+$", rf"\g<1> {value!r}", text)
    return text


def usage(used: int, blocks: int) -> float:
    """As vLLM computes it: the first block is nobody's and never counts."""
    return 1.0 - (blocks - 1 - used) / (blocks - 1)


def read(tmp_path: Path, text: str, idle: str | None = None, log: str = "") -> KVCache:
    """A reading of *text*; with *idle*, of a reader that began at it."""
    (tmp_path / "boot.log").write_text(log)
    bodies = {"/metrics": idle or text}
    with pages(bodies) as port:
        reader = VLLMKV("127.0.0.1", port, tmp_path / "boot.log")
        if idle is not None:
            reader.begin()
        bodies["/metrics"] = text
        found = reader.read("held")
    assert found is not None
    return found


class TestGeometry:
    def test_h200(self, tmp_path: Path) -> None:
        """The log of this boot said: GPU KV cache size: 11,058,128 tokens."""
        found = read(tmp_path, GPU)
        assert (found.block_size, found.total_blocks, found.capacity_tokens) == (16, 691_133, 11_058_128)
        assert (found.used_blocks, found.running, found.waiting) == (0, 0, 0)
        assert (found.hits, found.queries, found.tokens, found.counted_by) == (0, 113, None, "")
        assert (found.point, found.source) == ("held", "metrics")

    def test_cpu(self, tmp_path: Path) -> None:
        found = read(tmp_path, CPU)
        assert (found.block_size, found.total_blocks, found.capacity_tokens) == (128, 16_384, 2_097_152)

    def test_the_longest_request_need_not_fill_whole_blocks(self, tmp_path: Path) -> None:
        """1000 tokens take 8 blocks of 128, so 16384 blocks hold 2048 such requests."""
        labels = {"kv_cache_max_concurrency": "2048.0", "kv_cache_size_tokens": "2048000"}
        assert read(tmp_path, changed(CPU, **labels)).block_size == 128

    @pytest.mark.parametrize(
        "labels",
        [
            # Two groups of layers: a request of 1000 tokens takes 8 blocks for each.
            {"kv_cache_max_concurrency": "1024.0", "kv_cache_size_tokens": "1024000"},
            # One group that looks back at a window: fewer blocks than the tokens would fill.
            {"kv_cache_max_concurrency": "4096.0", "kv_cache_size_tokens": "4096000"},
            {"kv_cache_max_concurrency": "None", "kv_cache_size_tokens": "None"},
            {"kv_cache_max_concurrency": "0.0", "kv_cache_size_tokens": "5"},
        ],
        ids=["two-groups", "window", "not-told", "nonsense"],
    )
    def test_where_a_token_is_not_in_one_block_there_is_no_block_size(
        self, tmp_path: Path, labels: dict[str, str]
    ) -> None:
        found = read(tmp_path, changed(CPU, kv_cache_usage_perc=usage(62, 16_384), **labels))
        assert found.block_size is None
        assert found.used_blocks == 62

    def test_older_versions_tell_the_capacity_in_their_log(self, tmp_path: Path) -> None:
        older = re.sub(r'kv_cache_(max_concurrency|size_tokens)="[^"]*",', "", GPU)
        log = "INFO 05-02 [kv_cache_utils.py:634] GPU KV cache size: 11,058,128 tokens\n"
        found = read(tmp_path, older, log=log)
        assert (found.block_size, found.capacity_tokens) == (16, 11_058_128)
        assert read(tmp_path, older).block_size is None

    @pytest.mark.parametrize("used", [0, 1, 2, 62, 345_566, 691_131, 691_132])
    def test_usage_gives_every_number_of_blocks_back(self, tmp_path: Path, used: int) -> None:
        text = changed(GPU, kv_cache_usage_perc=usage(used, 691_133))
        assert read(tmp_path, text).used_blocks == used
        older = text.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
        assert read(tmp_path, older).used_blocks == used

    def test_versions_that_count_the_block_that_is_nobodys(self, tmp_path: Path) -> None:
        """First versions of V1: one of all blocks is in use at rest."""
        idle, held = (changed(CPU, kv_cache_usage_perc=1.0 - (16_384 - used) / 16_384) for used in (1, 63))
        assert read(tmp_path, held, idle).used_blocks == 62

    def test_several_engines_are_summed(self, tmp_path: Path) -> None:
        """Their label of blocks is the sum over them, and that of tokens is of each."""
        second = CPU.replace('engine="0"', 'engine="1"')
        both = changed(CPU, kv_cache_usage_perc=usage(5, 16_384), running=2) + changed(
            second, kv_cache_usage_perc=usage(7, 16_384), running=1
        )
        found = read(tmp_path, changed(both, num_gpu_blocks="32768"))
        assert (found.total_blocks, found.used_blocks, found.capacity_tokens) == (32_768, 12, 4_194_304)
        assert (found.block_size, found.running, found.queries) == (128, 3, 16)


class TestTokens:
    def held(self, **more: float) -> str:
        """CPU metrics 12 requests later: its 8 prompt tokens and 32 sampled ones were there before."""
        values = {"prompt_tokens_total": 8.0 + sum(PROMPTS), "generation_tokens_total": 32.0 + SAMPLED, "running": 12.0}
        return changed(CPU, kv_cache_usage_perc=usage(62, 16_384), **{**values, **more})

    def test_prompts_and_sampled_tokens_less_one_a_request(self, tmp_path: Path) -> None:
        found = read(tmp_path, self.held(), CPU)
        assert (found.tokens, found.counted_by) == (sum(PROMPTS) + SAMPLED - 12, "metrics") == (3219, "metrics")
        # With the blocks of 64 tokens of that burst.
        assert found.used_blocks == sum(math.ceil((prompt + 1) / 64) for prompt in PROMPTS) == 62

    def test_tokens_found_in_the_prefix_cache_are_held_once(self, tmp_path: Path) -> None:
        found = read(tmp_path, self.held(prefix_cache_hits_total=1000.0), CPU)
        assert (found.tokens, found.hits) == (3219 - 1000, 1000)

    def test_hits_of_an_unknown_unit_leave_the_tokens_unknown(self, tmp_path: Path) -> None:
        old = ("vllm:prefix_cache", "vllm:gpu_prefix_cache")
        assert read(tmp_path, self.held(prefix_cache_hits_total=9.0).replace(*old), CPU.replace(*old)).tokens is None
        found = read(tmp_path, self.held().replace(*old), CPU.replace(*old))
        assert (found.tokens, found.hits) == (3219, None)

    def test_a_request_that_ended_took_its_tokens_along(self, tmp_path: Path) -> None:
        assert read(tmp_path, self.held(request_success_total=1.0), CPU).tokens is None

    def test_nothing_is_known_without_a_beginning(self, tmp_path: Path) -> None:
        assert read(tmp_path, self.held()).tokens is None

    def test_counters_that_went_back_tell_nothing(self, tmp_path: Path) -> None:
        assert read(tmp_path, CPU, self.held()).tokens is None


class TestAnswers:
    def test_no_answer_is_no_reading(self, tmp_path: Path) -> None:
        with pages({}) as port:
            reader = VLLMKV("127.0.0.1", port, tmp_path / "no.log")
            reader.begin()
            assert reader.read("held") is None

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "\x00\xff no text",
            "vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running NaN\n",
            changed(GPU, num_gpu_blocks="None", block_size="None"),
            changed(GPU, num_gpu_blocks="²", block_size="-1"),
        ],
        ids=["empty", "noise", "no-numbers", "no-cache", "nonsense"],
    )
    def test_nothing_raises(self, tmp_path: Path, text: str) -> None:
        found = read(tmp_path, text, text)
        assert (found.block_size, found.used_blocks, found.total_blocks) == (None, None, None)


def test_samples_are_read_with_their_labels_and_summed() -> None:
    found = parse(b'# TYPE x gauge\nx{a="1",b="q\\"}\\n"} 2\nx{a="2"} 0.5\ny 1\nz NaN\nz 1\nw one\n')
    assert found.of("x") == (Sample({"a": "1", "b": 'q"}\n'}, 2.0), Sample({"a": "2"}, 0.5))
    assert found.total("x") == 2.5
    assert (found.total("no", "y"), found.total("z"), found.total("w"), found.of("no")) == (1, None, None, ())


class TestNumbersThatCannotBe:
    @pytest.mark.parametrize("value", [-5.0, 1e300, math.inf, math.nan, 1.7e308])
    def test_requests_usage_and_counters(self, tmp_path: Path, value: float) -> None:
        wrong = changed(CPU, requests_running=value, cache_usage_perc=value, prompt_tokens_total=value)
        for before, now in ((CPU, wrong), (wrong, wrong), (wrong, CPU)):
            found = read(tmp_path, now, idle=before)
            assert found.tokens is None or (before, now) == (CPU, CPU)
            assert (found.running is None) is (now is wrong)
            assert (found.used_blocks is None) is (now is wrong)
            assert found.total_blocks == read(tmp_path, CPU).total_blocks

    @pytest.mark.parametrize("number", ["9" * 5000, "9" * 16, "-3", "0", "1e3", "many", "\u0663"])
    def test_labels(self, tmp_path: Path, number: str) -> None:
        found = read(tmp_path, changed(CPU, block_size=number, num_gpu_blocks=number, kv_cache_size_tokens=number))
        assert (found.block_size, found.total_blocks, found.used_blocks) == (None, None, None)

    @pytest.mark.parametrize("times", ["9" * 5000, "inf", "nan", "-2", "0"])
    def test_concurrency_that_cannot_be_proves_no_block_size(self, tmp_path: Path, times: str) -> None:
        found = read(tmp_path, changed(GPU, kv_cache_size_tokens="7", kv_cache_max_concurrency=times))
        assert found.block_size is None

    def test_sums_beyond_all_measure(self, tmp_path: Path) -> None:
        twice = "".join(f'vllm:num_requests_running{{engine="{rank}"}} 1e308\n' for rank in (1, 2))
        assert read(tmp_path, CPU + twice).running is None
