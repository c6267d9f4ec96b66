"""Options that count GPUs or tokens: below 1 they are refused, so that what is computed of them is right."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_coldstart.cell import Cell
from pytest_coldstart.engines import EngineError, EngineRegistry

ENGINES = EngineRegistry()
COUNTS = [
    *(("vllm", f"{kind}_parallel_size") for kind in ("tensor", "pipeline", "data")),
    *(("sglang", name) for name in ("tp_size", "pp_size", "dp_size", "context_length")),
    *(("turbomind", name) for name in ("tp", "dp", "cp", "ep", "session_len")),
    *(("tensorrt_llm", name) for name in ("tp_size", "pp_size", "ep_size", "context_parallel_size", "max_seq_len")),
    *(("tgi", name) for name in ("num_shard", "max_total_tokens")),
]


@pytest.mark.parametrize(("engine", "option"), COUNTS)
def test_count_is_at_least_one(engine: str, option: str) -> None:
    for value in (0, -1):
        with pytest.raises(EngineError, match=f"engine '{engine}', option '{option}': {value} is not at least 1"):
            ENGINES.get(engine).check(Cell(engine, None, "restart", {option: value}))
    ENGINES.get(engine).check(Cell(engine, None, "restart", {option: 1}))


@pytest.mark.parametrize(("engine", "option"), COUNTS)
@pytest.mark.parametrize("value", ["two", [2], 1.5, True])
def test_count_that_is_no_whole_number_is_refused(engine: str, option: str, value: Any) -> None:
    with pytest.raises(EngineError, match=f"option '{option}'"):
        ENGINES.get(engine).check(Cell(engine, None, "restart", {option: value}))


def test_longest_context_that_fits_vllm_is_no_limit() -> None:
    engine = ENGINES.get("vllm")
    fits, none = (Cell("vllm", None, "restart", {"max_model_len": length}) for length in (-1, 0))
    engine.check(fits)
    assert engine.context_limit(fits) is None
    with pytest.raises(EngineError, match="option 'max_model_len': 0 is not at least 1"):
        engine.check(none)
