"""The KV cache of SGLang, read from what 0.5.14 answered on an H200."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_coldstart.kv.sglang import SGLangKV
from tests.kv.pages import pages

DATA = Path(__file__).parents[1] / "data"
METRICS = (DATA / "sglang-0.5.14.metrics").read_text()
INFO = (DATA / "sglang-0.5.14.server_info.json").read_text()
NOWHERE = Path("/nonexistent.log")


def loads(*replicas: tuple[int, int, int], capacity: int = 10940127) -> dict[str, str]:
    """What /v1/loads answers, from (slots in use, running, waiting) of each replica; keys as in 0.5.14."""
    answer = [
        {
            "dp_rank": rank,
            "num_running_reqs": running,
            "num_waiting_reqs": waiting,
            "num_used_tokens": used,
            "max_total_num_tokens": capacity,
        }
        for rank, (used, running, waiting) in enumerate(replicas)
    ]
    return {"/v1/loads?include=core": json.dumps({"version": "0.5.14", "loads": answer})}


def gauge(text: str, name: str, value: float) -> str:
    """*text* with another value of the gauge *name*."""
    changed, count = re.subn(rf"^(sglang:{name}\{{.*\}}) .*$", rf"\1 {value}", text, flags=re.MULTILINE)
    assert count == 1
    return changed


class TestPageOfOneToken:
    def test_slots_are_tokens_so_nothing_can_be_wasted(self) -> None:
        with pages({"/metrics": METRICS, **loads((22261, 16, 0))}) as port:
            found = SGLangKV("127.0.0.1", port, NOWHERE).read("held")
        assert found is not None
        assert (found.block_size, found.total_blocks, found.capacity_tokens) == (1, 10940127, 10940127)
        assert (found.used_blocks, found.tokens, found.counted_by) == (22261, 22261, "metrics")
        assert (found.running, found.waiting, found.source) == (16, 0, "loads")
        assert (found.hits, found.queries) == (114, 114 + 20014)

    def test_idle_engine_is_told_by_its_loads_and_not_by_gauges_that_stay(self) -> None:
        """The gauges of the capture say 16 requests and 22261 tokens, of a burst that had ended."""
        with pages({"/metrics": METRICS, **loads((0, 0, 0))}) as port:
            found = SGLangKV("127.0.0.1", port, NOWHERE).read("after")
        assert found is not None
        assert (found.running, found.used_blocks, found.tokens) == (0, 0, 0)

    def test_version_without_loads_is_read_from_its_gauges(self) -> None:
        with pages({"/metrics": METRICS}) as port:
            found = SGLangKV("127.0.0.1", port, NOWHERE).read("held")
        assert found is not None
        assert (found.used_blocks, found.running, found.source) == (22261, 16, "metrics")


class TestLargerPages:
    def test_tokens_are_the_lengths_of_the_running_sequences(self) -> None:
        """Three sequences of 10, 17 and 64 tokens take 1, 2 and 4 pages of 16: 112 slots for 91 tokens."""
        text = gauge(gauge(gauge(METRICS, "page_size", 16), "kv_used_tokens", 112), "decode_sum_seq_lens", 91)
        with pages({"/metrics": gauge(text, "num_running_reqs", 3), **loads((112, 3, 0))}) as port:
            reader = SGLangKV("127.0.0.1", port, NOWHERE)
            reader.begin()
            found = reader.read("held")
        assert found is not None
        assert (found.block_size, found.used_blocks, found.tokens) == (16, 7, 91)
        assert found.total_blocks == 10940127 // 16
        assert found.source == "metrics"

    def test_what_sequences_found_in_the_cache_is_held_once(self) -> None:
        """Three sequences of 100 tokens share 64: the first computes them, two find them, 172 tokens are held."""
        text = gauge(gauge(gauge(METRICS, "page_size", 16), "kv_used_tokens", 208), "decode_sum_seq_lens", 300)
        bodies = {"/metrics": gauge(text, "num_running_reqs", 3), **loads((208, 3, 0))}
        with pages(bodies) as port:
            reader = SGLangKV("127.0.0.1", port, NOWHERE)
            reader.begin()
            bodies["/metrics"] = bodies["/metrics"].replace('mode="prefill_cache"', 'mode="later"')
            bodies["/metrics"] += f'sglang:realtime_tokens_total{{mode="prefill_cache"}} {114 + 128}\n'
            found = reader.read("held")
        assert found is not None
        assert (found.used_blocks, found.tokens) == (13, 172)

    def test_gauges_of_another_moment_count_no_tokens(self) -> None:
        text = gauge(METRICS, "page_size", 16)
        with pages({"/metrics": text, **loads((112, 3, 1))}) as port:
            found = SGLangKV("127.0.0.1", port, NOWHERE).read("held")
        assert found is not None
        assert (found.used_blocks, found.tokens, found.counted_by) == (7, None, "")
        assert (found.running, found.waiting) == (3, 1)


class TestSources:
    def test_replicas_add_up_and_ranks_of_one_do_not(self) -> None:
        first = METRICS.replace('tp_rank="0"', 'tp_rank="0",dp_rank="0"')
        text = first + first.replace('tp_rank="0"', 'tp_rank="1"') + first.replace('dp_rank="0"', 'dp_rank="1"')
        with pages({"/metrics": text}) as port:
            found = SGLangKV("127.0.0.1", port, NOWHERE).read("held")
        assert found is not None
        assert (found.block_size, found.used_blocks, found.running) == (1, 2 * 22261, 32)

        with pages({"/server_info": INFO, **loads((5, 1, 0), (7, 2, 3))}) as port:
            found = SGLangKV("127.0.0.1", port, NOWHERE).read("held")
        assert found is not None
        assert (found.used_blocks, found.running, found.waiting) == (12, 3, 3)
        assert found.capacity_tokens == 2 * 10940127

    @pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
    def test_page_size_without_metrics_is_asked_of_the_server_once(self, path: str) -> None:
        bodies = {path: INFO.replace('"page_size": 1', '"page_size": 64'), **loads((128, 1, 0))}
        with pages(bodies) as port:
            reader = SGLangKV("127.0.0.1", port, NOWHERE)
            assert reader.read("ready") is not None
            del bodies[path]
            found = reader.read("held")
        assert found is not None
        assert (found.block_size, found.used_blocks, found.tokens) == (64, 2, None)
        assert (found.hits, found.queries) == (None, None)

    @pytest.mark.parametrize(
        "bodies",
        [
            {},
            {"/metrics": "", "/v1/loads?include=core": "[]"},
            {"/metrics": 'sglang:kv_used_tokens{} NaN\nsglang:page_size{x="\n', "/v1/loads?include=core": "null"},
            {"/v1/loads?include=core": '{"loads": [{"num_used_tokens": "many"}]}'},
            {"/v1/loads?include=core": '{"loads": []}'},
        ],
    )
    def test_what_tells_nothing_is_no_reading(self, bodies: dict[str, str]) -> None:
        with pages(bodies) as port:
            reader = SGLangKV("127.0.0.1", port, NOWHERE)
            reader.begin()
            assert reader.read("held") is None

    def test_dead_engine_is_no_reading(self) -> None:
        with pages({}) as port:
            pass
        assert SGLangKV("127.0.0.1", port, NOWHERE).read("held") is None


def test_numbers_of_the_last_step_are_not_those_of_an_engine_at_rest() -> None:
    """As read on an H200 after a burst of 16: it said that they still ran."""
    with pages({"/metrics": METRICS, **loads((38873, 16, 0))}) as port:
        found = SGLangKV("127.0.0.1", port, NOWHERE).read("after")
    assert found is not None
    assert (found.used_blocks, found.tokens, found.running) == (None, None, None)
    assert (found.block_size, found.capacity_tokens) == (1, 10940127)


class TestNumbersThatCannotBe:
    @pytest.mark.parametrize("value", ["-5", "1e300", "+Inf", "NaN", "9" * 5000])
    def test_gauges(self, value: str) -> None:
        for name in ("kv_used_tokens", "num_running_reqs", "max_total_num_tokens", "page_size"):
            text = re.sub(rf"(?m)^(sglang:{name}\{{.*\}}) .*$", rf"\g<1> {value}", METRICS)
            text = re.sub(r"(?m)^sglang:num_used_tokens.*$", "", text)
            with pages({"/metrics": text}) as port:
                found = SGLangKV("127.0.0.1", port, NOWHERE).read("held")
            if name == "kv_used_tokens":
                assert found is None
                continue
            assert found is not None
            assert (found.running is None) is (name == "num_running_reqs")
            assert (found.capacity_tokens is None) is (name == "max_total_num_tokens")
            assert (found.block_size is None) is (name == "page_size")

    @pytest.mark.parametrize("value", ["-5", "1e300", "Infinity", "NaN", "9" * 5000, "1" + "0" * 30, "null", '"5"'])
    def test_loads_and_server_information(self, value: str) -> None:
        bodies = {path: body.replace(": 5,", f": {value},") for path, body in loads((5, 1, 0)).items()}
        with pages({**bodies, "/server_info": f'{{"page_size": {value}}}'}) as port:
            assert SGLangKV("127.0.0.1", port, NOWHERE).read("held") is None
        with pages({**loads((5, 1, 0)), "/server_info": f'{{"page_size": {value}}}'}) as port:
            found = SGLangKV("127.0.0.1", port, NOWHERE).read("held")
        assert found is not None
        assert (found.block_size, found.running) == (None, 1)

    def test_json_without_end(self) -> None:
        deep = "[" * 200_000
        with pages({"/v1/loads?include=core": deep, "/server_info": deep, "/metrics": METRICS}) as port:
            found = SGLangKV("127.0.0.1", port, NOWHERE).read("held")
        assert found is not None
        assert found.source == "metrics"
